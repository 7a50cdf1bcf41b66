"""Topologies as lists of steps: built with our DSL here, and with Kafka's by StreamsOracle.java."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ottla.streams import (
    EmitStrategy,
    Joined,
    JoinWindows,
    Materialized,
    Processor,
    ProcessorContext,
    ProcessorWrapper,
    Produced,
    PunctuationType,
    Record,
    Serdes,
    SessionWindows,
    SlidingWindows,
    Stores,
    StreamsBuilder,
    StreamsConfig,
    Suppressed,
    TableJoined,
    TimeWindows,
    Topology,
    UnlimitedWindows,
    ValueTransformer,
)
from ottla.testing.pipeline_driver import PipelineDriver

if TYPE_CHECKING:
    from collections.abc import Callable

Step = dict[str, Any]
Input = tuple[str, str | None, str | None, int]
Output = tuple[str, str | None, str | None, int, str]
"""A record's topic, key, value, timestamp and headers."""


def join(left: str | None, right: str | None) -> str:
    """Join two values, of which one may be missing, as the Java side writes them."""
    return f"({'null' if left is None else left}+{'null' if right is None else right})"


def first_letter(_key: Any, value: str | None) -> str | None:
    """Return the first letter of a value."""
    return None if value is None else value[0]


def foreign_key(_key: Any, value: str) -> str | None:
    """Return the first letter, but none for z."""
    return None if value[0] == "z" else value[0]


def has_odd_length(_key: Any, value: str | None) -> bool:
    """Whether a value's length is odd."""
    return value is not None and len(value) % 2 == 1


def listed(_key: Any, value: Any, aggregate: str) -> str:
    """Append a value to a list."""
    return f"{aggregate},{'null' if value is None else value}"


def windowed_key(key: Any, _value: Any) -> str:
    """Return a windowed key as text."""
    return f"{key.key}@{key.window.start}/{key.window.end}"


def counts(table: Any) -> Any:
    """Return counts as text."""
    return table.map_values(str)


def headers_text(record: Record) -> str:
    """Return a record's headers as text."""
    return "".join(f"{name}{(data or b'').decode()} " for name, data in record.headers)


def text(value: str | None) -> str:
    """Return a value as Java appends it."""
    return "null" if value is None else value


class Counting(Processor):
    """Appends the number of a key's records; every ten ms of stream time it writes all numbers."""

    def __init__(self, *, is_reverse: bool, start_ms: int | None, has_more: bool) -> None:
        self.is_reverse, self.start_ms, self.has_more = is_reverse, start_ms, has_more

    def init(self, context: ProcessorContext) -> None:
        """Open the store and schedule the punctuation."""
        super().init(context)
        self.counts = context.get_state_store("counts")
        context.schedule(10, PunctuationType.STREAM_TIME, self.write_all, start_ms=self.start_ms)

    def again(self, time: int) -> None:
        """Forward the time."""
        self.context.forward(Record("again", f"at{time}", time))

    def write_all(self, time: int) -> None:
        """Forward all numbers."""
        found = self.counts.reverse_all() if self.is_reverse else self.counts.all()
        for key, value in found:
            self.context.forward(Record(key, f"{value}at{time}", time))

    def process(self, record: Record) -> None:
        """Process a record."""
        key = "none" if record.key is None else record.key
        before = self.counts.get(key)
        self.counts.put(key, None if record.value is None else (before or "") + "1")
        if self.has_more and key == "a":
            kind = PunctuationType.STREAM_TIME
            start_ms = (self.start_ms or 0) + 5  # never due with the other: the order is a heap's
            self.context.schedule(10, kind, self.again, start_ms=start_ms)
        stream_time = self.context.current_stream_time_ms()
        place = f"{self.context.application_id()}{self.context.task_id()}"
        value = f"{text(record.value)}{text(before)}{stream_time}{place}"
        self.context.forward(record.with_value(value))


class Filling(Processor):
    """Fills the store of facts."""

    def process(self, record: Record) -> None:
        """Process a record."""
        if record.key is not None:
            self.context.get_state_store("facts").put(record.key, record.value)


