"""Requests between members of the quorum: Vote, epochs, the Fetch of the metadata log.

They come from other controllers and from brokers on the controller's listener.

Kafka: ControllerApis.handleVote and others, KafkaRaftClient (KIP-595, KIP-630).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.protocol.apis.add_raft_voter import AddRaftVoterRequest
from ottla.protocol.apis.begin_quorum_epoch import BeginQuorumEpochRequest
from ottla.protocol.apis.end_quorum_epoch import EndQuorumEpochRequest
from ottla.protocol.apis.fetch import FetchRequest
from ottla.protocol.apis.fetch_snapshot import FetchSnapshotRequest
from ottla.protocol.apis.remove_raft_voter import RemoveRaftVoterRequest
from ottla.protocol.apis.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from ottla.protocol.apis.update_raft_voter import UpdateRaftVoterRequest
from ottla.protocol.apis.vote import VoteRequest
from ottla.security.acl import Operation
from ottla.server.requests.api import codec_form, handles
from ottla.server.requests.rights import Right

if TYPE_CHECKING:
    from ottla.purgatory.pending import Pending
    from ottla.raft.wire.requests import RequestMessage
    from ottla.server.requests.context import Context

_BETWEEN_NODES = Right(Operation.CLUSTER_ACTION)


@handles(VoteRequest, right=_BETWEEN_NODES, throttled=False)
def vote(ctx: Context, request: VoteRequest) -> Pending[Any]:
    """Grant or refuse a vote in an election."""
    return _serve(ctx, request)


@handles(BeginQuorumEpochRequest, right=_BETWEEN_NODES, throttled=False)
def begin_quorum_epoch(ctx: Context, request: BeginQuorumEpochRequest) -> Pending[Any]:
    """Accept an elected leader."""
    return _serve(ctx, request)


@handles(EndQuorumEpochRequest, right=_BETWEEN_NODES, throttled=False)
def end_quorum_epoch(ctx: Context, request: EndQuorumEpochRequest) -> Pending[Any]:
    """Accept a leader's resignation."""
    return _serve(ctx, request)


@handles(
    FetchRequest,
    right=_BETWEEN_NODES,
    form=codec_form(FetchRequest, errors_in_items="4-12"),
    listener="controller",
)
def fetch_metadata_log(ctx: Context, request: FetchRequest) -> Pending[Any]:
    """Return records of the metadata log; wait for records or a higher high watermark."""
    return _serve(ctx, request)


@handles(FetchSnapshotRequest, right=_BETWEEN_NODES, throttled=False)
def fetch_snapshot(ctx: Context, request: FetchSnapshotRequest) -> Pending[Any]:
    """Return a part of a snapshot of the metadata log."""
    return _serve(ctx, request)


@handles(UpdateRaftVoterRequest, right=_BETWEEN_NODES)
def update_raft_voter(ctx: Context, request: UpdateRaftVoterRequest) -> Pending[Any]:
    """Update a voter's addresses (KIP-853)."""
    return _serve(ctx, request)


def _serve(ctx: Context, request: RequestMessage) -> Pending[Any]:
    return ctx.broker.quorum_requests.serve(request, ctx.api_version, ctx.listener_name)


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
