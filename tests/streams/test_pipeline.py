"""Operators, stores, punctuators and handlers in the pipeline driver."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from ottla.streams import (
    Branched,
    Consumed,
    Grouped,
    JoinWindows,
    Materialized,
    Processor,
    ProcessorContext,
    Produced,
    PunctuationType,
    Record,
    Serdes,
    Stores,
    StreamsBuilder,
    StreamsConfig,
    StreamsException,
    Suppressed,
    TaskId,
    TimeWindows,
    log_and_continue,
)
from ottla.testing import PipelineDriver

if TYPE_CHECKING:
    from ottla.streams import Topology

TEXT = Serdes.string()


@dataclass
class Order:
    """A value with a schema."""

    item: str
    amount: int


def test_values_have_a_schema() -> None:
    """JSON of a dataclass; primitives."""
    builder = StreamsBuilder()
    orders = builder.stream("orders", consumed=Consumed(value=Serdes.json(Order)))
    amounts = orders.filter(lambda _, order: order.amount > 1).map_values(lambda one: one.amount)
    amounts.to("amounts", Produced(value=Serdes.long()))
    with PipelineDriver(builder.build()) as driver:
        orders_in = driver.input_topic("orders")
        orders_in.pipe("a", Order("tea", 1))
        orders_in.pipe("b", Order("rice", 3), 7)
        assert driver.output_topic("amounts").read() == Record("b", 3, 7)


def test_a_late_record_is_dropped_by_the_stream_time_of_all_keys() -> None:
    """Grace is counted from the highest timestamp of the task."""
    builder = StreamsBuilder()
    windows = TimeWindows.of_size_and_grace(10, 5)
    counted = builder.stream("in").group_by_key().windowed_by(windows).count()
    counted.suppress(Suppressed.until_window_closes()).to_stream().to("out")
    with PipelineDriver(builder.build()) as driver:
        topic = driver.input_topic("in")
        for key, time in (("a", 1), ("b", 14), ("a", 2), ("b", 15), ("a", 3), ("b", 30)):
            topic.pipe(key, 1, time)
        found = driver.output_topic("out").read_all()
        assert [(one.key.key, one.key.window.start, one.value) for one in found] == [
            ("a", 0, 2),
            ("b", 10, 2),
        ]
        assert driver.dropped == 1


def test_branches_have_names_and_functions() -> None:
    """As in Kafka, the names start with the split's."""
    builder = StreamsBuilder()
    branches = (
        builder.stream("in")
        .split(name="size-")
        .branch(lambda _, value: value > 9, Branched("large", lambda one: one.to("large")))
        .branch(lambda _, value: value < 0)
        .default_branch(Branched("rest"))
    )
    assert sorted(branches) == ["size-2", "size-rest"]
    branches["size-rest"].to("rest")
    with PipelineDriver(builder.build()) as driver:
        for value in (10, 5, -1):
            driver.input_topic("in").pipe("k", value)
        assert driver.output_topic("large").read_pairs() == [("k", 10)]
        assert driver.output_topic("rest").read_pairs() == [("k", 5)]


class Alert(Processor):
    """Counts in a store, and forwards the counts in intervals of stream time."""

    def init(self, context: ProcessorContext) -> None:
        """Open the store and start the punctuation."""
        super().init(context)
        self.counts = context.get_state_store("counts")
        context.schedule(10, PunctuationType.STREAM_TIME, self.report)
        context.schedule(1000, PunctuationType.WALL_CLOCK_TIME, self.clear)

    def process(self, record: Record) -> None:
        """Count the record."""
        self.counts.put(record.key, (self.counts.get(record.key) or 0) + 1)

    def report(self, now_ms: int) -> None:
        """Forward the counts."""
        for key, count in self.counts.all():
            self.context.forward(Record(key, count, now_ms))

    def clear(self, _now_ms: int) -> None:
        """Remove the counts."""
        for key, _ in self.counts.all():
            self.counts.delete(key)


