"""The APIs of nodes: cluster, registrations, features, the quorum, forwarded requests.

Kafka: KafkaApis.handleDescribeCluster (KIP-700, KIP-919), ControllerApis;
ControllerApis.handleUpdateFeatures (KIP-584, KIP-778); ControllerApis.handleBrokerRegistration,
handleBrokerHeartBeatRequest and others; KafkaApis.forwardToController,
ControllerApis.{handleAddRaftVoter, handleRemoveRaftVoter, handleUnregisterBroker} (KIP-853);
ControllerApis.handleVote and others, KafkaRaftClient (KIP-595, KIP-630);
ControllerApis.handleEnvelopeRequest, EnvelopeUtils (KIP-590).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ottla.errors import CorruptMessage, ErrorCode, KafkaError
from ottla.metadata.features import are_controllers_registered
from ottla.protocol import codec
from ottla.protocol.apis.add_raft_voter import AddRaftVoterRequest
from ottla.protocol.apis.allocate_producer_ids import AllocateProducerIdsRequest
from ottla.protocol.apis.begin_quorum_epoch import BeginQuorumEpochRequest
from ottla.protocol.apis.broker_heartbeat import BrokerHeartbeatRequest
from ottla.protocol.apis.broker_registration import BrokerRegistrationRequest
from ottla.protocol.apis.controller_registration import ControllerRegistrationRequest
from ottla.protocol.apis.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from ottla.protocol.apis.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from ottla.protocol.apis.end_quorum_epoch import EndQuorumEpochRequest
from ottla.protocol.apis.envelope import EnvelopeRequest, EnvelopeResponse
from ottla.protocol.apis.fetch import FetchRequest
from ottla.protocol.apis.fetch_snapshot import FetchSnapshotRequest
from ottla.protocol.apis.remove_raft_voter import RemoveRaftVoterRequest
from ottla.protocol.apis.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from ottla.protocol.apis.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from ottla.protocol.apis.update_raft_voter import UpdateRaftVoterRequest
from ottla.protocol.apis.vote import VoteRequest
from ottla.protocol.records.principal import DefaultPrincipalData
from ottla.protocol.request_header import split_header
from ottla.purgatory.pending import Pending, as_pending
from ottla.quota.connections import plain_address
from ottla.security.acl import Operation
from ottla.security.principal import Principal
from ottla.server.requests import rights
from ottla.server.requests.api import codec_form, handles, served_apis
from ottla.server.requests.context import Context
from ottla.server.requests.parts import LargeRequest, decoded
from ottla.server.requests.rights import Right, call_guarded, refusing
from ottla.types import ZERO_UUID

if TYPE_CHECKING:
    from ottla.protocol.schema import Request
    from ottla.raft.wire.requests import RequestMessage
    from ottla.server.controller.channel import ControllerChannel, Requester
    from ottla.server.requests.api import Api
    from ottla.types import Node

_Described = DescribeClusterResponse.DescribeClusterBroker
_BROKERS, _CONTROLLERS = 1, 2
_ENDPOINTS = {_BROKERS: "BROKER", _CONTROLLERS: "CONTROLLER"}


def _may_describe_cluster(ctx: Context, request: DescribeClusterRequest) -> None:
    """ALTER on the cluster at a controller; a broker answers everyone."""
    if ctx.listener == "controller":
        Right(Operation.ALTER)(ctx, request)


@handles(
    DescribeClusterRequest,
    right=_may_describe_cluster,
    notes={
        1: "the kind of endpoint (KIP-919)",
        2: "fenced brokers",
    },
)
def describe_cluster(ctx: Context, request: DescribeClusterRequest) -> DescribeClusterResponse:
    """List the brokers, or on a controller's listener the controllers, of which one is active."""
    own = _CONTROLLERS if ctx.listener == "controller" else _BROKERS
    if own == _CONTROLLERS:
        _check_metadata_version(ctx)
    if request.endpoint_type != own:
        requested = request.endpoint_type
        if requested not in _ENDPOINTS:
            code = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
            message = f"Unsupported endpoint type {requested}"
        else:
            code = ErrorCode.MISMATCHED_ENDPOINT_TYPE
            if ctx.api_version < 1:
                code = ErrorCode.INVALID_REQUEST  # version 0 has no other error code for it
            message = (
                f"The request was sent to an endpoint of type {_ENDPOINTS[own]}, but we wanted an "
                f"endpoint of type {_ENDPOINTS[requested]}"
            )
        return DescribeClusterResponse(
            error_code=int(code), error_message=message, cluster_id="", brokers=[]
        )
    broker = ctx.broker
    return DescribeClusterResponse(
        endpoint_type=own,
        cluster_id=broker.cluster_id,
        controller_id=broker.metadata.any_controller_id()
        if own == _BROKERS
        else broker.quorum.leader_id,
        brokers=_brokers(ctx, with_fenced=request.include_fenced_brokers)
        if own == _BROKERS
        else _controllers(ctx),
        cluster_authorized_operations=rights.of_cluster(ctx)
        if request.include_cluster_authorized_operations
        else rights.OMITTED,
    )


