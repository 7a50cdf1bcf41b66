"""Replicas of one partition over bad days: safe at every event, live when the faults end."""

from __future__ import annotations

import pytest

from tests.simulation.replica_seeds import run_seed
from tests.simulation.replicas import SimulatedReplicas
from tests.soaks import with_soaks


@pytest.mark.parametrize("seed", with_soaks(range(6), count=2))
def test_replicas_survive_bad_days(seed: int) -> None:
    """Nothing acknowledged is lost or reordered, and the partition serves when the faults end."""
    cluster = run_seed(seed, rounds=25)
    assert cluster.checks.acknowledged, "producers were acknowledged"


@pytest.mark.soak
def test_a_seed_gives_the_same_trace() -> None:
    """Nothing but the seed decides what happens."""
    first, second = run_seed(3, rounds=8), run_seed(3, rounds=8)
    assert (first.trace, first.events) == (second.trace, second.events)


def test_quiet_replicas_stay_in_sync() -> None:
    """Three replicas replicate without a change of leader or in-sync set."""
    cluster = SimulatedReplicas(1, brokers=3)
    cluster.late_probability = 0.0
    cluster.run(3_000)
    epoch = cluster.controller.partition.partition_epoch
    for _ in range(20):
        cluster.work()
        cluster.run(100)
    cluster.run(1_000)
    cluster.check_agreement()
    assert cluster.controller.partition.partition_epoch == epoch
    assert cluster.produced["NONE"] == cluster.produced.total() == 20
