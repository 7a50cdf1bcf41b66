"""Operators where a program moved from Kafka Streams found another result, or an error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ottla.streams import (
    Consumed,
    Joined,
    JoinWindows,
    Materialized,
    Printed,
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    Repartitioned,
    Serdes,
    Stores,
    StreamsBuilder,
    StreamsConfig,
    StreamsException,
    Suppressed,
    TimeWindows,
    Topology,
    TopologyException,
    ValueTransformer,
    log_and_continue,
)
from ottla.streams.plan.plan import plan_for
from ottla.testing import PipelineDriver
from tests.streams.cases import listed

if TYPE_CHECKING:
    from pathlib import Path

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


class Failing(Processor):
    """Fails for some records, and in its punctuation."""

    def init(self, context: ProcessorContext) -> None:
        """Schedule the punctuation."""
        super().init(context)
        context.schedule(10, PunctuationType.WALL_CLOCK_TIME, self.fail)

    def fail(self, _time: int) -> None:
        """Fail."""
        raise ValueError("in a punctuation")

    def process(self, record: Record) -> None:
        """Look up a store that is not connected."""
        self.context.get_state_store("another")


def failing(config: StreamsConfig) -> StreamsBuilder:
    """Return a topology whose processor fails."""
    builder = StreamsBuilder(config)
    builder.stream("in").process(Failing).to("out")
    return builder


def test_a_handler_decides_on_all_errors_of_a_processor() -> None:
    """Also on StreamsException, and on errors of punctuations; their dead letters have no place."""
    config = StreamsConfig(
        default_value_serde=TEXT,
        processing_exception_handler=log_and_continue,
        errors_dead_letter_queue_topic_name="dead",
    )
    with PipelineDriver(failing(config).build()) as driver:
        driver.input_topic("in").pipe("a", "x", 1)
        driver.advance_time(10)
        dead = driver.output_topic("dead", TEXT, TEXT).read_all()
    headers = [dict(one.headers) for one in dead]
    messages = [one["__streams.errors.message"].decode() for one in headers]  # type: ignore[union-attr] # all are set
    assert "has no access to StateStore another" in messages[0]
    assert messages[1:] == ["in a punctuation"]
    assert (headers[1]["__streams.errors.topic"], dead[1].timestamp) == (b"", 10)


def test_an_error_of_a_punctuation_names_its_processor() -> None:
    """It had no context."""
    with (
        PipelineDriver(failing(CONFIG).build()) as driver,
        pytest.raises(StreamsException, match=r"PROCESSOR-0000000001, in a punctuation: ValueErr"),
    ):
        driver.advance_time(10)


def test_a_negative_timestamp_is_an_error_without_an_extractor() -> None:
    """The record was dropped without a word; an extractor may skip it, or give it a time."""
    builder = StreamsBuilder(CONFIG)
    builder.stream("in").to("out")
    with pytest.raises(StreamsException, match="Input record at in-0, offset 0 has invalid"):
        pairs(builder, ("in", "a", "x", -1))
    config = StreamsConfig(
        "test", TEXT, TEXT, default_timestamp_extractor=lambda record, _: int(record.value)
    )
    builder = StreamsBuilder(config)
    builder.stream("in").to("out")
    with PipelineDriver(builder.build()) as driver:
        for value in ("5", "-5"):
            driver.input_topic("in").pipe("a", value, -1)
        assert [one.timestamp for one in driver.output_topic("out").read_all()] == [5]
        assert driver.dropped == 1


def test_a_topic_is_chosen_by_headers_and_timestamp() -> None:
    """The function had the record's place only."""
    builder = StreamsBuilder(CONFIG)
    builder.stream("in").to(
        lambda _key, _value, context: f"{dict(context.headers)['kind'].decode()}{context.timestamp}"
    )
    with PipelineDriver(builder.build()) as driver:
        driver.input_topic("in").pipe("a", "x", 7, (("kind", b"tea"),))
        assert driver.output_topic("tea7").read_pairs() == [("a", "x")]


def test_a_repartitioning_has_a_partitioner() -> None:
    """Each record's task is what it returns."""
    builder = StreamsBuilder(CONFIG)
    seen: list[tuple[str, int]] = []

    def partitioner(_topic: str, key: Any, _value: Any, count: int) -> int:
        seen.append((key, count))
        return 0

    builder.stream("in").repartition(Repartitioned(partitioner=partitioner)).to("out")
    assert pairs(builder, ("in", "a", "x", 1)) == [("a", "x")]
    assert seen == [("a", 1)]


class Totals(Processor):
    """Adds the numbers of a topic to a global store."""

    def process(self, record: Record) -> None:
        """Add a number."""
        store = self.context.get_state_store("totals")
        store.put(record.key, (store.get(record.key) or 0) + int(record.value))


