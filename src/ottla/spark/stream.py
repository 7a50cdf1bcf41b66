"""The streaming reader: end offsets and tasks of micro-batches.

Kafka: org.apache.spark.sql.kafka010.KafkaMicroBatchStream.
"""

from __future__ import annotations

import math
import re
import time
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from ottla.clients.range_fetcher import OffsetRange, beyond_end, data_loss
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.offset_timestamps import LATEST_TIMESTAMP
from ottla.spark.cluster import FIRST_ANSWER_MS, open_cluster
from ottla.spark.error_text import short_errors
from ottla.spark.group_offsets import GroupOffsets
from ottla.spark.offsets import SourceOffsets, check_same_topics, ids_of
from ottla.spark.options import check_partitions
from ottla.spark.planning import limit_offsets, log_sizes, offsets_within
from ottla.spark.reading import all_partitions, earliest, plan_tasks, read_range, resolve
from ottla.spark.waiting import RecordWait

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.datasource import InputPartition

    from ottla.clients.cluster_reader import ClusterReader, TopicLayout
    from ottla.spark.options import ReadOptions
    from ottla.types import TopicPartition


KNOWN_S = 0.05
"""For how long end offsets are reported that were found, or a wait has confirmed."""


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads topics as streams; created in the query's driver process and in each task."""

    def __init__(self, options: ReadOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns
        self._cluster: ClusterReader | None = None
        self._group: GroupOffsets | None = None
        self._wait: RecordWait | None = None
        self._last_topics: dict[str, TopicLayout] = {}
        self._last_ends = SourceOffsets({}, {})
        self._ends_known_s = -math.inf  # when the last ends were found, or found to be the same
        self._has_checked_group = False
        self._first: dict[TopicPartition, int] | None = None
        """Where a new query starts, until its first micro-batch is planned."""
        self._goal: SourceOffsets | None = None  # end offsets with trigger availableNow
        self._last_advance = -math.inf  # the first micro-batch does not wait, as in the connector

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_cluster": None, "_group": None, "_wait": None}

    @property
    def cluster(self) -> ClusterReader:
        """The driver's connections, opened on first use."""
        return self._connected(None)

    def _connected(self, first_answer_ms: int | None) -> ClusterReader:
        if self._cluster is None:
            options = self._options
            self._cluster = open_cluster(
                options.config,
                api_timeout_ms=options.api_timeout_ms,
                first_answer_ms=first_answer_ms,
            )
        return self._cluster

    def stop(self) -> None:
        """Close the connections."""
        if self._cluster is not None:
            self._cluster.close()

    # ------------------------------------------------------------ offsets

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the start offsets of a new query."""
        with short_errors():
            cluster = self._connected(FIRST_ANSWER_MS)  # a running query waits longer
            topics = cluster.topics(self._options.selection)
            partitions = all_partitions(topics)
            positions = resolve(
                cluster, self._options.starting, partitions, self._options, is_start=True
            )
            if self._goal is not None:
                # Spark asks for it before the start, which may be the end of a log that grows
                self._goal = self._latest()
            self._has_checked_group = True  # what it holds is of queries before this one
            self._first = positions
            if self._options.group_id:
                self._group_offsets().begin(positions)
            return SourceOffsets(positions, ids_of(topics.values())).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return the limit of option maxOffsetsPerTrigger."""
        limit = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return the end offsets of the next micro-batch, or `start` without one."""
        with short_errors():
            begin = SourceOffsets.from_json(start)
            resets = self._follow_group(begin)
            if not resets:
                return self._next_or_wait(begin, limit) or start
            moved = begin._replace(positions={**begin.positions, **resets})
            return self._next_offset(moved, limit, tuple(sorted(resets.items()))) or start

    def _next_or_wait(self, begin: SourceOffsets, limit: ReadLimit) -> dict[str, Any] | None:
        """Return the end of the next micro-batch, after a wait while there is none."""
        found = None
        if self._wait is None or not self._wait.is_idle_at(begin.positions):
            if self._wait is not None:
                self._wait.looking_up()
            found = self._next_offset(begin, limit)
        if found is None and self._wait_for_records(begin):
            found = self._next_offset(begin, limit)
        return found

    def _wait_for_records(self, begin: SourceOffsets) -> bool:
        """Wait a while for records of an idle query; False if there are none, or too few."""
        if self._goal is not None or self._options.min_offsets_per_trigger is not None:
            return False
        if self._wait is None:
            self._wait = RecordWait(self.cluster, self._options.isolation_level)
        has_records = self._wait.wait(self._last_topics, begin.positions)
        if self._wait.is_idle:
            self._ends_known_s = time.monotonic()
        return has_records

    def _follow_group(self, begin: SourceOffsets) -> dict[TopicPartition, int]:
        """Commit the end of the micro-batch before, which is done.

        The first time of a run, return instead what was reset while the query was stopped.
        """
        if not self._options.group_id:
            return {}
        group = self._group_offsets()
        resets = {} if self._has_checked_group else group.resets(begin.positions)
        self._has_checked_group = True
        if not resets:
            group.finished(begin)
        return resets

    def _group_offsets(self) -> GroupOffsets:
        if self._group is None:
            self._group = GroupOffsets(self._options.group_id, self.cluster)
        return self._group

    def _next_offset(
        self,
        begin: SourceOffsets,
        limit: ReadLimit,
        resets: tuple[tuple[TopicPartition, int], ...] = (),
    ) -> dict[str, Any] | None:
        """Return the end of the next micro-batch; None while there is none."""
        latest = self._goal or self._latest()
        begin = self._without_recreated(begin, latest.topic_ids)
        check_same_topics(begin.topic_ids, latest.topic_ids)
        self._check_named(begin, latest)
        positions = self._without_lost(begin, latest)
        begin_all = self._with_new_partitions(begin, positions)
        if not resets and not self._has_enough(begin_all, positions):
            return None
        if (limit_bytes := self._options.max_bytes_per_trigger) is not None:
            positions = self._within_bytes(limit_bytes, begin_all, positions)
        if isinstance(limit, ReadMaxRows):
            positions = limit_offsets(begin_all, positions, limit.max_rows)
        self._last_advance = time.monotonic()
        # Spark's checkpoint has no start of the first micro-batch: repeated, it would begin at what
        # is the start by then, without the records between, or those that were deleted meanwhile
        starts = begin.positions if begin.positions == self._first else {}
        self._first = None
        ids = {**begin.topic_ids, **latest.topic_ids}
        return SourceOffsets(positions, ids, resets, tuple(sorted(starts.items()))).to_json()

    def _within_bytes(
        self,
        limit_bytes: int,
        begin: dict[TopicPartition, int],
        positions: dict[TopicPartition, int],
    ) -> dict[TopicPartition, int]:
        """Limit a micro-batch to about maxBytesPerTrigger, by the mean size of an offset's data."""
        sizes = log_sizes(self.cluster, list(positions))
        first = earliest(self.cluster, list(positions))
        limit = offsets_within(limit_bytes, begin, positions, first, sizes)
        return limit_offsets(begin, positions, limit)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """Return the log end offsets: Spark asks at the end of each trigger, for its report."""
        with short_errors():
            is_known = time.monotonic() - self._ends_known_s < KNOWN_S
            return (self._last_ends if is_known else self._latest()).to_json()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Record the current log end offsets: the query ends there."""
        with short_errors():
            self._goal = self._latest()

    def _latest(self) -> SourceOffsets:
        topics = self._last_topics = self._topics()
        counts = {name: len(topic.leaders) for name, topic in topics.items()}
        check_partitions(counts, self._options.partition_limits)
        requested = dict.fromkeys(all_partitions(topics), LATEST_TIMESTAMP)
        level = self._options.isolation_level
        found = self.cluster.offsets(requested, isolation_level=level) if requested else {}
        self._last_ends = SourceOffsets(found, ids_of(topics.values()))
        self._ends_known_s = time.monotonic()
        return self._last_ends

    def _topics(self) -> dict[str, TopicLayout]:
        selection = self._options.selection
        if self._options.fail_on_data_loss or selection.pattern or selection.partitions:
            try:
                return self.cluster.topics(selection)
            except KafkaError as error:
                if error.code is not ErrorCode.INVALID_TOPIC_EXCEPTION or selection.partitions:
                    raise  # else `_check_named` knows whether the query has read it
        return self.cluster.existing_topics(selection.names)

    def _check_named(self, begin: SourceOffsets, latest: SourceOffsets) -> None:
        """Raise KafkaError for a topic that is missing and that the query has not read.

        One that it has read was deleted: one that is made now would not be the same.
        """
        names = set(self._options.selection.topics) - latest.topic_ids.keys()
        new = sorted(names - begin.topic_ids.keys())
        if new and self._options.fail_on_data_loss:
            self.cluster.named_topics(new)

    def _without_lost(
        self, begin: SourceOffsets, latest: SourceOffsets
    ) -> dict[TopicPartition, int]:
        """Return the end offsets; deleted partitions keep theirs, or KafkaError is raised."""
        positions = dict(latest.positions)
        for part, offset in begin.positions.items():
            end = positions.get(part)
            if end is not None and end >= offset:
                continue
            if self._options.fail_on_data_loss and not (end is None and self._may_go(part.topic)):
                if end is None:
                    raise _deleted(part, offset)
                raise beyond_end(
                    f"{part} ends at offset {end}, but the query has read up to {offset}"
                )
            positions[part] = offset if end is None else end
        return positions

    def _may_go(self, topic: str) -> bool:
        """Whether the query goes on without a topic that was deleted."""
        pattern = self._options.skip_deleted_topics
        return bool(pattern) and re.fullmatch(pattern, topic) is not None

    def _without_recreated(self, begin: SourceOffsets, now: Mapping[str, str]) -> SourceOffsets:
        """Return offsets without those of topics that may go, and that are others by now."""
        gone = {
            topic
            for topic, known in begin.topic_ids.items()
            if self._may_go(topic) and known and now.get(topic, known) not in (known, "")
        }
        return SourceOffsets(
            {part: offset for part, offset in begin.positions.items() if part.topic not in gone},
            {topic: known for topic, known in begin.topic_ids.items() if topic not in gone},
            tuple((part, offset) for part, offset in begin.resets if part.topic not in gone),
            tuple((part, offset) for part, offset in begin.starts if part.topic not in gone),
        )

    def _with_new_partitions(
        self, begin: SourceOffsets, positions: dict[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Return the start of every partition, also of new ones."""
        new = [part for part in positions if part not in begin.positions]
        if self._options.fail_on_data_loss:
            return {**begin.positions, **dict.fromkeys(new, 0)}
        return {**begin.positions, **earliest(self.cluster, new)}

    def _has_enough(
        self, begin: dict[TopicPartition, int], positions: dict[TopicPartition, int]
    ) -> bool:
        """Whether a micro-batch has enough offsets (minOffsetsPerTrigger, maxTriggerDelay)."""
        available = sum(max(end - begin[part], 0) for part, end in positions.items())
        minimum = self._options.min_offsets_per_trigger
        if minimum is None or self._goal is not None:
            return positions != begin
        waited_ms = (time.monotonic() - self._last_advance) * 1000
        return available >= minimum or (
            available > 0 and waited_ms >= self._options.max_trigger_delay_ms
        )

    # ------------------------------------------------------------ tasks

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the tasks of a micro-batch; KafkaError for offsets that are no longer valid."""
        with short_errors():
            return self._partitions(start, end)

    def _partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        begin, until = SourceOffsets.from_json(start), SourceOffsets.from_json(end)
        if begin == until:  # where its first or its reset micro-batch began is read already
            return []
        if until.resets and self._options.group_id:
            # the checkpoint has them now: the next reset to the same offsets is another one
            self._group_offsets().begin(dict(until.resets))
        names = sorted({part.topic for part in until.positions})
        topics = self.cluster.existing_topics(names)
        current = ids_of(topics.values())
        begin = self._without_recreated(begin, until.topic_ids)
        until = self._without_recreated(until, current)
        check_same_topics({**until.topic_ids, **begin.topic_ids}, current)
        first = earliest(self.cluster, [p for p in until.positions if p.topic in topics])
        starts = {**(dict(until.starts) or begin.positions), **dict(until.resets)}
        ranges = []
        for part, end_offset in sorted(until.positions.items()):
            # a new partition starts at 0: records deleted before its first read count as lost
            unknown = 0 if self._options.fail_on_data_loss else first.get(part, end_offset)
            begin_offset = starts.get(part, unknown)
            is_gone = part not in first and self._may_go(part.topic)
            if begin_offset < end_offset and not is_gone:
                self._check_available(part, begin_offset, first)
                begin_offset = max(begin_offset, first.get(part, end_offset))
                ranges.append(OffsetRange(part, begin_offset, end_offset))
        return plan_tasks(self._options, ranges, topics)

    def _check_available(
        self, part: TopicPartition, offset: int, first: dict[TopicPartition, int]
    ) -> None:
        if not self._options.fail_on_data_loss or offset >= first.get(part, offset + 1):
            return
        if part not in first:
            raise _deleted(part, offset)
        raise data_loss(
            f"{part}: offset {offset} is to be read, but the log starts at {first[part]}"
        )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of one task."""
        with short_errors():
            yield from read_range(self._options, self._columns, partition)


def _deleted(part: TopicPartition, offset: int) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        f"topic {part.topic!r} was deleted before offset {offset} of partition {part.partition} "
        "was read; option failOnDataLoss=false continues with the other topics. One that is "
        "created under its name is another topic, which takes a new checkpoint",
    )
