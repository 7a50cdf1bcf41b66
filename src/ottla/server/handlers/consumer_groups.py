"""The APIs of consumer groups (KIP-848): ConsumerGroupHeartbeat and ConsumerGroupDescribe.

Kafka: KafkaApis.{handleConsumerGroupHeartbeat, handleConsumerGroupDescribe}; the decisions are in
coordinator.group.consumer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.coordinator.group.consumer.describe import undescribed
from ottla.coordinator.group.context import RequestContext
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
from ottla.security.acl import Operation, ResourceType
from ottla.server.handlers.groups import has_consumer_groups
from ottla.server.requests.api import handles
from ottla.server.requests.operations import with_group_operations

if TYPE_CHECKING:
    from ottla.server.requests.context import Context


def _context(ctx: Context) -> RequestContext:
    return RequestContext(
        ctx.client_id,
        ctx.client_host,
        ctx.api_version,
        lambda name: ctx.is_allowed(Operation.DESCRIBE, ResourceType.TOPIC, name),
    )


@handles(ConsumerGroupHeartbeatRequest)
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
    return ctx.broker.groups.consumer_group_heartbeat(request, _context(ctx))


@handles(ConsumerGroupDescribeRequest)
def consumer_group_describe(
    ctx: Context, request: ConsumerGroupDescribeRequest
) -> Pending[ConsumerGroupDescribeResponse]:
    """Describe the states, members and assignments of consumer groups."""
    if not has_consumer_groups(ctx):
        code = ErrorCode.UNSUPPORTED_VERSION
        groups = [undescribed(name, code) for name in request.group_ids]
        return Pending.of(ConsumerGroupDescribeResponse(groups=groups))
    answer = ctx.broker.groups.consumer_group_describe(request, _context(ctx))
    return with_group_operations(ctx, request, answer)
