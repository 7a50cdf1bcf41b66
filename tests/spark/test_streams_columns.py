"""Operators with Spark columns: the same results as functions, in Spark and in the driver."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as f

from ottla.streams import (
    Branched,
    Consumed,
    Produced,
    Response,
    Serdes,
    StreamsBuilder,
    StreamsConfig,
    StreamsException,
    TimeWindows,
    TopologyException,
    count_rows,
    expr,
    log_and_continue,
    max_of,
    min_of,
    sum_of,
)
from ottla.streams.plan.plan import plan_for
from ottla.streams.run.data_frames import compile_plan
from ottla.testing import PipelineDriver
from tests.spark.marks import SPARK_WARNINGS

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from ottla.streams import Topology

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.spark,
    pytest.mark.timeout(900),
    *SPARK_WARNINGS,
]
ORDERS = Consumed(value=Serdes.json(schema="item STRING, price DOUBLE, tags ARRAY<STRING>"))
ROWS = [
    ("a", {"item": "tea", "price": 2.5, "tags": ["x", "y"]}),
    ("b", {"item": "nut", "price": 0.5, "tags": []}),
    (None, {"item": "tea", "price": 3.0, "tags": ["é"]}),
    ("c", None),
    ("d", {"item": None, "price": 7.0, "tags": None}),
]
Found = dict[str, list[tuple[Any, Any]]]


def on_spark(spark: SparkSession, topology: Topology, rows: list[tuple[Any, Any]]) -> Found:
    """Return what a topology writes by topic, as raw keys and values, run over one frame."""
    plan = plan_for(topology, {"orders": 2})
    data = [
        (
            None if key is None else key.encode(),
            value if isinstance(value, bytes) else Serdes.json().serialize(value),
            "orders",
            number % 2,
            number,
        )
        for number, (key, value) in enumerate(rows)
    ]
    records = (
        spark.createDataFrame(
            data, "key binary, value binary, topic string, partition int, offset bigint"
        )
        .coalesce(1)
        .withColumn("timestamp", f.timestamp_millis(f.col("offset") * 1000))
        .withColumn("headers", f.array().cast("array<struct<key:string,value:binary>>"))
    )
    found: Found = {}
    for row in compile_plan(plan, records).collect():
        pair = tuple(None if one is None else bytes(one) for one in (row["key"], row["value"]))
        found.setdefault(row["topic"], []).append(pair)  # type: ignore[arg-type] # two
    return found


def in_driver(topology: Topology, rows: list[tuple[Any, Any]]) -> Found:
    """Return the same from the pipeline driver."""
    found: Found = {}
    with PipelineDriver(topology) as driver:
        for number, (key, value) in enumerate(rows):
            driver.input_topic("orders").pipe(key, value, 1000 * number)
        for sink in topology.sinks():
            raws = [(one.key, one.value) for one in driver.written(str(sink.topic))]
            if raws:
                found[str(sink.topic)] = raws
    return {name: one for name, one in found.items() if "repartition" not in name}


def compared(spark: SparkSession, made: Callable[[bool], Topology]) -> Found:
    """Return what three ways write: columns on Spark, columns in the driver, functions."""
    columns = on_spark(spark, made(True), ROWS)
    driver = in_driver(made(True), ROWS)
    functions = in_driver(made(False), ROWS)
    for found in (columns, driver, functions):
        for pairs in found.values():
            pairs.sort(key=repr)
    assert columns == driver == functions
    return columns


def test_stateless_operators(spark: SparkSession) -> None:
    """Filters, new keys and values, several records of one, branches, a merge."""

    def made(is_native: bool) -> Topology:  # noqa: FBT001 - which of two
        builder = StreamsBuilder()
        orders = builder.stream("orders", consumed=ORDERS)

        def one(column: str, function: Any) -> Any:
            return expr(column) if is_native else function

        known = orders.filter(
            one(
                "value.price >= 1 AND value.item IS NOT NULL",
                lambda _, v: v and v["item"] and v["price"] >= 1,
            )
        )
        known.map_values(one("value.price * 2", lambda v: v["price"] * 2)).to("doubled")
        known.select_key(one("value.item", lambda _, v: v["item"])).to("by-item")
        known.map(
            (expr("value.item"), expr("named_struct('k', key, 'n', size(value.tags))"))
            if is_native
            else lambda k, v: (v["item"], {"k": k, "n": len(v["tags"])})
        ).to("mapped")
        known.flat_map_values(one("value.tags", lambda v: v["tags"])).to(
            "tags", Produced(value=Serdes.string())
        )
        orders.filter_not(one("value.price < 5", lambda _, v: v and v["price"] < 5)).map_values(
            one("value.price", lambda v: v and v["price"])
        ).to("dear")
        split = known.split().branch(
            one("value.price > 2.7", lambda _, v: v["price"] > 2.7), Branched("high")
        )
        branches = split.default_branch(Branched("low"))
        high, low = branches.values()
        high.merge(low).map_values(one("value.item", lambda v: v["item"])).to("merged")
        low.to("low")
        return builder.build()

    found = compared(spark, made)
    assert found["doubled"] == [(None, b"6.0"), (b"a", b"5.0")]
    assert found["tags"] == [(None, "é".encode()), (b"a", b"x"), (b"a", b"y")]
    assert set(found) == {"doubled", "by-item", "mapped", "tags", "dear", "merged", "low"}


def test_columns_around_functions(spark: SparkSession) -> None:
    """Columns before a table, after it, and between functions; keys have Kafka's partitions."""

    def made(is_native: bool) -> Topology:  # noqa: FBT001 - which of two
        builder = StreamsBuilder()
        orders = builder.stream("orders", consumed=ORDERS)
        if is_native:
            known = orders.filter(f.expr("value.item IS NOT NULL"))
            counts = known.group_by(f.col("value.item")).count().to_stream()
            counts.filter(expr("value > 1")).map_values(expr("value * 10")).peek(
                lambda *_: None
            ).map_values(lambda value: value + 1).to("counts")
        else:
            known = orders.filter(lambda _, v: v is not None and v["item"] is not None)
            counts = known.group_by(lambda _, v: v["item"]).count().to_stream()
            counts.filter(lambda _, v: v > 1).map_values(lambda v: v * 10 + 1).to("counts")
        windows = known.group_by_key().windowed_by(TimeWindows.of_size_with_no_grace(60_000))
        windows.count().to_stream(lambda window, _: window.key).to("windows")
        return builder.build()

    found = compared(spark, made)
    assert found["counts"] == [(b"tea", b"21")]
    assert len(found["windows"]) == 2


