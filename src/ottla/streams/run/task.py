"""A task: the nodes of one sub-topology for one partition, run record by record in plain Python.

Kafka: org.apache.kafka.streams.processor.internals.{StreamTask, ProcessorContextImpl,
PunctuationQueue, RecordCollectorImpl}.

It knows no Spark and no clock. Bytes come in by `process` and leave by a function; stores lie on
backends that its caller makes.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.clients.producer.partitioner import key_hash
from ottla.streams.config import handled
from ottla.streams.data.records import RawRecord, Record, RecordContext, RecordMetadata, TaskId
from ottla.streams.data.windows import Windowed
from ottla.streams.errors import (
    FailedProcessingException,
    SerializationException,
    StreamsException,
)
from ottla.streams.processors.processor import Processor, PunctuationType
from ottla.streams.stores.opening import open_store
from ottla.streams.topology.topology import Node, ProcessorNode, SinkNode, SourceNode, matching

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from ottla.streams.columns.operators import TypedInput
    from ottla.streams.config import ErrorContext, Response, StreamsConfig
    from ottla.streams.data.serdes import Serde
    from ottla.streams.plan.paths import Edge
    from ottla.streams.stores.backend import Backend
    from ottla.streams.topology.topology import Topology

log = logging.getLogger("ottla.streams")
_CANCELLED = -2
"""The next time of a punctuation that has none."""
MEMORY = "__memory"
"""The backend of numbers that are kept with the stores."""


def unknown_count(_topic: str) -> int | None:
    """Return None: the producer chooses the partition."""
    return None


class TypedEntry(NamedTuple):
    """The node that records of a path come to, and their serdes."""

    child: str
    serdes: TypedInput


class TaskEnvironment(NamedTuple):
    """What a task gets from its caller."""

    config: StreamsConfig
    backend: Callable[[str], Backend]
    emit: Callable[[RawRecord], None]
    now_ms: Callable[[], int]
    partitions: Mapping[str, int]
    entries: Mapping[int, TypedEntry] = {}
    """Where records come in that are not of a topic, by port."""
    exits: Mapping[Edge, Collection[tuple[int, TypedInput]]] = {}
    """The ports outside the task that lie between two nodes."""
    task_id: TaskId = TaskId(0, 0)
    find_count: Callable[[str], int | None] = unknown_count
    """Returns the number of partitions of a topic that is not in `partitions`."""


@dataclass(eq=False)
class Punctuation:
    """A function that is called in intervals."""

    node: str
    interval_ms: int
    kind: PunctuationType
    callback: Callable[[int], None]
    next_ms: int
    is_cancelled: bool = False

    def cancel(self) -> None:
        """End the punctuation."""
        self.is_cancelled = True


class NodeContext:
    """The context of one processor in a task."""

    def __init__(self, task: Task, node: Node) -> None:
        self._task, self._node = task, node
        self._numbers: dict[str, int] | None = None

    def forward(self, record: Record, child: str | None = None) -> None:
        """Send a record to all successors, or to one."""
        self._task.forward(self._node, record, child)

    def get_state_store(self, name: str) -> Any:
        """Return a store that is connected to the processor."""
        return self._task.store(self._node, name)

    def schedule(
        self,
        interval_ms: int,
        kind: PunctuationType,
        callback: Callable[[int], None],
        *,
        start_ms: int | None = None,
    ) -> Punctuation:
        """Call a function with the time in regular intervals, which a start may align."""
        return self._task.schedule(self._node.name, interval_ms, kind, callback, start_ms=start_ms)

    def application_id(self) -> str:
        """Return the application's id."""
        return self._task.config.application_id

    def task_id(self) -> TaskId:
        """Return the numbers of the sub-topology and of the partition."""
        return self._task.id

    def key_serde(self) -> Serde:
        """Return the application's default serde for keys."""
        return self._task.config.default_key_serde

    def value_serde(self) -> Serde:
        """Return the application's default serde for values."""
        return self._task.config.default_value_serde

    def app_configs(self) -> dict[str, Any]:
        """Return the settings of the application by Kafka's names."""
        return self._task.config.by_name()

    def app_configs_with_prefix(self, prefix: str) -> dict[str, Any]:
        """Return the settings whose names start with a prefix, by the rest of their names."""
        found = self._task.config.by_name().items()
        return {name[len(prefix) :]: value for name, value in found if name.startswith(prefix)}

    def record_metadata(self) -> RecordMetadata | None:
        """Return where the current record came from; None in a punctuation."""
        return self._task.metadata

    def current_stream_time_ms(self) -> int:
        """Return the highest timestamp of the task's records."""
        return self._task.stream_time

    def current_system_time_ms(self) -> int:
        """Return the wall clock's time."""
        return self._task.now_ms()

    def memory(self) -> dict[str, int]:
        """Return numbers that last as long as the processor's stores."""
        if self._numbers is None:
            self._numbers = self._task.memory(self._node.name)
        return self._numbers

    def shared_memory(self, name: str) -> dict[str, int]:
        """Return numbers that several processors of the task share."""
        return self._task.memory(f"/{name}")

    def commit(self) -> None:
        """Do nothing: what is processed is committed with its micro-batch."""

    def drop(self, reason: str) -> None:
        """Count a record that is not processed, and log why."""
        self._task.drop(self._node, reason)


