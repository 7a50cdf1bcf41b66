"""Leaders and replicas of partitions: elections, reassignments, in-sync sets, directories.

The controller decides all of them: controller.partitions. AlterPartition and AssignReplicasToDirs
come from brokers, on the controller's listener.

Kafka: ControllerApis.handleAlterPartitionRequest and others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
from ottla.server.handlers.refusals import per_item_errors
from ottla.server.requests.api import handles

if TYPE_CHECKING:
    from ottla.purgatory.pending import Pending
    from ottla.server.requests.context import Context

_WHOLE_ERROR_FROM = 1


@handles(AlterPartitionRequest)
def alter_partition(
    ctx: Context, request: AlterPartitionRequest
) -> Pending[AlterPartitionResponse]:
    """Change the in-sync replicas of partitions that the broker leads (KIP-497)."""
    return ctx.controller.send(request)


@handles(AssignReplicasToDirsRequest)
def assign_replicas_to_dirs(
    ctx: Context, request: AssignReplicasToDirsRequest
) -> Pending[AssignReplicasToDirsResponse]:
    """Record the log directories of the broker's replicas (KIP-858)."""
    return ctx.controller.send(request)


@handles(ElectLeadersRequest)
def elect_leaders(ctx: Context, request: ElectLeadersRequest) -> Pending[ElectLeadersResponse]:
    """Elect preferred or unclean leaders (KIP-460)."""
    return per_item_errors(
        ctx.controller.send(request, ctx.requester()),
        lambda error: _not_elected(request, error, ctx.api_version),
    )


def _not_elected(
    request: ElectLeadersRequest, error: dict[str, Any], version: int
) -> ElectLeadersResponse:
    """Return the error, which versions from 1 also carry for the whole request, as in Kafka."""
    result = ElectLeadersResponse.ReplicaElectionResult
    return ElectLeadersResponse(
        error_code=error["error_code"] if version >= _WHOLE_ERROR_FROM else 0,
        replica_election_results=[
            result(
                topic=topic.topic,
                partition_result=[
                    result.PartitionResult(partition_id=index, **error)
                    for index in topic.partitions
                ],
            )
            for topic in request.topic_partitions or ()
        ],
    )


@handles(AlterPartitionReassignmentsRequest)
def alter_partition_reassignments(
    ctx: Context, request: AlterPartitionReassignmentsRequest
) -> Pending[AlterPartitionReassignmentsResponse]:
    """Start or cancel reassignments (KIP-455)."""
    response = AlterPartitionReassignmentsResponse
    topic_response = response.ReassignableTopicResponse
    partition_response = topic_response.ReassignablePartitionResponse
    return per_item_errors(
        ctx.controller.send(request, ctx.requester()),
        lambda error: response(
            **error,
            responses=[
                topic_response(
                    name=topic.name,
                    partitions=[
                        partition_response(partition_index=one.partition_index, **error)
                        for one in topic.partitions
                    ],
                )
                for topic in request.topics
            ],
        ),
    )


@handles(ListPartitionReassignmentsRequest)
def list_partition_reassignments(
    ctx: Context, request: ListPartitionReassignmentsRequest
) -> Pending[ListPartitionReassignmentsResponse]:
    """List the current reassignments (KIP-455)."""
    return ctx.controller.send(request, ctx.requester())