@pytest.mark.parametrize("cache", [0, 1_000_000])
def test_aggregates_of_columns(spark: SparkSession, cache: int) -> None:
    """Sums and extremes by key and window, over a shuffle and without, as by functions."""
    windows = TimeWindows.of_size_with_no_grace(60_000)

    def add(_key: Any, value: Any, old: dict[str, Any]) -> dict[str, Any]:
        price = value["price"]
        return {
            "n": old["n"] + 1,
            "sum": (old["sum"] or 0) + price,
            "low": price if old["low"] is None else min(old["low"], price),
        }

    def empty() -> dict[str, Any]:
        return {"n": 0, "sum": None, "low": None}

    def made(is_native: bool) -> Topology:  # noqa: FBT001 - which of two
        builder = StreamsBuilder(StreamsConfig(statestore_cache_max_bytes=cache))
        known = builder.stream("orders", consumed=ORDERS).filter(
            expr("value IS NOT NULL") if is_native else lambda _, v: v is not None
        )
        price = expr("value.price")
        aggregates = {"n": count_rows(), "sum": sum_of(price), "low": min_of(price)}
        given: Any = (aggregates,) if is_native else (empty, add)
        by_item = known.group_by(expr("value.item") if is_native else lambda _, v: v["item"])
        by_item.aggregate(*given).to_stream().to("by-item")
        windowed = known.group_by_key().windowed_by(windows)
        windowed.aggregate(*given).to_stream(lambda key, _: key.key).to("by-window")
        largest = known.map_values(expr("value.price") if is_native else lambda v: v["price"])
        reducer: Any = max_of(expr("value")) if is_native else max
        largest.group_by_key().reduce(reducer).to_stream().to("largest")
        return builder.build()

    if not cache:
        found = compared(spark, made)
        assert len(found["by-item"]) == 3
        return
    combined = on_spark(spark, made(True), ROWS)
    one_by_one = in_driver(made(False), ROWS)
    assert {name: dict(pairs) for name, pairs in combined.items()} == {
        name: dict(pairs) for name, pairs in one_by_one.items()
    }
    assert len(combined["by-item"]) == 2


def test_records_that_do_not_fit_the_schema(spark: SparkSession) -> None:
    """They fail the application, or go to the dead letters once, or to a function's handler."""
    rows = [*ROWS, ("bad", b"{not JSON"), ("other", b'{"item":"x","price":"dear"}')]

    def made(handler: Any, topic: str | None = None) -> Topology:
        builder = StreamsBuilder(
            StreamsConfig(
                deserialization_exception_handler=handler,
                errors_dead_letter_queue_topic_name=topic,
            )
        )
        orders = builder.stream("orders", consumed=ORDERS)
        orders.filter(expr("value.price > 2")).to("dear")
        orders.filter(expr("value.price <= 2")).to("cheap")
        return builder.build()

    with pytest.raises(Exception, match=r"topic=orders, partition=1, offset=5"):
        on_spark(spark, made(StreamsConfig().deserialization_exception_handler), rows)
    found = on_spark(spark, made(log_and_continue, "letters"), rows)
    assert sorted(found["letters"]) == [(b"bad", rows[-2][1]), (b"other", rows[-1][1])]
    assert len(found["dear"]) == 3
    seen = on_spark(spark, made(lambda *_: Response.CONTINUE), rows[:6])
    assert seen["dear"] == found["dear"]