class Looking(Processor):
    """Forwards a total, and how often it was asked for."""

    @staticmethod
    def stores() -> list[Any]:
        """Return the stores that come with it."""
        return [Stores.key_value("asked", TEXT, Serdes.long())]

    def process(self, record: Record) -> None:
        """Look a total up."""
        asked = self.context.get_state_store("asked")
        asked.put(record.key, (asked.get(record.key) or 0) + 1)
        total = self.context.get_state_store("totals").get(record.key)
        self.context.forward(record.with_value(f"{total}/{asked.get(record.key)}"))
        self.context.commit()


def test_a_global_store_is_filled_by_a_processor() -> None:
    """Each task has its own, which takes each record once."""
    builder = StreamsBuilder(CONFIG)
    totals = Stores.key_value("totals", TEXT, Serdes.long())
    builder.add_global_store(totals, "numbers", Totals)
    builder.stream("in").process(Looking).to("out")
    numbers = [("numbers", "a", "2", 0), ("numbers", "a", "3", 0)]
    found = pairs(builder, *numbers, ("in", "a", "x", 1), ("in", "a", "x", 2))
    assert found == [("a", "5/1"), ("a", "5/2")]


def test_what_a_join_does_not_take_is_refused() -> None:
    """It was passed over."""
    builder = StreamsBuilder(CONFIG)
    stream, table, whole = builder.stream("in"), builder.table("t"), builder.global_table("g")
    windows = JoinWindows.of_time_difference_with_no_grace(5)
    for other, options, text in (
        (stream, {}, "needs JoinWindows"),
        (whole, {}, r"needs key_selector\(key, value\)"),
        (table, {"windows": windows}, "has no windows"),
        (table, {"key_selector": both}, "use select_key before"),
        (table, {"name": "x"}, r"joined=Joined\(name='x'\)"),
        (stream, {"windows": windows, "name": "x"}, r"joined=StreamJoined\(name='x'\)"),
    ):
        with pytest.raises(TypeError, match=text):
            stream.join(other, both, **options)


def test_what_is_no_serde_no_topic_and_no_supplier_is_told_where_it_is_written() -> None:
    """The errors came with the first record, of another line."""
    with pytest.raises(TypeError, match=r"Consumed\(value=...\) takes a serde, such as Serdes"):
        Consumed(value=Serdes.string)  # type: ignore[arg-type] # that is the point
    builder = StreamsBuilder(CONFIG)
    with pytest.raises(TypeError, match=r"stream\('a', 'b'\), not \(\['a'\],\)"):
        builder.stream(["a"])  # type: ignore[arg-type] # that is the point
    for name in ("process", "process_values"):
        with pytest.raises(TypeError, match="give what makes a processor, its class"):
            getattr(builder.stream(name), name)(OtherKey())


def test_windows_are_held_back_up_to_a_number_of_bytes() -> None:
    """As BufferConfig.maxBytes(...).shutDownWhenFull()."""
    builder = StreamsBuilder(CONFIG)
    windows = TimeWindows.of_size_with_no_grace(10)
    counted = builder.stream("in").group_by_key().windowed_by(windows).count()
    counted.suppress(Suppressed.until_window_closes(max_bytes=60)).to_stream().to("out")
    with pytest.raises(StreamsException, match="exceeded its max capacity"):
        pairs(builder, ("in", "a", "x", 1), ("in", "b", "x", 1))


@pytest.mark.parametrize("kind", ["streams", "stream and table", "tables", "cogroup"])
def test_topics_that_are_joined_have_as_many_partitions(kind: str) -> None:
    """Records of a key would be in several tasks, and the join would miss partners silently."""
    builder = StreamsBuilder(CONFIG)
    if kind == "streams":
        windows = JoinWindows.of_time_difference_with_no_grace(5)
        builder.stream("a").join(builder.stream("b"), both, windows).to("out")
    elif kind == "stream and table":
        builder.stream("a").join(builder.table("b"), both).to("out")
    elif kind == "tables":
        builder.table("a").join(builder.table("b"), both).to_stream().to("out")
    else:
        groups = [builder.stream(name).group_by_key() for name in ("a", "b")]
        made = groups[0].cogroup(listed).cogroup(groups[1], listed)
        made.aggregate(str).to_stream().to("out")
    topology = builder.build()
    plan_for(topology, {"a": 2, "b": 2, "out": 1})
    with pytest.raises(TopologyException, match="same number of partitions: a: 2, b: 3"):
        plan_for(topology, {"a": 2, "b": 3, "out": 1})


def test_a_repartitioned_stream_takes_the_partitions_of_its_partner() -> None:
    """Unless a number is given."""
    for given, expected in ((None, True), (4, False), (3, True)):
        builder = StreamsBuilder(CONFIG)
        stream = builder.stream("a").repartition(Repartitioned(partitions=given))
        stream.join(builder.table("b"), both).to("out")
        topology = builder.build()
        if expected:
            plan_for(topology, {"a": 2, "b": 3, "out": 1})
        else:
            with pytest.raises(TopologyException, match="repartition: 4, b: 3"):
                plan_for(topology, {"a": 2, "b": 3, "out": 1})


