"""The quorum as this node knows it: its description, requests served, requests sent.

Kafka: org.apache.kafka.raft.KafkaRaftClient.handleDescribeQuorumRequest;
ControllerApis.handleRaftRequest; org.apache.kafka.raft.KafkaNetworkChannel.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla._version import __version__
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.features import KRAFT_VERSION
from ottla.network.node_channel import NodeChannel, Outgoing
from ottla.protocol.apis.api_versions import ApiVersionsRequest
from ottla.protocol.apis.describe_quorum import DescribeQuorumResponse, ReplicaState
from ottla.purgatory.pending import Pending
from ottla.raft.leader import Leader
from ottla.raft.requests import (
    FIRST_BOOTSTRAP_ID,
    NO_LEADER,
    DescribeVersions,
    LeaderAndEpoch,
    VersionsResponse,
)
from ottla.raft.roles import Follower
from ottla.raft.voter_set import address_on
from ottla.raft.wire import requests, responses
from ottla.raft.wire.requests import DEFAULT_LIMITS, FetchLimits
from ottla.types import METADATA_TOPIC

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ottla.clock import Clock
    from ottla.metadata.broker import ListenerAddress
    from ottla.network.node_channel import Address, PeerSecurity
    from ottla.protocol.apis.api_versions import ApiVersionsResponse
    from ottla.protocol.apis.describe_quorum import DescribeQuorumRequest
    from ottla.purgatory.timing_wheel import TimingWheel
    from ottla.raft.driver import RaftDriver
    from ottla.raft.leader import Replica
    from ottla.raft.node import RaftNode
    from ottla.raft.replicated_log import ReplicatedLog
    from ottla.raft.requests import Request, Response
    from ottla.raft.voter_set import Voter, VoterAddress, VoterSet
    from ottla.raft.wire.requests import RequestMessage

Topic = DescribeQuorumResponse.TopicData
Partition = Topic.PartitionData
DescribedNode = DescribeQuorumResponse.Node


class QuorumView:
    """Leader, voters and log of the quorum, as this node's member knows them."""

    def __init__(
        self,
        raft: RaftNode,
        log: ReplicatedLog,
        controller_listeners: Mapping[str, ListenerAddress] | None,
    ) -> None:
        """controller_listeners are this node's own, with the bound ports."""
        self._raft = raft
        self._log = log
        self._listeners = controller_listeners or {}

    @property
    def leader_id(self) -> int:
        """The leader's node id, -1 when it is not known."""
        return self._raft.leader_id

    @property
    def has_leader(self) -> bool:
        """Whether this node leads, or follows a leader that it can reach."""
        return isinstance(self._raft.role, Leader | Follower)

    @property
    def leader_epoch(self) -> int:
        """The newest epoch of the quorum."""
        return self._raft.epoch

    @property
    def voters(self) -> VoterSet:
        """The voters."""
        return self._raft.voters

    @property
    def kraft_version(self) -> int:
        """The level of kraft.version."""
        return self._raft.kraft_version

    @property
    def high_watermark(self) -> int:
        """The committed end of the metadata log, -1 when it is not known."""
        return self._raft.high_watermark

    @property
    def log_end_offset(self) -> int:
        """The end of the metadata log."""
        return self._log.end_offset

    @property
    def state(self) -> str:
        """This node's state in the quorum as Kafka's metric current-state writes it."""
        return type(self._raft.role).__name__.lower()

    def _port(self, voter: Voter, end: VoterAddress) -> int:
        """Return the port of a voter; of this node the bound one where its settings have port 0."""
        own = self._listeners.get(end.listener_name)
        if end.port or own is None or voter.voter_id != self._raft.node_id:
            return end.port
        return own.port

    def describe(self, request: DescribeQuorumRequest, clock: Clock) -> DescribeQuorumResponse:
        """Answer DescribeQuorum.

        A request for more than the metadata partition gets an error for each, and so does one
        to a member that does not lead, as in Kafka.
        """
        requested = [
            (topic.topic_name, [p.partition_index for p in topic.partitions])
            for topic in request.topics
        ]
        role, is_metadata = self._raft.role, requested == [(METADATA_TOPIC, [0])]
        if is_metadata and isinstance(role, Leader):
            partition = _described(self._raft, role, self.log_end_offset, clock)
            return DescribeQuorumResponse(
                error_message="",
                topics=[Topic(topic_name=METADATA_TOPIC, partitions=[partition])],
                nodes=[self._described_node(voter) for voter in self.voters],
            )
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if is_metadata:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        topics = [
            Topic(topic_name=name, partitions=[_refused(index, code) for index in indexes])
            for name, indexes in requested
        ]
        return DescribeQuorumResponse(error_message="", topics=topics, nodes=[])

    def _described_node(self, voter: Voter) -> DescribedNode:
        return DescribedNode(
            node_id=voter.voter_id,
            listeners=[
                DescribedNode.Listener(
                    name=end.listener_name, host=end.host, port=self._port(voter, end)
                )
                for end in voter.endpoints
            ],
        )


