"""Records combined before their stage: the same last update of each row as one by one."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import Row
from pyspark.sql import types as t

from ottla.streams import (
    Consumed,
    EmitStrategy,
    Materialized,
    Processor,
    Serdes,
    StreamsBuilder,
    StreamsConfig,
    StreamsException,
    Suppressed,
    TimeWindows,
    count_rows,
    expr,
    log_and_continue,
    max_of,
    min_of,
    sum_of,
)
from ottla.streams.columns.combining import Combiner
from ottla.streams.columns.operators import TypedInput
from ottla.streams.data.records import RawRecord
from ottla.streams.plan.plan import FIELDS, OUTPUT, plan_for
from ottla.streams.processors.aggregates import Fold
from ottla.streams.run.spark_tasks import BATCH_TIME, StageProcessor, StageWork, in_order
from ottla.testing import PipelineDriver
from tests.soaks import with_soaks
from tests.streams.run.test_spark_tasks import SCHEMA, Handle, results

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.streams import KGroupedStream, KTable

Given = list[list[tuple[int, bytes | None, bytes | None, int]]]
"""Micro-batches of origin, key, value and timestamp."""
WINDOWS = TimeWindows.of_size_and_grace(20, 15)
COUNTS: dict[str, Callable[[KGroupedStream], KTable]] = {
    "all": lambda rows: rows.count(),
    "tumbling": lambda rows: rows.windowed_by(WINDOWS).count(),
    "hopping": lambda rows: rows.windowed_by(WINDOWS.advance_by(7)).count(),
    "suppressed": lambda rows: (
        rows.windowed_by(WINDOWS).count().suppress(Suppressed.until_window_closes())
    ),
}


def counts(count: Callable[[KGroupedStream], KTable], config: StreamsConfig) -> StreamsBuilder:
    """Return a topology that counts."""
    builder = StreamsBuilder(config)
    rows = builder.stream("in", consumed=Consumed(value=Serdes.bytes()))
    count(rows.group_by_key()).to_stream().to("out")
    return builder


def planned(builder: StreamsBuilder) -> StageWork:
    """Return the work of the first stage."""
    plan = plan_for(builder.build(), {"in": 1, "out": 1})
    return StageWork.of(plan, plan.stages[0], {})


def flow(stage: int, number: int, given: tuple[int, Any, Any, int]) -> dict[str, Any]:
    """Return a row for a stage."""
    origin, key, value, time = given
    place = (stage, 0, origin, "in", origin, number)
    return dict(zip(FIELDS, (*place, key, value, time, []), strict=True))


def run_combined(work: StageWork, batches: Given) -> tuple[list[RawRecord], int]:
    """Return what the first stage writes, and how many parts it was given."""
    handle, found, count = Handle(), [], 0
    for batch in batches:
        parts: list[dict[str, Any]] = []
        for origin in sorted({one[0] for one in batch}):  # a task of Spark each
            rows = [flow(0, n, one) for n, one in enumerate(batch) if one[0] == origin]
            frames = [
                pa.RecordBatch.from_pylist(rows[n : n + 5], SCHEMA) for n in range(0, len(rows), 5)
            ]
            for frame in Combiner(work.config, work.inputs)(frames):
                parts += frame.to_pylist()
        letters = [one for one in parts if one["stage"] == OUTPUT]
        mine = [Row(**one, **{BATCH_TIME: 0}) for one in parts if one["stage"] != OUTPUT]
        count += len(mine)
        processor = StageProcessor(work)
        processor.init(handle)
        made = results(processor.handleInputRows((0,), iter(mine), None)) if mine else []
        rows_out = [
            *letters,
            *(one.asDict() for one in made),
        ]
        own = [one["key"] for one in rows_out if one["topic"] == "out"]
        assert len(own) == len(set(own))
        found += [
            RawRecord(one["topic"], one["key"], one["value"], one["timestamp"], partition=0)
            for one in rows_out
        ]
    return found, count


def run_one_by_one(builder: StreamsBuilder, batches: Given) -> list[RawRecord]:
    """Return what the pipeline driver writes, given the records in a task's order."""
    with PipelineDriver(builder.build()) as driver:
        for batch in batches:
            records = [
                (one[0], RawRecord("in", *one[1:], partition=one[0], offset=n))
                for n, one in enumerate(batch)
            ]
            for record in in_order(records, set()):
                driver.pipe_raw(record)
        return list(driver.written("out"))


def last(found: list[RawRecord]) -> dict[Any, Any]:
    """Return the last value and time of each key."""
    return {one.key: (one.value, one.timestamp) for one in found if one.topic == "out"}


def generated(seed: int) -> Given:
    """Return micro-batches with late records and null values, of one queue or two.

    Null keys are in one queue only: there they do not tell the time to another one.
    """
    rng = random.Random(seed)
    keys, origins = ((b"a", b"b", None), 1) if seed % 2 else ((b"a", b"b", b"c"), 2)
    time, batches = 0, []
    for _ in range(4):
        batch = []
        for _ in range(rng.randrange(1, 30)):
            time += rng.choice((0, 1, 2, 9))
            key = rng.choice(keys)
            value = rng.choice((b"x", b"y", None))
            batch.append(
                (rng.randrange(origins), key, value, max(time - rng.choice((0, 0, 3, 25, 60)), 0))
            )
        batches.append(batch)
    return batches


