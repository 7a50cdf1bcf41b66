"""Quorums of three and five over bad days: safe at every event, live when the faults end."""

from __future__ import annotations

import pytest

from tests.simulation.quorum import SimulatedQuorum


def run_seed(seed: int, *, rounds: int = 30) -> SimulatedQuorum:
    """Run a quorum through faults, then without, and check what must hold."""
    quorum = SimulatedQuorum(seed, voters=3 + 2 * (seed % 2), observers=1 + seed % 2)
    quorum.voter_change_probability = 0.1 * (seed % 3)
    for _ in range(rounds):
        for _ in range(quorum.rng.randrange(1, 10)):
            quorum.run(quorum.rng.randrange(1, 400))
            quorum.work()
        quorum.fault()
    quorum.heal()
    quorum.run(15_000)
    assert len(quorum.leaders()) == 1, "a healed quorum has one leader"
    before = quorum.checks.end_offset
    for _ in range(5):
        quorum.work()
        quorum.run(1_000)
    assert quorum.checks.end_offset > before, "a healed quorum commits"
    quorum.run(2_000)
    quorum.run(10_000)
    quorum.checks.agreed()
    return quorum


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
