"""Tasks in Spark's workers: state of a task in Spark's state store, records in and out as rows.

Kafka: org.apache.kafka.streams.processor.internals.StreamTask; Spark: StatefulProcessor.

The grouping key of transformWithState is the task, not the record's key: a task sees its records
together and in order, so that stream time, late records and stores mean what they mean in Kafka.
"""

from __future__ import annotations

import heapq
import json
import math
import time
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import xxhash
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from ottla.spark.cluster import open_cluster
from ottla.spark.options import Options
from ottla.spark.processes import note_use
from ottla.streams.columns.combining import combined_inputs
from ottla.streams.data.records import RawRecord, TaskId
from ottla.streams.plan.plan import DIGEST, FIELDS
from ottla.streams.run.task import MEMORY, Task, TaskEnvironment, TypedEntry, unknown_count
from ottla.streams.stores.backend import MemoryBackend, OrderedKeys

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence

    from ottla.streams.columns.combining import Input
    from ottla.streams.columns.operators import TypedInput
    from ottla.streams.config import StreamsConfig
    from ottla.streams.plan.paths import Edge
    from ottla.streams.plan.plan import Plan, Stage
    from ottla.streams.stores.backend import Backend


def in_order(
    records: Iterable[tuple[int, RawRecord]], global_topics: Container[str]
) -> Iterator[RawRecord]:
    """Yield records with their origins: of all queues' heads the one with the lowest timestamp.

    A queue is what came from one partition, in the order of its offsets. Global topics come first.
    """
    queues: dict[tuple[str, int], list[RawRecord]] = {}
    for origin, record in records:
        queues.setdefault((record.topic, origin), []).append(record)
    heads = []
    for name, queue in sorted(queues.items()):
        queue.sort(key=lambda record: record.offset)
        if name[0] in global_topics:
            yield from queue
        else:
            heads.append((queue[0].timestamp, name, 0))
    heapq.heapify(heads)
    while heads:
        _, name, number = heapq.heappop(heads)
        queue = queues[name]
        yield queue[number]
        if number + 1 < len(queue):
            heapq.heappush(heads, (queue[number + 1].timestamp, name, number + 1))


KNOWN_S: Final = 300.0
"""For how long a number is taken as it was found: `metadata.max.age.ms`."""
_known: dict[tuple[str, str], tuple[int, float]] = {}
"""Numbers by the brokers' addresses and the topic, and when they were found: a worker lasts over
many micro-batches."""


class TopicCounts:
    """Finds the number of partitions of a topic; it goes to the workers with the work of stages."""

    def __init__(self, options: Mapping[str, str]) -> None:
        """Take the options of the source and the sink."""
        self._config = Options(options).connection_config()

    def __call__(self, topic: str) -> int:
        """Return the number; KafkaError where there is no such topic, or no answer."""
        place = (self._config["bootstrap.servers"], topic)
        count, found_s = _known.get(place, (0, -math.inf))
        if time.monotonic() - found_s > KNOWN_S:
            count = self._asked(topic)
            _known[place] = count, time.monotonic()
        return count

    def _asked(self, topic: str) -> int:
        with open_cluster(self._config) as cluster:
            return len(cluster.named_topics([topic])[topic].leaders)


BATCH_TIME: Final = "batch_time"
"""The column of the time of the micro-batch, which Spark keeps in its checkpoint: repeated, a
micro-batch has the same one."""
_FlowRow = Row(*FIELDS)
_Header = Row("key", "value")


class StateBackend:
    """A map of Spark's state, with what a micro-batch has read and changed in memory."""

    def __init__(self, state: Any) -> None:
        self._state = state
        self._read: dict[bytes, bytes | None] = {}
        self._changed: dict[bytes, None] = {}
        self._order: OrderedKeys | None = None
        """None until a scan has read all keys."""

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key."""
        if key not in self._read and self._order is None:
            # Spark raises an error for a key that is not there
            found = self._state.getValue((key,)) if self._state.containsKey((key,)) else None
            self._read[key] = None if found is None else bytes(found[0])
        return self._read.get(key)

    def put(self, key: bytes, value: bytes | None) -> None:
        """Set the value of a key; None removes it."""
        self._read[key] = value
        self._changed[key] = None
        if self._order is not None:
            (self._order.remove if value is None else self._order.add)(key)

    def items(self, first: bytes = b"", end: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """Yield the entries from a key on, up to another (exclusive), in the order of keys."""
        if self._order is None:
            for (key,), (value,) in self._state.iterator():
                self._read.setdefault(bytes(key), bytes(value))
            self._order = OrderedKeys(key for key, value in self._read.items() if value is not None)
        for key in self._order.between(first, end):
            value = self._read[key]
            if value is not None:
                yield key, value

    def write(self, name: str) -> int:
        """Write the changes to Spark's state; return their digest, in any order."""
        digest = 0
        for key in self._changed:
            value = self._read[key]
            digest += _digest(name, key, value)
            if value is not None:
                self._state.updateValue((key,), (value,))
            elif self._state.containsKey((key,)):
                self._state.removeKey((key,))
        self._changed.clear()
        return digest


