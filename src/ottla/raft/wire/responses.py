"""The quorum's responses as messages, and back.

The leader's address is that of the listener on which the request came; a reader takes it for one of
its own controller listener. Kafka: org.apache.kafka.raft.RaftUtil.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ottla.errors import CorruptMessage, ErrorCode
from ottla.protocol.api_keys import response_class
from ottla.protocol.apis import (
    add_raft_voter,
    begin_quorum_epoch,
    end_quorum_epoch,
    fetch,
    fetch_snapshot,
    remove_raft_voter,
    update_raft_voter,
    vote,
)
from ottla.raft.requests import (
    NO_LEADER,
    EpochResponse,
    FetchResponse,
    FetchSnapshotResponse,
    LeaderAndEpoch,
    VoterChangeResponse,
    VoteResponse,
)
from ottla.raft.voter_set import VoterAddress
from ottla.raft.wire.requests import PARTITION
from ottla.records.batches import iterate_batches
from ottla.types import METADATA_TOPIC, METADATA_TOPIC_ID, OffsetAndEpoch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ottla.errors import KafkaError
    from ottla.raft.requests import Response
    from ottla.raft.wire.requests import RequestMessage
    from ottla.types import Buffer

EpochMessage: TypeAlias = (
    begin_quorum_epoch.BeginQuorumEpochResponse | end_quorum_epoch.EndQuorumEpochResponse
)
VoterMessage: TypeAlias = (
    add_raft_voter.AddRaftVoterResponse | remove_raft_voter.RemoveRaftVoterResponse
)
ResponseMessage: TypeAlias = (
    vote.VoteResponse
    | EpochMessage
    | fetch.FetchResponse
    | fetch_snapshot.FetchSnapshotResponse
    | update_raft_voter.UpdateRaftVoterResponse
    | VoterMessage
)
_ENDPOINTS_FROM: Final = 1
_FETCH_ENDPOINTS_FROM: Final = 17
_NOT_KNOWN: Final = LeaderAndEpoch(NO_LEADER, -1)
_FetchTopic = fetch.FetchResponse.FetchableTopicResponse
_SnapshotTopic = fetch_snapshot.FetchSnapshotResponse.TopicSnapshot
_SnapshotPartition = _SnapshotTopic.PartitionSnapshot

_VOTER_RESPONSES: Final = (
    update_raft_voter.UpdateRaftVoterResponse,
    add_raft_voter.AddRaftVoterResponse,
    remove_raft_voter.RemoveRaftVoterResponse,
)
_VOTER_REQUESTS: Final = (
    update_raft_voter.UpdateRaftVoterRequest,
    add_raft_voter.AddRaftVoterRequest,
    remove_raft_voter.RemoveRaftVoterRequest,
)


def to_message(
    message: RequestMessage, response: Response, version: int, listener: str
) -> ResponseMessage:
    """Return the message of a response to `message`, which came on a listener in a version."""
    if isinstance(response, VoterChangeResponse):
        return _voter_change(message, response, listener)
    ends = _node_ends(response.leader, listener) if version >= _ENDPOINTS_FROM else []
    match response:
        case VoteResponse():
            return _vote(response, ends)
        case FetchResponse():
            assert isinstance(message, fetch.FetchRequest)
            ends = ends if version >= _FETCH_ENDPOINTS_FROM else []
            return _fetch(response, ends, message.max_bytes)
        case FetchSnapshotResponse():
            assert isinstance(message, fetch_snapshot.FetchSnapshotRequest)
            return _fetch_snapshot(response, ends, message.max_bytes)
        case EpochResponse() if isinstance(message, end_quorum_epoch.EndQuorumEpochRequest):
            return _epoch(end_quorum_epoch.EndQuorumEpochResponse, response, ends)
        case EpochResponse():
            return _epoch(begin_quorum_epoch.BeginQuorumEpochResponse, response, ends)
    raise AssertionError(f"{type(response).__name__} has no message")


def refusal(
    message: RequestMessage,
    refused: KafkaError,
    leader: LeaderAndEpoch,
    version: int,
    listener: str,
) -> ResponseMessage:
    """Return the response to a message that is no request to this quorum."""
    error = ErrorCode(refused.code)
    if isinstance(message, _VOTER_REQUESTS):
        return _voter_change(message, VoterChangeResponse(error, leader, str(refused)), listener)
    if isinstance(message, fetch.FetchRequest):
        return fetch.FetchResponse(error_code=int(error), responses=[])
    is_unknown = error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if not isinstance(message, fetch_snapshot.FetchSnapshotRequest) or not is_unknown:
        kind: Callable[..., ResponseMessage] = response_class(message.message_key)  # type: ignore[assignment] # of this request
        return kind(error_code=int(error), topics=[])
    topics: Sequence[Any] = message.topics
    partition = _snapshot_partition(topics[0].partitions[0].partition, error)
    snapshot = fetch_snapshot.FetchSnapshotResponse(
        topics=[_SnapshotTopic(name=topics[0].name, partitions=[partition])]
    )
    if version >= _ENDPOINTS_FROM:
        node = fetch_snapshot.FetchSnapshotResponse.NodeEndpoint
        snapshot.node_endpoints = _nodes(node, _node_ends(leader, listener))
    return snapshot


def _node_ends(leader: LeaderAndEpoch, listener: str) -> list[tuple[int, VoterAddress]]:
    """Return the leader's id and address on a listener; empty when one is not known."""
    endpoints = (end for end in leader.endpoints if end.listener_name == listener)
    end = next(endpoints, None)
    return [] if end is None or leader.leader_id < 0 else [(leader.leader_id, end)]


