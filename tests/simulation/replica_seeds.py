"""`python -m tests.simulation.replica_seeds FIRST-LAST`: many seeds of one partition's replicas.

Prints progress, events per second, a digest of all traces and, for a seed that fails, the command
that replays it. `scripts/simulate --replicas` calls it.
"""

from __future__ import annotations

import sys

from tests.simulation.replicas import SimulatedReplicas
from tests.simulation.seed_runs import SeedFailed, SeedResult, SeedRuns

HEALED_MS = 12_000
PROGRESS_SEEDS = 100


def run_seed(seed: int, *, rounds: int = 40) -> SimulatedReplicas:
    """Run the replicas through faults, then without, and check what must hold."""
    cluster = SimulatedReplicas(seed, brokers=4 + seed % 2)
    try:
        _run(cluster, rounds)
    except Exception as error:
        raise SeedFailed(seed, cluster.events, error) from error
    return cluster


def _run(cluster: SimulatedReplicas, rounds: int) -> None:
    rng = cluster.rng
    for _ in range(rounds):
        for _ in range(rng.randrange(1, 12)):
            cluster.run(rng.randrange(1, 150))
            cluster.work()
        cluster.fault()
    cluster.heal()
    cluster.run(HEALED_MS)
    partition = cluster.controller.partition
    if not partition.isr and not partition.eligible_leader_replicas:
        return  # a shrink under way left only replicas that lost power: no one may lead
    before = cluster.produced["NONE"]
    for _ in range(5):
        cluster.work()
        cluster.run(500)
    assert cluster.produced["NONE"] >= before + 5, f"not acknowledged: {cluster.produced}"
    cluster.run(3_000)
    cluster.check_agreement()


def _result(seed: int) -> SeedResult:
    cluster = run_seed(seed)
    return SeedResult(cluster.events, cluster.trace, len(cluster.checks.acknowledged))


if __name__ == "__main__":
    sys.exit(SeedRuns("--replicas", _result, progress=PROGRESS_SEEDS).main(__doc__))
