"""State that is written and read again, as between the micro-batches of Spark."""

from __future__ import annotations

import pytest
from pyspark import cloudpickle

from ottla.streams import TopologyException
from ottla.streams.stages import plan_stages
from tests.streams.cases import built, run
from tests.streams.generated import KINDS, Generator


@pytest.mark.parametrize("kind", KINDS)
def test_restarts_change_no_result(kind: str) -> None:
    """The plan can be pickled; a task made again every three records writes the same."""
    for seed in range(12):
        generator = Generator(seed, kind)
        steps = generator.make()
        inputs = generator.inputs()
        try:
            built(steps)
        except TopologyException:
            continue
        pickled: bytes = cloudpickle.dumps(plan_stages(built(steps)))  # type: ignore[no-untyped-call]
        assert cloudpickle.loads(pickled).stages
        whole = run(steps, inputs, ["out"])
        assert run(steps, inputs, ["out"], restart_after=3) == whole, steps
