"""ShareGroupHeartbeat and ShareGroupDescribe.

Kafka: KafkaApis.{handleShareGroupHeartbeat, handleShareGroupDescribe}; the decisions are in
coordinator.group.share.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeGuard

from ottla.coordinator.group.context import RequestContext
from ottla.coordinator.group.share.describe import undescribed
from ottla.errors import ErrorCode
from ottla.metadata.features import SHARE_VERSION
from ottla.protocol.apis.share_group_describe import (
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from ottla.protocol.apis.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from ottla.purgatory.pending import Pending
from ottla.server.handlers.consumer_groups import subscribed_topics
from ottla.server.handlers.groups import MEMBER, EachDescribed
from ottla.server.requests.api import handles
from ottla.server.requests.operations import with_group_operations

if TYPE_CHECKING:
    from ottla.server.requests.context import Context
    from ottla.server.requests.rights import Denied


_MAX_MEMBER_ID: Final = 36


def is_member_id(text: str | None) -> TypeGuard[str]:
    """Whether a client may have made a text as the id of its member: at most a UUID's length."""
    return text is not None and 0 < len(text) <= _MAX_MEMBER_ID


def is_enabled(ctx: Context) -> bool:
    """Whether the cluster has share groups."""
    return ctx.broker.image.features.level(SHARE_VERSION) >= 1


def _subscribed_topics(ctx: Context, request: ShareGroupHeartbeatRequest) -> Denied | None:
    """DESCRIBE on every topic to which the member subscribes."""
    return subscribed_topics(ctx, request) if is_member_id(request.member_id) else None


def _assigned_topics(group: ShareGroupDescribeResponse.DescribedGroup) -> list[str]:
    return sorted(
        {
            topic.topic_name
            for member in group.members
            for topic in member.assignment.topic_partitions
        }
    )


@handles(ShareGroupHeartbeatRequest, right=(MEMBER, _subscribed_topics), is_enabled=is_enabled)
def share_group_heartbeat(
    ctx: Context, request: ShareGroupHeartbeatRequest
) -> Pending[ShareGroupHeartbeatResponse]:
    """Join, stay in, change or leave a share group."""
    if not is_enabled(ctx):
        return _refused(ErrorCode.UNSUPPORTED_VERSION)
    if not is_member_id(request.member_id):
        return _refused(ErrorCode.INVALID_REQUEST)
    context = RequestContext(ctx.client_id, ctx.client_host, ctx.api_version)
    return ctx.broker.groups.share.heartbeat(request, context)


def _refused(code: ErrorCode) -> Pending[ShareGroupHeartbeatResponse]:
    """Return a refusal without a text, as Kafka's."""
    return Pending.of(
        ShareGroupHeartbeatResponse(error_code=code, member_epoch=0, heartbeat_interval_ms=0)
    )


@handles(
    ShareGroupDescribeRequest,
    right=EachDescribed(_assigned_topics, "that its members are assigned"),
    is_enabled=is_enabled,
)
def share_group_describe(
    ctx: Context, request: ShareGroupDescribeRequest
) -> Pending[ShareGroupDescribeResponse]:
    """Describe the states, members and assignments of share groups."""
    if not is_enabled(ctx):
        code = ErrorCode.UNSUPPORTED_VERSION
        groups = [undescribed(name, code) for name in request.group_ids]
        return Pending.of(ShareGroupDescribeResponse(groups=groups))
    context = RequestContext(ctx.client_id, ctx.client_host, ctx.api_version)
    answer = ctx.broker.groups.share.describe(request, context)
    return with_group_operations(ctx, request, answer)
