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
from ottla.security.acl import Operation
from ottla.server.requests.api import handles
from ottla.server.requests.rights import Right

if TYPE_CHECKING:
    from ottla.purgatory.pending import Pending
    from ottla.server.requests.context import Context


@handles(InitializeShareGroupStateRequest, right=Right(Operation.CLUSTER_ACTION))
def initialize_share_group_state(
    ctx: Context, request: InitializeShareGroupStateRequest
) -> Pending[Any]:
    """Begin the states of share partitions."""
    return ctx.broker.share.coordinator.initialize(request)


@handles(ReadShareGroupStateRequest, right=Right(Operation.CLUSTER_ACTION))
def read_share_group_state(ctx: Context, request: ReadShareGroupStateRequest) -> Pending[Any]:
    """Return states to the leaders of partitions."""
    return ctx.broker.share.coordinator.read(request)


@handles(WriteShareGroupStateRequest, right=Right(Operation.CLUSTER_ACTION))
def write_share_group_state(ctx: Context, request: WriteShareGroupStateRequest) -> Pending[Any]:
    """Apply changes of the leaders of partitions."""
    return ctx.broker.share.coordinator.write(request)


@handles(DeleteShareGroupStateRequest, right=Right(Operation.CLUSTER_ACTION))
def delete_share_group_state(ctx: Context, request: DeleteShareGroupStateRequest) -> Pending[Any]:
    """Forget the states of share partitions."""
    return ctx.broker.share.coordinator.delete(request)


@handles(ReadShareGroupStateSummaryRequest, right=Right(Operation.CLUSTER_ACTION))
def read_share_group_state_summary(
    ctx: Context, request: ReadShareGroupStateSummaryRequest
) -> Pending[Any]:
    """Return start offsets and counts of completed deliveries."""
    return ctx.broker.share.coordinator.read_summary(request)