def _digest(store: str, key: bytes, value: bytes | None) -> int:
    """Return a number of 64 bits for a change; lengths keep its parts apart."""
    head = f"{store} {len(key)} {-1 if value is None else len(value)} ".encode()
    return xxhash.xxh3_64_intdigest(b"".join((head, key, value or b"")))


@dataclass(frozen=True)
class StageWork:
    """A stage of a plan as workers run it."""

    plan: Plan
    stage: Stage
    entries: Mapping[int, TypedEntry] = field(default_factory=dict)
    """Where records come in from paths, by port."""
    exits: Mapping[Edge, list[tuple[int, TypedInput]]] = field(default_factory=dict)
    """The numbers of the paths that begin between two nodes, and what is written there."""
    inputs: tuple[Input, ...] = ()
    """What is combined before it comes in, if all is (`columns.combining`)."""
    find_count: Callable[[str], int | None] = unknown_count
    """Finds the number of partitions of a topic that a function names."""

    @classmethod
    def of(
        cls,
        plan: Plan,
        stage: Stage,
        serdes: Mapping[int, TypedInput],
        find_count: Callable[[str], int | None] = unknown_count,
    ) -> StageWork:
        """Return the work of a stage; `serdes` has those of its entries and exits by number."""
        entries = {
            port: TypedEntry(entry.child, serdes[port]) for port, entry in stage.entries.items()
        }
        exits = {
            edge: [(number, serdes[number]) for number in numbers]
            for edge, numbers in stage.exits.items()
        }
        inputs = combined_inputs(plan.topology, stage, serdes) if stage.is_stateful else ()
        return cls(plan, stage, entries, exits, inputs, find_count)

    @property
    def config(self) -> StreamsConfig:
        """The settings of the application."""
        return self.plan.topology.config

    def task(
        self,
        number: int,
        outputs: Outputs,
        backend: Callable[[str], Backend],
        now_ms: Callable[[], int],
    ) -> Task:
        """Return a task of the stage."""
        environment = TaskEnvironment(
            self.config,
            backend,
            outputs.emit,
            now_ms,
            self.plan.partitions,
            self.entries,
            self.exits,
            TaskId(self.stage.sub_topology.number, number),
            self.find_count,
        )
        return Task(self.plan.topology, self.stage.nodes, environment)


class Outputs:
    """Collects a task's records and addresses them: to a later stage, or out of the query."""

    def __init__(self, plan: Plan, task: int) -> None:
        self._plan, self._task = plan, task
        self._count = 0
        self.rows: list[tuple[Any, ...]] = []

    def emit(self, raw: RawRecord) -> None:
        """Take a record."""
        headers = [_Header(name, value) for name, value in raw.headers]
        rest = (raw.key, raw.value, raw.timestamp, headers)
        if raw.port >= 0:  # to a path, whose records stay with the task
            place = (raw.port, self._task, self._task, raw.topic, 0, self._count)
            self.rows.append((*place, *rest))
        else:
            topic = self._plan.real_topics.get(raw.topic, raw.topic)
            partition = -1 if raw.partition is None else raw.partition
            for target in self._plan.readers(raw.topic):
                place = (target, max(partition, 0), self._task, topic, partition, self._count)
                self.rows.append((*place, *rest))
        self._count += 1


def raw_record(row: Any) -> RawRecord:
    """Return a row's record."""
    headers = tuple((name, None if data is None else bytes(data)) for name, data in row["headers"])
    return RawRecord(
        row["topic"],
        None if row["key"] is None else bytes(row["key"]),
        None if row["value"] is None else bytes(row["value"]),
        row["timestamp"],
        headers,
        row["partition"],
        row["offset"],
        row["stage"],
    )


