"""Sources of patterns: which topics they read, in how many tasks, over one checkpoint."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.spark.checkpoint import Checkpoint
from ottla.spark.options import check_partitions
from ottla.streams import (
    Consumed,
    Materialized,
    Serdes,
    StreamsBuilder,
    StreamsConfig,
    StreamsException,
    Topology,
    TopologyException,
)
from ottla.streams.plan.plan import Plan, layout, plan_for
from ottla.streams.run.checkpoints import check_tasks, check_topology, noted_tasks
from ottla.streams.run.data_frames import source_names
from ottla.streams.topology.picture import draw
from ottla.streams.topology.topology import subscription
from ottla.testing import PipelineDriver

if TYPE_CHECKING:
    from pathlib import Path

    from ottla.streams.plan.plan import Plan

TEXT = Serdes.string()
ORDERS = re.compile("orders-.*")


def builder() -> StreamsBuilder:
    """Return a builder of text."""
    return StreamsBuilder(StreamsConfig("app", TEXT, TEXT))


def plan(build: Any, partitions: dict[str, int], noted: dict[int, int] | None = None) -> Plan:
    """Return the plan of what a function builds, on a cluster with these topics."""
    made = builder()
    build(made)
    return plan_for(made.build(), partitions, noted)


def copied(build: StreamsBuilder) -> None:
    """Copy the topics."""
    build.stream(ORDERS).to("out")


def kept(build: StreamsBuilder) -> None:
    """Count by the topics' keys."""
    build.stream(ORDERS).group_by_key().count()


def regrouped(build: StreamsBuilder) -> None:
    """Count by value."""
    build.stream(ORDERS).group_by(lambda _, value: value).count()


def joined(build: StreamsBuilder) -> None:
    """Join with a table by key."""
    build.stream(ORDERS).join(build.table("names"), lambda a, b: [a, b]).to("out")


def test_a_topic_is_read_by_name_or_by_a_pattern() -> None:
    """Whole names match; a record's topic is its own; written records come in again."""
    build = builder()
    seen: list[str] = []
    build.stream(ORDERS).to("copies")
    build.stream("orders").to("orders-by-name")
    build.stream(re.compile("COPIES", re.IGNORECASE)).foreach(lambda k, _: seen.append(k))
    topology = build.build()
    with PipelineDriver(topology) as driver:
        driver.input_topic("orders-eu").pipe("a", "1", 1)
        driver.input_topic("orders-us").pipe("b", "2", 2)
        driver.input_topic("orders").pipe("c", "3", 3)
        with pytest.raises(StreamsException, match="Unknown topic: my-orders-eu"):
            driver.input_topic("my-orders-eu")
        assert driver.output_topic("copies").read_pairs() == [("a", "1"), ("b", "2"), ("c", "3")]
    assert seen == ["a", "b", "c"]
    assert "topics: orders-.*" in draw(topology)


def test_a_topic_of_two_patterns_is_refused() -> None:
    """In the driver, at the start, and where records of a topic that came later are addressed."""
    build = builder()
    build.stream(ORDERS).to("out")
    build.stream(re.compile(".*-eu")).to("out")
    topology = build.build()
    words = r"Topic orders-eu is already matched for another regex pattern orders-\.\* and hence"
    with PipelineDriver(topology) as driver, pytest.raises(TopologyException, match=words):
        driver.input_topic("orders-eu")
    with pytest.raises(TopologyException, match=words):
        layout(topology, ["orders-eu"])
    find = source_names(topology.patterns())
    assert find(pa.array(["orders-us", "x-eu", "other", "x-eu"])).to_pylist() == [
        "KSTREAM-SOURCE-0000000000",
        "KSTREAM-SOURCE-0000000002",
        None,
        "KSTREAM-SOURCE-0000000002",
    ]
    with pytest.raises(TopologyException, match=words):
        find(pa.array(["orders-eu"]))


def test_what_is_no_pattern_of_topics() -> None:
    """Bytes, backreferences, several patterns, and tables."""
    build: Any = builder()
    with pytest.raises(TypeError, match="a pattern of topics is text"):
        build.stream(re.compile(b"a"))
    with pytest.raises(TypeError, match="or one pattern"):
        build.stream("a", ORDERS)
    with pytest.raises(TypeError, match="a table is that of one topic"):
        build.table(ORDERS)
    with pytest.raises(TypeError, match="a source takes names of topics, or one pattern"):
        Topology().add_source("a", "a", ORDERS)
    with pytest.raises(TopologyException, match="has a backreference"):
        build.stream(re.compile(r"(a|b)-\1"))


def test_one_subscription_has_names_and_patterns_with_their_flags() -> None:
    """A flag is that of its pattern only."""
    patterns = [re.compile("(?i)eu-.*"), re.compile("us-\\d # states", re.VERBOSE | re.ASCII)]
    text = re.compile(subscription(["a.b"], patterns))
    assert all(text.fullmatch(name) for name in ("a.b", "EU-x", "us-1"))
    assert not any(text.fullmatch(name) for name in ("aXb", "US-1", "A.B", "us-1 # states"))
    with pytest.raises(TopologyException, match="cannot be joined"):
        subscription([], [re.compile("(?P<x>a)"), re.compile("(?P<x>b)")])


def test_tasks_are_those_of_the_largest_topic() -> None:
    """Internal topics of the application do not count, nor what is named."""

    def build(one: StreamsBuilder) -> None:
        left, right = one.table("left"), one.table("right")
        left.join(right, lambda a, b: [a, b], foreign_key=lambda _, v: v).to_stream().to("out")
        one.stream(re.compile("app-.*")).group_by_key().count()

    topics = {"left": 1, "right": 1, "out": 1, "app-a": 2, "app-b": 3, "application": 9}
    made = plan(build, topics)
    (real,) = made.real_topics.values()
    made = plan(build, {**topics, real: 9})
    assert list(made.matched.values()) == [("app-a", "app-b")]
    assert max(made.tasks.values()) == 3
    ((limited, bounds),) = made.partition_limits().items()
    assert bounds == (1, 3)
    assert re.fullmatch(limited, "app-c")
    assert not re.fullmatch(limited, real)


