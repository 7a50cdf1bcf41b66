"""What happens to applications between and during runs: each ends in one line, and can go on.

Schemas of values that change, and a sink topic that is deleted.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from ottla import Admin, Producer
from ottla.streams import (
    Consumed,
    Materialized,
    Processor,
    ProcessorContext,
    Produced,
    PunctuationType,
    Record,
    Serdes,
    Stores,
    Streams,
    StreamsBuilder,
    StreamsConfig,
    StreamsException,
    expr,
    log_and_continue,
    sum_of,
)
from ottla.streams.run.supervisor import is_final, reason
from tests.spark.marks import SPARK_WARNINGS
from tests.spark.streams_topics import written
from tests.waits import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from ottla.streams import Serde
    from ottla.testing.cluster import Cluster

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.spark,
    pytest.mark.timeout(1800),  # a busy machine; each has limits of its own
    *SPARK_WARNINGS,
]
PATIENCE_S = 600
OLD = {
    "type": "record",
    "name": "Stock",
    "fields": [{"name": "item", "type": "string"}, {"name": "count", "type": "int"}],
}
NEW = {
    "type": "record",
    "name": "Stock",
    "fields": [
        {"name": "item", "type": "string"},
        {"name": "count", "type": "long"},
        {"name": "shelf", "type": "string", "default": "none"},
    ],
}


def create(node: Cluster, *topics: str, partitions: int = 2) -> None:
    """Create topics."""
    with Admin(bootstrap_servers=node.bootstrap) as admin:
        for topic in topics:
            admin.create_topic(topic, partitions=partitions)


def send(node: Cluster, topic: str, key: str, values: Iterable[bytes | None]) -> None:
    """Send values of a key."""
    with Producer(bootstrap_servers=node.bootstrap) as producer:
        for value in values:
            producer.send(topic, value, key)


def as_json(*values: Any) -> list[bytes]:
    """Return values as JSON."""
    return [json.dumps(value).encode() for value in values]


def sales(
    schema: str, stock: Serde, *, has_more: bool = False, skips_errors: bool = False
) -> StreamsBuilder:
    """Return sums of prices by item, and questions joined with the rows of the stock."""
    config = StreamsConfig(application_id="sales")
    if skips_errors:
        config = replace(
            config,
            deserialization_exception_handler=log_and_continue,
            errors_dead_letter_queue_topic_name="letters",
        )
    made = StreamsBuilder(config)
    items = made.stream("sales", consumed=Consumed(value=Serdes.json(schema=schema)))
    totals = items.group_by(expr("value.item")).aggregate({"sum": sum_of(expr("value.price"))})
    totals.to_stream().to("totals")
    rows = made.table("stock", consumed=Consumed(value=stock), materialized=Materialized("rows"))
    made.stream("questions").join(rows, lambda _, row: row).to("answers")
    if has_more:
        made.stream("more").to("answers")
    return made


def test_schemas_change_between_runs(spark: SparkSession, node: Cluster, tmp_path: Path) -> None:
    """Fields are added and left out, numbers widened; another type is one line, and can go on.

    The rows of Avro in the application's state are of the old schema.
    """
    create(node, "sales", "totals", "stock", "questions", "answers", "letters")

    def run(schema: str, stock: Serde, **options: bool) -> None:
        Streams(
            sales(schema, stock, **options).build(),
            bootstrap_servers=node.bootstrap,
            checkpoint=tmp_path / "sales",
            spark=spark,
        ).process_available(PATIENCE_S)

    old = ("item STRING, price INT, till STRING", Serdes.avro(OLD, schema_id=1))
    new_stock = Serdes.avro(NEW, schema_id=2, former={1: OLD})
    new = ("item STRING, price DOUBLE, shop STRING", new_stock)
    send(node, "sales", "x", as_json({"item": "tea", "price": 2, "till": "a"}))
    send(node, "stock", "tea", [old[1].serialize({"item": "tea", "count": 7})])
    run(*old)
    send(node, "sales", "x", as_json({"item": "tea", "price": 0.5, "shop": "b"}))
    send(node, "questions", "tea", as_json(1))
    run(*new)
    row = {"item": "tea", "count": 7, "shelf": "none"}
    assert written(node.bootstrap, "answers") == {"tea": [row]}
    assert written(node.bootstrap, "totals") == {"tea": [{"sum": 2}, {"sum": 2.5}]}
    with pytest.raises(StreamsException, match="another topology"):
        run(*new, has_more=True)
    send(node, "sales", "x", as_json({"item": "tea", "price": {"EUR": 3}}))
    with pytest.raises(Exception, match="does not have the form of its serdes") as raised:
        run(*new)
    line = reason(raised.value)
    assert re.search(r"topic=sales, partition=\d, offset=2\b", line)
    assert "\n" not in line
    assert is_final(raised.value)
    send(node, "sales", "x", as_json({"item": "tea", "price": 1}))
    run(*new, skips_errors=True)
    assert written(node.bootstrap, "totals")["tea"][2:] == [{"sum": 3.5}]
    assert written(node.bootstrap, "letters") == {"x": [{"item": "tea", "price": {"EUR": 3}}]}


def doubled(name: str) -> StreamsBuilder:
    """Return a function over numbers, and a count by key."""
    made = StreamsBuilder(StreamsConfig(application_id=name))
    numbers = made.stream(f"{name}-in")
    numbers.map_values(lambda value: 2 * value).to(f"{name}-out")
    numbers.group_by_key().count(materialized=Materialized("counts"))
    return made


def test_a_sink_topic_is_deleted_while_the_application_runs(
    spark: SparkSession, node: Cluster, tmp_path: Path
) -> None:
    """One line names the topic; once it is there again nothing is lost or written twice."""
    create(node, "gone-in", "gone-out")

    def app() -> Streams:
        return Streams(
            doubled("gone").build(),
            bootstrap_servers=node.bootstrap,
            checkpoint=tmp_path / "gone",
            spark=spark,
        )

    running = app().start()
    send(node, "gone-in", "k", as_json(1))
    wait_for(lambda: written(node.bootstrap, "gone-out") == {"k": [2]}, PATIENCE_S)
    with Admin(bootstrap_servers=node.bootstrap) as admin:
        admin.delete_topic("gone-out")
    send(node, "gone-in", "k", as_json(2))
    with pytest.raises(Exception, match="gone-out") as raised:
        running.await_termination(PATIENCE_S)
    line = reason(raised.value)
    assert "there is no topic 'gone-out'; " in line
    assert "\n" not in line
    assert not is_final(raised.value)  # a supervisor tries again until the topic is there
    create(node, "gone-out")
    found = app()
    found.process_available(PATIENCE_S)
    assert written(node.bootstrap, "gone-out") == {"k": [4]}
    assert found.store("counts").get("k").value == 2


class Reporter(Processor):
    """Counts records, and reports the count, which begins again, by the wall clock."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self.counts = context.get_state_store("counted")
        context.schedule(1, PunctuationType.WALL_CLOCK_TIME, self.report)

    def process(self, record: Record) -> None:
        self.counts.put("n", (self.counts.get("n") or 0) + 1)
        self.counts.put("at", self.context.current_system_time_ms())

    def report(self, now_ms: int) -> None:
        self.context.forward(Record("n", self.counts.get("n"), now_ms))
        self.counts.delete("n")


