"""The APIs of consumer groups (KIP-848): ConsumerGroupHeartbeat and ConsumerGroupDescribe.

Kafka: KafkaApis.{handleConsumerGroupHeartbeat, handleConsumerGroupDescribe}; the decisions are in
coordinator.group.consumer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.coordinator.group.consumer.describe import undescribed
from ottla.errors import ErrorCode
from ottla.protocol.apis.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from ottla.protocol.apis.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from ottla.purgatory.pending import Pending
from ottla.server.handlers.groups import (
    MEMBER,
    EachDescribed,
    group_context,
    has_consumer_groups,
    may_describe,
)
from ottla.server.requests.api import handles
from ottla.server.requests.operations import with_group_operations
from ottla.server.requests.refusals import refused_without_text
from ottla.server.requests.rights import Denied

if TYPE_CHECKING:
    from ottla.server.requests.context import Context

DescribedGroup = ConsumerGroupDescribeResponse.DescribedGroup


def subscribed_topics(ctx: Context, request: Any) -> Denied | None:
    """DESCRIBE on every topic to which the member subscribes."""
    if may_describe(ctx, request.subscribed_topic_names or ()):
        return None
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return Denied(refused_without_text(request, code, ctx.api_version))


def _assigned_topics(group: DescribedGroup) -> list[str]:
    """Return the topics of members' assignments, those of now and the targets."""
    return sorted(
        {
            topic.topic_name
            for member in group.members
            for assignment in (member.assignment, member.target_assignment)
            for topic in assignment.topic_partitions
        }
    )


@handles(
    ConsumerGroupHeartbeatRequest,
    right=(MEMBER, subscribed_topics),
    is_enabled=has_consumer_groups,
    notes={1: "regular expressions; the client makes the member's id (KIP-1082)"},
)
def consumer_group_heartbeat(
    ctx: Context, request: ConsumerGroupHeartbeatRequest
) -> Pending[ConsumerGroupHeartbeatResponse]:
    """Join, stay in, change or leave a consumer group."""
    if not has_consumer_groups(ctx):
        return Pending.of(
            ConsumerGroupHeartbeatResponse(
                error_code=ErrorCode.UNSUPPORTED_VERSION,
                member_epoch=0,
                heartbeat_interval_ms=0,
            )
        )
    return ctx.broker.groups.consumer_group_heartbeat(request, group_context(ctx))


@handles(
    ConsumerGroupDescribeRequest,
    right=EachDescribed(_assigned_topics, "that its members are assigned"),
    is_enabled=has_consumer_groups,
)
def consumer_group_describe(
    ctx: Context, request: ConsumerGroupDescribeRequest
) -> Pending[ConsumerGroupDescribeResponse]:
    """Describe the states, members and assignments of consumer groups."""
    if not has_consumer_groups(ctx):
        code = ErrorCode.UNSUPPORTED_VERSION
        groups = [undescribed(name, code) for name in request.group_ids]
        return Pending.of(ConsumerGroupDescribeResponse(groups=groups))
    answer = ctx.broker.groups.consumer_group_describe(request, group_context(ctx))
    return with_group_operations(ctx, request, answer)