def _nodes(node: Any, ends: list[tuple[int, VoterAddress]]) -> list[Any]:
    return [node(node_id=node_id, host=end.host, port=end.port) for node_id, end in ends]


def _vote(response: VoteResponse, ends: list[tuple[int, VoterAddress]]) -> vote.VoteResponse:
    topic = vote.VoteResponse.TopicData
    partition = topic.PartitionData(
        partition_index=PARTITION,
        error_code=int(response.error),
        leader_id=response.leader.leader_id,
        leader_epoch=response.leader.epoch,
        vote_granted=response.is_granted,
    )
    return vote.VoteResponse(
        topics=[topic(topic_name=METADATA_TOPIC, partitions=[partition])],
        node_endpoints=_nodes(vote.VoteResponse.NodeEndpoint, ends),
    )


def _epoch(
    cls: type[EpochMessage], response: EpochResponse, ends: list[tuple[int, VoterAddress]]
) -> EpochMessage:
    topic: Any = cls.TopicData
    partition = topic.PartitionData(
        partition_index=PARTITION,
        error_code=int(response.error),
        leader_id=response.leader.leader_id,
        leader_epoch=response.leader.epoch,
    )
    topics = [topic(topic_name=METADATA_TOPIC, partitions=[partition])]
    return cls(topics=topics, node_endpoints=_nodes(cls.NodeEndpoint, ends))


def _fetch(
    response: FetchResponse, ends: list[tuple[int, VoterAddress]], max_bytes: int
) -> fetch.FetchResponse:
    leader = response.leader
    partition = _FetchTopic.PartitionData(
        partition_index=PARTITION,
        error_code=int(response.error),
        high_watermark=response.high_watermark,
        log_start_offset=response.log_start_offset,
        current_leader=_FetchTopic.PartitionData.LeaderIdAndEpoch(
            leader_id=leader.leader_id, leader_epoch=leader.epoch
        ),
        aborted_transactions=[],
        records=_within(response.records, max_bytes),
    )
    if response.diverging is not None:
        end_offset, epoch = response.diverging
        diverging = _FetchTopic.PartitionData.EpochEndOffset(epoch=epoch, end_offset=end_offset)
        partition.diverging_epoch = diverging
    if response.snapshot_id is not None:
        end_offset, epoch = response.snapshot_id
        snapshot_id = _FetchTopic.PartitionData.SnapshotId(end_offset=end_offset, epoch=epoch)
        partition.snapshot_id = snapshot_id
    return fetch.FetchResponse(
        responses=[
            _FetchTopic(topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[partition])
        ],
        node_endpoints=_nodes(fetch.FetchResponse.NodeEndpoint, ends),
    )


