"""The data source "ottla" and its batch reader.

Kafka: org.apache.spark.sql.kafka010.{KafkaSourceProvider, KafkaRelation}.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.offset_timestamps import LATEST_TIMESTAMP
from ottla.spark.cluster import FIRST_ANSWER_MS, open_cluster
from ottla.spark.error_text import short_errors
from ottla.spark.fetching import beyond_end, data_loss
from ottla.spark.invalid_stream import InvalidStream
from ottla.spark.options import COLUMN_TYPES, STREAM_LIMITS, read_options
from ottla.spark.planning import OffsetRange
from ottla.spark.reading import all_partitions, earliest, plan_tasks, read_range, resolve
from ottla.spark.sink import BatchWriter, StreamWriter
from ottla.spark.stream import StreamReader

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql.datasource import DataSourceStreamReader, DataSourceWriter, InputPartition
    from pyspark.sql.types import StructType

    from ottla.spark.options import ReadOptions
    from ottla.types import TopicPartition


class OttlaDataSource(DataSource):
    """Topics of Ottla or Kafka as frames. Options: `ottla.spark.options`, docs/spark.md."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return "ottla"

    def schema(self) -> str:
        """Return the connector's columns, or those of option columns."""
        with short_errors():
            names = read_options(self._without_bounds(), streaming=True).columns
        return ", ".join(f"{name} {COLUMN_TYPES[name]}" for name in names)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the batch reader; KafkaError(INVALID_CONFIG) for invalid options."""
        with short_errors():
            return BatchReader(read_options(self.options, streaming=False), columns_of(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's
        """Return the streaming reader; with invalid options its methods raise the error."""
        try:
            return StreamReader(read_options(self.options, streaming=True), columns_of(schema))
        except KafkaError as error:
            return InvalidStream(error)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001
        """Return the batch writer."""
        with short_errors():
            if overwrite:
                raise KafkaError(
                    ErrorCode.INVALID_CONFIG, "a topic cannot be overwritten: use mode('append')"
                )
            return BatchWriter(self.options, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802, FBT001
        """Return the streaming writer."""
        with short_errors():
            if overwrite:
                raise KafkaError(
                    ErrorCode.INVALID_CONFIG,
                    "a topic cannot be written in complete mode: use append mode, or foreachBatch",
                )
            return StreamWriter(self.options, schema)

    def _without_bounds(self) -> dict[str, str]:
        """Return the options less those whose rules differ between batch and streaming.

        Spark requests the schema without specifying which of the two it creates.
        """
        return {
            name: value for name, value in self.options.items() if name.lower() not in _BOUND_NAMES
        }


_BOUND_NAMES = frozenset(
    f"{side}{what}"
    for side in ("starting", "ending")
    for what in ("offsets", "timestamp", "offsetsbytimestamp")
) | {name.lower() for name in STREAM_LIMITS}


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
                OffsetRange(
                    part,
                    self._checked_start(part, starts[part], (first[part], last[part])),
                    self._checked_end(part, ends[part], last[part]),
                )
                for part in requested
            ]
            return plan_tasks(options, ranges, topics)

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


def columns_of(schema: StructType) -> tuple[str, ...]:
    """Return the requested columns; KafkaError(INVALID_CONFIG) for unknown ones.

    A schema given by the user may omit columns, which is faster.
    """
    for field in schema.fields:
        given = field.dataType.simpleString()
        if COLUMN_TYPES.get(field.name) != given:
            have = ", ".join(f"{name} {kind}" for name, kind in COLUMN_TYPES.items())
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"column {field.name!r} {given} is not available; the columns are {have}",
            )
    return tuple(field.name for field in schema.fields)