def _described(raft: RaftNode, role: Leader, log_end_offset: int, clock: Clock) -> Partition:
    """Describe the quorum as its leader knows it; the leader itself is always caught up."""
    now_ms, monotonic_ms = clock.now_ms(), clock.monotonic_ms()
    ahead_ms = now_ms - monotonic_ms
    voters = [_replica(replica, ahead_ms) for replica in role.replicas.values()]
    observers = [_replica(observer, ahead_ms) for observer in role.active_observers(monotonic_ms)]
    for voter in voters:
        if voter.replica_id == raft.node_id:
            voter.log_end_offset = log_end_offset
            voter.last_fetch_timestamp = voter.last_caught_up_timestamp = now_ms
    return Partition(
        partition_index=0,
        error_message="",
        leader_id=raft.leader_id,
        leader_epoch=raft.epoch,
        high_watermark=raft.high_watermark,
        current_voters=voters,
        observers=observers,
    )


def _replica(replica: Replica, ahead_ms: int) -> ReplicaState:
    """Describe a replica; ahead_ms is the wall time minus the monotonic time."""
    fetched_ms, caught_up_ms = replica.last_fetch_ms, replica.last_caught_up_ms
    return ReplicaState(
        replica_id=replica.key.node_id,
        replica_directory_id=replica.key.directory_id,
        log_end_offset=replica.end_offset,
        last_fetch_timestamp=fetched_ms + ahead_ms if fetched_ms >= 0 else -1,
        last_caught_up_timestamp=caught_up_ms + ahead_ms if caught_up_ms >= 0 else -1,
    )


def _refused(index: int, error: ErrorCode) -> Partition:
    return Partition(
        partition_index=index,
        error_code=error,
        error_message=error.text,
        leader_id=0,
        leader_epoch=0,
        high_watermark=0,
        current_voters=[],
        observers=[],
    )


def answer_of(
    driver: RaftDriver, message: RequestMessage, cluster_id: str, version: int, listener: str
) -> Pending[Any]:
    """Pass a message to the machine; complete with its response or refusal.

    Fails with BROKER_NOT_AVAILABLE after a failure of the disk.
    """
    if driver.failure is not None:
        return Pending.failed(KafkaError(ErrorCode.BROKER_NOT_AVAILABLE))
    try:
        request = requests.from_message(message, cluster_id=cluster_id)
    except KafkaError as error:
        leader = driver.node.role.leader
        return Pending.of(responses.refusal(message, error, leader, version, listener))
    return driver.request(request).then(
        lambda response: responses.to_message(message, response, version, listener)
    )


class QuorumRequests:
    """Passes messages to the driver."""

    __slots__ = ("_cluster_id", "_driver")

    def __init__(self, driver: RaftDriver, *, cluster_id: str) -> None:
        self._driver = driver
        self._cluster_id = cluster_id

    def serve(self, message: RequestMessage, version: int, listener: str) -> Pending[Any]:
        """Complete with the response to a message of a version and a listener, as `answer_of`."""
        return answer_of(self._driver, message, self._cluster_id, version, listener)


log = logging.getLogger("ottla.raft")


class QuorumAccess(NamedTuple):
    """The identity of this member, and the addresses of the quorum."""

    node_id: int
    cluster_id: str
    listener: str
    """The first of controller.listener.names: the other controllers are reached on it."""
    bootstrap: Sequence[Address]
    """controller.quorum.bootstrap.servers; they have the node ids -2, -3, ..."""
    request_timeout_ms: int
    limits: FetchLimits = DEFAULT_LIMITS


