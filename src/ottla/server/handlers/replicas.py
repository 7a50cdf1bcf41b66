"""Leaders and replicas of partitions: elections, reassignments, in-sync sets, directories.

The controller decides all of them: controller.partitions. AlterPartition and AssignReplicasToDirs
come from brokers, on the controller's listener.

Kafka: ControllerApis.handleAlterPartitionRequest and others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.protocol.apis.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from ottla.protocol.apis.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from ottla.protocol.apis.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)
from ottla.protocol.apis.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from ottla.protocol.apis.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from ottla.security.acl import Operation
from ottla.server.requests.api import codec_form, handles
from ottla.server.requests.rights import Right

if TYPE_CHECKING:
    from ottla.purgatory.pending import Pending
    from ottla.server.requests.context import Context


@handles(AlterPartitionRequest, right=Right(Operation.CLUSTER_ACTION), throttled=False)
def alter_partition(
    ctx: Context, request: AlterPartitionRequest
) -> Pending[AlterPartitionResponse]:
    """Change the in-sync replicas of partitions that the broker leads (KIP-497)."""
    return ctx.controller.send(request)


@handles(AssignReplicasToDirsRequest, right=Right(Operation.CLUSTER_ACTION))
def assign_replicas_to_dirs(
    ctx: Context, request: AssignReplicasToDirsRequest
) -> Pending[AssignReplicasToDirsResponse]:
    """Record the log directories of the broker's replicas (KIP-858)."""
    return ctx.controller.send(request)


@handles(
    ElectLeadersRequest,
    right=Right(Operation.ALTER),
    forwarded=True,
    form=codec_form(ElectLeadersRequest, errors_in_items="1-2"),
    notes={1: "unclean elections; an error of the whole request (KIP-460)"},
)
def elect_leaders(ctx: Context, request: ElectLeadersRequest) -> Pending[ElectLeadersResponse]:
    """Elect preferred or unclean leaders (KIP-460)."""
    return ctx.controller.send(request, ctx.requester())


@handles(
    AlterPartitionReassignmentsRequest,
    right=Right(Operation.ALTER),
    forwarded=True,
    form=codec_form(AlterPartitionReassignmentsRequest, errors_in_items="0-1"),
)
def alter_partition_reassignments(
    ctx: Context, request: AlterPartitionReassignmentsRequest
) -> Pending[AlterPartitionReassignmentsResponse]:
    """Start or cancel reassignments (KIP-455)."""
    return ctx.controller.send(request, ctx.requester())


@handles(ListPartitionReassignmentsRequest, right=Right(Operation.DESCRIBE), forwarded=True)
def list_partition_reassignments(
    ctx: Context, request: ListPartitionReassignmentsRequest
) -> Pending[ListPartitionReassignmentsResponse]:
    """List the current reassignments (KIP-455)."""
    return ctx.controller.send(request, ctx.requester())
