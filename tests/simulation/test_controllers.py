"""Controllers over a quorum with faults: equal images, reverted standbys, operations that hold."""

from __future__ import annotations

import pytest

from tests.simulation.controllers import SimulatedControllers
from tests.simulation.quorum_seeds import run_seed
from tests.soaks import with_soaks


@pytest.mark.parametrize("seed", with_soaks(range(6)))
def test_controllers_survive_bad_days(seed: int) -> None:
    """Every node has the same metadata at the same offset, and operations go on."""
    controllers = run_seed(seed, rounds=20, kind=SimulatedControllers)
    assert isinstance(controllers, SimulatedControllers)
    assert controllers.successes > 5


@pytest.mark.soak
def test_a_seed_gives_the_same_trace() -> None:
    """Nothing but the seed decides what happens."""
    first = run_seed(2, rounds=10, kind=SimulatedControllers)
    second = run_seed(2, rounds=10, kind=SimulatedControllers)
    assert (first.trace, first.events) == (second.trace, second.events)
