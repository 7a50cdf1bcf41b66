"""The quorum's requests as messages, and back.

A message is about partition 0 of the metadata log and nothing else; what an old version does not
carry has its default. Kafka: org.apache.kafka.raft.RaftUtil.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.add_raft_voter import AddRaftVoterRequest
from ottla.protocol.apis.begin_quorum_epoch import BeginQuorumEpochRequest
from ottla.protocol.apis.end_quorum_epoch import EndQuorumEpochRequest
from ottla.protocol.apis.fetch import FetchRequest
from ottla.protocol.apis.fetch_snapshot import FetchSnapshotRequest
from ottla.protocol.apis.remove_raft_voter import RemoveRaftVoterRequest
from ottla.protocol.apis.update_raft_voter import UpdateRaftVoterRequest
from ottla.protocol.apis.vote import VoteRequest
from ottla.raft.requests import (
    AddVoter,
    BeginQuorumEpoch,
    EndQuorumEpoch,
    Fetch,
    FetchSnapshot,
    LeaderAndEpoch,
    RemoveVoter,
    ReplicaKey,
    UpdateVoter,
    Vote,
)
from ottla.raft.voter_set import Voter, VoterAddress
from ottla.types import METADATA_TOPIC, METADATA_TOPIC_ID, OffsetAndEpoch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.raft.requests import Request

RequestMessage: TypeAlias = (
    VoteRequest
    | BeginQuorumEpochRequest
    | EndQuorumEpochRequest
    | FetchRequest
    | FetchSnapshotRequest
    | UpdateRaftVoterRequest
    | AddRaftVoterRequest
    | RemoveRaftVoterRequest
)
PARTITION: Final = 0
_REPLICA_STATE_FROM: Final = 15
_ReplicaState = FetchRequest.ReplicaState


class FetchLimits(NamedTuple):
    """Bytes of one response (KIP-1219)."""

    records: int = 1 << 20
    """controller.quorum.fetch.max.bytes."""
    snapshot: int = 1 << 20
    """controller.quorum.fetch.snapshot.max.bytes."""


DEFAULT_LIMITS: Final = FetchLimits()


_MESSAGES: Final[dict[type, type[RequestMessage]]] = {
    Vote: VoteRequest,
    BeginQuorumEpoch: BeginQuorumEpochRequest,
    EndQuorumEpoch: EndQuorumEpochRequest,
    Fetch: FetchRequest,
    FetchSnapshot: FetchSnapshotRequest,
    UpdateVoter: UpdateRaftVoterRequest,
    AddVoter: AddRaftVoterRequest,
    RemoveVoter: RemoveRaftVoterRequest,
}


def message_class(request: Request) -> type[RequestMessage]:
    """Return the class of a request's message; UNSUPPORTED_VERSION where there is none."""
    message = _MESSAGES.get(type(request))
    if message is None:
        text = f"{type(request).__name__} is not sent to members"
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, text)
    return message


def to_message(
    request: Request, version: int, *, cluster_id: str, limits: FetchLimits = DEFAULT_LIMITS
) -> RequestMessage:
    """Return the message of a request; its encoding refuses what the version cannot say."""
    match request:
        case Vote():
            return _vote(request, cluster_id)
        case BeginQuorumEpoch():
            return _begin_epoch(request, cluster_id)
        case EndQuorumEpoch():
            return _end_epoch(request, cluster_id)
        case Fetch():
            message = _fetch(request, version, cluster_id)
            message.max_bytes = limits.records
            return message
        case FetchSnapshot():
            return _fetch_snapshot(request, cluster_id, limits.snapshot)
        case UpdateVoter() | AddVoter() | RemoveVoter():
            return _voter_change(request, cluster_id)
    raise AssertionError(f"{message_class(request)} has no mapping")


def _vote(request: Vote, cluster_id: str) -> VoteRequest:
    topic = VoteRequest.TopicData
    partition = topic.PartitionData(
        partition_index=PARTITION,
        replica_epoch=request.epoch,
        replica_id=request.candidate.node_id,
        replica_directory_id=request.candidate.directory_id,
        voter_directory_id=request.voter.directory_id,
        last_offset_epoch=request.log_end.leader_epoch,
        last_offset=request.log_end.offset,
        pre_vote=request.is_pre_vote,
    )
    return VoteRequest(
        cluster_id=cluster_id,
        voter_id=request.voter.node_id,
        topics=[topic(topic_name=METADATA_TOPIC, partitions=[partition])],
    )


def _begin_epoch(request: BeginQuorumEpoch, cluster_id: str) -> BeginQuorumEpochRequest:
    topic = BeginQuorumEpochRequest.TopicData
    partition = topic.PartitionData(
        partition_index=PARTITION,
        voter_directory_id=request.voter.directory_id,
        leader_id=request.leader.leader_id,
        leader_epoch=request.leader.epoch,
    )
    return BeginQuorumEpochRequest(
        cluster_id=cluster_id,
        voter_id=request.voter.node_id,
        topics=[topic(topic_name=METADATA_TOPIC, partitions=[partition])],
        leader_endpoints=[
            BeginQuorumEpochRequest.LeaderEndpoint(
                name=end.listener_name, host=end.host, port=end.port
            )
            for end in request.leader.endpoints
        ],
    )


