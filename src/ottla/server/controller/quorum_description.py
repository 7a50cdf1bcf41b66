"""The answer to DescribeQuorum.

Kafka: org.apache.kafka.raft.KafkaRaftClient.handleDescribeQuorumRequest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.errors import ErrorCode
from ottla.protocol.apis.describe_quorum import DescribeQuorumResponse, ReplicaState
from ottla.types import METADATA_TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.protocol.apis.describe_quorum import DescribeQuorumRequest
    from ottla.raft.node import RaftNode
    from ottla.raft.voter_set import Voter, VoterEndpoint

Topic = DescribeQuorumResponse.TopicData
Partition = Topic.PartitionData
Node = DescribeQuorumResponse.Node


def describe_quorum(
    request: DescribeQuorumRequest,
    raft: RaftNode,
    *,
    log_end_offset: int,
    now_ms: int,
    port_of: Callable[[Voter, VoterEndpoint], int],
) -> DescribeQuorumResponse:
    """Describe leader, voters and how far they are; now_ms is wall time.

    Whoever asks for more than the metadata partition learns nothing at all, as in Kafka.
    """
    asked = [
        (topic.topic_name, [p.partition_index for p in topic.partitions])
        for topic in request.topics
    ]
    if asked == [(METADATA_TOPIC, [0])]:
        found = Topic(
            topic_name=METADATA_TOPIC,
            partitions=[_described(raft, log_end_offset, now_ms)],
        )
        nodes = [_node(voter, port_of) for voter in raft.voters]
        return DescribeQuorumResponse(error_message="", topics=[found], nodes=nodes)
    unknown = [
        Topic(topic_name=name, partitions=[_unknown(index) for index in indexes])
        for name, indexes in asked
    ]
    return DescribeQuorumResponse(error_message="", topics=unknown, nodes=[])


def _described(raft: RaftNode, log_end_offset: int, now_ms: int) -> Partition:
    return Partition(
        partition_index=0,
        error_message="",
        leader_id=raft.leader_id,
        leader_epoch=raft.epoch,
        high_watermark=raft.high_watermark,
        current_voters=[
            ReplicaState(
                replica_id=voter.voter_id,
                replica_directory_id=voter.directory_id,
                log_end_offset=log_end_offset,
                last_fetch_timestamp=now_ms,
                last_caught_up_timestamp=now_ms,
            )
            for voter in raft.voters
        ],
        observers=[],
    )


def _unknown(index: int) -> Partition:
    return Partition(
        partition_index=index,
        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        error_message=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.text,
        leader_id=0,
        leader_epoch=0,
        high_watermark=0,
        current_voters=[],
        observers=[],
    )


def _node(voter: Voter, port_of: Callable[[Voter, VoterEndpoint], int]) -> Node:
    return Node(
        node_id=voter.voter_id,
        listeners=[
            Node.Listener(name=end.listener_name, host=end.host, port=port_of(voter, end))
            for end in voter.endpoints
        ],
    )
