"""Planning: offset ranges for tasks, and limits of micro-batches.

Kafka: org.apache.spark.sql.kafka010.{KafkaOffsetRangeCalculator, KafkaMicroBatchStream.rateLimit};
org.apache.kafka.clients.admin.KafkaAdminClient.describeLogDirs for the sizes of logs.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from ottla.clients.range_fetcher import OffsetRange
from ottla.errors import KafkaError
from ottla.protocol.apis.describe_log_dirs import DescribeLogDirsRequest
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ottla.clients.cluster_reader import ClusterReader


def split_ranges(
    ranges: Sequence[OffsetRange],
    *,
    min_partitions: int | None = None,
    max_records: int | None = None,
) -> list[OffsetRange]:
    """Remove empty ranges and split long ones into enough tasks of bounded size.

    With min_partitions a range gets a number of tasks proportional to its offsets.
    """
    full = [offset_range for offset_range in ranges if offset_range.size > 0]
    if max_records is not None:
        full = [part for one in full for part in cut(one, -(-one.size // max_records))]
    if min_partitions is None or len(full) >= min_partitions:
        return full
    total = sum(one.size for one in full)
    shares = [max(1, int(one.size / total * min_partitions + 0.5)) for one in full]  # half: up
    return [part for one, share in zip(full, shares, strict=True) for part in cut(one, share)]


def cut(whole: OffsetRange, parts: int) -> list[OffsetRange]:
    """Split a range into parts of nearly equal size, fewer if it is too short."""
    parts = min(max(parts, 1), max(whole.size, 1))
    edges = [whole.start + whole.size * index // parts for index in range(parts + 1)]
    return [OffsetRange(whole.partition, start, until) for start, until in pairwise(edges)]


def limit_offsets(
    start: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int], limit: int
) -> dict[TopicPartition, int]:
    """Return end offsets with about `limit` offsets in total, proportional by partition.

    Every partition with new records advances by at least one; a partition whose log was truncated
    (with failOnDataLoss=false) goes back to its end.
    """
    sizes = {part: max(end - start.get(part, end), 0) for part, end in latest.items()}
    total = sum(sizes.values())
    if total <= limit:
        return dict(latest)
    ends = {}
    for part, end in latest.items():
        begin = start.get(part, end)
        share = sizes[part] * limit // total
        ends[part] = begin + min(max(share, 1), sizes[part]) if sizes[part] else end
    return ends


def offsets_within(
    limit_bytes: int,
    start: Mapping[TopicPartition, int],
    latest: Mapping[TopicPartition, int],
    first: Mapping[TopicPartition, int],
    sizes: Mapping[TopicPartition, int],
) -> int:
    """Return how many of the new offsets have about `limit_bytes`, at least one.

    `sizes` are the bytes of each whole log, from its first offset to its last.
    """
    new_offsets = new_bytes = 0
    for part, end in latest.items():
        count = max(end - start.get(part, end), 0)
        new_offsets += count
        new_bytes += count * sizes.get(part, 0) // max(end - first.get(part, end), 1)
    return max(new_offsets * limit_bytes // max(new_bytes, 1), 1)


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
    codes = [answer.error_code, *(result.error_code for result in answer.results)]
    if any(codes):
        raise KafkaError(next(code for code in codes if code))
    for directory in answer.results:
        for topic in directory.topics:
            for partition in topic.partitions:
                if not partition.is_future_key:
                    yield (
                        TopicPartition(topic.name, partition.partition_index),
                        partition.partition_size,
                    )