def _check_metadata_version(ctx: Context) -> None:
    if not are_controllers_registered(ctx.broker.image.features.metadata_version):
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            "Direct-to-controller communication is not supported with the current MetadataVersion.",
        )


def _controllers(ctx: Context) -> list[_Described]:
    """Describe the registered controllers with an endpoint on this listener, by id."""
    controllers = ctx.broker.image.cluster.controllers
    nodes = [controllers[number].node(ctx.listener_name) for number in sorted(controllers)]
    return [_described(node) for node in nodes if node is not None]


def _brokers(ctx: Context, *, with_fenced: bool) -> list[_Described]:
    """Describe the brokers with an endpoint on this listener."""
    return [
        _described(node, is_fenced=broker.fenced)
        for broker in ctx.broker.image.cluster.brokers.values()
        if (with_fenced or not broker.fenced)
        and (node := broker.node(ctx.listener_name)) is not None
    ]


def _described(node: Node, *, is_fenced: bool = False) -> _Described:
    return _Described(
        broker_id=node.node_id,
        host=node.host,
        port=node.port,
        rack=node.rack,
        is_fenced=is_fenced,
    )


@handles(
    DescribeQuorumRequest,
    right=Right(Operation.DESCRIBE),
    forwarded=True,
    notes={
        1: "times of the last fetches",
        2: "addresses and directory ids (KIP-853)",
    },
)
def describe_quorum(
    ctx: Context, request: DescribeQuorumRequest
) -> Pending[DescribeQuorumResponse]:
    """Describe the quorum: leader, epoch, log end offset of each voter (KIP-595)."""
    broker = ctx.broker
    is_standby = broker.quorum.leader_id != broker.node_id
    if ctx.listener == "controller" and is_standby and not ctx.is_forwarded:
        return Pending.of(broker.quorum.describe(request, broker.clock))
    answer = ctx.controller.send(request, ctx.requester())
    return answer if ctx.api_version >= 2 else answer.then(_without_nodes)


def _without_nodes(response: DescribeQuorumResponse) -> DescribeQuorumResponse:
    """Clear the fields that versions 0 and 1 do not have."""
    response.nodes = []
    for topic in response.topics:
        for partition in topic.partitions:
            for replica in (*partition.current_voters, *partition.observers):
                replica.replica_directory_id = ZERO_UUID
    return response


@handles(UpdateFeaturesRequest, right=Right(Operation.ALTER), forwarded=True)
def update_features(
    ctx: Context, request: UpdateFeaturesRequest
) -> Pending[UpdateFeaturesResponse]:
    """Change all requested levels or none; with `validate_only` only check them."""
    return ctx.controller.send(request, ctx.requester())


@handles(BrokerHeartbeatRequest, right=Right(Operation.CLUSTER_ACTION))
def heartbeat(ctx: Context, request: BrokerHeartbeatRequest) -> Pending[Any]:
    """Let the active controller decide; the connection is watched for the end of the process."""
    ctx.broker.failure_detection.heard(ctx.connection, request.broker_id)
    return ctx.controller.send(request)


@handles(BrokerRegistrationRequest, right=Right(Operation.CLUSTER_ACTION))
@handles(ControllerRegistrationRequest, right=Right(Operation.CLUSTER_ACTION))
@handles(AllocateProducerIdsRequest, right=Right(Operation.CLUSTER_ACTION))
def decide(ctx: Context, request: Request) -> Pending[Any]:
    """Let the active controller decide; NOT_CONTROLLER elsewhere."""
    return ctx.controller.send(request)


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


_ADDRESS_BYTES: Final = (4, 16)
_VERSION_BYTES: Final = 2