def _next(time_ms: int, interval_ms: int, now_ms: int) -> int:
    """Return the first time after now that is whole intervals after another, which is over."""
    return time_ms + ((now_ms - time_ms) // interval_ms + 1) * interval_ms


class Task:
    """The processors of a sub-topology with their stores."""

    def __init__(
        self, topology: Topology, nodes: Iterable[Node], environment: TaskEnvironment
    ) -> None:
        self._topology, self._environment = topology, environment
        self.config, self.id = environment.config, environment.task_id
        self._nodes = {node.name: node for node in nodes}
        self._children = {name: topology.children(name) for name in self._nodes}
        self._is_alone = all(
            one.name in self._nodes for found in self._children.values() for one in found
        )
        sources = [node for node in self._nodes.values() if isinstance(node, SourceNode)]
        self._patterns = [node for node in sources if node.pattern is not None]
        self._sources = {topic: node for node in sources for topic in node.topics}
        self._memory_backend = environment.backend(MEMORY)
        self._memories: dict[str, dict[str, int]] = {}
        self._own = self.memory("")
        self._times = self.memory("/partition")
        self.stream_time: int = self._own.get("stream_time", -1)
        self.metadata: RecordMetadata | None = None
        self.dropped = 0
        self._raw: RawRecord | None = None
        self._punctuations: list[Punctuation] = []
        self._lasting: dict[str, Punctuation] = {}
        """Those of `init`, which are scheduled again after a restart."""
        self._is_starting = True
        self._stores = self._open_stores()
        self._processors: dict[str, Processor] = {}
        for node in self._nodes.values():
            if isinstance(node, ProcessorNode):
                self._processors[node.name] = processor = node.make()
                processor.init(NodeContext(self, node))
        self._is_starting = False

    def reads(self, topic: str) -> bool:
        """Whether the task reads a topic."""
        return topic in self._sources or self._source(topic) is not None

    def _source(self, topic: str) -> SourceNode | None:
        """Return the node that reads a topic, by its name or by a pattern."""
        if topic not in self._sources and (found := matching(topic, self._patterns)):
            self._sources[topic] = found
        return self._sources.get(topic)

    @property
    def stores(self) -> dict[str, Any]:
        """The stores by name."""
        return self._stores

    def now_ms(self) -> int:
        """Return the wall clock's time."""
        return self._environment.now_ms()

    def process(self, raw: RawRecord) -> None:
        """Process a record of one of the task's topics or ports, and what it makes due."""
        self._raw = raw
        self.metadata = RecordMetadata(raw.topic, raw.partition or 0, raw.offset)
        if raw.port in self._environment.entries:
            entry = self._environment.entries[raw.port]
            key = entry.serdes.key.deserialize(raw.key)
            value = entry.serdes.value.deserialize(raw.value)
            self.stream_time = max(self.stream_time, raw.timestamp)
            self._give(self._nodes[entry.child], Record(key, value, raw.timestamp, raw.headers))
        else:
            source = self._source(raw.topic)
            assert source is not None, raw.topic
            record = self._read(source, raw)
            if record is not None:
                if not source.is_global:
                    self.stream_time = max(self.stream_time, record.timestamp)
                self.forward(source, record)
        self.metadata = self._raw = None
        self._punctuate(PunctuationType.STREAM_TIME, self.stream_time)

    def process_part(self, node: str, key: Serde, raw: RawRecord) -> None:
        """Process what records of a key make together for an aggregation (`columns.combining`)."""
        self.metadata = RecordMetadata(raw.topic, 0, raw.offset)
        self.stream_time = max(self.stream_time, raw.timestamp)
        start, *part = json.loads(raw.value or b"")
        record = Record(key.deserialize(raw.key), None, raw.timestamp, raw.headers)
        processor: Any = self._processors[node]
        processor.combine(record, start, part)
        self.metadata = None
        self._punctuate(PunctuationType.STREAM_TIME, self.stream_time)

    def punctuate_wall_clock(self) -> None:
        """Call the wall-clock punctuations that are due."""
        self._punctuate(PunctuationType.WALL_CLOCK_TIME, self.now_ms())

    def flush(self) -> None:
        """Write all state to the backends."""
        for store in self._stores.values():
            store.flush()
        self._own["stream_time"] = self.stream_time
        for name, one in self._lasting.items():
            self._own[name] = _CANCELLED if one.is_cancelled else one.next_ms
        for name, numbers in self._memories.items():
            place = name.encode() or b"/"
            if numbers:
                self._memory_backend.put(place, json.dumps(numbers).encode())
            elif self._memory_backend.get(place) is not None:
                self._memory_backend.put(place, None)

    def close(self) -> None:
        """Close the processors."""
        for processor in self._processors.values():
            processor.close()

    def memory(self, name: str) -> dict[str, int]:
        """Return the numbers that are kept under a name."""
        if name not in self._memories:
            data = self._memory_backend.get(name.encode() or b"/")
            self._memories[name] = {} if data is None else json.loads(data)
        return self._memories[name]

    def store(self, node: Node, name: str) -> Any:
        """Return a store of a node; StreamsException for one that is not connected to it."""
        if name not in self._stores or (
            name not in getattr(node, "stores", ()) and name not in self._topology.global_stores()
        ):
            raise StreamsException(
                f"Processor {node.name} has no access to StateStore {name} as the store is not "
                "connected to the processor."
            )
        return self._stores[name]

    def schedule(
        self,
        name: str,
        interval_ms: int,
        kind: PunctuationType,
        callback: Callable[[int], None],
        *,
        start_ms: int | None = None,
    ) -> Punctuation:
        """Add a punctuation: by stream time from 0 on, by the wall clock after an interval.

        With a start (KIP-1146) the first one is then, or, if that is over, the next one that is
        whole intervals later. One that is scheduled by `init` goes on after a restart, or stays
        cancelled.
        """
        if interval_ms < 1:
            raise ValueError("The minimum supported scheduling interval is 1 millisecond.")
        if start_ms is not None and start_ms < 0:
            raise ValueError("The minimum supported start time is 0, the epoch.")
        is_by_stream = kind is PunctuationType.STREAM_TIME
        now_ms = self.stream_time if is_by_stream else self.now_ms()
        first = 0 if is_by_stream else now_ms + interval_ms
        if start_ms is not None:
            first = start_ms if start_ms >= now_ms else _next(start_ms, interval_ms, now_ms)
        made = Punctuation(name, interval_ms, kind, callback, first)
        self._punctuations.append(made)
        if self._is_starting:
            own = sum(punctuation.node == name for punctuation in self._lasting.values())
            self._lasting[f"punctuation {own} of {name}"] = made
            made.next_ms = self._own.get(f"punctuation {own} of {name}", first)
            made.is_cancelled = made.next_ms == _CANCELLED
        return made

    def forward(self, node: Node, record: Record, child: str | None = None) -> None:
        """Give a record to the successors of a node."""
        children = self._children[node.name]
        if child is not None:
            children = [one for one in children if one.name == child]
            if not children:
                raise StreamsException(f"Unknown downstream node: {child}")
        for one in children:
            if self._is_alone or one.name in self._nodes:
                self._give(one, record)
            else:
                # a path of columns begins between the two nodes
                place = self.metadata or RecordMetadata("", 0, 0)
                for port, serdes in self._environment.exits.get((node.name, one.name), ()):
                    data = (serdes.key.serialize(record.key), serdes.value.serialize(record.value))
                    self._environment.emit(
                        RawRecord(place.topic, *data, record.timestamp, record.headers, port=port)
                    )

    def _give(self, node: Node, record: Record) -> None:
        if isinstance(node, SinkNode):
            self._send(node, record)
        else:
            self._run(node, record)

    def _run(self, node: Node, record: Record) -> None:
        try:
            self._processors[node.name].process(record)
        except FailedProcessingException:
            raise
        except Exception as error:  # noqa: BLE001 - a user's function
            handler = self._environment.config.processing_exception_handler
            self._handle(handler, node, self._raw, error)

    def drop(self, node: Node, reason: str) -> None:
        """Count a record that is not processed, and log why."""
        self.dropped += 1
        log.info("Skipping record: %s", reason, extra={"event": "streams.drop", "node": node.name})

    def _open_stores(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for node in self._nodes.values():
            for name in getattr(node, "stores", ()):
                if name not in found:
                    spec = self._topology.stores[name]
                    config = self._environment.config
                    found[name] = open_store(spec, self._environment.backend(name), config)
        return found

    def _read(self, source: SourceNode, raw: RawRecord) -> Record | None:
        config = self._environment.config
        try:
            key = (source.key or config.default_key_serde).deserialize(raw.key)
            value = (source.value or config.default_value_serde).deserialize(raw.value)
        except SerializationException as error:
            handler = config.deserialization_exception_handler
            self._handle(handler, source, raw, error)
            return None
        record = Record(key, value, raw.timestamp, raw.headers)
        return self._with_time(source, record)

    def _with_time(self, source: SourceNode, record: Record) -> Record | None:
        """Return the record with its extracted timestamp; None for a negative one."""
        assert self.metadata is not None
        place = f"{self.metadata.topic}-{self.metadata.partition}"
        partition_time = self._times.get(place, -1)
        timestamp = record.timestamp
        extractor = source.timestamp_extractor
        if extractor is not None:
            timestamp = extractor(record, partition_time)
        elif timestamp < 0:
            raise StreamsException(
                f"Input record at {place}, offset {self.metadata.offset} has invalid (negative) "
                f"timestamp {timestamp}. A timestamp extractor can give it another, or skip it by "
                "returning a negative one"
            )
        if timestamp < 0:
            self.drop(source, "negative extracted timestamp")
            return None
        self._times[place] = max(partition_time, timestamp)
        return record.with_timestamp(timestamp)

    def _send(self, node: SinkNode, record: Record) -> None:
        config = self._environment.config
        try:
            key = (node.key or config.default_key_serde).serialize(record.key)
            value = (node.value or config.default_value_serde).serialize(record.value)
        except SerializationException as error:
            self._handle(config.production_exception_handler, node, self._raw, error)
            return
        topic = node.topic
        if not isinstance(topic, str):
            topic = topic(record.key, record.value, self._record_context(record))
        partitions = self._partitions(node, topic, record, key)
        if not partitions:
            self.drop(node, "the partitioner has chosen no partition")
        for partition in partitions:
            emitted = RawRecord(topic, key, value, record.timestamp, record.headers, partition)
            self._environment.emit(emitted)

    def _record_context(self, record: Record) -> RecordContext:
        place = self.metadata or RecordMetadata("", -1, -1)
        return RecordContext(*place, record.timestamp, record.headers)

    def _partitions(
        self, node: SinkNode, topic: str, record: Record, key: bytes | None
    ) -> Collection[int | None]:
        """Return where a record goes; None is left to the producer."""
        count = self._environment.partitions.get(topic)
        if count is None and (node.partitioner is not None or isinstance(record.key, Windowed)):
            count = self._environment.find_count(topic)
        if count is None:
            return (None,)
        if node.partitioner is not None:
            chosen = node.partitioner(topic, record.key, record.value, count)
            if chosen is not None:
                return (chosen,) if isinstance(chosen, int) else chosen
        elif isinstance(record.key, Windowed) and key is not None:
            # as Kafka: all windows of a key lie in its partition
            width = 8 if (node.key is None or node.key.name.startswith("time")) else 16
            key = key[:-width]
        return (None if key is None else key_hash(key) % count,)

    def _handle(
        self,
        handler: Callable[[ErrorContext, Exception], Response],
        node: Node,
        raw: RawRecord | None,
        error: Exception,
    ) -> None:
        """Let a handler decide on an error; raise StreamsException if it says so."""
        self.dropped += 1
        if raw is None:  # in a punctuation
            raw = RawRecord("", None, None, self.now_ms(), partition=-1, offset=-1)
        letter = handled(self._environment.config, handler, node.name, raw, error)
        if letter is not None:
            self._environment.emit(letter)

    def _call(self, one: Punctuation, now_ms: int) -> None:
        try:
            one.callback(now_ms)
        except FailedProcessingException:
            raise
        except Exception as error:  # noqa: BLE001 - a user's function
            handler = self._environment.config.processing_exception_handler
            self._handle(handler, self._nodes[one.node], None, error)

    def _punctuate(self, kind: PunctuationType, now_ms: int) -> None:
        if now_ms < 0:
            return
        due = [
            punctuation
            for punctuation in self._punctuations
            if punctuation.kind is kind and punctuation.next_ms <= now_ms
        ]
        for one in sorted(due, key=lambda each: each.next_ms):
            if not one.is_cancelled:
                one.next_ms = _next(one.next_ms, one.interval_ms, now_ms)
                self._call(one, now_ms)
        self._punctuations = [
            punctuation for punctuation in self._punctuations if not punctuation.is_cancelled
        ]
