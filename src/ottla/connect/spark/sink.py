"""A `Sink` in Python as a query of Spark: a batch's partitions are its tasks.

Kafka: none; org.apache.kafka.connect.runtime.WorkerSinkTask promises the same.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from ottla.connect.errors import RetriableException
from ottla.connect.records import SinkRecord
from ottla.connect.spark.rows import TaskSettings, TopicRow
from ottla.connect.spark.source import class_at
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ottla.connect.simple import Sink

ENDS: Final = pa.schema([("topic", pa.string()), ("partition", pa.int32()), ("end", pa.int64())])
END_TYPES: Final = "topic string, partition int, end bigint"
_RETRY_S: Final = 1.0
"""Before records that a sink has refused are given again."""


def write(
    settings: TaskSettings, path: str, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Write rows of topics to the sink of a class; yield the offsets after the last of them.

    Records that the sink has by `next_offset` are passed over: Spark repeats a batch of which a
    task has failed, and the group's offsets follow after all tasks.
    """
    sink_class = class_at(path)
    sink: Sink = sink_class(sink_class.definitions.parse(settings.config))
    pipeline, _ = settings.pipeline(is_source=False)
    starts: dict[TopicPartition, int] = {}
    ends: dict[TopicPartition, int] = {}
    for batch in batches:
        records: list[SinkRecord] = []
        for values in batch.to_pylist():
            row = TopicRow(**values)
            partition = TopicPartition(row.topic, row.partition)
            if partition not in starts:
                starts[partition] = sink.next_offset(partition) or 0
            ends[partition] = row.offset + 1
            made = pipeline.from_topic(row.consumed()) if row.offset >= starts[partition] else None
            if made is not None:
                assert isinstance(made, SinkRecord)
                records.append(made)
        if records:
            _write(sink, records)
    sink.flush()
    pipeline.close()
    rows: list[dict[str, Any]] = [
        {"topic": it.topic, "partition": it.partition, "end": end} for it, end in ends.items()
    ]
    if rows:
        yield pa.RecordBatch.from_pylist(rows, schema=ENDS)


def _write(sink: Sink, records: Sequence[SinkRecord]) -> None:
    while True:
        try:
            sink.write(records)
        except RetriableException:
            time.sleep(_RETRY_S)  # a stop of the query ends this process
        else:
            return