def test_stores_come_with_a_processor_of_a_plain_topology() -> None:
    """As with ConnectedStoreProvider; process_values has them, too."""
    topology = Topology(CONFIG).add_source("s", "in").add_processor("p", Looking, "s")
    assert topology.stores.keys() == {"asked"}
    builder = StreamsBuilder(CONFIG)
    builder.stream("in").process_values(Looking)
    assert builder.build().stores.keys() == {"asked"}


def test_a_stream_waits_for_late_rows_of_a_table() -> None:
    """A record is joined when stream time has passed its grace; the row may come after it."""
    builder = StreamsBuilder(CONFIG)
    table = builder.table("t", materialized=versioned("versions", 100))
    joined = Joined(grace_ms=10)
    builder.stream("in").join(table, both, joined=joined).to("out")
    with PipelineDriver(builder.build()) as driver:
        stream, rows = driver.input_topic("in"), driver.input_topic("t")
        out = driver.output_topic("out")
        stream.pipe("a", "x", 20, (("h", b"1"),))
        rows.pipe("a", "1", 15)
        driver.restart()
        assert out.is_empty
        stream.pipe("b", "y", 30)
        assert out.read_all() == [Record("a", "x1", 20, (("h", b"1"),))]
        rows.pipe("a", "0", 5)
        stream.pipe("a", "late", 10)
        assert out.read_pairs() == [("a", "late0")]
    with pytest.raises(ValueError, match="KTable must be versioned to use a grace period"):
        builder.stream("s").join(builder.table("u"), both, joined=joined)


def test_records_are_printed_after_a_label(capsys: pytest.CaptureFixture[str]) -> None:
    """In the form of Kafka's `Printed`; the default is the name of the stream's node."""
    builder = StreamsBuilder(CONFIG)
    stream = builder.stream("in")
    stream.print("seen")
    stream.print()
    pairs(builder, ("in", "a", "x", 1), ("in", None, None, 2))
    assert capsys.readouterr().out.splitlines() == [
        "[seen]: a, x",
        "[KSTREAM-SOURCE-0000000000]: a, x",
        "[seen]: null, null",
        "[KSTREAM-SOURCE-0000000000]: null, null",
    ]


def test_records_are_printed_to_a_file(tmp_path: Path) -> None:
    """Appended after what is there: a restart, and other workers, write the same one."""
    builder = StreamsBuilder(CONFIG)
    stream = builder.stream("in")
    path = tmp_path / "seen.txt"
    path.write_text("before\n")
    stream.print(Printed.to_file(path, "l", mapper=lambda k, v: f"{k}={v}", name="printer"))
    stream.print(Printed.to_file(str(path)))
    stream.print(Printed.to_sys_out("l", name="shown"))
    pairs(builder, ("in", "a", "ü", 1))
    lines = path.read_text("utf-8").splitlines()
    assert lines == ["before", "[l]: a=ü", "[KSTREAM-SOURCE-0000000000]: a, ü"]
    assert {"printer", "shown"} < builder.build().nodes.keys()
    with pytest.raises(TopologyException, match="filePath can't be an empty string"):
        Printed.to_file(" ")


def test_a_bounded_table_forgets_the_key_used_least_recently() -> None:
    """Its count begins again; the order of uses lasts over restarts."""
    builder = StreamsBuilder(CONFIG)
    stored = Materialized("counts", max_entries=2)
    builder.stream("in").group_by_key().count(materialized=stored).to_stream().to("out")
    with PipelineDriver(builder.build()) as driver:
        source, out = driver.input_topic("in"), driver.output_topic("out")
        for number, key in enumerate("abacab"):
            source.pipe(key, "x", number)
            driver.restart()
        assert out.read_pairs() == [*zip("abacab", (1, 1, 2, 1, 3, 1), strict=True)]
        assert [key for key, _ in driver.store("counts").all()] == ["a", "b"]
        assert driver.store("counts").approximate_num_entries() == 2
    with pytest.raises(ValueError, match="max_entries cannot be negative"):
        Stores.lru_map("store", TEXT, TEXT, max_entries=-1)


def test_forms_that_a_store_does_not_have_are_refused() -> None:
    """They were passed over: a table of windows was neither versioned nor bounded."""
    group = StreamsBuilder(CONFIG).stream("in").group_by_key()
    windows = group.windowed_by(TimeWindows.of_size_with_no_grace(5))
    for given in (Materialized("a", history_ms=5), Materialized("b", max_entries=5)):
        with pytest.raises(TopologyException, match="store of windows has no history_ms and no"):
            windows.count(materialized=given)
    with pytest.raises(TopologyException, match="versioned store c has no max_entries"):
        group.count(materialized=Materialized("c", history_ms=5, max_entries=5))
