"""State that is written and read again, as between the micro-batches of Spark."""

from __future__ import annotations

import pytest
from pyspark import cloudpickle

from ottla.streams import (
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    StreamsBuilder,
    TopologyException,
)
from ottla.streams.plan.plan import layout
from ottla.testing import PipelineDriver
from tests.soaks import with_soaks
from tests.streams.cases import built, run
from tests.streams.generated import KINDS, Generator


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seeds", with_soaks([range(3), range(3, 12)]))
def test_restarts_change_no_result(kind: str, seeds: range) -> None:
    """The plan can be pickled; a task made again every three records writes the same."""
    for seed in seeds:
        generator = Generator(seed, kind)
        steps = generator.make()
        inputs = generator.inputs()
        for step in steps:
            step.pop("again", None)  # what `process` has scheduled ends with its micro-batch
        try:
            built(steps)
        except TopologyException:
            continue
        pickled: bytes = cloudpickle.dumps(layout(built(steps)))  # type: ignore[no-untyped-call]
        assert cloudpickle.loads(pickled).stages
        if any("drops" in step and "other" in step for step in steps):
            continue  # its partitioner is refused with the first row of a key
        whole = run(steps, inputs, ["out"])
        assert run(steps, inputs, ["out"], restart_after=3) == whole, steps


class Reminder(Processor):
    """Schedules one punctuation by itself, which ends at once, and one for each record."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self.first = context.schedule(10, PunctuationType.STREAM_TIME, self.once)
        context.schedule(50, PunctuationType.STREAM_TIME, self.often)

    def process(self, record: Record) -> None:
        self.own = self.context.schedule(5, PunctuationType.STREAM_TIME, self.reminded)

    def once(self, now_ms: int) -> None:
        self.context.forward(Record("once", None, now_ms))
        self.first.cancel()

    def often(self, now_ms: int) -> None:
        self.context.forward(Record("often", None, now_ms))

    def reminded(self, now_ms: int) -> None:
        self.context.forward(Record("reminded", None, now_ms))
        self.own.cancel()


def test_a_cancelled_punctuation_stays_cancelled() -> None:
    """Those of `init` last by their names; those of a record do not take their places."""
    builder = StreamsBuilder()
    builder.stream("in").process(Reminder).to("out")
    with PipelineDriver(builder.build()) as driver:
        for time in (1, 2, 60, 61):
            driver.input_topic("in").pipe("k", 1, time)
            driver.restart()
        found = [(one.key, one.timestamp) for one in driver.output_topic("out").read_all()]
    assert found.count(("once", 1)) == 1
    assert [time for key, time in found if key == "often"] == [1, 60]
    assert {key for key, _ in found} == {"once", "often", "reminded"}
