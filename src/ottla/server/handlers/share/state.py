"""The APIs of the share coordinator, between brokers.

Kafka: KafkaApis.{handleInitializeShareGroupStateRequest, handleReadShareGroupStateRequest,
handleWriteShareGroupStateRequest, handleDeleteShareGroupStateRequest,
handleReadShareGroupStateSummaryRequest}.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.protocol.apis.delete_share_group_state import DeleteShareGroupStateRequest
from ottla.protocol.apis.initialize_share_group_state import InitializeShareGroupStateRequest
from ottla.protocol.apis.read_share_group_state import ReadShareGroupStateRequest
from ottla.protocol.apis.read_share_group_state_summary import ReadShareGroupStateSummaryRequest
from ottla.protocol.apis.write_share_group_state import WriteShareGroupStateRequest
from ottla.server.requests.api import handles

if TYPE_CHECKING:
    from ottla.purgatory.pending import Pending
    from ottla.server.requests.context import Context


@handles(InitializeShareGroupStateRequest)
def initialize_share_group_state(
    ctx: Context, request: InitializeShareGroupStateRequest
) -> Pending[Any]:
    """Begin the states of share partitions."""
    return ctx.broker.share.coordinator.initialize(request)


@handles(ReadShareGroupStateRequest)
def read_share_group_state(ctx: Context, request: ReadShareGroupStateRequest) -> Pending[Any]:
    """Return states to the leaders of partitions."""
    return ctx.broker.share.coordinator.read(request)


@handles(WriteShareGroupStateRequest)
def write_share_group_state(ctx: Context, request: WriteShareGroupStateRequest) -> Pending[Any]:
    """Apply changes of the leaders of partitions."""
    return ctx.broker.share.coordinator.write(request)


@handles(DeleteShareGroupStateRequest)
def delete_share_group_state(ctx: Context, request: DeleteShareGroupStateRequest) -> Pending[Any]:
    """Forget the states of share partitions."""
    return ctx.broker.share.coordinator.delete(request)


@handles(ReadShareGroupStateSummaryRequest)
def read_share_group_state_summary(
    ctx: Context, request: ReadShareGroupStateSummaryRequest
) -> Pending[Any]:
    """Return start offsets and counts of completed deliveries."""
    return ctx.broker.share.coordinator.read_summary(request)
