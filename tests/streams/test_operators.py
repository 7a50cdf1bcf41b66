"""Operators where a program moved from Kafka Streams found another result, or an error."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.streams import (
    JoinWindows,
    Materialized,
    Processor,
    ProcessorContext,
    Record,
    Serdes,
    Stores,
    StreamsBuilder,
    StreamsConfig,
    StreamsException,
    Suppressed,
    TopologyException,
    ValueTransformer,
)
from ottla.testing import PipelineDriver

TEXT = Serdes.string()
CONFIG = StreamsConfig("test", TEXT, TEXT)


def pairs(builder: StreamsBuilder, *inputs: tuple[str, Any, Any, int]) -> list[tuple[Any, Any]]:
    """Return what a topology writes to `out`."""
    with PipelineDriver(builder.build()) as driver:
        for topic, key, value, time in inputs:
            driver.input_topic(topic).pipe(key, value, time)
        return driver.output_topic("out").read_pairs()


def both(left: Any, right: Any) -> str:
    """Join two values."""
    return f"{left}{right}"


class Numbered(ValueTransformer):
    """Appends to a value how many rows of its key there were."""

    def init(self, context: ProcessorContext) -> None:
        """Open the store."""
        super().init(context)
        self.counts = context.get_state_store("counts")

    def transform(self, key: Any, value: Any) -> Any:
        """Count a row."""
        count = (self.counts.get(key) or 0) + 1
        self.counts.put(key, count)
        return None if value is None else f"{value}{count}"


def test_values_of_a_table_are_transformed_with_a_store() -> None:
    """The transformer also takes deletions."""
    builder = StreamsBuilder(CONFIG)
    builder.add_state_store(Stores.key_value("counts", TEXT, Serdes.long()))
    builder.table("in").transform_values(Numbered, "counts").to_stream().to("out")
    found = pairs(builder, ("in", "a", "x", 1), ("in", "a", None, 2), ("in", "a", "y", 3))
    assert found == [("a", "x1"), ("a", None), ("a", "y3")]


class Forwarding(ValueTransformer):
    """Does what a transformer must not."""

    def transform(self, key: Any, value: Any) -> Any:
        """Forward a record."""
        self.context.forward(Record(key, value, 0))


def test_a_transformer_of_values_cannot_forward() -> None:
    """Rows of other keys would be in no store."""
    builder = StreamsBuilder(CONFIG)
    builder.table("in").transform_values(Forwarding).to_stream().to("out")
    with pytest.raises(StreamsException, match="cannot forward: it returns the value"):
        pairs(builder, ("in", "a", "x", 1))


class OtherKey(Processor):
    """Changes keys."""

    def process(self, record: Record) -> None:
        """Forward a record with its value as the key."""
        self.context.forward(record.with_key(record.value))


def test_process_values_leaves_keys_as_they_are() -> None:
    """A grouping after it does not repartition: the new key's records would be in other tasks."""
    builder = StreamsBuilder(CONFIG)
    builder.stream("in").process_values(OtherKey).group_by_key().count()
    with pytest.raises(StreamsException, match="process_values has changed the key 'a' to 'x'"):
        pairs(builder, ("in", "a", "x", 1))


def test_a_stream_with_a_new_key_is_joined_with_several_tables() -> None:
    """The joins share one repartition topic; the second was refused."""
    builder = StreamsBuilder(CONFIG)
    keyed = builder.stream("in").select_key(lambda _, value: value)
    first = keyed.join(builder.table("t"), both)
    first.merge(keyed.left_join(builder.table("u"), both)).to("out")
    assert list(builder.build().internal_topics) == ["KSTREAM-KEY-SELECT-0000000001-repartition"]
    found = pairs(builder, ("t", "x", "1", 0), ("u", "x", "2", 0), ("in", "a", "x", 1))
    assert found == [("x", "x1"), ("x", "x2")]


def test_a_stream_with_a_new_key_is_joined_with_itself() -> None:
    """It was refused, too."""
    builder = StreamsBuilder(CONFIG)
    keyed = builder.stream("in").select_key(lambda _, value: value)
    keyed.join(keyed, both, JoinWindows.of_time_difference_with_no_grace(5)).to("out")
    assert pairs(builder, ("in", "a", "x", 1)) == [("x", "xx")]


def versioned(name: str, history_ms: int) -> Materialized:
    """Return a store with a history."""
    return Materialized(name, TEXT, TEXT, history_ms=history_ms)


def test_the_latest_version_has_no_end() -> None:
    """Before the history there is none but the latest, if it was there then."""
    builder = StreamsBuilder(CONFIG)
    table = builder.table("t", materialized=versioned("versions", 10))
    builder.stream("in").left_join(table, both).to("out")
    found = pairs(
        builder, ("t", "a", "1", 5), ("t", "b", "2", 100), ("in", "a", "x", 50), ("in", "b", "y", 9)
    )
    assert found == [("a", "x1"), ("b", "yNone")]


def test_tables_made_of_versioned_ones_answer_as_of_the_record() -> None:
    """Also those that an aggregation or a join stores with a history."""
    builder = StreamsBuilder(CONFIG)
    source = builder.table("t", materialized=versioned("versions", 100))
    grouped = builder.stream("g").group_by_key()
    tables = [
        source.map_values(lambda value: value),
        source.left_join(source, lambda left, _: left, materialized=versioned("joined", 100)),
        grouped.reduce(lambda _, value: value, materialized=versioned("reduced", 100)),
    ]
    stream = builder.stream("in")
    for table in tables:
        stream.join(table, both).to("out")
    history = [(topic, "a", str(time), time) for topic in ("t", "g") for time in (10, 20)]
    assert pairs(builder, *history, ("in", "a", "x", 15)) == [("a", "x10")] * 3


def test_an_old_row_of_a_versioned_table_changes_no_group_and_no_join() -> None:
    """It is a version of the past; the group, or the joined row, has the latest."""
    builder = StreamsBuilder(CONFIG)
    table = builder.table("t", materialized=versioned("versions", 100))
    counts = table.group_by(lambda _, value: (value, value)).count()
    counts.to_stream().map_values(str).to("out")
    table.join(builder.table("u"), both, foreign_key=lambda _, value: value).to_stream().to("out")
    found = pairs(builder, ("u", "x", "1", 0), ("t", "a", "x", 20), ("t", "a", "y", 10))
    assert found == [("x", "1"), ("a", "x1")]


def test_versioned_tables_are_refused_where_kafka_streams_refuses_them() -> None:
    """Suppression and global tables."""
    builder = StreamsBuilder(CONFIG)
    table = builder.table("t", materialized=versioned("versions", 100))
    with pytest.raises(TopologyException, match="only supported for non-versioned KTables"):
        table.suppress(Suppressed.until_time_limit(5))
    with pytest.raises(TopologyException, match="GlobalKTables cannot be versioned"):
        builder.global_table("g", materialized=versioned("global", 100))
