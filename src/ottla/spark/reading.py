"""Shared by the batch and the streaming reader: resolve bounds, plan tasks, read ranges.

Kafka: org.apache.spark.sql.kafka010.{KafkaOffsetReader, KafkaBatch, KafkaBatchPartitionReader,
KafkaRecordToRowConverter}. Hot path: benchmarks/spark.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from ottla.clients.range_fetcher import OffsetRange, RangeFetcher
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.offset_timestamps import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from ottla.spark.cluster import open_cluster
from ottla.spark.coordination import Coordination
from ottla.spark.planning import split_ranges
from ottla.spark.processes import note_use
from ottla.tables.arrow import ColumnReader
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from ottla.clients.cluster_reader import ClusterReader, TopicLayout
    from ottla.spark.options import Bound, ReadOptions
    from ottla.types import Node


class RangePartition(InputPartition):
    """One task: an offset range, the id of its topic, and its leader at planning."""

    def __init__(self, offset_range: OffsetRange, topic_id: str, leader: Node | None) -> None:
        super().__init__(None)
        self.offset_range = offset_range
        self.topic_id = topic_id
        self.leader = leader


def plan_tasks(
    options: ReadOptions, ranges: Sequence[OffsetRange], topics: Mapping[str, TopicLayout]
) -> list[InputPartition]:
    """Return the tasks that read the ranges."""
    cut = split_ranges(
        ranges,
        min_partitions=options.min_partitions,
        max_records=options.max_records_per_partition,
    )
    return [
        RangePartition(
            one,
            str(topics[one.partition.topic].topic_id)
            if topics[one.partition.topic].topic_id
            else "",
            topics[one.partition.topic].leaders.get(one.partition.partition),
        )
        for one in cut
    ]


def read_range(
    options: ReadOptions, columns: Sequence[str], task: InputPartition
) -> Iterator[pa.RecordBatch]:
    """Yield the records of one task as Arrow batches with these columns."""
    if not isinstance(task, RangePartition):  # Spark's placeholder for an empty plan
        return

    note_use()
    cluster = open_cluster(options.config, api_timeout_ms=options.poll_timeout_ms)
    fetcher = RangeFetcher(cluster, options, task.offset_range, task.topic_id, task.leader)
    reader = ColumnReader(
        columns,
        task.offset_range.partition,
        check_crcs=options.check_crcs,
        null_timestamps=options.null_timestamps,
    )
    for chunk in fetcher.chunks():
        for parsed in reader.parse(chunk, fetcher.position, task.offset_range.until):
            fetcher.advance(parsed.next_offset)
            if parsed.batch is not None:
                yield parsed.batch


def all_partitions(topics: Mapping[str, TopicLayout]) -> list[TopicPartition]:
    """Return the partitions of topics in order."""
    return [TopicPartition(name, number) for name in topics for number in topics[name].leaders]


def resolve(
    cluster: ClusterReader,
    bound: Bound,
    partitions: Sequence[TopicPartition],
    options: ReadOptions,
    *,
    is_start: bool,
) -> dict[TopicPartition, int]:
    """Return the offset at which each partition starts or ends; KafkaError for invalid bounds."""
    points = _points(bound, partitions, is_start=is_start)
    if bound.is_timestamp:
        return _at_times(cluster, points, options, is_start=is_start)
    fixed = {part: point for part, point in points.items() if point >= 0}
    if bound.is_of_group:
        committed = Coordination(cluster).committed(options.group_id)
        fixed = {part: committed[part].offset for part in points if part in committed}
    unresolved = {part: point for part, point in points.items() if part not in fixed}
    found = (
        cluster.offsets(unresolved, isolation_level=options.isolation_level) if unresolved else {}
    )
    return {**fixed, **found}


def _points(
    bound: Bound, partitions: Sequence[TopicPartition], *, is_start: bool
) -> dict[TopicPartition, int]:
    if bound.all_at_ms is not None:
        return dict.fromkeys(partitions, bound.all_at_ms)
    if isinstance(bound.offsets, int):
        return dict.fromkeys(partitions, bound.offsets)
    side = "startingOffsets" if is_start else "endingOffsets"
    missing = sorted(set(partitions) - set(bound.offsets))
    unknown = sorted(set(bound.offsets) - set(partitions))
    if missing or unknown:
        what = f"it lacks {missing[0]}" if missing else f"{unknown[0]} is not read"
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"{side} must name exactly the partitions that are read: {what} "
            "(-2 is earliest, -1 is latest)",
        )
    return dict(bound.offsets)


def _at_times(
    cluster: ClusterReader,
    times: Mapping[TopicPartition, int],
    options: ReadOptions,
    *,
    is_start: bool,
) -> dict[TopicPartition, int]:
    found = cluster.offsets(times, isolation_level=options.isolation_level)
    late = {part: LATEST_TIMESTAMP for part, offset in found.items() if offset < 0}
    if late and is_start and not options.fall_back_to_latest:
        part = min(late)
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"{part} has no record at or after {times[part]} ms; "
            "startingOffsetsByTimestampStrategy=latest starts at the end there",
        )
    if late:
        found.update(cluster.offsets(late, isolation_level=options.isolation_level))
    return found


def earliest(
    cluster: ClusterReader, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, int]:
    """Return the log start offset of each partition."""
    return cluster.offsets(dict.fromkeys(partitions, EARLIEST_TIMESTAMP)) if partitions else {}
