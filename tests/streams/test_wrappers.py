"""Processors that a wrapper of the application has around them (KIP-1112)."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark import cloudpickle

from ottla.streams import (
    Consumed,
    Processor,
    ProcessorWrapper,
    Record,
    Serdes,
    Stores,
    StreamsBuilder,
    StreamsConfig,
    Topology,
    TopologyException,
    WrappedProcessor,
    expr,
)
from ottla.streams.columns.combining import combined_inputs
from ottla.streams.plan.plan import layout
from ottla.testing import PipelineDriver
from tests.streams.wrappers import Tally

TEXT = Serdes.string()


def builder(wrapper: type[ProcessorWrapper] = Tally) -> StreamsBuilder:
    """Return a builder with a wrapper."""
    return StreamsBuilder(StreamsConfig("app", TEXT, TEXT, processor_wrapper_class=wrapper))


def counted() -> Topology:
    """Return counts by value."""
    build = builder()
    build.stream("in").group_by(lambda _, value: value).count().to_stream().to("out")
    return build.build()


def test_a_wrapper_has_stores_of_its_own_with_each_processor() -> None:
    """They last over restarts, and are in the description."""
    topology = counted()
    with PipelineDriver(topology) as driver:
        for number, value in enumerate("xxy"):
            driver.input_topic("in").pipe("k", value, number)
            driver.restart()
        assert driver.output_topic("out").read_pairs() == [("x", 1), ("x", 2), ("y", 1)]
        seen = {name: dict(driver.store(name).all()) for name in topology.stores if "seen" in name}
    assert seen == {name: {"app": 3} for name in seen}
    assert len(seen) == 4
    assert "seen-KTABLE-TOSTREAM-" in topology.describe()


def test_wrapped_processors_see_each_record_on_spark() -> None:
    """Counts are not combined before; all stages have state; the wrapper goes to the workers."""
    plan = layout(counted())
    assert [stage.is_stateful for stage in plan.stages] == [True, True]
    assert [combined_inputs(plan.topology, stage, {}) for stage in plan.stages] == [(), ()]
    pickled: bytes = cloudpickle.dumps(plan)  # type: ignore[no-untyped-call]
    assert cloudpickle.loads(pickled).topology.nodes.keys() == plan.topology.nodes.keys()


class Noting(Processor):
    """Notes what is called."""

    calls: list[Any]

    def process(self, record: Record) -> None:
        """Note a record."""
        self.calls.append(record.value)

    def close(self) -> None:
        """Note the end."""
        self.calls.append("closed")


def test_processors_that_fill_global_and_read_only_stores_are_not_wrapped() -> None:
    """As in Kafka; those of a program are, and are closed by a wrapper that passes all on."""
    calls: list[Any] = []

    class Passing(ProcessorWrapper):
        def wrap(self, name: str, processor: Processor) -> Processor:
            calls.append(name)
            return WrappedProcessor(processor)

    class Own(Noting):
        def __init__(self) -> None:
            self.calls = calls

    build = builder(Passing)
    build.global_table("global")
    build.add_global_store(Stores.key_value("own", TEXT, TEXT), "filled", Own)
    build.stream("in").process(Own, name="own-processor")
    topology = build.build().add_read_only_state_store(
        Stores.key_value("facts", TEXT, TEXT), "facts", Own, source="s", processor="p"
    )
    with PipelineDriver(topology) as driver:
        driver.input_topic("in").pipe("k", "v", 1)
    assert [one for one in calls if one != "closed"] == ["own-processor", "v"]
    assert "closed" in calls


def test_a_wrapper_that_does_nothing_changes_nothing() -> None:
    """The base class."""
    build = builder(ProcessorWrapper)
    build.stream("in").map_values(str.upper).to("out")
    with PipelineDriver(build.build()) as driver:
        driver.input_topic("in").pipe("k", "v", 1)
        assert driver.output_topic("out").read_pairs() == [("k", "V")]


def test_columns_are_refused() -> None:
    """Spark runs them, and no processor."""
    orders = builder().stream("in", consumed=Consumed(value=Serdes.json(schema="n INT")))
    with pytest.raises(TopologyException, match="columns cannot be wrapped"):
        orders.filter(expr("value.n > 1"))