class QuorumChannel:
    """Sends requests to nodes; `send` is what `RaftDriver` takes."""

    def __init__(
        self,
        settings: QuorumAccess,
        *,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        timer: TimingWheel,
        security: PeerSecurity | None = None,
    ) -> None:
        self._settings = settings
        client_id = f"raft-client-{settings.node_id}"
        self._nodes = NodeChannel(
            "quorum", client_id, loop=loop, clock=clock, timer=timer, security=security
        )
        self.foreign_controllers: set[Address] = set()
        """Addresses at which nodes of another cluster answered."""

    def send(
        self, node_id: int, endpoints: tuple[VoterAddress, ...], request: Request
    ) -> Pending[Response]:
        """Send a request; fails with KafkaError when there is no response in time."""
        settings = self._settings
        address = self._address(node_id, endpoints)
        try:
            if address is None:
                text = f"node {node_id} has no address on listener {settings.listener}"
                raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, text)
            outgoing, read = self._prepared(request)
        except KafkaError as error:
            return Pending.failed(error)

        def checked(got: Any) -> Response:
            response = read(got)
            if response.error is ErrorCode.INCONSISTENT_CLUSTER_ID:
                self._found_foreign(address)
            return response

        return self._nodes.send_prepared(
            node_id, address, outgoing, timeout_ms=settings.request_timeout_ms
        ).then(checked)

    def _found_foreign(self, address: Address) -> None:
        """Log a node of another cluster, once for each address."""
        if address not in self.foreign_controllers:
            self.foreign_controllers.add(address)
            text = (
                "quorum: the controller at %s:%d is of another cluster than %s; check "
                "controller.quorum.bootstrap.servers and the log directory"
            )
            values = (*address, self._settings.cluster_id)
            log.error(text, *values, extra={"event": "quorum.other_cluster"})

    def _prepared(self, request: Request) -> tuple[Outgoing, Callable[[Any], Response]]:
        """Return how a request is sent and how its response is read."""
        _, cluster_id, listener, *_ = self._settings
        if isinstance(request, DescribeVersions):
            message = ApiVersionsRequest(
                client_software_name="ottla", client_software_version=__version__
            )
            return Outgoing(ApiVersionsRequest, lambda _version: message), _versions_of
        return Outgoing(
            requests.message_class(request),
            lambda version: requests.to_message(
                request, version, cluster_id=cluster_id, limits=self._settings.limits
            ),
        ), lambda got: responses.from_message(got, listener)

    def _address(self, node_id: int, endpoints: tuple[VoterAddress, ...]) -> Address | None:
        """Return the address of a node, None when it is unknown."""
        number = FIRST_BOOTSTRAP_ID - node_id
        if 0 <= number < len(self._settings.bootstrap):
            return self._settings.bootstrap[number]
        return address_on(endpoints, self._settings.listener)

    def why_no_leader(self, voters: Iterable[Voter]) -> str:
        """Return why no leader is known, and what to do."""
        if self.foreign_controllers:
            places = ", ".join(f"{host}:{port}" for host, port in sorted(self.foreign_controllers))
            return (
                f"the controllers at {places} are of another cluster: correct "
                "controller.quorum.bootstrap.servers or the log directory"
            )
        named = [str(voter.voter_id) for voter in voters]
        named = named or [f"{host}:{port}" for host, port in self._settings.bootstrap]
        return (
            f"no controller leads the quorum: a majority of the voters [{', '.join(named)}] must "
            "run; where that cannot be, see 'Repair the quorum' in docs/operations.md"
        )

    def close(self) -> None:
        """Close all connections; waiting and later requests fail."""
        self._nodes.close()


def _versions_of(response: ApiVersionsResponse) -> VersionsResponse:
    """Return the levels of kraft.version that a node supports: 0 where it names none."""
    error = ErrorCode(response.error_code)
    leader = LeaderAndEpoch(NO_LEADER, -1)
    for feature in response.supported_features:
        if feature.name == KRAFT_VERSION:
            return VersionsResponse(error, leader, feature.min_version, feature.max_version)
    return VersionsResponse(error, leader, 0, 0)
