"""Tasks as Spark's workers run them, on states in memory: no session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import Row

from ottla.streams import (
    Processor,
    Produced,
    Record,
    Serdes,
    StreamsBuilder,
    StreamsConfig,
    TableJoined,
)
from ottla.streams.plan.plan import DIGEST, FIELDS, OUTPUT, Plan, plan_for
from ottla.streams.run.spark_tasks import (
    BATCH_TIME,
    StageProcessor,
    StageWork,
    StatelessStage,
)
from ottla.streams.run.task import unknown_count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SCHEMA = pa.schema(
    [
        pa.field("stage", pa.int32(), nullable=False),  # as of a literal in Spark
        ("task", pa.int32()),
        ("origin", pa.int32()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("timestamp", pa.int64()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)


class MapState:
    """A map as Spark gives it: keys and values are tuples of one field."""

    def __init__(self) -> None:
        self.data: dict[tuple[Any, ...], tuple[Any, ...]] = {}

    def containsKey(self, key: tuple[Any, ...]) -> bool:  # noqa: N802 - Spark's
        return key in self.data

    def getValue(self, key: tuple[Any, ...]) -> tuple[Any, ...]:  # noqa: N802 - Spark's
        return self.data[key]

    def updateValue(self, key: tuple[Any, ...], value: tuple[Any, ...]) -> None:  # noqa: N802 - Spark's
        self.data[key] = value

    def removeKey(self, key: tuple[Any, ...]) -> None:  # noqa: N802 - Spark's
        del self.data[key]

    def iterator(self) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...]]]:
        return iter(list(self.data.items()))


class Handle:
    """Gives the same map for a name, as over micro-batches."""

    def __init__(self) -> None:
        self.maps: dict[str, MapState] = {}

    def getMapState(self, name: str, key: str, value: str) -> MapState:  # noqa: N802 - Spark's
        return self.maps.setdefault(name, MapState())


def plan() -> Plan:
    """Return two stages: one without state, and counts."""
    builder = StreamsBuilder()
    numbers = builder.stream("in").filter(lambda _, value: value > 0)
    numbers.to("positive")
    numbers.group_by(lambda _, value: str(value % 2)).count().to_stream().to("counts")
    return plan_for(builder.build(), {"in": 1, "counts": 3})


def flow(stage: int, topic: str, offset: int, key: bytes, value: bytes) -> dict[str, Any]:
    """Return a row of the query."""
    headers = [{"key": "h", "value": b"1"}]
    place = (stage, 0, 0, topic, 0, offset)
    return dict(zip(FIELDS, (*place, key, value, 10 * offset, headers), strict=True))


def test_a_stage_without_state_runs_over_arrow() -> None:
    """Rows of other stages pass; results are addressed to the next stage or out of the query."""
    made = plan()
    rows = [flow(0, "in", n, b"k", b"%d" % n) for n in range(3)]
    rows.append(flow(1, "other", 0, b"k", b"v"))
    batch = pa.RecordBatch.from_pylist(rows, schema=SCHEMA)
    (found,) = StatelessStage(StageWork(made, made.stages[0]))([batch])
    (target,) = made.targets
    assert [(one["stage"], one["topic"], one["value"]) for one in found.to_pylist()] == [
        (1, "other", b"v"),
        (OUTPUT, "positive", b"1"),
        (1, target, b"1"),
        (OUTPUT, "positive", b"2"),
        (1, target, b"2"),
    ]
    assert found.to_pylist()[1]["headers"] == [{"key": "h", "value": b"1"}]


def test_state_lasts_over_micro_batches() -> None:
    """Each is processed by a new processor, in the order of offsets; other rows pass."""
    made, handle = plan(), Handle()
    (target,) = made.targets
    found = []
    for batch in range(2):
        processor = StageProcessor(StageWork(made, made.stages[1]))
        processor.init(handle)
        rows = []
        for n in (1, 0):
            row = flow(1, target, 2 * batch + n, b"0", b"4")
            row["headers"] = [Row(key="h", value=b"1")]
            rows.append(Row(**row, **{BATCH_TIME: 0}))
        found += results(processor.handleInputRows((0,), iter(rows), None))
    counts = [(one["stage"], one["topic"], one["value"], one["timestamp"]) for one in found]
    assert counts == [(OUTPUT, "counts", n.to_bytes(8), 10 * (n - 1)) for n in (1, 2, 3, 4)]
    assert found[0]["partition"] in range(3)
    others = [Row(stage=0)]
    assert list(processor.handleInputRows((-1,), iter(others), None)) == others


class Place(Processor):
    """Forwards the application and the task."""

    def process(self, record: Record) -> None:
        """Process a record."""
        context = self.context
        self.context.forward(record.with_value(f"{context.application_id()} {context.task_id()}"))


def stateful_row(stage: int, topic: str, key: bytes, value: bytes, partition: int = 0) -> Row:
    """Return a row of a stage with state."""
    row = flow(stage, topic, 0, key, value)
    row.update(partition=partition, headers=[Row(key="h", value=b"1")])
    return Row(**row, **{BATCH_TIME: 0})


def outputs(
    made: Plan,
    stage: int,
    task: int,
    *rows: Row,
    find_count: Callable[[str], int | None] = unknown_count,
) -> list[Row]:
    """Return what a task makes of rows, with new state."""
    work = StageWork(made, made.stages[stage], find_count=find_count)
    processor = StageProcessor(work)
    processor.init(Handle())
    return results(processor.handleInputRows((task,), iter(rows), None))


def results(rows: Iterator[Row]) -> list[Row]:
    """Return the rows that are records, less the digest of the state."""
    *found, digest = rows
    assert digest["stage"] == DIGEST
    return found


def test_a_processor_knows_its_task() -> None:
    """Sub-topology and partition, as in Kafka."""
    text = Serdes.string()
    builder = StreamsBuilder(StreamsConfig("app", text, text))
    builder.stream("other").to("out")
    builder.stream("in").process(Place).to("out")
    made = plan_for(builder.build(), {"other": 1, "in": 4, "out": 1})
    found = outputs(made, 1, 3, stateful_row(1, "in", b"k", b"v"))
    assert [one["value"] for one in found] == [b"app 1_3"]


def test_a_partitioner_chooses_one_partition_or_several_or_none() -> None:
    """Kafka: KIP-837; None is the key's partition, as without a partitioner."""
    text = Serdes.string()
    builder = StreamsBuilder(StreamsConfig("app", text, text))
    chosen: dict[str, Any] = {"one": 2, "all": {0, 1, 2}, "drop": (), "key": None}
    stream = builder.stream("in").process(Place)
    stream.to("out", Produced(partitioner=lambda _topic, key, _value, _count: chosen[key]))
    stream.to("plain")
    made = plan_for(builder.build(), {"in": 1, "out": 3, "plain": 3})
    rows = [stateful_row(0, "in", key.encode(), b"v") for key in chosen]
    found: dict[tuple[str, bytes], list[int]] = {}
    for one in outputs(made, 0, 0, *rows):
        found.setdefault((one["topic"], one["key"]), []).append(one["partition"])
    assert found.pop(("out", b"key")) == found[("plain", b"key")]
    placed = {key.decode(): value for (topic, key), value in found.items() if topic == "out"}
    assert placed == {"one": [2], "all": [0, 1, 2]}