class Lookup(Processor):
    """Appends the fact of a record's key."""

    def process(self, record: Record) -> None:
        """Process a record."""
        facts = self.context.get_state_store("facts")
        found = "-" if record.key is None else text(facts.get(record.key))
        self.context.forward(record.with_value(f"{text(record.value)}{found}"))


class CountingValues(Processor):
    """Forwards a record with its offset in the topic, and again a moment later."""

    def process(self, record: Record) -> None:
        """Process a record."""
        place = self.context.record_metadata()
        offset = -1 if place is None else place.offset  # in a punctuation
        self.context.forward(record.with_value(f"{text(record.value)}{offset}"))
        self.context.forward(record.with_timestamp(record.timestamp + 1))


def drops(step: Step) -> Callable[[str, Any, Any, int], Any]:
    """Return a partitioner that writes no record of a key, and leaves null keys to the producer."""

    def partitions(_topic: str, key: str | None, _value: Any, count: int) -> list[int] | None:
        if key is None:
            return None
        return [] if key == step["drops"] else [count - 1]

    return partitions


class Transform(ValueTransformer):
    """Transforms the values of a table."""

    def transform(self, key: str, value: str | None) -> str | None:
        """Return the value after its key; none for values that start with c."""
        return None if value is None or value.startswith("c") else key + value