def _within(records: Buffer, max_bytes: int) -> Buffer:
    """Return the batches that fit, at least one."""
    if len(records) <= max_bytes:
        return records
    size = 0
    for batch in iterate_batches(memoryview(records)):
        if size and size + batch.size > max_bytes:
            break
        size += batch.size
    return memoryview(records)[:size]


def _snapshot_partition(index: int, error: ErrorCode) -> _SnapshotPartition:
    return _SnapshotPartition(
        index=index,
        error_code=int(error),
        snapshot_id=_SnapshotPartition.SnapshotId(end_offset=0, epoch=0),
        size=0,
        position=0,
        unaligned_records=b"",
    )


def _fetch_snapshot(
    response: FetchSnapshotResponse, ends: list[tuple[int, VoterAddress]], max_bytes: int
) -> fetch_snapshot.FetchSnapshotResponse:
    partition, leader = _snapshot_partition(PARTITION, response.error), response.leader
    partition.current_leader = _SnapshotPartition.LeaderIdAndEpoch(
        leader_id=leader.leader_id, leader_epoch=leader.epoch
    )
    if response.error is ErrorCode.NONE:
        end_offset, epoch = response.snapshot_id
        partition.snapshot_id = _SnapshotPartition.SnapshotId(end_offset=end_offset, epoch=epoch)
        partition.size = response.size_bytes
        partition.position = response.position
        partition.unaligned_records = memoryview(response.data)[: max(max_bytes, 0)]
    return fetch_snapshot.FetchSnapshotResponse(
        topics=[_SnapshotTopic(name=METADATA_TOPIC, partitions=[partition])],
        node_endpoints=_nodes(fetch_snapshot.FetchSnapshotResponse.NodeEndpoint, ends),
    )


def _voter_change(
    message: RequestMessage, response: VoterChangeResponse, listener: str
) -> ResponseMessage:
    error, leader, text = response
    if error is ErrorCode.NOT_LEADER_OR_FOLLOWER and text is None:
        text = ""  # as in Kafka
    if isinstance(message, add_raft_voter.AddRaftVoterRequest):
        return add_raft_voter.AddRaftVoterResponse(error_code=int(error), error_message=text)
    if isinstance(message, remove_raft_voter.RemoveRaftVoterRequest):
        return remove_raft_voter.RemoveRaftVoterResponse(error_code=int(error), error_message=text)
    end = next((end for _, end in _node_ends(leader, listener)), None)
    known = update_raft_voter.UpdateRaftVoterResponse.CurrentLeader(
        leader_id=leader.leader_id,
        leader_epoch=leader.epoch,
        host="" if end is None else end.host,
        port=0 if end is None else end.port,
    )
    return update_raft_voter.UpdateRaftVoterResponse(error_code=int(error), current_leader=known)


# Back


def from_message(message: ResponseMessage, listener: str) -> Response:
    """Return the response of a message; listener is the reader's own name for the addresses.

    CorruptMessage for one that is about another partition, or about none without an error.
    """
    error = ErrorCode(message.error_code)
    match message:
        case vote.VoteResponse():
            return _vote_of(message, error, listener)
        case fetch.FetchResponse():
            return _fetch_of(message, error, listener)
        case fetch_snapshot.FetchSnapshotResponse():
            return _fetch_snapshot_of(message, error, listener)
    if isinstance(message, _VOTER_RESPONSES):
        return _voter_change_of(message, error, listener)
    if error is not ErrorCode.NONE:
        return EpochResponse(error, _NOT_KNOWN)
    partition = _sole([(topic.topic_name, topic.partitions) for topic in message.topics])
    leader = _leader(partition, message.node_endpoints, listener)
    return EpochResponse(ErrorCode(partition.error_code), leader)


