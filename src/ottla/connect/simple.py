"""Connectors of at most three methods, and what makes Kafka's contract of them.

A `Source` lists its partitions and reads each from an offset; a `Sink` writes batches. Workers see
the connector that `connector_class` makes of either, and know only Kafka's contract.

Kafka: none; org.apache.kafka.connect.{source, sink} is the contract that this makes use of.
"""

from __future__ import annotations

import json
import threading
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, Final

from ottla.config.checks import NON_EMPTY
from ottla.config.definition import HIGH, ConfigDefinitions, Type
from ottla.connect.connector import (
    Connector,
    ExactlyOnceSupport,
    SinkTask,
    SourceConnector,
    SourceTask,
    UniformSinkConnector,
)
from ottla.connect.data import Schema, SchemaType, Struct
from ottla.connect.records import SinkRecord, SourceRecord
from ottla.connect.values import infer_schema

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from ottla.connect.data import Header
    from ottla.types import TopicPartition

_PARTITIONS: Final = "ottla.source.partitions"
"""The setting of a task that lists its partitions, as JSON."""
_BATCH_SIZE: Final = 500
"""Records of a poll at most, so that a task hears soon that it is to stop."""
_WAIT_S: Final = 0.5
"""Time between two reads of a source that had nothing."""


@dataclass(slots=True)
class Record:
    """A record that a `Source` has read."""

    value: Any
    offset: Mapping[str, Any]
    """Where the partition goes on after this record, in what JSON can say."""
    key: Any = None
    topic: str | None = None
    """None for the topic of the setting `topic`."""
    timestamp_ms: int | None = None
    headers: tuple[Header, ...] = ()


class Source(ABC):
    """Reads something outside into topics."""

    version: ClassVar[str] = "0"
    definitions: ClassVar[ConfigDefinitions] = ConfigDefinitions()
    """The settings of the source; `topic` is added to them."""
    runtime: ClassVar[str] = Connector.runtime

    def __init__(self, settings: Mapping[str, Any]) -> None:
        """Take the settings, converted to their types."""
        self.settings = settings

    def partitions(self) -> Sequence[Mapping[str, Any]]:
        """Return what can be read apart, which the tasks share; by default one partition."""
        return [{"source": "all"}]

    @abstractmethod
    def read(
        self, partition: Mapping[str, Any], offset: Mapping[str, Any] | None
    ) -> Iterable[Record]:
        """Return what follows the offset, None for all; nothing if there is nothing at present.

        A generator is read to its end, by the task's thread; then the next call follows.
        """

    def schema(self) -> Schema | None:
        """Return the schema of all values; None leaves them as plain Python values."""
        return None


class Sink(ABC):
    """Writes topics to something outside."""

    version: ClassVar[str] = "0"
    definitions: ClassVar[ConfigDefinitions] = ConfigDefinitions()
    runtime: ClassVar[str] = Connector.runtime

    def __init__(self, settings: Mapping[str, Any]) -> None:
        """Take the settings, converted to their types."""
        self.settings = settings

    @abstractmethod
    def write(self, records: Sequence[SinkRecord]) -> None:
        """Write records, or keep them until `flush`; RetriableException has them given again."""

    def flush(self) -> None:  # noqa: B027 - for sinks that keep records
        """Write all that was given, as its offsets are committed next."""

    def next_offset(self, partition: TopicPartition) -> int | None:
        """Return the offset after the last record that the sink has, None to trust the group.

        A sink that stores offsets in one transaction with its data is exactly once by this.
        """
        del partition
        return None


class SourceReading:
    """A source of a configuration, and its records as Connect has them."""

    def __init__(self, source_class: type[Source], config: Mapping[str, str]) -> None:
        """Make the source."""
        values = _source_definitions(source_class).parse(config)
        self._topic: str = values["topic"]
        self.source = source_class(values)
        self._schema = self.source.schema()

    def records(
        self, partition: Mapping[str, Any], offset: Mapping[str, Any] | None
    ) -> Iterator[SourceRecord]:
        """Return what follows the offset."""
        return (self._record(it, partition) for it in self.source.read(partition, offset))

    def _record(self, record: Record, partition: Mapping[str, Any]) -> SourceRecord:
        value, schema = record.value, self._schema
        if schema is None:
            schema = infer_schema(value) if isinstance(value, Struct | str | bytes) else None
        elif schema.type is SchemaType.STRUCT and isinstance(value, dict):
            value = Struct(schema, **value)
        return SourceRecord(
            record.topic or self._topic,
            key_schema=infer_schema(record.key),
            key=record.key,
            value_schema=schema,
            value=value,
            timestamp_ms=record.timestamp_ms,
            headers=record.headers,
            source_partition=partition,
            source_offset=dict(record.offset),
        )