@pytest.mark.parametrize("kind", COUNTS)
@pytest.mark.parametrize("cache", [10_000_000, 1])
@pytest.mark.parametrize("seeds", with_soaks([range(1), range(1, 6)]))
def test_counts_end_as_one_by_one(kind: str, cache: int, seeds: range) -> None:
    """Late records as well; with a small cache parts are given on earlier."""
    config = StreamsConfig(statestore_cache_max_bytes=cache)
    for seed in seeds:
        batches = generated(seed)
        found, count = run_combined(planned(counts(COUNTS[kind], config)), batches)
        expected = run_one_by_one(counts(COUNTS[kind], config), batches)
        assert last(found) == last(expected), seed
        if kind == "suppressed":
            assert sorted(found) == sorted(expected)
        assert count <= 4 * sum(map(len, batches))


def with_types(fold: Fold) -> None:
    """Stand in for the columns' operator, whose types Spark finds."""
    schema = t.StructType(
        [
            t.StructField("sum", t.LongType()),
            t.StructField("low", t.DoubleType()),
            t.StructField("high", t.StringType()),
        ]
    )
    fold.operator = type("Operator", (), {})
    fold.operator.outputs = TypedInput(Serdes.string(), Serdes.json(schema=schema))


def test_aggregates_of_operands() -> None:
    """Sums and extremes of what columns have made, NULL and NaN among them."""
    fold = Fold({"n": "count", "sum": "sum", "low": "min", "high": "max"})
    with_types(fold)
    builder = StreamsBuilder()
    rows = builder.stream("in").group_by_key()
    rows.windowed_by(WINDOWS).aggregate(fold.empty, fold).to_stream(lambda key, _: key.key).to(
        "out"
    )
    work = planned(builder)
    values: list[Any] = [
        {"sum": 1, "low": 2.5, "high": "2013-01-01"},
        {"sum": None, "low": -1.0, "high": "b"},
        {"sum": 5, "low": None, "high": None},
        None,
    ]
    given: list[Any] = [
        (0, b"k", None if one is None else Serdes.json().serialize(one), 1) for one in values
    ]
    found, count = run_combined(work, [given, [(0, b"k", b'{"sum":1,"low":"NaN","high":"a"}', 2)]])
    assert count == 2
    assert Serdes.json().deserialize(found[0].value) == {"n": 4, "sum": 6, "low": -1.0, "high": "b"}
    assert Serdes.json().deserialize(found[1].value)["sum"] == 7


def test_unreadable_records_go_to_the_handler() -> None:
    """As without combining: the application fails and names the record, or writes it elsewhere."""
    rows: Given = [[(0, b"k", b"1", 1), (0, b"k", b"{bad", 2), (0, b"\xff", b"1", 3)]]

    def made(**settings: Any) -> StreamsBuilder:
        builder = StreamsBuilder(StreamsConfig(**settings))
        builder.stream("in").group_by_key().count().to_stream().to("out")
        return builder

    with pytest.raises(StreamsException, match=r"topic=in, partition=0, offset=1: Serialization"):
        run_combined(planned(made()), rows)
    skips = {
        "deserialization_exception_handler": log_and_continue,
        "errors_dead_letter_queue_topic_name": "dead",
    }
    found, _ = run_combined(planned(made(**skips)), rows)
    assert [(one.topic, one.value) for one in found][:2] == [("dead", b"{bad"), ("dead", b"1")]
    assert last(found) == {b"k": ((1).to_bytes(8), 1)}


class Own(Processor):
    """A processor of a user."""


def test_what_is_not_combined() -> None:
    """Where each record counts: a join next to it, results on close, a history, no cache."""

    def stages(make: Callable[[Any], Any], **settings: Any) -> tuple[Any, ...]:
        builder = StreamsBuilder(StreamsConfig(**settings))
        make(builder.stream("in"))
        return planned(builder).inputs

    assert stages(lambda rows: rows.group_by_key().count())
    assert not stages(lambda rows: rows.group_by_key().count(), statestore_cache_max_bytes=0)
    assert not stages(lambda rows: rows.group_by_key().reduce(max))
    assert not stages(lambda rows: rows.filter(bool).group_by_key().count())
    closing = EmitStrategy.on_window_close()
    windowed = TimeWindows.of_size_with_no_grace(5)
    assert not stages(
        lambda rows: rows.group_by_key().windowed_by(windowed).emit_strategy(closing).count()
    )
    versioned = Materialized("versions", history_ms=9)
    assert not stages(lambda rows: rows.group_by_key().count(materialized=versioned))
    assert not stages(lambda rows: rows.join(rows.group_by_key().count(), lambda a, _: a).to("out"))
    assert not stages(lambda rows: rows.group_by_key().count().to_stream().process(Own))


def test_columns_name_their_aggregates() -> None:
    """Functions of Python and aggregates of columns are told apart."""
    builder = StreamsBuilder(StreamsConfig(default_value_serde=Serdes.json(schema="n BIGINT")))
    rows = builder.stream("in").group_by_key()
    rows.aggregate({"n": count_rows()})
    rows.aggregate({"low": min_of(expr("value.n")), "high": max_of(expr("value.n"))})
    rows.windowed_by(WINDOWS).reduce(sum_of(expr("value.n")))
    assert builder.build().describe().count("KSTREAM-MAPVALUES") > 1
    with pytest.raises(TypeError, match="aggregates of columns by name"):
        rows.aggregate(dict)


def test_an_aggregate_that_a_restart_adds_begins_with_the_next_row() -> None:
    """State of the program before has no value for it; what is no longer asked for is dropped."""
    before = Fold({"rows": "count", "sum": "sum"}).combined({"rows": 0, "sum": None}, [1, 5])
    after = Fold({"rows": "count", "largest": "max"})
    assert after.combined(before, [2, 7]) == {"rows": 3, "largest": 7}
    assert after.merged("key", {"rows": 1, "largest": 2}, before) == {"rows": 2, "largest": 2}