def _sole(topics: list[tuple[Any, Sequence[Any]]], name: Any = METADATA_TOPIC) -> Any:
    """Return the partition when it is the metadata log's and the only one."""
    if len(topics) == 1 and topics[0][0] == name and len(topics[0][1]) == 1:
        partition = topics[0][1][0]
        index = (
            partition.index if type(partition) is _SnapshotPartition else partition.partition_index
        )
        if index == PARTITION:
            return partition
    raise CorruptMessage("a response of the quorum that is not about the metadata log")


def _leader(partition: Any, nodes: Sequence[Any], listener: str) -> LeaderAndEpoch:
    leader_id = partition.leader_id
    ends = [
        VoterAddress(listener, node.host, node.port) for node in nodes if node.node_id == leader_id
    ]
    return LeaderAndEpoch(leader_id, partition.leader_epoch, tuple(ends[:1]))


def _vote_of(message: vote.VoteResponse, error: ErrorCode, listener: str) -> VoteResponse:
    if error is not ErrorCode.NONE:
        return VoteResponse(error, _NOT_KNOWN)
    partition = _sole([(topic.topic_name, topic.partitions) for topic in message.topics])
    leader = _leader(partition, message.node_endpoints, listener)
    return VoteResponse(ErrorCode(partition.error_code), leader, partition.vote_granted)


def _fetch_of(message: fetch.FetchResponse, error: ErrorCode, listener: str) -> FetchResponse:
    if error is not ErrorCode.NONE:
        return FetchResponse(error, _NOT_KNOWN)
    topics: list[Any] = [(response.topic_id, response.partitions) for response in message.responses]
    partition = _sole(topics, METADATA_TOPIC_ID)
    diverging, snapshot_id = partition.diverging_epoch, partition.snapshot_id
    return FetchResponse(
        ErrorCode(partition.error_code),
        _leader(partition.current_leader, message.node_endpoints, listener),
        partition.high_watermark,
        partition.log_start_offset,
        OffsetAndEpoch(diverging.end_offset, diverging.epoch) if diverging.epoch >= 0 else None,
        OffsetAndEpoch(snapshot_id.end_offset, snapshot_id.epoch)
        if snapshot_id.epoch >= 0
        else None,
        records=b"" if partition.records is None else partition.records,
    )


def _fetch_snapshot_of(
    message: fetch_snapshot.FetchSnapshotResponse, error: ErrorCode, listener: str
) -> FetchSnapshotResponse:
    if error is not ErrorCode.NONE:
        return FetchSnapshotResponse(error, _NOT_KNOWN, OffsetAndEpoch(0, 0))
    partition = _sole([(topic.name, topic.partitions) for topic in message.topics])
    snapshot_id = partition.snapshot_id
    return FetchSnapshotResponse(
        ErrorCode(partition.error_code),
        _leader(partition.current_leader, message.node_endpoints, listener),
        OffsetAndEpoch(snapshot_id.end_offset, snapshot_id.epoch),
        partition.size,
        partition.position,
        b"" if partition.unaligned_records is None else partition.unaligned_records,
    )


def _voter_change_of(
    message: update_raft_voter.UpdateRaftVoterResponse | VoterMessage,
    error: ErrorCode,
    listener: str,
) -> VoterChangeResponse:
    if not isinstance(message, update_raft_voter.UpdateRaftVoterResponse):
        return VoterChangeResponse(error, _NOT_KNOWN, message.error_message)
    known = message.current_leader
    ends = (VoterAddress(listener, known.host, known.port),) if known.host else ()
    leader = LeaderAndEpoch(known.leader_id, known.leader_epoch, ends)
    return VoterChangeResponse(error, leader)