class _SourceTask(SourceTask):
    source_class: ClassVar[type[Source]]

    def start(self, config: Mapping[str, str]) -> None:
        """Make the source; its partitions are read in turn."""
        self._reading = SourceReading(self.source_class, config)
        self._partitions: list[Mapping[str, Any]] = json.loads(config[_PARTITIONS])
        self._offsets = self.context.offsets(self._partitions)
        self._readers: dict[int, Iterator[SourceRecord]] = {}
        self._turn = 0
        self._is_stopped = threading.Event()

    def poll(self) -> Sequence[SourceRecord] | None:
        """Return the next records of the next partition that has some."""
        for _ in self._partitions:
            index, self._turn = self._turn, (self._turn + 1) % len(self._partitions)
            partition = self._partitions[index]
            if index not in self._readers:
                self._readers[index] = self._reading.records(partition, self._offsets[index])
            records = self._take(index)
            if records:
                return records
        self._is_stopped.wait(_WAIT_S)
        return None

    def stop(self) -> None:
        """End the wait of `poll`."""
        if hasattr(self, "_is_stopped"):  # `start` may have failed
            self._is_stopped.set()

    def _take(self, index: int) -> list[SourceRecord]:
        try:
            records = list(islice(self._readers[index], _BATCH_SIZE))
        except BaseException:
            # read again from the last offset, if the failure is one that may pass
            del self._readers[index]
            raise
        if records:
            self._offsets[index] = records[-1].source_offset
        if len(records) < _BATCH_SIZE:
            del self._readers[index]
        return records


class _SourceConnector(SourceConnector):
    source_class: ClassVar[type[Source]]

    def start(self, config: Mapping[str, str]) -> None:
        """Take the settings."""
        self._config = config

    def task_configs(self, tasks_max: int) -> Sequence[Mapping[str, str]]:
        """Return the settings of tasks, each with its share of the partitions."""
        values = _source_definitions(self.source_class).parse(self._config)
        partitions = self.source_class(values).partitions()
        count = min(tasks_max, len(partitions))
        return [
            {**self._config, _PARTITIONS: json.dumps([dict(it) for it in partitions[first::count]])}
            for first in range(count)
        ]

    def exactly_once_support(self, config: Mapping[str, str]) -> ExactlyOnceSupport:
        """Support it: each record carries the offset after it."""
        del config
        return ExactlyOnceSupport.SUPPORTED

    def alter_offsets(
        self,
        config: Mapping[str, str],
        offsets: Mapping[frozenset[tuple[str, Any]], Mapping[str, Any] | None],
    ) -> bool:
        """Accept all: `read` refuses a wrong offset."""
        del config, offsets
        return True


class _SinkTask(SinkTask):
    sink_class: ClassVar[type[Sink]]

    def start(self, config: Mapping[str, str]) -> None:
        """Make the sink."""
        self._sink = self.sink_class(self.sink_class.definitions.parse(config))

    def open(self, partitions: Collection[TopicPartition]) -> None:
        """Go on where the sink says that it is."""
        for partition in partitions:
            offset = self._sink.next_offset(partition)
            if offset is not None:
                self.context.seek(partition, offset)

    def put(self, records: Sequence[SinkRecord]) -> None:
        """Write records; the worker also calls without any."""
        if records:
            self._sink.write(records)

    def flush(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Have the sink write all."""
        del offsets
        self._sink.flush()


@cache
def _source_definitions(source_class: type[Source]) -> ConfigDefinitions:
    definitions = ConfigDefinitions(source_class.definitions.keys)
    if "topic" not in definitions.keys:
        definitions.define(
            "topic", Type.STRING, doc="The topic to write to", check=NON_EMPTY, importance=HIGH
        )
    return definitions


def connector_class(of: type[Any]) -> type[Any]:
    """Return the connector of a `Source` or `Sink`; any other class as it is."""
    name = of.__name__
    shared: dict[str, Any] = {"__module__": of.__module__, "__doc__": of.__doc__}
    if issubclass(of, Source):
        shared |= {"source_class": of}
        task: type[Any] = type(f"{name}Task", (_SourceTask,), shared)
        shared |= {"definitions": _source_definitions(of)}
        base: type[Connector] = _SourceConnector
    elif issubclass(of, Sink):
        task = type(f"{name}Task", (_SinkTask,), shared | {"sink_class": of})
        shared |= {"definitions": of.definitions}
        base = UniformSinkConnector  # a sink with `next_offset` goes on from its own offsets
    else:
        return of
    shared |= {"version": of.version, "runtime": of.runtime, "task_class": task}
    return type(name, (base,), shared)
