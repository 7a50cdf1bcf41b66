"""What a checkpoint belongs to: a topology, its columns, a cluster, a number of tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ottla.spark.checkpoint import Checkpoint
from ottla.streams import Consumed, Materialized, Serdes, StreamsBuilder, StreamsException, expr
from ottla.streams.plan.plan import Plan, plan_for
from ottla.streams.run.checkpoints import check_cluster, check_tasks, check_topology

if TYPE_CHECKING:
    from pathlib import Path

    from ottla.streams import Topology
    from ottla.streams.plan.plan import Plan


def topology(*, with_column: bool) -> Topology:
    """Return a filter by a function, or by a column."""
    builder = StreamsBuilder()
    stream = builder.stream("in", consumed=Consumed(value=Serdes.json(schema="n INT")))
    if with_column:
        stream.filter(expr("value.n > 1")).to("out")
    else:
        stream.filter(lambda _, value: value["n"] > 1).to("out")
    return builder.build()


def start(checkpoint: Path) -> None:
    """Write what Spark writes when it has planned the first micro-batch."""
    (checkpoint / "offsets").mkdir()
    (checkpoint / "offsets" / "0").write_text("v1\n{}\n{}")


def test_a_checkpoint_of_another_cluster_is_refused(tmp_path: Path) -> None:
    """The line names both."""
    check_cluster(Checkpoint(str(tmp_path)), "a")
    start(tmp_path)
    check_cluster(Checkpoint(str(tmp_path)), "a")
    with pytest.raises(StreamsException, match="belongs to cluster a, the brokers to b"):
        check_cluster(Checkpoint(str(tmp_path)), "b")


def test_a_function_does_not_become_a_column(tmp_path: Path) -> None:
    """Columns divide the state otherwise, under the same names."""
    check_topology(Checkpoint(str(tmp_path)), topology(with_column=False))
    start(tmp_path)
    with pytest.raises(StreamsException, match=r"\+Columns: KSTREAM-FILTER-0000000001"):
        check_topology(Checkpoint(str(tmp_path)), topology(with_column=True))
    check_topology(Checkpoint(str(tmp_path)), topology(with_column=False))


def test_a_store_does_not_become_a_bounded_one(tmp_path: Path) -> None:
    """Its values have the numbers of their uses; how many entries it has may change."""

    def bounded(max_entries: int | None) -> Topology:
        builder = StreamsBuilder()
        builder.table("in", materialized=Materialized("rows", max_entries=max_entries))
        return builder.build()

    check_topology(Checkpoint(str(tmp_path)), bounded(2))
    start(tmp_path)
    check_topology(Checkpoint(str(tmp_path)), bounded(3))
    with pytest.raises(StreamsException, match="-Bounded: rows"):
        check_topology(Checkpoint(str(tmp_path)), bounded(None))


def test_an_application_that_never_ran_may_change(tmp_path: Path) -> None:
    """A mistyped topic, a wrong address, or a full disk at the start bind a checkpoint to nothing.

    On a full disk the file is there, and empty.
    """
    check_topology(Checkpoint(str(tmp_path)), topology(with_column=False))
    check_cluster(Checkpoint(str(tmp_path)), "a")
    (tmp_path / "ottla-cluster.txt").write_text("")
    check_topology(Checkpoint(str(tmp_path)), topology(with_column=True))
    check_cluster(Checkpoint(str(tmp_path)), "b")
    start(tmp_path)
    check_topology(Checkpoint(str(tmp_path)), topology(with_column=True))
    check_cluster(Checkpoint(str(tmp_path)), "b")


def test_state_is_bound_to_the_partitions_of_its_topics(tmp_path: Path) -> None:
    """With more of them a key would be in another task: its count would begin again at 0."""

    def plan(partitions: int, *, with_state: bool = True) -> Plan:
        builder = StreamsBuilder()
        stream = builder.stream("in").filter(lambda _, value: value)
        if with_state:
            stream.group_by(lambda _, value: value).count()
        return plan_for(builder.build(), {"in": partitions})

    check_tasks(Checkpoint(str(tmp_path)), plan(2))
    start(tmp_path)
    check_tasks(Checkpoint(str(tmp_path)), plan(2))
    with pytest.raises(StreamsException) as raised:
        check_tasks(Checkpoint(str(tmp_path)), plan(3))
    assert "state of sub-topology: 1 tasks: 2" in str(raised.value)
    assert "sub-topology: 1 tasks: 3 now" in str(raised.value)
    assert "\n" not in str(raised.value)
    other = tmp_path / "other"
    other.mkdir()
    check_tasks(Checkpoint(str(other)), plan(2, with_state=False))
    start(other)
    check_tasks(Checkpoint(str(other)), plan(3, with_state=False))  # without state tasks may change
