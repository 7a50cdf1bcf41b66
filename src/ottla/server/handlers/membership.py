"""Cluster membership: AddRaftVoter, RemoveRaftVoter and UnregisterBroker.

A broker forwards these requests to the active controller. On a controller's listener the node's own
member of the quorum answers; NOT_LEADER_OR_FOLLOWER where it does not lead.

Kafka: KafkaApis.forwardToController, ControllerApis.{handleAddRaftVoter, handleRemoveRaftVoter,
handleUnregisterBroker} (KIP-853).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.protocol.apis.add_raft_voter import AddRaftVoterRequest
from ottla.protocol.apis.remove_raft_voter import RemoveRaftVoterRequest
from ottla.protocol.apis.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from ottla.security.acl import Operation
from ottla.server.requests.api import handles
from ottla.server.requests.rights import Right

if TYPE_CHECKING:
    from ottla.purgatory.pending import Pending
    from ottla.server.requests.context import Context


@handles(AddRaftVoterRequest, right=Right(Operation.ALTER), forwarded=True, listener="broker")
def add_raft_voter(ctx: Context, request: AddRaftVoterRequest) -> Pending[Any]:
    """Add a controller to the voters."""
    return ctx.controller.send(request, ctx.requester())


@handles(RemoveRaftVoterRequest, right=Right(Operation.ALTER), forwarded=True, listener="broker")
def remove_raft_voter(ctx: Context, request: RemoveRaftVoterRequest) -> Pending[Any]:
    """Remove a controller from the voters."""
    return ctx.controller.send(request, ctx.requester())


@handles(AddRaftVoterRequest, right=Right(Operation.ALTER), forwarded=True, listener="controller")
@handles(
    RemoveRaftVoterRequest, right=Right(Operation.ALTER), forwarded=True, listener="controller"
)
def change_raft_voters(
    ctx: Context, request: AddRaftVoterRequest | RemoveRaftVoterRequest
) -> Pending[Any]:
    """Add a controller to the voters of this member's quorum, or remove one."""
    return ctx.broker.quorum_requests.serve(request, ctx.api_version, ctx.listener_name)


@handles(UnregisterBrokerRequest, right=Right(Operation.ALTER), forwarded=True)
def unregister_broker(
    ctx: Context, request: UnregisterBrokerRequest
) -> Pending[UnregisterBrokerResponse]:
    """Remove a broker from the cluster."""
    return ctx.controller.send(request, ctx.requester())
