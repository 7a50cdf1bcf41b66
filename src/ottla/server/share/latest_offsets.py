"""The high watermarks of partitions on all leaders, for the lag of share groups.

Kafka: org.apache.kafka.server.util.PartitionMetadataClient, NetworkPartitionMetadataClient.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ottla.errors import ErrorCode
from ottla.protocol.apis.list_offsets import ListOffsetsRequest
from ottla.purgatory.pending import Pending, Steps
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.server.broker.broker import Broker

_LATEST: Final = -1
_CLIENT: Final = -1
_NO_LEADER: Final = -1
_Topic: Final = ListOffsetsRequest.ListOffsetsTopic


def latest_offsets(
    broker: Broker, partitions: Iterable[TopicPartition]
) -> Pending[dict[TopicPartition, int | ErrorCode]]:
    """Return the high watermark of each partition, or why it is not known."""
    found: dict[TopicPartition, int | ErrorCode] = {}
    by_leader: dict[int, list[TopicPartition]] = {}
    for one in partitions:
        replica = broker.replicas.find(*one)
        if replica is not None and replica.is_leader:
            found[one] = replica.log.high_watermark
            continue
        leader = broker.channel.leader_of(one)
        if leader is None:
            found[one] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif leader in (_NO_LEADER, broker.node_id):
            found[one] = ErrorCode.LEADER_NOT_AVAILABLE
        else:
            by_leader.setdefault(leader, []).append(one)
    steps = Steps(lambda: found)
    for leader, led in by_leader.items():
        found.update(dict.fromkeys(led, ErrorCode.UNKNOWN_SERVER_ERROR))  # until it answers
        steps.add(broker.channel.send(leader, _request(led)).then(partial(_take, found)))
    return steps.begin()


def _request(partitions: list[TopicPartition]) -> ListOffsetsRequest:
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    return ListOffsetsRequest(
        replica_id=_CLIENT,
        topics=[
            _Topic(
                name=name,
                partitions=[
                    _Topic.ListOffsetsPartition(partition_index=index, timestamp=_LATEST)
                    for index in indexes
                ],
            )
            for name, indexes in topics.items()
        ],
    )


def _take(found: dict[TopicPartition, int | ErrorCode], response: Any) -> None:
    """Take the offsets out of one leader's response."""
    for topic in response.topics:
        for one in topic.partitions:
            name = TopicPartition(topic.name, one.partition_index)
            found[name] = ErrorCode(one.error_code) or one.offset
