"""Tasks in Spark's workers: state of a task in Spark's state store, records in and out as rows.

Kafka: org.apache.kafka.streams.processor.internals.StreamTask; Spark: StatefulProcessor.

The grouping key of transformWithState is the task, not the record's key: a task sees its records
together and in order, so that stream time, late records and stores mean what they mean in Kafka.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from ottla.streams.batches import in_order
from ottla.streams.records import RawRecord
from ottla.streams.stores.backend import MemoryBackend
from ottla.streams.task import MEMORY, Task, TaskEnvironment

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ottla.streams.stages import Stage, StagePlan

OUTPUT: Final = -1
"""The stage of rows that leave the query."""
FLOW: Final = (
    "stage int, task int, origin int, topic string, partition int, offset bigint, key binary, "
    "value binary, timestamp bigint, headers array<struct<key:string,value:binary>>"
)
FIELDS: Final = tuple(part.split()[0] for part in FLOW.split(", "))
_FlowRow = Row(*FIELDS)
_Header = Row("key", "value")


class StateBackend:
    """A map of Spark's state, with what a micro-batch has read and changed in memory."""

    def __init__(self, state: Any) -> None:
        self._state = state
        self._read: dict[bytes, bytes | None] = {}
        self._changed: dict[bytes, None] = {}
        self._is_complete = False

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key."""
        if key not in self._read and not self._is_complete:
            # Spark raises an error for a key that is not there
            found = self._state.getValue((key,)) if self._state.containsKey((key,)) else None
            self._read[key] = None if found is None else bytes(found[0])
        return self._read.get(key)

    def put(self, key: bytes, value: bytes | None) -> None:
        """Set the value of a key; None removes it."""
        self._read[key] = value
        self._changed[key] = None

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield all entries in the order of their keys."""
        if not self._is_complete:
            for (key,), (value,) in self._state.iterator():
                self._read.setdefault(bytes(key), bytes(value))
            self._is_complete = True
        for key in sorted(self._read):
            value = self._read[key]
            if value is not None:
                yield key, value

    def write(self) -> None:
        """Write the changes to Spark's state."""
        for key in self._changed:
            value = self._read[key]
            if value is not None:
                self._state.updateValue((key,), (value,))
            elif self._state.containsKey((key,)):
                self._state.removeKey((key,))
        self._changed.clear()


class Outputs:
    """Collects a task's records and addresses them: to a later stage, or out of the query."""

    def __init__(self, plan: StagePlan, stage: Stage, task: int) -> None:
        self._plan, self._stage, self._task = plan, stage, task
        self._count = 0
        self.rows: list[tuple[Any, ...]] = []

    def emit(self, raw: RawRecord) -> None:
        """Take a record."""
        plan = self._plan
        target, topic = OUTPUT, raw.topic
        if topic in plan.targets and topic not in plan.real_topics:
            target = plan.targets[topic]
        topic = plan.real_topics.get(topic, topic)
        partition = -1 if raw.partition is None else raw.partition
        headers = [_Header(name, value) for name, value in raw.headers]
        place = (target, max(partition, 0), self._task, topic, partition, self._count)
        self.rows.append((*place, raw.key, raw.value, raw.timestamp, headers))
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
    )


class StageProcessor(StatefulProcessor):
    """Runs the tasks of a stage that has state; rows of other stages pass through."""

    def __init__(self, plan: StagePlan, stage: Stage) -> None:
        self._plan, self._stage = plan, stage
        self._states: dict[str, Any] = {}

    def init(self, handle: Any) -> None:
        """Declare a map for each store."""
        names = {MEMORY: "memory"}
        names.update({name: f"store{number}" for number, name in enumerate(self._stage.stores)})
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
        backends = {name: StateBackend(state) for name, state in self._states.items()}
        outputs = Outputs(self._plan, self._stage, task)
        environment = TaskEnvironment(
            self._plan.topology.config,
            backends.__getitem__,
            outputs.emit,
            _now_ms,
            self._plan.partitions,
        )
        run = Task(self._plan.topology, self._stage.nodes, environment)
        for record in in_order(_with_origins(rows), self._stage.global_topics):
            run.process(record)
        run.punctuate_wall_clock()
        run.flush()
        run.close()
        for backend in backends.values():
            backend.write()
        for row in outputs.rows:
            yield _FlowRow(*row)

    def close(self) -> None:
        """Do nothing: the state is Spark's."""


class StatelessStage:
    """Runs the tasks of a stage without state over Arrow batches; other rows pass through."""

    def __init__(self, plan: StagePlan, stage: Stage) -> None:
        self._plan, self._stage = plan, stage

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Process the rows of one Spark task."""
        tasks: dict[int, tuple[Task, Outputs]] = {}
        for batch in batches:
            rows = batch.to_pylist()
            others = [row for row in rows if row["stage"] != self._stage.number]
            for row in rows:
                if row["stage"] == self._stage.number:
                    row["headers"] = [tuple(one.values()) for one in row["headers"] or ()]
                    self._task(tasks, row["task"]).process(raw_record(row))
            found = [_as_dict(row) for _, outputs in tasks.values() for row in outputs.rows]
            for _, outputs in tasks.values():
                outputs.rows.clear()
            yield pa.RecordBatch.from_pylist([*others, *found], schema=batch.schema)

    def _task(self, tasks: dict[int, tuple[Task, Outputs]], number: int) -> Task:
        if number not in tasks:
            outputs = Outputs(self._plan, self._stage, number)
            environment = TaskEnvironment(
                self._plan.topology.config,
                lambda _: MemoryBackend(),
                outputs.emit,
                _now_ms,
                self._plan.partitions,
            )
            task = Task(self._plan.topology, self._stage.nodes, environment)
            tasks[number] = (task, outputs)
        return tasks[number][0]


def _with_origins(rows: Iterator[Row]) -> Iterator[tuple[int, RawRecord]]:
    for row in rows:
        yield row["origin"], raw_record(row)


def _as_dict(row: tuple[Any, ...]) -> dict[str, Any]:
    found = dict(zip(FIELDS, row, strict=True))
    found["headers"] = [one.asDict() for one in found["headers"]]
    return found


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