def _end_epoch(request: EndQuorumEpoch, cluster_id: str) -> EndQuorumEpochRequest:
    topic = EndQuorumEpochRequest.TopicData
    candidate = topic.PartitionData.ReplicaInfo
    partition = topic.PartitionData(
        partition_index=PARTITION,
        leader_id=request.leader.leader_id,
        leader_epoch=request.leader.epoch,
        preferred_successors=[successor.node_id for successor in request.preferred],
        preferred_candidates=[
            candidate(candidate_id=successor.node_id, candidate_directory_id=successor.directory_id)
            for successor in request.preferred
        ],
    )
    return EndQuorumEpochRequest(
        cluster_id=cluster_id,
        topics=[topic(topic_name=METADATA_TOPIC, partitions=[partition])],
        leader_endpoints=[
            EndQuorumEpochRequest.LeaderEndpoint(
                name=end.listener_name, host=end.host, port=end.port
            )
            for end in request.leader.endpoints
        ],
    )


def _fetch(request: Fetch, version: int, cluster_id: str) -> FetchRequest:
    topic = FetchRequest.FetchTopic
    partition = topic.FetchPartition(
        partition=PARTITION,
        current_leader_epoch=request.epoch,
        fetch_offset=request.offset,
        last_fetched_epoch=request.last_epoch,
        partition_max_bytes=0,
        replica_directory_id=request.replica.directory_id,
        high_watermark=request.high_watermark,
    )
    message = FetchRequest(
        cluster_id=cluster_id,
        max_wait_ms=request.max_wait_ms,
        min_bytes=0,
        topics=[topic(topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[partition])],
    )
    if version >= _REPLICA_STATE_FROM:
        message.replica_state = _ReplicaState(replica_id=request.replica.node_id)
    else:
        message.replica_id = request.replica.node_id
    return message


def _fetch_snapshot(
    request: FetchSnapshot, cluster_id: str, max_bytes: int
) -> FetchSnapshotRequest:
    topic = FetchSnapshotRequest.TopicSnapshot
    end_offset, epoch = request.snapshot_id
    partition = topic.PartitionSnapshot(
        partition=PARTITION,
        current_leader_epoch=request.epoch,
        snapshot_id=topic.PartitionSnapshot.SnapshotId(end_offset=end_offset, epoch=epoch),
        position=request.position,
        replica_directory_id=request.replica.directory_id,
    )
    return FetchSnapshotRequest(
        cluster_id=cluster_id,
        replica_id=request.replica.node_id,
        max_bytes=max_bytes,
        topics=[topic(name=METADATA_TOPIC, partitions=[partition])],
    )


def _voter_change(request: UpdateVoter | AddVoter | RemoveVoter, cluster_id: str) -> RequestMessage:
    if isinstance(request, UpdateVoter):
        return _update_voter(request, cluster_id)
    if isinstance(request, AddVoter):
        return _add_voter(request, cluster_id)
    node_id, directory_id = request.key
    return RemoveRaftVoterRequest(
        cluster_id=cluster_id, voter_id=node_id, voter_directory_id=directory_id
    )


def _update_voter(request: UpdateVoter, cluster_id: str) -> UpdateRaftVoterRequest:
    voter = request.voter
    return UpdateRaftVoterRequest(
        cluster_id=cluster_id,
        current_leader_epoch=request.epoch,
        voter_id=voter.voter_id,
        voter_directory_id=voter.directory_id,
        listeners=[
            UpdateRaftVoterRequest.Listener(name=end.listener_name, host=end.host, port=end.port)
            for end in voter.endpoints
        ],
        kraft_version_feature=UpdateRaftVoterRequest.KRaftVersionFeature(
            min_supported_version=voter.lowest_kraft_version,
            max_supported_version=voter.highest_kraft_version,
        ),
    )


def _add_voter(request: AddVoter, cluster_id: str) -> AddRaftVoterRequest:
    listener = AddRaftVoterRequest.Listener
    return AddRaftVoterRequest(
        cluster_id=cluster_id,
        timeout_ms=request.timeout_ms,
        voter_id=request.voter.voter_id,
        voter_directory_id=request.voter.directory_id,
        listeners=[
            listener(name=end.listener_name, host=end.host, port=end.port)
            for end in request.voter.endpoints
        ],
        ack_when_committed=request.ack_when_committed,
    )


# Back