def clocked(name: str, add: Callable[[Any], Any]) -> StreamsBuilder:
    """Return counts by the wall clock, and a table of what a function makes of values."""
    made = StreamsBuilder(StreamsConfig(application_id=name))
    made.add_state_store(Stores.key_value("counted", Serdes.string(), Serdes.long()))
    records = made.stream(f"{name}-in")
    records.process(Reporter, "counted").to(f"{name}-out", Produced(value=Serdes.json()))
    records.map_values(add).to_table(Materialized("kept"))
    return made


@pytest.mark.parametrize("is_function", [True, False])
def test_a_decided_micro_batch_is_repeated(
    spark: SparkSession, node: Cluster, tmp_path: Path, *, is_function: bool
) -> None:
    """By the same clock; where the state becomes another one the application ends with one line."""
    name = f"repeated-{is_function}"
    create(node, f"{name}-in", f"{name}-out")

    def add(value: Any) -> Any:
        return value if is_function else uuid4().hex

    def process(**config: str) -> None:
        topology = clocked(name, add).build()
        checkpoint = tmp_path / "checkpoint"
        app = Streams(
            topology, bootstrap_servers=node.bootstrap, checkpoint=checkpoint, spark=spark,
            config=config,
        )  # fmt: skip
        app.process_available(PATIENCE_S)

    for number in range(3):
        send(node, f"{name}-in", "k", as_json(number))
        process()
    for log in (tmp_path / "checkpoint" / "commits").glob("*2*"):
        log.unlink()  # as if the driver had been killed after its decision
    send(node, f"{name}-in", "k", as_json(3))
    if is_function:
        process()
    else:
        with pytest.raises(Exception, match="repeated with other changes") as refused:
            process()
        assert is_final(refused.value)
        assert reason(refused.value).startswith("micro-batch 2 was repeated")
        process(failOnDataLoss="false")
    counts = written(node.bootstrap, f"{name}-out")["n"]
    assert sum(counts) == 4
