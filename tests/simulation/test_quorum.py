"""Quorums of three and five over bad days: safe at every event, live when the faults end."""

from __future__ import annotations

import pytest

from tests.simulation.quorum import SimulatedQuorum
from tests.simulation.quorum_seeds import run_seed


@pytest.mark.parametrize("seed", range(8))
def test_a_quorum_survives_bad_days(seed: int) -> None:
    """No invariant breaks, and the quorum serves when the faults end."""
    run_seed(seed)


def test_a_seed_gives_the_same_trace() -> None:
    """Nothing but the seed decides what happens."""
    first, second = run_seed(3, rounds=10), run_seed(3, rounds=10)
    assert (first.trace, first.events) == (second.trace, second.events)


def test_a_quiet_quorum_has_a_leader_and_commits() -> None:
    """Three voters elect one leader, and two observers follow."""
    quorum = SimulatedQuorum(1, observers=2)
    quorum.run(4_000)
    leader = quorum.leaders()[0]
    assert leader.driver is not None
    epoch = leader.driver.node.epoch
    for _ in range(20):
        quorum.work()
        quorum.run(100)
    quorum.run(1_000)
    quorum.checks.agreed()
    assert leader.driver.node.epoch == epoch, "nothing disturbs the leader"
