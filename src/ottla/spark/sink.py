"""The writers of the sink, batch and streaming.

Kafka: org.apache.spark.sql.kafka010.{KafkaStreamingWrite, KafkaBatchWrite}. At least once: tasks
and micro-batches that Spark repeats are written again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

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

    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        self._options = write_options(given)
        self._columns = find_columns(schema, self._options.topic)
        if self._options.topic is not None:  # report errors now, not in a task
            sender = BatchSender(self._options)
            try:
                sender.partition_count(self._options.topic)
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
    """Writes the micro-batches of a streaming query."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Send the rows of one task; KafkaError when they cannot be delivered."""
        return self._write(iterator)