class StageProcessor(StatefulProcessor):
    """Runs the tasks of a stage that has state; rows of other stages pass through."""

    def __init__(self, work: StageWork) -> None:
        self._work, self._stage = work, work.stage
        self._states: dict[str, Any] = {}

    def init(self, handle: Any) -> None:
        """Declare a map for each store."""
        note_use()
        names = {MEMORY: "memory"}
        names.update({name: self._stage.state_name(name) for name in self._stage.stores})
        for name, state in names.items():
            self._states[name] = handle.getMapState(state, "key binary", "value binary")

    def handleInputRows(  # noqa: N802 - Spark's
        self,
        key: Any,
        rows: Iterator[Row],
        timerValues: Any,  # noqa: ARG002, N803 - Spark's
    ) -> Iterator[Row]:
        """Process the rows of a task."""
        (task,) = key
        if task < 0:
            yield from rows
            return
        first = next(rows)
        time_ms = first[BATCH_TIME]
        backends = {name: StateBackend(state) for name, state in self._states.items()}
        outputs = Outputs(self._work.plan, task)
        run = self._work.task(task, outputs, backends.__getitem__, lambda: time_ms)
        self._process(run, chain((first,), rows))
        run.punctuate_wall_clock()
        run.flush()
        run.close()
        place = f"{self._stage.number} {task}"
        digest = sum(backend.write(f"{place} {name}") for name, backend in backends.items())
        for row in outputs.rows:
            yield _FlowRow(*row)
        yield _FlowRow(DIGEST, task, task, "", 0, _signed(digest), None, None, 0, [])

    def _process(self, run: Task, rows: Iterator[Row]) -> None:
        inputs = self._work.inputs
        if not inputs:
            for record in in_order(_with_origins(rows), self._stage.global_topics):
                run.process(record)
            return
        # no part is late by those before it, since the timestamps rise
        for part in sorted(joined_parts(inputs, rows), key=_in_time):
            run.process_part(part.topic, inputs[part.partition or 0].key, part)

    def close(self) -> None:
        """Do nothing: the state is Spark's."""


def _signed(number: int) -> int:
    """Return the lowest 64 bits as Spark's bigint."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def joined_parts(inputs: Sequence[Input], rows: Iterable[Row]) -> Iterator[RawRecord]:
    """Yield the parts of a micro-batch, one for a key and window: several Spark tasks made them.

    They come in any order, in which a sum of floating-point numbers would differ from the one that
    a repeated micro-batch makes.
    """
    found: dict[tuple[Any, ...], list[RawRecord]] = {}
    for part in sorted(map(raw_record, rows), key=_in_time):
        found.setdefault((part.partition, part.topic, part.key, _start(part)), []).append(part)
    for parts in found.values():
        first = parts[0]
        if len(parts) == 1:
            yield first
            continue
        (fold,) = (
            target.fold
            for target in inputs[first.partition or 0].targets
            if target.node == first.topic
        )
        start, *values = json.loads(first.value or b"")
        for other in parts[1:]:
            values = fold.joined(values, json.loads(other.value or b"")[1:])
        latest = max(parts, key=lambda one: one.timestamp)
        yield latest._replace(value=json.dumps([start, *values]).encode())


def _in_time(part: RawRecord) -> tuple[Any, ...]:
    """Return the place of a part among all: by time, and the same however they came."""
    place = (part.key or b"", part.partition, part.topic, int(_start(part)))
    return (part.timestamp, *place, part.offset, part.value)


def _start(part: RawRecord) -> bytes:
    """Return the start of a part's window, the first number of its list."""
    return (part.value or b"").partition(b",")[0].strip(b"[]")


class StatelessStage:
    """Runs the tasks of a stage without state over Arrow batches; other rows pass through."""

    def __init__(self, work: StageWork) -> None:
        self._work = work

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Process the rows of one Spark task."""
        note_use()
        tasks: dict[int, tuple[Task, Outputs]] = {}
        for batch in batches:
            rows = batch.to_pylist()
            addresses = set(self._work.stage.addresses)
            others = [row for row in rows if row["stage"] not in addresses]
            for row in rows:
                if row["stage"] in addresses:
                    row["headers"] = [tuple(one.values()) for one in row["headers"] or ()]
                    self._task(tasks, row["task"]).process(raw_record(row))
            found = [_as_dict(row) for _, outputs in tasks.values() for row in outputs.rows]
            for _, outputs in tasks.values():
                outputs.rows.clear()
            yield pa.RecordBatch.from_pylist([*others, *found], schema=batch.schema)

    def _task(self, tasks: dict[int, tuple[Task, Outputs]], number: int) -> Task:
        if number not in tasks:
            outputs = Outputs(self._work.plan, number)
            task = self._work.task(number, outputs, lambda _: MemoryBackend(), _no_clock)
            tasks[number] = (task, outputs)
        return tasks[number][0]


def _with_origins(rows: Iterator[Row]) -> Iterator[tuple[int, RawRecord]]:
    for row in rows:
        yield row["origin"], raw_record(row)


def _as_dict(row: tuple[Any, ...]) -> dict[str, Any]:
    found = dict(zip(FIELDS, row, strict=True))
    found["headers"] = [one.asDict() for one in found["headers"]]
    return found


def _no_clock() -> int:
    """Refuse the time: stages without state have no processors of users, who alone ask for it."""
    raise AssertionError("a stage without state has no clock")