def test_records_that_columns_cannot_process(spark: SparkSession) -> None:
    """They go to the processing handler, once for each operator, and the others on."""
    seen = spark.sparkContext.accumulator(0)

    def handler(context: Any, _error: Exception) -> Response:
        seen.add(1)
        return Response.FAIL if context.record.key == b"fatal" else Response.CONTINUE

    def made(handler: Any) -> Topology:
        builder = StreamsBuilder(
            StreamsConfig(
                processing_exception_handler=handler,
                errors_dead_letter_queue_topic_name="letters",
            )
        )
        known = builder.stream("orders", consumed=ORDERS).map_values(
            expr("CAST(value.item AS INT)"), name="as-number"
        )
        known.to("numbers")
        known.filter(expr("10 / value > 1"), name="few").to("few")
        return builder.build()

    rows: list[tuple[Any, Any]] = [("a", {"item": text}) for text in ("1", "x", "0", "20")]
    found = on_spark(spark, made(log_and_continue), rows)
    assert [value for _, value in found["numbers"]] == [b"1", b"0", b"20"]
    assert found["few"] == [(b"a", b"1")]
    assert [json.loads(value)["item"] for _, value in found["letters"]] == ["x", "0"]
    assert on_spark(spark, made(handler), rows)["few"] == [(b"a", b"1")]
    assert seen.value == 2
    with pytest.raises(Exception, match="a column of as-number cannot be computed"):
        on_spark(spark, made(handler), [("fatal", {"item": "x"})])


def test_numbers_and_truth_values_have_kafkas_encodings(spark: SparkSession) -> None:
    """Each primitive is written by columns as its serde writes it, and read again."""
    kinds = {
        "long": (Serdes.long(), "CAST(value.price * -3 AS BIGINT)"),
        "integer": (Serdes.integer(), "CAST(value.price * -3 AS INT)"),
        "short": (Serdes.short(), "CAST(value.price * -3 AS SMALLINT)"),
        "boolean": (Serdes.boolean(), "value.price > 2"),
    }
    for name, (serde, text) in kinds.items():
        builder = StreamsBuilder()
        orders = builder.stream("orders", consumed=ORDERS)
        numbers = orders.filter(expr("value IS NOT NULL")).map_values(expr(text))
        numbers.to("out", Produced(value=serde))
        numbers.filter(lambda *_: True).map_values(expr("value")).to("again", Produced(value=serde))
        found = on_spark(spark, builder.build(), ROWS)
        prices: list[Any] = [row["price"] for _, row in ROWS if row]
        expected = [price > 2 if name == "boolean" else int(price * -3) for price in prices]
        assert [serde.deserialize(value) for _, value in found["out"]] == expected
        assert sorted(found["again"], key=repr) == sorted(found["out"], key=repr)


def test_avro_values_are_columns(spark: SparkSession) -> None:
    """What Spark has no serde for is read by a function, and given to columns with its types."""
    avro = Serdes.avro(
        {
            "type": "record",
            "name": "Order",
            "fields": [{"name": "item", "type": "string"}, {"name": "n", "type": "long"}],
        },
        schema_id=3,
    )
    builder = StreamsBuilder()
    orders = builder.stream("orders", consumed=Consumed(value=avro))
    orders.filter(expr("value.n > 1")).to("many", Produced(value=avro))
    rows = [("k", avro.serialize({"item": "tea", "n": n})) for n in (1, 2)]
    found = on_spark(spark, builder.build(), rows)
    assert found == {"many": [(b"k", rows[1][1])]}


def test_columns_need_types() -> None:
    """A column after a serde without a schema is refused where it is written."""
    stream = StreamsBuilder().stream("orders")
    with pytest.raises(TopologyException, match=r"Serdes.json\(schema="):
        stream.filter(expr("value > 1"))


def test_a_column_of_another_type_than_the_serde_is_refused(spark: SparkSession) -> None:
    """The line names the node, the serde and the type."""
    builder = StreamsBuilder()
    orders = builder.stream("orders", consumed=ORDERS)
    orders.map_values(expr("value.price")).to("out", Produced(value=Serdes.string()))
    with pytest.raises(StreamsException, match="string serde cannot write a column of type double"):
        on_spark(spark, builder.build(), ROWS)
