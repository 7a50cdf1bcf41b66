"""Reads topics as one frame: tasks from offsets to offsets.

Kafka: org.apache.spark.sql.kafka010.KafkaRelation.

The reader of a stream that cannot be read is here, too. PySpark hides an error of `streamReader`
behind an UnboundLocalError of its own, so the error is raised by the first method that Spark calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from ottla.clients.range_fetcher import OffsetRange, beyond_end, data_loss
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.offset_timestamps import LATEST_TIMESTAMP
from ottla.spark.cluster import FIRST_ANSWER_MS, open_cluster
from ottla.spark.error_text import short_errors
from ottla.spark.reading import all_partitions, earliest, plan_tasks, read_range, resolve

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql.datasource import InputPartition

    from ottla.spark.options import ReadOptions
    from ottla.types import TopicPartition


class BatchReader(DataSourceReader):
    """Reads topics from one set of offsets to another."""

    def __init__(self, options: ReadOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns

    def partitions(self) -> list[InputPartition]:
        """Return the tasks; KafkaError for missing topics or offsets."""
        with short_errors():
            return self._partitions()

    def _partitions(self) -> list[InputPartition]:
        options = self._options
        with open_cluster(
            options.config,
            api_timeout_ms=options.api_timeout_ms,
            first_answer_ms=FIRST_ANSWER_MS,
        ) as cluster:
            topics = cluster.topics(options.selection)
            requested = all_partitions(topics)
            first = earliest(cluster, requested)  # in this order: logs change between the queries
            starts = resolve(cluster, options.starting, requested, options, is_start=True)
            ends = resolve(cluster, options.ending, requested, options, is_start=False)
            last = cluster.offsets(dict.fromkeys(requested, LATEST_TIMESTAMP)) if requested else {}
            ranges = [
                self._checked_range(part, starts[part], ends[part], (first[part], last[part]))
                for part in requested
            ]
            return plan_tasks(options, ranges, topics)

    def _checked_range(
        self, part: TopicPartition, start: int, end: int, available: tuple[int, int]
    ) -> OffsetRange:
        """Return a range inside the log; KafkaError for one that ends before it starts."""
        begin = self._checked_start(part, start, available)
        until = self._checked_end(part, end, available[1])
        if begin > until and start > end:  # not only what was deleted meanwhile
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"{part}: the read starts at offset {start}, after its end, offset {end}: correct "
                "the starting or the ending option",
            )
        return OffsetRange(part, begin, until)

    def _checked_start(self, part: TopicPartition, start: int, available: tuple[int, int]) -> int:
        """Return a start inside the log; KafkaError for others with failOnDataLoss."""
        first, last = available
        if first <= start <= last:
            return start
        if self._options.fail_on_data_loss:
            text = f"{part}: offset {start} was requested, but the log goes from {first} to {last}"
            raise beyond_end(text) if start > last else data_loss(text)
        return min(max(start, first), last)

    def _checked_end(self, part: TopicPartition, end: int, last: int) -> int:
        """Return an end inside the log; KafkaError for others with failOnDataLoss."""
        if end > last and self._options.fail_on_data_loss:
            raise beyond_end(
                f"{part}: offsets up to {end} were requested, but the log ends at {last}"
            )
        return min(end, last)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of one task."""
        with short_errors():
            yield from read_range(self._options, self._columns, partition)


class InvalidStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Raises the error of its options or columns."""

    def __init__(self, error: KafkaError) -> None:
        self._error = error

    def _fail(self) -> NoReturn:
        with short_errors():
            raise self._error
        raise AssertionError

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Raise the error."""
        self._fail()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Raise the error."""
        self._fail()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: ARG002, N802
        """Raise the error."""
        self._fail()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Raise the error."""
        self._fail()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> NoReturn:  # noqa: ARG002
        """Raise the error."""
        self._fail()

    def read(self, partition: Any) -> NoReturn:  # noqa: ARG002 - Spark's
        """Raise the error."""
        self._fail()
