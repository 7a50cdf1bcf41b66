"""Which parts of a topology Spark runs as columns: no session."""

from __future__ import annotations

import pytest

from ottla.streams import (
    Consumed,
    Processor,
    Record,
    Serdes,
    Stores,
    StreamsBuilder,
    StreamsConfig,
    TopologyException,
    expr,
)
from ottla.streams.plan.paths import Entry
from ottla.streams.plan.plan import Layout, Stage, layout

ROWS = Consumed(value=Serdes.json(schema="n BIGINT"))


class Keep(Processor):
    """Forwards what it gets, and has a store."""

    def process(self, record: Record) -> None:
        """Process a record."""
        self.context.forward(record)


def shape(plan: Layout) -> list[str]:
    """Return each step: a stage's functions, or a path and where it leads."""
    found = []
    for step in plan.steps:
        if isinstance(step, Stage):
            found.append("stage " + " ".join(node.name for node in step.sub_topology.nodes))
        else:
            end = step.end.child if isinstance(step.end, Entry) else str(step.end.topic)
            found.append(f"path {' '.join(node.name for node in step.nodes)} > {end}")
    return found


def test_without_columns_a_sub_topology_is_a_stage() -> None:
    """As before there were columns."""
    builder = StreamsBuilder()
    builder.stream("in").filter(lambda *_: True).to("out")
    plan = layout(builder.build())
    assert [type(step) for step in plan.steps] == [Stage]
    assert not plan.paths


def test_columns_from_topic_to_topic_need_no_function() -> None:
    """A path for each way."""
    builder = StreamsBuilder()
    rows = builder.stream("in", consumed=ROWS)
    rows.filter(expr("value.n > 1"), name="many").to("many")
    rows.map_values(expr("value.n"), name="numbers").to("numbers")
    plan = layout(builder.build())
    assert shape(plan) == ["path many > many", "path numbers > numbers"]
    assert [path.reports_errors for path in plan.paths] == [True, False]


def test_columns_between_functions_divide_a_sub_topology() -> None:
    """Into levels; what leads from one function to another of a later level is handed on."""
    builder = StreamsBuilder()
    rows = builder.stream("in", consumed=ROWS).peek(lambda *_: None, name="first")
    rows.filter(expr("value.n > 1"), name="column").merge(rows, name="merge").to("out")
    plan = layout(builder.build())
    source, sink = "KSTREAM-SOURCE-0000000000", "KSTREAM-SINK-0000000004"
    assert shape(plan) == [
        f"stage {source} first",
        "path column > merge",
        "path  > merge",
        f"stage merge {sink}",
    ]
    (first, last) = plan.stages
    assert sorted(first.exits) == [("first", "column"), ("first", "merge")]
    assert [entry.child for entry in last.entries.values()] == ["merge", "merge"]


def test_a_store_on_both_sides_of_a_column_is_refused() -> None:
    """Its processors would have to run before and after it."""
    typed = StreamsConfig(default_value_serde=Serdes.json(schema="n BIGINT"))
    builder = StreamsBuilder(typed)
    builder.add_state_store(Stores.key_value("shared", Serdes.string(), Serdes.json()))
    rows = builder.stream("in").process_values(Keep, "shared")
    rows.filter(expr("value.n > 1")).process_values(Keep, "shared").to("out")
    with pytest.raises(TopologyException, match="between processors that share a store"):
        layout(builder.build())