class _ObservedController:
    """The node's own controller; remembers that it was not the active one."""

    def __init__(self, controller: ControllerChannel) -> None:
        self._controller = controller
        self.is_standby = False

    def send(self, request: Request, requester: Requester | None = None) -> Pending[Any]:
        """Send a request."""
        answer = self._controller.send(request, requester)
        answer.on_done(self._note)
        return answer

    def _note(self, done: Pending[Any]) -> None:
        error = done.error
        self.is_standby |= isinstance(error, KafkaError) and error.code is ErrorCode.NOT_CONTROLLER


class ForwardedContext(Context):
    """The context of a request inside an envelope."""

    __slots__ = ("_client", "_controller", "_principal")

    def __init__(
        self, outer: Context, api: Api, header: Any, principal: Principal, client: str
    ) -> None:
        super().__init__(outer.broker, outer.connection, outer.listener, api, header)
        self._principal = principal
        self._client = client
        self._controller = _ObservedController(outer.controller)

    @property
    def principal(self) -> Principal:
        """The principal in the envelope."""
        return self._principal

    @property
    def client(self) -> str:
        """The client's address."""
        return self._client

    @property
    def is_forwarded(self) -> bool:
        """A broker repeats the request at another controller where this one is a standby."""
        return True

    @property
    def controller(self) -> ControllerChannel:
        """The controller of this node."""
        return self._controller

    @property
    def is_refused(self) -> bool:
        """Whether another controller must decide."""
        return self._controller.is_standby


@handles(EnvelopeRequest, right=Right(Operation.CLUSTER_ACTION), throttled=False)
def envelope(ctx: Context, request: EnvelopeRequest) -> EnvelopeResponse | Pending[Any]:
    """Handle the request inside; on NOT_CONTROLLER the broker sends it to another controller."""
    principal, client = _sender(request)
    header = split_header(memoryview(request.request_data))
    api = served_apis(ctx.listener).get(header[0])
    if api is None or not api.is_forwarded:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"api key {header[0]} is not forwarded")
    if not api.lowest <= header[1] <= api.highest:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    inner = ForwardedContext(ctx, api, header, principal, client)
    try:
        result = _handled(inner, api.form.read(header[4], header[1]))
    except LargeRequest as large:
        result = _handled_large(inner, large)
    if isinstance(result, Pending):
        return result.then(partial(_answer, inner))
    return _answer(inner, result)


def _handled(ctx: ForwardedContext, request: Any) -> Any:
    """Handle the request with the rights of its client; a denial is an answer, too."""
    handle = ctx.api.handler if ctx.broker.authorizer is None else call_guarded
    return refusing(ctx, request, partial(handle, ctx))


def _handled_large(ctx: ForwardedContext, large: LargeRequest) -> Pending[Any]:
    answer: Pending[Any] = Pending()

    def handle(done: Pending[Any]) -> None:
        if done.error is not None:
            answer.fail(done.error)
            return
        try:
            result = _handled(ctx, done.value)
        except Exception as error:  # noqa: BLE001 - the dispatcher answers it
            answer.fail(error)
            return
        as_pending(result).pass_to(answer)

    decoded(ctx, large).on_done(handle)
    return answer


def _answer(ctx: ForwardedContext, response: Any) -> EnvelopeResponse:
    if ctx.is_refused or response is None:
        code = ErrorCode.NOT_CONTROLLER if ctx.is_refused else ErrorCode.UNKNOWN_SERVER_ERROR
        return EnvelopeResponse(error_code=int(code))
    frame = ctx.api.form.write(response, ctx.correlation_id, ctx.api_version, 0)
    data = frame if isinstance(frame, bytes) else b"".join(frame)  # type: ignore[arg-type] # no file slices
    return EnvelopeResponse(response_data=data[4:])


def _sender(request: EnvelopeRequest) -> tuple[Principal, str]:
    """Return the principal and the client's address."""
    try:
        data = request.request_principal or b""
        if data[:_VERSION_BYTES] != bytes(_VERSION_BYTES):
            raise CorruptMessage("an unknown version of a principal")
        principal, _ = codec.decode_at(DefaultPrincipalData, 0, memoryview(data), _VERSION_BYTES)
    except CorruptMessage as error:
        raise KafkaError(ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE) from error
    if len(request.client_host_address) not in _ADDRESS_BYTES:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Failed to parse client address")
    found = Principal(principal.type, principal.name, principal.token_authenticated)
    return found, plain_address(bytes(request.client_host_address))