@pytest.mark.parametrize(
    ("build", "limits"), [(copied, []), (regrouped, []), (kept, [(1, 2)]), (joined, [(2, 2)])]
)
def test_partitions_are_limited_where_tasks_have_state(build: Any, limits: list[Any]) -> None:
    """Without state any number is right, and where an internal topic lies between."""
    made = plan(build, {"orders-eu": 2, "names": 2, "out": 1})
    assert list(made.partition_limits().values()) == limits


def test_a_topic_outside_its_limits_ends_the_query() -> None:
    """The line names both."""
    check_partitions({"orders-eu": 2}, {"orders-.*": (1, 2), "orders": (5, 5)})
    for limits, words in (((1, 2), "1 to 2 partitions"), ((1, 1), "1 partition ")):
        with pytest.raises(KafkaError, match=f"has 3 partitions, .* of {words}") as raised:
            check_partitions({"orders-eu": 3}, {"orders-.*": limits})
        assert raised.value.code is ErrorCode.INVALID_PARTITIONS


def test_a_join_by_key_needs_equal_numbers() -> None:
    """As of topics that are named."""
    with pytest.raises(TopologyException, match="same number of partitions: names: 2, orders-us"):
        plan(joined, {"orders-us": 3, "names": 2, "out": 1})


def test_topics_of_joined_patterns_have_equal_numbers() -> None:
    """Whichever is the first to appear; until then any number is right."""

    def both(build: StreamsBuilder) -> None:
        other = build.stream(re.compile("names-.*")).to_table()
        build.stream(ORDERS).join(other, lambda a, b: [a, b]).to("out")

    ((limited, limit),) = set(plan(both, {}).partition_limits().items())
    assert limit == "equal"
    check_partitions({"other": 9}, {limited: limit})
    check_partitions({"names-a": 2, "orders-a": 2, "other": 9}, {limited: limit})
    words = "'orders-a' has 3 partitions, where the query may read topics of 2 partitions"
    with pytest.raises(KafkaError, match=words):
        check_partitions({"names-a": 2, "orders-a": 3}, {limited: limit})
    made = plan(both, {"orders-eu": 2})
    assert set(made.partition_limits().values()) == {(2, 2)}


def test_a_pattern_may_match_nothing_yet() -> None:
    """Unless the number of its partitions is needed."""
    idle = plan(kept, {})
    assert idle.partition_limits() == {}
    assert idle.source_topics() == []
    assert plan(joined, {"names": 2, "out": 1}).source_topics() == ["names"]
    with pytest.raises(TopologyException, match=r"no topic matches orders-\.\*; create one"):
        plan(regrouped, {})

    def with_global_table(build: StreamsBuilder) -> None:
        facts = build.global_table("facts")
        join = build.stream(ORDERS).join
        join(facts, lambda a, b: [a, b], key_selector=lambda _, v: v).to("out")

    with pytest.raises(TopologyException, match="no topic matches"):
        plan(with_global_table, {"facts": 1, "out": 1})


def start(checkpoint: Path) -> None:
    """Write what Spark writes when it has planned the first micro-batch."""
    (checkpoint / "offsets").mkdir()
    (checkpoint / "offsets" / "0").write_text("v1\n{}\n{}")


def test_a_checkpoint_goes_on_when_topics_appear(tmp_path: Path) -> None:
    """Their partitions are new tasks, or no more than there are; topics that go take none away."""
    checkpoint = Checkpoint(str(tmp_path))

    def run(build: Any, partitions: dict[str, int]) -> Plan:
        made = plan(build, partitions, noted_tasks(checkpoint))
        check_topology(checkpoint, made.topology)
        check_tasks(checkpoint, made)
        return made

    run(kept, {})
    start(tmp_path)
    assert noted_tasks(checkpoint) == {}
    run(kept, {"orders-eu": 2})
    assert noted_tasks(checkpoint) == {0: 2}
    run(kept, {"orders-eu": 2, "orders-us": 1})
    assert run(kept, {"orders-us": 1}).tasks == {0: 2}
    with pytest.raises(
        StreamsException, match=r"state of sub-topology: 0 tasks: 2, which .* 3 now"
    ):
        run(kept, {"orders-eu": 2, "orders-us": 3})


def test_a_repartition_topic_keeps_its_partitions(tmp_path: Path) -> None:
    """A later topic has more of them: the keys of the counts stay where they are."""
    checkpoint = Checkpoint(str(tmp_path))
    check_tasks(checkpoint, plan(regrouped, {"orders-eu": 2}))
    start(tmp_path)
    made = plan(regrouped, {"orders-eu": 2, "orders-us": 5}, noted_tasks(checkpoint))
    assert [made.task_count(stage) for stage in made.stages] == [5, 2]
    check_tasks(checkpoint, made)


def test_columns_read_patterns() -> None:
    """A path begins at the source of a pattern."""
    build = builder()
    order = Serdes.json(schema="n INT")
    from ottla.streams import expr

    build.stream(ORDERS, consumed=Consumed(value=order)).filter(expr("value.n > 1")).to("out")
    build.table("names", materialized=Materialized("kept"))
    made = layout(build.build())
    assert [one.patterns[0].topics_text for one in made.paths] == ["orders-.*"]
    assert made.source_topics() == ["names"]
