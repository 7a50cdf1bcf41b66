"""Cluster membership: AddRaftVoter, RemoveRaftVoter and UnregisterBroker.

Kafka: KafkaRaftClient.handleAddVoterRequest (KIP-853), ControllerApis.handleUnregisterBroker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from ottla.protocol.apis.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from ottla.protocol.apis.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from ottla.raft.voter_changes import check_addition, check_removal
from ottla.server.requests.api import handles

if TYPE_CHECKING:
    from ottla.purgatory.pending import Pending
    from ottla.server.requests.context import Context


@handles(AddRaftVoterRequest)
def add_raft_voter(ctx: Context, request: AddRaftVoterRequest) -> AddRaftVoterResponse:
    """Validate as Kafka does; a valid addition is refused, too, because it is not supported."""
    quorum, config = ctx.broker.quorum, ctx.broker.metadata.config
    try:
        check_addition(
            request,
            quorum.voters,
            cluster_id=ctx.broker.cluster_id,
            kraft_version=quorum.kraft_version,
            listener=config.controller_listener_names[0],
        )
    except KafkaError as error:
        return AddRaftVoterResponse(error_code=int(error.code), error_message=str(error))
    return AddRaftVoterResponse(
        error_code=int(ErrorCode.UNSUPPORTED_VERSION),
        error_message="A quorum of more than one voter is not supported yet.",
    )


@handles(RemoveRaftVoterRequest)
def remove_raft_voter(ctx: Context, request: RemoveRaftVoterRequest) -> RemoveRaftVoterResponse:
    """Refuse to remove a voter: it is unknown, or the last one."""
    quorum = ctx.broker.quorum
    try:
        check_removal(
            request,
            quorum.voters,
            cluster_id=ctx.broker.cluster_id,
            kraft_version=quorum.kraft_version,
        )
    except KafkaError as error:
        return RemoveRaftVoterResponse(error_code=int(error.code), error_message=str(error))
    raise AssertionError("a quorum of one has no voter that may be removed")


@handles(UnregisterBrokerRequest)
def unregister_broker(
    ctx: Context, request: UnregisterBrokerRequest
) -> Pending[UnregisterBrokerResponse]:
    """Remove a broker from the cluster."""
    return ctx.broker.controller.send(request)