class Build:
    """Builds a topology of steps."""

    def __init__(self, wrapper: type[ProcessorWrapper] | None = None) -> None:
        text = Serdes.string()
        config = StreamsConfig("oracle", text, text, processor_wrapper_class=wrapper)
        self.builder = StreamsBuilder(config)
        self.made: dict[str, Any] = {}
        self.finish: Callable[[Topology], object] = lambda _: None

    def add(self, step: Step) -> None:
        """Add a step."""
        made = getattr(self, "op_" + step["op"], self.plain)(step)
        if "id" in step:
            self.made[step["id"]] = made

    def of(self, step: Step, name: str = "of") -> Any:
        """Return what an earlier step made."""
        return self.made[step[name]]

    def stored(self, step: Step) -> Materialized:
        """Return the form of a step's store."""
        text = Serdes.string()
        return Materialized(
            step.get("store"),
            text,
            text,
            history_ms=step.get("history"),
            max_entries=step.get("entries"),
        )

    def named(self, step: Step) -> Materialized | None:
        """Return the form of a step's store if it has a name."""
        return self.stored(step) if "store" in step else None

    def counted(self, step: Step) -> Materialized:
        """Return the form of a store of counts."""
        return replace(self.stored(step), value=Serdes.long())

    def plain(self, step: Step) -> Any:
        """Add one of the steps that only call a method."""
        builder = self.builder
        makers: dict[str, Any] = {
            "stream": lambda _: builder.stream(
                re.compile(step["pattern"]) if "pattern" in step else step["topic"]
            ),
            "table": lambda _: builder.table(step["topic"], materialized=self.named(step)),
            "global_table": lambda _: builder.global_table(step["topic"]),
            "filter": lambda it: it.filter(has_odd_length),
            "map_values": lambda it: it.map_values(lambda v: f"{'null' if v is None else v}m"),
            "select_key": lambda it: it.select_key(first_letter),
            "flat_map_values": lambda it: it.flat_map_values(lambda v: list(v or "")),
            "map": lambda it: it.map(lambda k, v: (f"{'null' if k is None else k}k", v)),
            "merge": lambda it: it.merge(self.of(step, "with")),
            "repartition": lambda it: it.repartition(),
            "to_table": lambda it: it.to_table(materialized=self.named(step)),
            "process_values": lambda it: it.process_values(CountingValues),
            "peek": lambda it: it.peek(lambda _key, _value: None),
            "filter_not": lambda it: it.filter_not(has_odd_length),
            "flat_map": lambda it: it.flat_map(lambda k, v: [] if v is None else [(v, k), (k, v)]),
            "table_transform": lambda it: it.transform_values(
                Transform, materialized=self.named(step)
            ),
            "group_by_key": lambda it: it.group_by_key(),
            "group_by": lambda it: it.group_by(first_letter),
            "count": lambda it: counts(it.count(materialized=self.counted(step))),
            "reduce": lambda it: it.reduce(lambda a, v: a + v, materialized=self.stored(step)),
            "aggregate": lambda it: it.aggregate(str, listed, materialized=self.stored(step)),
            "suppress": lambda it: it.suppress(Suppressed.until_window_closes()),
            "windowed_to_stream": lambda it: it.to_stream(windowed_key),
            "to_stream": lambda it: it.to_stream(),
            "table_filter": lambda it: it.filter(has_odd_length, materialized=self.named(step)),
            "table_map_values": lambda it: it.map_values(
                lambda v: v + "t", materialized=self.named(step)
            ),
            "table_group_by": lambda it: it.group_by(lambda _, v: (v[0], v)),
            "table_count": lambda it: counts(it.count(materialized=self.counted(step))),
        }
        return makers[step["op"]](self.made.get(step.get("of", "")))

    def op_branch(self, step: Step) -> Any:
        """Take the first of two branches."""
        split = self.of(step).split().branch(lambda _, v: v is not None and len(v) == 1)
        return next(iter(split.default_branch().values()))

    def op_time_windows(self, step: Step) -> Any:
        """Aggregate in tumbling or hopping windows."""
        windows = TimeWindows.of_size_and_grace(step["size"], step["grace"])
        return self.windowed(step, windows.advance_by(step["advance"]))

    def op_sliding_windows(self, step: Step) -> Any:
        """Aggregate in sliding windows."""
        size, grace = step["size"], step["grace"]
        return self.windowed(step, SlidingWindows.of_time_difference_and_grace(size, grace))

    def op_unlimited_windows(self, step: Step) -> Any:
        """Aggregate in the window without an end."""
        return self.windowed(step, UnlimitedWindows.of().start_on(step["start"]))

    def op_process(self, step: Step) -> Any:
        """Process with a store and a punctuation."""
        self.builder.add_state_store(Stores.key_value("counts", Serdes.string(), Serdes.string()))
        reverse, start_ms, has_more = step["reverse"], step.get("start"), "again" in step
        return self.of(step).process(
            lambda: Counting(is_reverse=reverse, start_ms=start_ms, has_more=has_more), "counts"
        )

    def op_to(self, step: Step) -> Any:
        """Write a stream."""
        produced = Produced(partitioner=drops(step)) if "drops" in step else None
        topic = step["topic"]
        return self.of(step).to((lambda *_: topic) if step.get("by_record") else topic, produced)

    def op_lookup(self, step: Step) -> Any:
        """Process with a store that another topic fills."""

        def finish(topology: Topology) -> None:
            text = Serdes.string()
            names = {"source": "facts-source", "processor": "facts-processor"}
            spec = Stores.key_value("facts", text, text)
            topology.add_read_only_state_store(
                spec, step["topic"], Filling, key=text, value=text, **names
            )
            topology.connect_processor_and_state_stores("lookup", "facts")

        self.finish = finish
        return self.of(step).process(Lookup, name="lookup")

    def op_cogroup_windows(self, step: Step) -> Any:
        """Aggregate two streams together in windows."""
        first = self.of(step).cogroup(lambda _, v, a: f"{a}l{text(v)}")
        both = first.cogroup(self.of(step, "with"), lambda _, v, a: f"{a}r{text(v)}")
        size, grace, stored = step["size"], step["grace"], self.stored(step)
        if step["kind"] == "session":
            sessions = SessionWindows.of_inactivity_gap_and_grace(size, grace)
            merger = lambda _, a, b: a + b  # noqa: E731 - as in Java
            return both.windowed_by(sessions).aggregate(str, merger, materialized=stored)
        windows: Any = SlidingWindows.of_time_difference_and_grace(size, grace)
        if step["kind"] == "time":
            windows = TimeWindows.of_size_and_grace(size, grace).advance_by(step["advance"])
        return both.windowed_by(windows).aggregate(str, materialized=stored)

    def windowed(self, step: Step, windows: Any) -> Any:
        """Aggregate in windows."""
        found = self.of(step).windowed_by(windows)
        if step["close"]:
            found = found.emit_strategy(EmitStrategy.on_window_close())
        return found.aggregate(str, listed, materialized=self.stored(step))

    def op_session_windows(self, step: Step) -> Any:
        """Aggregate in sessions."""
        windows = SessionWindows.of_inactivity_gap_and_grace(step["size"], step["grace"])
        found = self.of(step).windowed_by(windows)
        if step["close"]:
            found = found.emit_strategy(EmitStrategy.on_window_close())
        stored = self.stored(step)
        return found.aggregate(str, listed, lambda _, a, b: a + b, materialized=stored)

    def op_suppress_time(self, step: Step) -> Any:
        """Hold updates back for a time."""
        given = Suppressed.until_time_limit(
            step["size"], max_records=step.get("records"), max_bytes=step.get("bytes")
        )
        return self.of(step).suppress(given)

    def op_table_aggregate(self, step: Step) -> Any:
        """Aggregate rows with a subtractor."""
        return self.of(step).aggregate(
            str,
            lambda _, v, a: f"{a}+{v}",
            lambda _, v, a: f"{a}-{v}",
            materialized=self.stored(step),
        )

    def op_table_reduce(self, step: Step) -> Any:
        """Reduce rows with a subtractor."""
        return self.of(step).reduce(
            lambda a, v: f"{a}+{v}", lambda a, v: f"{a}-{v}", materialized=self.stored(step)
        )

    def op_stream_join(self, step: Step) -> Any:
        """Join two streams."""
        windows = JoinWindows.of_time_difference_and_grace(0, step["grace"])
        windows = windows.before(step["before"]).after(step["after"])
        return self.join_of(step)(self.of(step, "with"), join, windows)

    def op_stream_table_join(self, step: Step) -> Any:
        """Join a stream with a table."""
        joined = Joined(grace_ms=step["waits"]) if "waits" in step else None
        return self.join_of(step)(self.of(step, "with"), join, joined=joined)

    def op_global_join(self, step: Step) -> Any:
        """Join a stream with a global table."""
        return self.join_of(step)(self.of(step, "with"), join, key_selector=first_letter)

    def op_table_join(self, step: Step) -> Any:
        """Join two tables."""
        return self.join_of(step)(self.of(step, "with"), join, materialized=self.named(step))

    def op_foreign_key_join(self, step: Step) -> Any:
        """Join two tables by a foreign key."""
        chosen = drops(step) if "drops" in step else None
        is_other = step.get("other")
        joined = TableJoined(
            partitioner=None if is_other else chosen, other_partitioner=chosen if is_other else None
        )
        return self.join_of(step)(
            self.of(step, "with"), join, foreign_key=foreign_key, table_joined=joined
        )

    def op_cogroup(self, step: Step) -> Any:
        """Aggregate two streams together."""
        first = self.of(step).cogroup(lambda _, v, a: f"{a}l{text(v)}")
        both = first.cogroup(self.of(step, "with"), lambda _, v, a: f"{a}r{text(v)}")
        return both.aggregate(str, materialized=self.stored(step))

    def join_of(self, step: Step) -> Any:
        """Return the method of a kind of join."""
        name = {"inner": "join", "left": "left_join", "outer": "outer_join"}[step["kind"]]
        return getattr(self.of(step), name)


def built(steps: list[Step], wrapper: type[ProcessorWrapper] | None = None) -> Topology:
    """Return the topology of steps."""
    build = Build(wrapper)
    for step in steps:
        build.add(step)
    topology = build.builder.build()
    build.finish(topology)
    return topology


def run(
    steps: list[Step],
    inputs: list[Input],
    outputs: list[str],
    restart_after: int = 0,
    wrapper: type[ProcessorWrapper] | None = None,
) -> list[Output]:
    """Return what a topology writes; with `restart_after` its state is written in between."""
    with PipelineDriver(built(steps, wrapper)) as driver:
        for number, (topic, key, value, timestamp) in enumerate(inputs, start=1):
            headers = (("n", b"%d" % (number - 1)),)
            driver.input_topic(topic).pipe(key, value, timestamp, headers)
            if restart_after and number % restart_after == 0:
                driver.restart()
        text = Serdes.string()
        return [
            (name, one.key, one.value, one.timestamp, headers_text(one))
            for name in outputs
            for one in driver.output_topic(name, text, text).read_all()
        ]
