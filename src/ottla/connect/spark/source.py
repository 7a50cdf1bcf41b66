"""A `Source` in Python as a stream of Spark, whose partitions are the tasks of a query.

A micro-batch reads every partition of the source from its stored offset, and ends with the new
offsets as records of the offsets topic. Spark's own offset only counts the batches.

Kafka: none; org.apache.kafka.connect.runtime.ExactlyOnceWorkerSourceTask promises the same.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from ottla.connect.runtime.offsets import encode_json
from ottla.connect.simple import SourceReading
from ottla.connect.spark.offsets import OffsetLog
from ottla.connect.spark.rows import ROW_TYPES, Row, TaskSettings, frames, to_row

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

FORMAT = "ottla-connect"


def class_at(path: str) -> Any:
    """Return the class at `module:Class`."""
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)


@dataclass(frozen=True)
class SourceQuery:
    """A source as its query needs it."""

    task: TaskSettings
    path: str
    """Of the class, `module:Class`."""
    offsets_topic: str
    clients: Mapping[str, str] = field(repr=False)
    """Settings of a consumer by Kafka's names."""
    tasks_max: int
    batch_records: int
    """Of a partition of the source in a batch at most."""

    def reading(self) -> SourceReading:
        """Return the source, made of the connector's settings."""
        return SourceReading(class_at(self.path), self.task.config)

    @classmethod
    def load(cls, path: str) -> SourceQuery:
        """Read the file that the worker has written: options of Spark show up in its pages."""
        fields = json.loads(Path(path).read_text("utf-8"))
        task = TaskSettings(**fields.pop("task"))
        return cls(task, **fields)


class SourcePart(NamedTuple):
    """A partition of the source, and from where it is read."""

    partition: Mapping[str, Any]
    offset: Mapping[str, Any] | None
    key: bytes
    """Of its record in the offsets topic."""


class Share(InputPartition):
    """The partitions of a task, and from where it reads each."""

    def __init__(self, parts: Sequence[SourcePart]) -> None:
        """Take partitions of the source."""
        super().__init__(None)
        self.parts = parts


class SourceReader(DataSourceStreamReader):
    """Plans batches on the driver, and reads the shares in the tasks."""

    def __init__(self, query: SourceQuery) -> None:
        self._query = query
        self._log: OffsetLog | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Leave the connections behind: tasks read no offsets."""
        return {**self.__dict__, "_log": None}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the first batch."""
        return {"batch": 0}

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the next batch if some partition has a record, so that none is empty."""
        del limit
        reading = self._query.reading()
        has_new = any(
            next(reading.records(partition, offset), None) is not None
            for partition, offset, _ in self._parts(reading)
        )
        return {"batch": start["batch"] + has_new}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[Share]:
        """Return the shares, each with its partitions' offsets."""
        if start == end:
            return []
        parts = self._parts(self._query.reading())
        count = min(self._query.tasks_max, len(parts))
        return [Share(parts[first::count]) for first in range(count)]

    def _parts(self, reading: SourceReading) -> list[SourcePart]:
        if self._log is None:
            self._log = OffsetLog(self._query.offsets_topic, self._query.clients)
        store, name = self._log.store(), self._query.task.name
        partitions = [dict(it) for it in reading.source.partitions()]
        offsets = store.get_all(name, partitions)
        return [
            SourcePart(partition, offset, store.stored_key(name, partition))
            for partition, offset in zip(partitions, offsets, strict=True)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of a share, then their offsets."""
        assert isinstance(partition, Share)
        return frames(self._rows(partition))

    def _rows(self, share: Share) -> Iterator[Row]:
        query = self._query
        reading = query.reading()
        pipeline, _ = query.task.pipeline(is_source=True)
        for partition, offset, key in share.parts:
            last = offset
            for record in islice(reading.records(partition, offset), query.batch_records):
                last = record.source_offset
                row = to_row(pipeline, record)
                if row is not None:
                    yield row
            if last is not offset:
                yield Row(query.offsets_topic, key=key, value=encode_json(last))
        pipeline.close()

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: the sink has committed the offsets with the records."""

    def stop(self) -> None:
        """Close the connections."""
        if self._log is not None:
            self._log.close()


class SourceFormat(DataSource):
    """The source of the query; option `settings` is the path of its file."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return FORMAT

    def schema(self) -> str:
        """Return the columns that the sink writes."""
        return ROW_TYPES

    def streamReader(self, schema: StructType) -> SourceReader:  # noqa: N802 - Spark's name
        """Return the reader."""
        del schema
        return SourceReader(SourceQuery.load(self.options["settings"]))
