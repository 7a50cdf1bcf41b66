"""The sizes of partitions' logs, as their leaders have them.

Kafka: org.apache.kafka.clients.admin.KafkaAdminClient.describeLogDirs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.errors import KafkaError
from ottla.protocol.apis.describe_log_dirs import DescribeLogDirsRequest
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ottla.spark.cluster import ClusterReader

_PURPOSE = "sizes"


def log_sizes(
    cluster: ClusterReader, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, int]:
    """Return the bytes of each partition's log on its leader; KafkaError without the right."""
    topics = cluster.existing_topics({part.topic for part in partitions})
    by_leader: dict[int, list[TopicPartition]] = {}
    for part in partitions:
        leader = topics[part.topic].leaders.get(part.partition) if part.topic in topics else None
        if leader is not None:
            by_leader.setdefault(leader.node_id, []).append(part)
    found: dict[TopicPartition, int] = {}
    for node_id, led in by_leader.items():
        found |= _sizes_on(cluster, node_id, led)
    return found


def _sizes_on(
    cluster: ClusterReader, node_id: int, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    kind = DescribeLogDirsRequest.DescribableLogDirTopic
    topics: dict[str, Any] = {}
    for part in partitions:
        topics.setdefault(part.topic, kind(topic=part.topic, partitions=[])).partitions.append(
            part.partition
        )
    request = DescribeLogDirsRequest(topics=list(topics.values()))

    def attempt(deadline_ms: float) -> dict[TopicPartition, int]:
        sent = cluster.client.send(node_id, request, purpose=_PURPOSE)
        return dict(_sizes(cluster.runtime.wait_for(sent, deadline_ms)))

    return cluster.retry(attempt)


def _sizes(answer: Any) -> Iterator[tuple[TopicPartition, int]]:
    codes = [answer.error_code, *(one.error_code for one in answer.results)]
    if any(codes):
        raise KafkaError(next(code for code in codes if code))
    for directory in answer.results:
        for topic in directory.topics:
            for one in topic.partitions:
                if not one.is_future_key:
                    yield TopicPartition(topic.name, one.partition_index), one.partition_size
