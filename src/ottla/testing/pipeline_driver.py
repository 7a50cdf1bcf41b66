"""Runs a topology of `ottla.streams` record by record, without Spark and without a broker.

Kafka: org.apache.kafka.streams.TopologyTestDriver, TestInputTopic, TestOutputTopic.

It runs the same processors as Spark does, on stores in memory. A record is processed to its end,
internal topics included, before the next one.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from ottla.streams.data.records import RawRecord, Record, TaskId
from ottla.streams.errors import StreamsException
from ottla.streams.plan.plan import nodes_of_task
from ottla.streams.run.task import Task, TaskEnvironment
from ottla.streams.stores.backend import MemoryBackend

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from ottla.streams.data.serdes import Serde
    from ottla.streams.topology.topology import SubTopology, Topology


class InputTopic:
    """A topic that records are written to."""

    def __init__(self, driver: PipelineDriver, name: str, key: Serde, value: Serde) -> None:
        self._driver, self._name = driver, name
        self._key, self._value = key, value

    def pipe(
        self,
        key: Any,
        value: Any,
        timestamp: int | None = None,
        headers: tuple[tuple[str, bytes | None], ...] = (),
    ) -> None:
        """Process a record; its time is the wall clock's unless it is given."""
        time = self._driver.now_ms if timestamp is None else timestamp
        data = (self._key.serialize(key), self._value.serialize(value))
        self._driver.pipe_raw(RawRecord(self._name, *data, time, headers))


class OutputTopic:
    """A topic that records are read from."""

    def __init__(self, driver: PipelineDriver, name: str, key: Serde, value: Serde) -> None:
        self._driver, self._name = driver, name
        self._key, self._value = key, value

    def read(self) -> Record:
        """Return the next record; StreamsException when there is none."""
        found = self._driver.written(self._name)
        if not found:
            raise StreamsException(f"no record in {self._name}")
        return self._decoded(found.popleft())

    def read_all(self) -> list[Record]:
        """Return all records not read yet."""
        found = self._driver.written(self._name)
        records = [self._decoded(record) for record in found]
        found.clear()
        return records

    def read_pairs(self) -> list[tuple[Any, Any]]:
        """Return keys and values of all records not read yet."""
        return [(record.key, record.value) for record in self.read_all()]

    @property
    def is_empty(self) -> bool:
        """Whether all records are read."""
        return not self._driver.written(self._name)

    def _decoded(self, raw: RawRecord) -> Record:
        key = self._key.deserialize(raw.key)
        return Record(key, self._value.deserialize(raw.value), raw.timestamp, raw.headers)


class PipelineDriver:
    """A topology with one task for each of its parts."""

    def __init__(self, topology: Topology, *, now_ms: int = 0) -> None:
        self.topology = topology
        self.now_ms = now_ms
        self._pending: deque[RawRecord] = deque()
        self._written: dict[str, deque[RawRecord]] = {}
        named = [sink.topic for sink in topology.sinks() if isinstance(sink.topic, str)]
        self._partitions = dict.fromkeys([*topology.internal_topics, *named], 1)
        self._offsets: dict[str, int] = {}
        self._backends: dict[tuple[int, str], MemoryBackend] = {}
        self._parts = [part for part in topology.sub_topologies() if part.sources()]
        self._tasks = [self._task(part) for part in self._parts]

    def input_topic(
        self, name: str, key: Serde | None = None, value: Serde | None = None
    ) -> InputTopic:
        """Return a topic to write to, with the serdes of the node that reads it."""
        source = self.topology.source_of(name)
        if source is None:
            raise StreamsException(f"Unknown topic: {name}")
        config = self.topology.config
        return InputTopic(
            self,
            name,
            key or source.key or config.default_key_serde,
            value or source.value or config.default_value_serde,
        )

    def output_topic(
        self, name: str, key: Serde | None = None, value: Serde | None = None
    ) -> OutputTopic:
        """Return a topic to read from, with the serdes of the node that writes it."""
        sinks = [sink for sink in self.topology.sinks() if sink.topic == name]
        config = self.topology.config
        own_key = sinks[0].key if sinks else None
        own_value = sinks[0].value if sinks else None
        return OutputTopic(
            self,
            name,
            key or own_key or config.default_key_serde,
            value or own_value or config.default_value_serde,
        )

    def store(self, name: str) -> Any:
        """Return a store, to look at what is in it."""
        for task in self._tasks:
            if name in task.stores:
                return task.stores[name]
        raise StreamsException(f"the topology has no store {name}")

    def advance_time(self, duration_ms: int) -> None:
        """Advance the wall clock and call what it makes due."""
        self.now_ms += duration_ms
        for task in self._tasks:
            task.punctuate_wall_clock()
            self._process_pending()

    def restart(self) -> None:
        """Write all state and go on with new tasks, as after the end of a micro-batch."""
        for task in self._tasks:
            task.flush()
            task.close()
        self._tasks = [self._task(part) for part in self._parts]

    def pipe_raw(self, raw: RawRecord) -> None:
        """Process a record of bytes."""
        self._pending.append(raw)
        self._process_pending()

    def written(self, topic: str) -> deque[RawRecord]:
        """Return the records of a topic that were not read yet."""
        return self._written.setdefault(topic, deque())

    @property
    def dropped(self) -> int:
        """The number of records that were skipped."""
        return sum(task.dropped for task in self._tasks)

    def close(self) -> None:
        """Close all processors."""
        for task in self._tasks:
            task.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _task(self, part: SubTopology) -> Task:
        def backend(name: str) -> MemoryBackend:
            return self._backends.setdefault((part.number, name), MemoryBackend())

        environment = TaskEnvironment(
            self.topology.config,
            backend,
            self._emit,
            lambda: self.now_ms,
            self._partitions,
            task_id=TaskId(part.number, 0),
            find_count=lambda _: 1,
        )
        nodes = part.nodes if part.is_global else nodes_of_task(self.topology, part)
        return Task(self.topology, nodes, environment)

    def _emit(self, raw: RawRecord) -> None:
        if raw.topic not in self.topology.internal_topics:
            self.written(raw.topic).append(raw)
        if self.topology.source_of(raw.topic) is not None:
            self._pending.append(raw)

    def _process_pending(self) -> None:
        while self._pending:
            raw = self._pending.popleft()
            offset = self._offsets[raw.topic] = self._offsets.get(raw.topic, -1) + 1
            for task in self._tasks:
                if task.reads(raw.topic):
                    task.process(raw._replace(partition=raw.partition or 0, offset=offset))
