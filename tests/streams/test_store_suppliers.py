"""Who chooses the form of stores: the application, an operator, or what an operator is given."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from ottla.streams import (
    BuiltInDslStoreSuppliers,
    DslStoreSuppliers,
    JoinWindows,
    Materialized,
    Produced,
    Serdes,
    SessionWindows,
    Stores,
    StreamJoined,
    StreamsBuilder,
    StreamsConfig,
    TimeWindows,
    TopologyException,
)
from ottla.testing import PipelineDriver
from tests.streams.cases import run
from tests.streams.generated import KINDS, Generator
from tests.streams.oracle import answers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.streams.stores.specs import StoreSpec

TEXT = Serdes.string()
LONG = Produced(value=Serdes.long())


class Bounded(DslStoreSuppliers):
    """Bounds the stores of keys, and notes all that it is asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self.application_id = ""

    def configure(self, configs: Mapping[str, Any]) -> None:
        """Take the application's id."""
        self.application_id = configs["application.id"]

    def key_value_store(self, spec: StoreSpec) -> StoreSpec:
        """Return a store of one key."""
        self.asked.append((spec.name, spec.kind))
        return replace(spec, max_entries=1)

    def window_store(self, spec: StoreSpec) -> StoreSpec:
        """Note the store."""
        self.asked.append((spec.name, spec.kind))
        return spec

    session_store = window_store


def test_the_applications_suppliers_choose_where_an_operator_does_not() -> None:
    """A store with a form of its own, and a store of processors, are none of theirs."""
    builder = StreamsBuilder(StreamsConfig("app", TEXT, TEXT, dsl_store_suppliers_class=Bounded))
    group = builder.stream("in").group_by_key()
    group.count(materialized=Materialized("bounded")).to_stream().to("out", LONG)
    group.count(materialized=Materialized("on-disk", store_type=BuiltInDslStoreSuppliers.ROCKS_DB))
    group.count(materialized=Materialized("own", max_entries=7))
    builder.add_state_store(Stores.key_value("added", TEXT, TEXT))
    builder.table("rows", materialized=Materialized("versions", history_ms=10))
    builder.global_table("facts", materialized=Materialized("facts"))
    topology = builder.build()
    found = {name: spec.max_entries for name, spec in topology.stores.items()}
    assert found == {
        "bounded": 1,
        "on-disk": None,
        "own": 7,
        "added": None,
        "versions": None,
        "facts": 1,
    }
    with PipelineDriver(topology) as driver:
        for number, key in enumerate("aba"):
            driver.input_topic("in").pipe(key, "x", number)
        assert driver.output_topic("out").read_pairs() == [("a", 1), ("b", 1), ("a", 1)]


def test_an_operators_suppliers_are_asked_for_each_of_its_stores() -> None:
    """Of windows, sessions, both sides of a join; those of the application are configured."""
    given = Bounded()
    builder = StreamsBuilder(StreamsConfig("app", TEXT, TEXT))
    stream = builder.stream("in")
    group = stream.group_by_key()
    windows = group.windowed_by(TimeWindows.of_size_with_no_grace(5))
    windows.count(materialized=Materialized("windows", store_type=given))
    sessions = group.windowed_by(SessionWindows.of_inactivity_gap_with_no_grace(5))
    sessions.count(materialized=Materialized("sessions", store_type=given))
    joined = StreamJoined(store_name="both", dsl_store_suppliers=given)
    within = JoinWindows.of_time_difference_with_no_grace(5)
    stream.join(builder.stream("other"), lambda a, b: a + b, within, joined=joined)
    assert given.asked == [
        ("windows", "window"),
        ("sessions", "session"),
        ("both-this-join-store", "window"),
        ("both-other-join-store", "window"),
    ]

    class Configured(Bounded):
        def key_value_store(self, spec: StoreSpec) -> StoreSpec:
            assert self.application_id == "app"
            return super().key_value_store(spec)

    config = StreamsConfig("app", TEXT, TEXT, dsl_store_suppliers_class=Configured)
    StreamsBuilder(config).table("rows", materialized=Materialized("rows"))
    assert config.by_name()["dsl.store.suppliers.class"] is Configured


def test_another_store_is_refused() -> None:
    """An operator needs its kind, its retention, its serdes; windows are not bounded."""

    class Other(DslStoreSuppliers):
        def key_value_store(self, spec: StoreSpec) -> StoreSpec:
            return replace(spec, value=Serdes.bytes())

        def window_store(self, spec: StoreSpec) -> StoreSpec:
            return replace(spec, max_entries=5)

    group = StreamsBuilder(StreamsConfig("app", TEXT, TEXT)).stream("in").group_by_key()
    given = Materialized("store", store_type=Other())
    with pytest.raises(TopologyException, match="Other returns another store for store: only max"):
        group.count(materialized=given)
    with pytest.raises(TopologyException, match="Other returns another store for store"):
        group.windowed_by(TimeWindows.of_size_with_no_grace(5)).count(materialized=given)


@pytest.mark.conformance
@pytest.mark.timeout(300)
def test_results_with_stores_in_memory_are_those_of_kafka_streams() -> None:
    """Which are here those of stores on disk; Kafka's in memory lose windows before their close."""
    generators = [Generator(seed, kind) for kind in KINDS for seed in range(4)]
    cases = [(one.make(), one.inputs()) for one in generators]
    found = answers(cases, are_stores_in_memory=True)
    compared = 0
    for (steps, inputs), answer in zip(cases, found, strict=True):
        if "error" not in answer and not any(step.get("close") for step in steps):
            assert [list(one) for one in run(steps, inputs, ["out"])] == answer["outputs"], steps
            compared += 1
    assert compared > len(cases) // 2
