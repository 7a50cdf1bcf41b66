"""Micro-batches that Spark repeats, and state that is rebuilt: both are what they were."""

from __future__ import annotations

import time
import uuid
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from ottla.streams import (
    Materialized,
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    Serdes,
    Stores,
    StreamsBuilder,
    TopologyException,
)
from tests.soaks import with_soaks
from tests.streams.cases import built
from tests.streams.generated import KINDS, Generator
from tests.streams.micro_batches import MicroBatches, Result, State

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.streams import Topology
    from tests.streams.cases import Input, Step

SEEDS = with_soaks([range(2), range(2, 8)])


def steps_of(kind: str, seed: int) -> tuple[list[Step], list[Input]] | None:
    """Return a random topology and its records; None for one that is refused."""
    generator = Generator(seed, kind)
    steps = generator.make()
    inputs = generator.inputs()
    for step in steps:
        step.pop("again", None)  # what `process` has scheduled ends with its micro-batch
    try:
        built(steps)
    except TopologyException:
        return None
    if any("drops" in step and "other" in step for step in steps):
        return None  # its partitioner is refused with the first row of a key
    return steps, inputs


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seeds", SEEDS)
def test_a_repeated_micro_batch_makes_the_same_state(kind: str, seeds: range) -> None:
    """Whatever the order in which rows reach a task, and however often: records and digest too."""
    for seed in seeds:
        case = steps_of(kind, seed)
        if case is None:
            continue
        steps, inputs = case
        rng = Random(seed)
        query = MicroBatches(built(steps))
        state: State = {}
        returned: list[dict[str, Any]] = []
        while inputs or returned:
            size = rng.randint(1, 15)
            rows, inputs = [*returned, *query.source(inputs[:size])], inputs[size:]
            first, second = (query.run(state, rows, 0, Random(n)) for n in (seed, ~seed))
            assert second.contents == first.contents, steps
            assert second.digest == first.digest, steps
            assert second.written == first.written, steps
            state, returned = first.state, query.returned(first)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seeds", SEEDS)
def test_state_that_is_rebuilt_is_the_live_one(kind: str, seeds: range) -> None:
    """A processor made again for each record ends with what one for all records has.

    Of topologies that return records to themselves the records of a micro-batch differ.
    """
    for seed in seeds:
        case = steps_of(kind, seed)
        if case is None:
            continue
        steps, inputs = case
        live, rebuilt = MicroBatches(built(steps)), MicroBatches(built(steps))
        if live.plan.real_topics or len(live.plan.stages) > 1:
            continue
        inputs = [record for record in inputs if record[0] == inputs[0][0]]  # one queue: one order
        whole = live.run({}, live.source(inputs), 0, Random(0))
        state: State = {}
        written = []
        for record in inputs:
            made = rebuilt.run(state, rebuilt.source([record]), 0, Random(0))
            state = made.state
            written += made.written
        assert written == whole.written, steps
        assert stored(rebuilt, made) == stored(live, whole), steps


def stored(query: MicroBatches, made: Result) -> dict[Any, dict[Any, Any]]:
    """Return what is stored; of a store of the keys used last, the order of their last uses."""
    found = made.contents
    for stage in query.plan.stages:
        for name in stage.stores:
            place = (stage.number, 0, stage.state_name(name))
            if query.plan.topology.stores[name].max_entries is not None and place in found:
                used = sorted(found[place].items(), key=lambda item: item[1][0][:8])
                found[place] = {n: (key, value[0][8:]) for n, (key, value) in enumerate(used)}
    return found


class Totals(Processor):
    """Adds up, and every minute of wall clock forwards the totals and starts again at 0."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self.totals = context.get_state_store("totals")
        context.schedule(60_000, PunctuationType.WALL_CLOCK_TIME, self.report)

    def process(self, record: Record) -> None:
        self.totals.put(record.key, (self.totals.get(record.key) or 0) + 1)

    def report(self, now_ms: int) -> None:
        for key, total in list(self.totals.all()):
            self.context.forward(Record(key, total, now_ms))
            self.totals.delete(key)


def totals() -> Topology:
    """Return a topology with a punctuation by the wall clock."""
    text = Serdes.string()
    builder = StreamsBuilder()
    builder.add_state_store(Stores.key_value("totals", text, Serdes.long()))
    builder.stream("in").process(Totals, "totals").to("out")
    return builder.build()


def test_the_clock_is_that_of_the_micro_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A repeat at another time computes what the first run has: nothing is lost or kept twice."""
    query = MicroBatches(totals())
    made: Result = query.run({}, [], 0, Random(0))
    found: list[bytes] = []
    for number, time_ms in enumerate((0, 59_000, 130_000, 200_000)):
        rows = query.source([("in", "k", '"x"', number)] * 5)
        monkeypatch.setattr(time, "time_ns", lambda: 10**18)
        first = query.run(made.state, rows, time_ms, Random(0))
        monkeypatch.setattr(time, "time_ns", lambda: 2 * 10**18)
        made = query.run(made.state, rows, time_ms, Random(0))
        assert (made.contents, made.digest) == (first.contents, first.digest)
        found += [one[3] for one in first.written]
    assert found == [b"15", b"5"]


def counted(add: Callable[[Any], Any]) -> Topology:
    """Return a topology that keeps what a function makes of each value."""
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().aggregate(
        list,
        lambda _key, value, known: [*known, add(value)],
        materialized=Materialized(name="kept", value=Serdes.json()),
    )
    return builder.build()


@pytest.mark.parametrize(
    "add",
    [
        pytest.param(lambda _: str(uuid.uuid4()), id="uuid"),
        pytest.param(lambda _: time.time_ns(), id="now"),
        pytest.param(lambda _: Random().random(), id="random"),
    ],
)
def test_code_that_is_no_function_of_its_records_is_found(add: Callable[[Any], Any]) -> None:
    """The digest of the state's changes differs, though nothing is written."""
    query = MicroBatches(counted(add))
    rows = query.source([("in", "k", "1", n) for n in range(3)])
    kept = [query.run({}, rows, 0, Random(0)) for _ in range(2)]
    assert kept[0].written == kept[1].written == []
    assert kept[0].digest != kept[1].digest


def test_records_may_differ_where_the_state_does_not() -> None:
    """An id that is only written: the records of the first run are those that are committed."""
    builder = StreamsBuilder()
    stream = builder.stream("in")
    stream.group_by_key().count(materialized=Materialized(name="counts"))
    stream.map_values(lambda _: str(uuid.uuid4())).to("out")
    query = MicroBatches(builder.build())
    rows = query.source([("in", "k", "1", n) for n in range(3)])
    first, second = (query.run({}, rows, 0, Random(0)) for _ in range(2))
    assert first.written != second.written
    assert first.digest == second.digest