def test_a_processor_has_stores_and_punctuators() -> None:
    """Stream time fires with the first record and each interval after it; wall clock by itself."""
    builder = StreamsBuilder()
    builder.add_state_store(Stores.key_value("counts", TEXT, Serdes.long()))
    builder.stream("in").process(Alert, "counts").to("out", Produced(value=Serdes.long()))
    with PipelineDriver(builder.build()) as driver:
        topic, out = driver.input_topic("in"), driver.output_topic("out")
        for time in (1, 4, 12, 38):
            topic.pipe("a", 1, time)
            driver.restart()
        found = out.read_all()
        assert [(one.value, one.timestamp) for one in found] == [(1, 1), (3, 12), (4, 38)]
        driver.advance_time(1000)
        assert driver.store("counts").approximate_num_entries() == 0


def test_undecodable_records_go_to_the_dead_letter_topic() -> None:
    """With headers that name the error and the place (KIP-1034); the rest goes on."""
    config = StreamsConfig(
        deserialization_exception_handler=log_and_continue,
        processing_exception_handler=log_and_continue,
        errors_dead_letter_queue_topic_name="dead",
    )
    builder = StreamsBuilder(config)
    builder.stream("in").map_values(lambda value: 10 // value).to("out")
    with PipelineDriver(builder.build()) as driver:
        raw = driver.input_topic("in", TEXT, TEXT)
        for value in ("{", "0", "5"):
            raw.pipe("k", value)
        assert driver.output_topic("out").read_pairs() == [("k", 2)]
        dead = driver.output_topic("dead", TEXT, TEXT).read_all()
    assert [one.value for one in dead] == ["{", "0"]
    headers = dict(dead[1].headers)
    assert headers["__streams.errors.exception"] == b"builtins.ZeroDivisionError"
    assert headers["__streams.errors.topic"] == b"in"
    assert headers["__streams.errors.offset"] == b"1"


def test_an_error_names_the_record() -> None:
    """By default the application fails."""
    builder = StreamsBuilder()
    builder.stream("in").map_values(lambda value: 1 // value).to("out")
    with (
        PipelineDriver(builder.build()) as driver,
        pytest.raises(StreamsException, match="KSTREAM-MAPVALUES-0000000001, topic=in"),
    ):
        driver.input_topic("in").pipe("k", 0)


def test_a_versioned_table_answers_as_of_the_record() -> None:
    """A stream-table join takes the version that was valid at the record's time."""
    builder = StreamsBuilder()
    prices = builder.table("prices", materialized=Materialized("prices", history_ms=100))
    builder.stream("sales").join(prices, lambda sale, price: sale * price).to("out")
    with PipelineDriver(builder.build()) as driver:
        driver.input_topic("prices").pipe("tea", 2, 10)
        driver.input_topic("prices").pipe("tea", 3, 20)
        for time in (15, 25, 5):
            driver.input_topic("sales").pipe("tea", 10, time)
        assert [one.value for one in driver.output_topic("out").read_all()] == [20, 30]


def test_a_windowed_key_is_written_as_kafka_writes_it() -> None:
    """The key and the window's start in eight bytes."""
    builder = StreamsBuilder()
    windows = TimeWindows.of_size_with_no_grace(10)
    builder.stream("in").group_by_key().windowed_by(windows).count().to_stream().to("out")
    with PipelineDriver(builder.build()) as driver:
        driver.input_topic("in").pipe("k", 1, 25)
        (raw,) = driver.written("out")
    assert (raw.key, raw.value) == (b"k" + (20).to_bytes(8), (1).to_bytes(8))


def names(topology: Topology) -> list[str]:
    """Return the names of all nodes."""
    return list(topology.nodes)


def test_internal_topics_have_given_names() -> None:
    """`Grouped.name` names the repartition topic and its nodes."""
    builder = StreamsBuilder()
    builder.stream("in").group_by(lambda _, value: value, Grouped(name="by-value")).count()
    assert "by-value-repartition-source" in names(builder.build())


def test_a_join_needs_windows() -> None:
    """A window may not end before it starts."""
    builder = StreamsBuilder()
    left: Any = builder.stream("left")
    with pytest.raises(TypeError, match="needs JoinWindows"):
        left.join(builder.stream("right"), lambda a, b: a + b)
    with pytest.raises(ValueError, match="must not be negative"):
        JoinWindows.of_time_difference_with_no_grace(5).after(-6)


def test_streams_that_part_and_meet_often_are_described() -> None:
    """Each meeting doubles the ways through a topology, which are not walked one by one."""
    builder = StreamsBuilder()
    stream = builder.stream("in")
    for _ in range(60):
        stream = stream.filter(lambda _, value: value).merge(stream.filter_not(lambda _, v: v))
    stream.to("out")
    assert builder.build().describe().count("Processor: ") == 180


class Reporter(Processor):
    """Reports the time from a start on, every ten ms of the wall clock, and its settings."""

    def init(self, context: ProcessorContext) -> None:
        """Schedule the reports: a start at the time is due at once, one before it is not."""
        super().init(context)
        kind = PunctuationType.WALL_CLOCK_TIME
        for start in (105, 100, 25, None):
            context.schedule(10, kind, partial(self.report, start), start_ms=start)
        for interval, start in ((0, 1), (1, -1)):
            with pytest.raises(ValueError, match="The minimum supported"):
                context.schedule(interval, kind, partial(self.report, None), start_ms=start)

    def report(self, start: int | None, now_ms: int) -> None:
        """Forward a time."""
        self.context.forward(Record(str(start), str(now_ms), now_ms))

    def process(self, record: Record) -> None:
        """Forward what the context knows."""
        context = self.context
        assert TaskId.parse(str(context.task_id())) == context.task_id() == TaskId(0, 0)
        assert context.key_serde() is CONFIG.default_key_serde
        assert context.value_serde() is CONFIG.default_value_serde
        assert context.app_configs()["application.id"] == context.application_id() == "test"
        assert context.app_configs_with_prefix("statestore.") == {"cache.max.bytes": 10485760}
        context.forward(record)


CONFIG = StreamsConfig("test", TEXT, TEXT)


def test_a_punctuation_has_a_start() -> None:
    """KIP-1146: by the wall clock; one that is over is called whole intervals later."""
    builder = StreamsBuilder(CONFIG)
    builder.stream("in").process(Reporter).to("out")
    with PipelineDriver(builder.build(), now_ms=100) as driver:
        for step in (0, 4, 1, 4, 1, 5):
            driver.advance_time(step)
        driver.input_topic("in").pipe("k", "v", 7)
        found = driver.output_topic("out").read_pairs()
    assert found == [
        ("100", "100"),
        ("105", "105"),
        ("25", "105"),
        ("100", "110"),
        ("None", "110"),
        ("105", "115"),
        ("25", "115"),
        ("k", "v"),
    ]


class Filler(Processor):
    """Keeps the latest value of each key."""

    def process(self, record: Record) -> None:
        """Store a record."""
        self.context.get_state_store("facts").put(record.key, record.value)


class Reader(Processor):
    """Appends the fact of a key."""

    def process(self, record: Record) -> None:
        """Look a fact up."""
        fact = self.context.get_state_store("facts").get(record.key)
        self.context.forward(record.with_value(f"{record.value} {fact}"))


@pytest.mark.parametrize("is_global", [True, False])
def test_a_topic_fills_a_store_that_others_read(*, is_global: bool) -> None:
    """Of the task's partition, or of all: `addReadOnlyStateStore` (KIP-813), `addGlobalStore`."""
    builder = StreamsBuilder(CONFIG)
    builder.stream("in").process(Reader, name="reader").to("out")
    topology = builder.build()
    add = topology.add_global_store if is_global else topology.add_read_only_state_store
    spec = Stores.key_value("facts", TEXT, TEXT)
    add(spec, "facts-topic", Filler, source="facts-source", processor="facts-processor")
    if not is_global:
        topology.connect_processor_and_state_stores("reader", "facts")
    assert [part.is_global for part in topology.sub_topologies()] == (
        [False, True] if is_global else [False]
    )
    with PipelineDriver(topology) as driver:
        driver.input_topic("facts-topic").pipe("k", "x", 1)
        driver.restart()
        driver.input_topic("in").pipe("k", "v", 2)
        assert driver.output_topic("out").read_pairs() == [("k", "v x")]
