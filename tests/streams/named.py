"""Topologies whose parts have names; NamedTopologies.java builds the same with Kafka Streams."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ottla.streams import (
    AutoOffsetReset,
    Branched,
    Consumed,
    Grouped,
    Joined,
    JoinWindows,
    Materialized,
    Processor,
    Produced,
    Repartitioned,
    Serdes,
    SessionWindows,
    SlidingWindows,
    Stores,
    StreamJoined,
    StreamsBuilder,
    StreamsConfig,
    Suppressed,
    TableJoined,
    TimeWindows,
    TopologyException,
    ValueTransformer,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.streams import KStream, KTable

TEXT = Serdes.string()
WITHOUT_NAME = Materialized(key=TEXT, value=TEXT)


def named(name: str) -> Consumed:
    """Return how a topic is read under a name."""
    return Consumed(TEXT, TEXT, name=name)


def first(one: Any, *_: Any) -> Any:
    """Return the first argument."""
    return one


def last(*values: Any) -> Any:
    """Return the last argument."""
    return values[-1]


def accept(_key: Any, _value: Any) -> bool:
    """Accept a record."""
    return True


def both(_key: Any, value: Any) -> tuple[Any, Any]:
    """Return the value as key and value."""
    return value, value


def streams(builder: StreamsBuilder) -> tuple[KStream, KStream]:
    """Return two streams."""
    left = builder.stream("in0", consumed=named("source"))
    return left, builder.stream("in1", consumed=named("other"))


def stateless(builder: StreamsBuilder) -> None:
    """Add operators of one stream, and groupings."""
    stream = builder.stream("in0", consumed=named("source"))
    kept = stream.filter(accept, name="keep").map_values(first, name="change")
    keyed = kept.select_key(last, name="rekey").peek(first, name="look")
    it = keyed.flat_map_values(lambda value: [value], name="flatten")
    other = builder.stream("in1", consumed=named("other"))
    it.merge(other, name="both").to("out", Produced(name="sink"))
    counts = it.group_by_key(Grouped(name="grouping"))
    counted = counts.count(name="counting", materialized=Materialized("counts"))
    counted.to_stream(name="streamed").to("counts-out")
    regrouped = it.group_by(last, Grouped(name="regroup"))
    regrouped.aggregate(str, last, name="aggregating", materialized=WITHOUT_NAME)
    it.group_by_key().reduce(first, name="reducing", materialized=WITHOUT_NAME)
    again = it.repartition(Repartitioned("again", partitions=3))
    again.to_table(name="tabled", materialized=Materialized("tabled-store"))
    it.to_table(name="tabled2")
    it.foreach(first, name="each")
    it.print(name="printer")
    it.print()


def stream_joins(builder: StreamsBuilder) -> None:
    """Add joins of streams."""
    left, right = streams(builder)
    windows = JoinWindows.of_time_difference_with_no_grace(5)
    left.join(right, first, windows, joined=StreamJoined(name="joining", store_name="store-base"))
    left.left_join(right, first, windows, joined=StreamJoined(name="left"))
    keyed, other = left.select_key(last, name="rekey"), right.select_key(last, name="rekey2")
    keyed.outer_join(other, first, windows, joined=StreamJoined(name="outer"))
    left.outer_join(right, first, windows, joined=StreamJoined(store_name="only-store"))


def tables(builder: StreamsBuilder) -> None:
    """Add joins and aggregations of tables."""
    stream = builder.stream("in0", consumed=named("source"))
    left = builder.table("in1", consumed=named("table"), materialized=Materialized("t-store"))
    right = builder.table("in2", consumed=named("table2"))
    stream.join(left, first, joined=Joined(name="stj"))
    stream.select_key(last, name="rekey").left_join(right, first, joined=Joined(name="stlj"))
    stored = Materialized("g-store")
    whole = builder.global_table("in3", consumed=named("global"), materialized=stored)
    stream.join(whole, first, key_selector=last, name="gj")
    mapped = left.filter(accept, name="tf").map_values(
        first, name="tm", materialized=Materialized("tm-store")
    )
    mapped.join(right, first, name="ttj", materialized=Materialized("joined-store"))
    left.left_join(right, first, name="ttlj")
    left.outer_join(right, first, name="ttoj", materialized=WITHOUT_NAME)
    given: dict[str, Any] = {"table_joined": TableJoined("fkj"), "materialized": WITHOUT_NAME}
    left.join(right, first, foreign_key=last, **given)
    given = {"table_joined": TableJoined("fklj"), "materialized": Materialized("fklj-store")}
    left.left_join(right, first, foreign_key=last, **given)
    computed(left)


def computed(table: KTable) -> None:
    """Add what is made of one table."""
    group = table.group_by(both, Grouped(name="tgroup"))
    group.aggregate(str, last, last, name="tagg", materialized=Materialized("tagg-store"))
    table.group_by(both).count(name="tcount")
    stored = Materialized("treduce-store")
    table.group_by(both).reduce(first, first, name="treduce", materialized=stored)
    held = table.suppress(Suppressed.until_time_limit(5).with_name("held"))
    held.to_stream(name="tts").to("out", Produced(name="tsink"))
    table.transform_values(ValueTransformer, name="trans")
    table.transform_values(ValueTransformer, materialized=WITHOUT_NAME)
    table.to_stream(last, name="tsk")
    table.map_values(first, materialized=WITHOUT_NAME).to_stream().to("o2")


def splits_and_windows(builder: StreamsBuilder) -> None:
    """Add branches, cogroups, windows and processors."""
    left, right = streams(builder)
    split = left.split(name="sp-").branch(accept, Branched("one")).branch(accept)
    split = split.branch(accept, Branched("three", lambda it: it.to("c")))
    found = split.default_branch(Branched("rest"))
    plain = right.split().branch(accept)
    plain.branch(accept, Branched(function=lambda it: it.map_values(first))).default_branch()
    found["sp-one"].to("out1")
    group = left.group_by_key()
    other = right.select_key(last).group_by_key(Grouped(name="cg"))
    both_groups = group.cogroup(last).cogroup(other, last)
    both_groups.aggregate(str, name="cogroup", materialized=Materialized("cg-store"))
    windows = TimeWindows.of_size_with_no_grace(5)
    windowed = group.cogroup(last).cogroup(right.group_by_key(), last).windowed_by(windows)
    windowed.aggregate(str, name="wcog", materialized=Materialized("wcg-store"))
    group.windowed_by(windows).count(name="wcount")
    sessions = group.windowed_by(SessionWindows.of_inactivity_gap_with_no_grace(5))
    reduced = sessions.reduce(first, name="sreduce", materialized=Materialized("s-store"))
    reduced.suppress(Suppressed.until_window_closes()).to_stream()
    sliding = group.windowed_by(SlidingWindows.of_time_difference_with_no_grace(5))
    sliding.aggregate(str, last, name="sl", materialized=WITHOUT_NAME)
    builder.add_state_store(Stores.key_value("mine", TEXT, TEXT))
    left.process(Processor, "mine", name="proc").to("o3")
    right.process(Processor).to("o4")


def pattern_streams(builder: StreamsBuilder) -> None:
    """Add streams of patterns: two of the same, which share a source."""
    matched = builder.stream(re.compile("in-.*"), consumed=named("matched"))
    matched.merge(builder.stream(re.compile("in-.*"))).to("out")
    latest = Consumed(TEXT, TEXT, offset_reset_policy=AutoOffsetReset.latest())
    builder.stream(re.compile("other-[ab]"), consumed=latest).group_by(last).count()


def of_all_topics(builder: StreamsBuilder) -> None:
    """Add a pattern that a repartition topic would match."""
    builder.stream(re.compile(".*")).group_by(last, Grouped(name="again")).count()


def of_two_policies(builder: StreamsBuilder) -> None:
    """Add a pattern twice."""
    builder.stream(re.compile("in-.*"))
    latest = Consumed(TEXT, TEXT, offset_reset_policy=AutoOffsetReset.latest())
    builder.stream(re.compile("in-.*"), consumed=latest)


def sources(*given: Any) -> Callable[[StreamsBuilder], None]:
    """Return what adds sources: names, patterns, each with its policy or none."""

    def add(builder: StreamsBuilder) -> None:
        topology = builder.build()
        for name, topics, policy in given:
            topology.add_source(name, *topics, offset_reset_policy=policy)

    return add


def two_patterns(builder: StreamsBuilder) -> None:
    """Add two patterns of which one contains the other: Kafka finds a topic of both later."""
    latest = AutoOffsetReset.latest()
    sources(("a", [MATCHING], latest), ("b", [re.compile("in-.*b")], None))(builder)


def with_global_topic(builder: StreamsBuilder) -> None:
    """Add a pattern, and a global store of a topic that it matches."""
    sources(("a", [MATCHING], None))(builder)
    spec = Stores.key_value("g", TEXT, TEXT)
    names = {"source": "g-source", "processor": "g-processor"}
    builder.build().add_global_store(spec, "in-x", Processor, **names)


MATCHING = re.compile("in-.*")
TOPOLOGIES: dict[str, Callable[[StreamsBuilder], None]] = {
    "stateless": stateless,
    "stream joins": stream_joins,
    "tables": tables,
    "split, cogroup, windows": splits_and_windows,
    "patterns": pattern_streams,
    "patterns of one start": two_patterns,
    "topic, then pattern": sources(("a", ["in-x"], None), ("b", [MATCHING], None)),
    "pattern, then topic": sources(("a", [MATCHING], None), ("b", ["x", "in-x"], None)),
    "pattern, then global topic": with_global_topic,
    "no topic": sources(("a", [], None)),
    "names twice": sources(("a", [re.compile("a")], None), ("a", [re.compile("b")], None)),
    "pattern and repartition topic": of_all_topics,
    "two policies of a pattern": of_two_policies,
}


def described(title: str) -> str:
    """Return the description of a topology, or the error of one that cannot be built."""
    builder = StreamsBuilder(StreamsConfig("named", TEXT, TEXT))
    try:
        TOPOLOGIES[title](builder)
    except TopologyException as error:
        return f"Invalid topology: {error.message}"
    return builder.build().describe()