def test_a_partitioner_places_records_of_topics_that_a_function_names() -> None:
    """Their numbers of partitions are found by the record, where a place depends on them."""
    text = Serdes.string()
    builder = StreamsBuilder(StreamsConfig("app", text, text))
    stream = builder.stream("in").process(Place)
    produced = Produced(partitioner=lambda _topic, _key, _value, count: count - 1)
    stream.to(lambda key, _value, _context: f"to-{key}", produced)
    stream.to(lambda key, _value, _context: f"by-key-{key}")
    made = plan_for(builder.build(), {"in": 1, "to-known": 2})
    asked = []

    def find(topic: str) -> int:
        asked.append(topic)
        return 5

    rows = [stateful_row(0, "in", key, b"v") for key in (b"known", b"new")]
    found = {one["topic"]: one["partition"] for one in outputs(made, 0, 0, *rows, find_count=find)}
    assert found == {"to-known": 1, "by-key-known": -1, "to-new": 4, "by-key-new": -1}
    assert asked == ["to-new"]


def test_partitioners_place_the_internal_records_of_a_foreign_key_join() -> None:
    """Subscriptions go to the right row's partition, answers by the left row's key (KIP-775)."""
    text = Serdes.string()
    calls = []

    def by(*keys: str) -> Any:
        def partition(topic: str, key: str, value: Any, count: int) -> int:
            calls.append((key, value, count))
            return keys.index(key)

        return partition

    builder = StreamsBuilder(StreamsConfig("app", text, text))
    left, right = builder.table("left"), builder.table("right")
    joined = TableJoined(partitioner=by("x", "l"), other_partitioner=by("r", "s", "t"))
    left.join(
        right, lambda a, b: a + b, foreign_key=lambda _, value: value, table_joined=joined
    ).to_stream().to("out")
    made = plan_for(builder.build(), {"left": 2, "right": 3, "out": 1})
    (at_left,) = (n for n, one in enumerate(made.stages) if "left" in one.topics)
    (at_right,) = (n for n, one in enumerate(made.stages) if "right" in one.topics)
    number = made.stages[at_left].number
    (sent,) = outputs(made, at_left, 0, stateful_row(number, "left", b"l", b"t"))
    assert (sent["partition"], sent["task"]) == (2, 2)
    number = made.stages[at_right].number
    internal = next(topic for topic in made.stages[at_right].topics if topic != "right")
    rows = (
        stateful_row(number, internal, sent["key"], sent["value"]),
        stateful_row(number, "right", b"t", b"T"),
    )
    found = outputs(made, at_right, 2, *rows)
    assert {one["partition"] for one in found} == {1}
    assert calls == [("t", None, 3), *[("l", None, 2)] * len(found)]
