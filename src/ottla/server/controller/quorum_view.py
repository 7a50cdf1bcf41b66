"""The quorum as this node knows it, and the requests that its member serves.

Kafka: org.apache.kafka.raft.KafkaRaftClient.handleDescribeQuorumRequest;
ControllerApis.handleRaftRequest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.describe_quorum import DescribeQuorumResponse, ReplicaState
from ottla.purgatory.pending import Pending
from ottla.raft.leader import Leader
from ottla.raft.roles import Follower
from ottla.raft.wire import requests, responses
from ottla.types import METADATA_TOPIC

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.clock import Clock
    from ottla.metadata.broker import ListenerAddress
    from ottla.protocol.apis.describe_quorum import DescribeQuorumRequest
    from ottla.raft.driver import RaftDriver
    from ottla.raft.leader import Replica
    from ottla.raft.node import RaftNode
    from ottla.raft.replicated_log import ReplicatedLog
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
    voters = [_replica(one, ahead_ms) for one in role.replicas.values()]
    observers = [_replica(one, ahead_ms) for one in role.active_observers(monotonic_ms)]
    for one in voters:
        if one.replica_id == raft.node_id:
            one.log_end_offset = log_end_offset
            one.last_fetch_timestamp = one.last_caught_up_timestamp = now_ms
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
