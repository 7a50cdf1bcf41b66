"""The writers of the sink, batch and streaming.

Kafka: org.apache.spark.sql.kafka010.{KafkaStreamingWrite, KafkaBatchWrite}. At least once: tasks
and micro-batches that Spark repeats are written again.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from ottla.spark.cluster import FIRST_ANSWER_MS
from ottla.spark.error_text import short_errors
from ottla.spark.options import write_options
from ottla.spark.rows import find_columns
from ottla.spark.sending import BatchSender

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql.types import StructType


class Written(WriterCommitMessage):
    """The number of records a task has sent."""

    def __init__(self, records: int) -> None:
        self.records = records


class Writer:
    """Base of both writers; created in a planning process, then pickled for the tasks."""

    def __init__(
        self, given: Mapping[str, str], schema: StructType, *, is_new: bool = True
    ) -> None:
        self._options = write_options(given)
        self._columns = find_columns(schema, self._options.topic)
        limit_ms = FIRST_ANSWER_MS if is_new else None  # a running query waits longer
        sender = BatchSender(self._options, first_answer_ms=limit_ms)
        try:
            sender.check_topic()  # report errors now, not in a task
        finally:
            sender.close()

    def _write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        from ottla.spark.writing import FrameWriter

        context = TaskContext.get()
        task_id = 0 if context is None else context.partitionId()
        with short_errors():
            return Written(FrameWriter(self._options, self._columns, task_id).write(iterator))


class BatchWriter(Writer, DataSourceArrowWriter):
    """Writes a frame."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Send the rows of one task; KafkaError when they cannot be delivered."""
        return self._write(iterator)


class StreamWriter(Writer, DataSourceStreamArrowWriter):
    """Writes the micro-batches of a streaming query; Spark makes one for each of them."""

    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        super().__init__(given, schema, is_new=is_new_query(given))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Send the rows of one task; KafkaError when they cannot be delivered."""
        return self._write(iterator)


def is_new_query(given: Mapping[str, str]) -> bool:
    """Whether a query has committed no micro-batch yet; False if its checkpoint is elsewhere."""
    location = {name.lower(): value for name, value in given.items()}.get("checkpointlocation", "")
    checkpoint = Path(location.removeprefix("file:"))
    commits = checkpoint / "commits"
    return (checkpoint / "offsets").is_dir() and not (commits.is_dir() and any(commits.iterdir()))