def from_message(message: RequestMessage, *, cluster_id: str) -> Request:
    """Return the request of a message.

    KafkaError INCONSISTENT_CLUSTER_ID for another cluster's, INVALID_REQUEST and
    UNKNOWN_TOPIC_OR_PARTITION for one that is not about the metadata log alone.
    """
    if message.cluster_id is not None and message.cluster_id != cluster_id:
        text = f'The given id "{message.cluster_id}" doesn\'t match the cluster id "{cluster_id}"'
        raise KafkaError(ErrorCode.INCONSISTENT_CLUSTER_ID, text)
    match message:
        case VoteRequest():
            return _vote_of(message)
        case BeginQuorumEpochRequest():
            return _begin_epoch_of(message)
        case EndQuorumEpochRequest():
            return _end_epoch_of(message)
        case FetchRequest():
            return _fetch_of(message)
        case FetchSnapshotRequest():
            return _fetch_snapshot_of(message)
    return _voter_change_of(message)


def _vote_of(message: VoteRequest) -> Vote:
    partition = _sole(message.topics)
    return Vote(
        ReplicaKey(partition.replica_id, partition.replica_directory_id),
        partition.replica_epoch,
        OffsetAndEpoch(partition.last_offset, partition.last_offset_epoch),
        partition.pre_vote,
        ReplicaKey(message.voter_id, partition.voter_directory_id),
    )


def _begin_epoch_of(message: BeginQuorumEpochRequest) -> BeginQuorumEpoch:
    partition = _sole(message.topics)
    return BeginQuorumEpoch(
        _leader_of(partition, message.leader_endpoints),
        ReplicaKey(message.voter_id, partition.voter_directory_id),
    )


def _end_epoch_of(message: EndQuorumEpochRequest) -> EndQuorumEpoch:
    partition = _sole(message.topics)
    preferred = [
        ReplicaKey(candidate.candidate_id, candidate.candidate_directory_id)
        for candidate in partition.preferred_candidates
    ] or [ReplicaKey(node_id) for node_id in partition.preferred_successors]
    leader = _leader_of(partition, message.leader_endpoints)
    return EndQuorumEpoch(leader, tuple(preferred))


def _leader_of(partition: Any, endpoints: Sequence[Any]) -> LeaderAndEpoch:
    return LeaderAndEpoch(
        partition.leader_id,
        partition.leader_epoch,
        _ends(endpoints),
    )


def _ends(endpoints: Sequence[Any]) -> tuple[VoterAddress, ...]:
    return tuple(VoterAddress(end.name, end.host, end.port) for end in endpoints)


def _sole(topics: Sequence[Any]) -> Any:
    """Return the partition when it is the metadata log's and the only one."""
    if len(topics) == 1 and topics[0].topic_name == METADATA_TOPIC:
        partitions = topics[0].partitions
        if len(partitions) == 1 and partitions[0].partition_index == PARTITION:
            return partitions[0]
    raise KafkaError(ErrorCode.INVALID_REQUEST)


def _fetch_of(message: FetchRequest) -> Fetch:
    topics: Sequence[Any] = message.topics
    if len(topics) != 1 or topics[0].topic_id != METADATA_TOPIC_ID:  # the id came with version 13
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    partitions = topics[0].partitions
    if len(partitions) != 1 or partitions[0].partition != PARTITION:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    partition, state = partitions[0], message.replica_state
    replica_id = message.replica_id if state.replica_id < 0 else state.replica_id
    return Fetch(
        ReplicaKey(replica_id, partition.replica_directory_id),
        partition.current_leader_epoch,
        partition.fetch_offset,
        partition.last_fetched_epoch,
        partition.high_watermark,
        message.max_wait_ms,
    )


def _fetch_snapshot_of(message: FetchSnapshotRequest) -> FetchSnapshot:
    topics: Sequence[Any] = message.topics
    if not topics or not topics[0].partitions:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    if len(topics) != 1 and len(topics[0].partitions) != 1:  # as Kafka tests it
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    for topic in topics:
        for partition in topic.partitions:
            if (topic.name, partition.partition) == (METADATA_TOPIC, PARTITION):
                snapshot_id = partition.snapshot_id
                return FetchSnapshot(
                    ReplicaKey(message.replica_id, partition.replica_directory_id),
                    partition.current_leader_epoch,
                    OffsetAndEpoch(snapshot_id.end_offset, snapshot_id.epoch),
                    partition.position,
                )
    raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def _voter_change_of(
    message: UpdateRaftVoterRequest | AddRaftVoterRequest | RemoveRaftVoterRequest,
) -> UpdateVoter | AddVoter | RemoveVoter:
    if isinstance(message, RemoveRaftVoterRequest):
        return RemoveVoter(ReplicaKey(message.voter_id, message.voter_directory_id))
    if isinstance(message, AddRaftVoterRequest):
        voter = Voter(message.voter_id, message.voter_directory_id, _ends(message.listeners))
        return AddVoter(voter, message.ack_when_committed, message.timeout_ms)
    levels = message.kraft_version_feature
    voter = Voter(
        message.voter_id,
        message.voter_directory_id,
        _ends(message.listeners),
        levels.min_supported_version,
        levels.max_supported_version,
    )
    return UpdateVoter(voter, message.current_leader_epoch)
