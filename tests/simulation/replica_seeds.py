"""`python -m tests.simulation.replica_seeds FIRST-LAST`: many seeds of one partition's replicas.

Prints progress, events per second, a digest of all traces and, for a seed that fails, the command
that replays it. `scripts/simulate --replicas` calls it.
"""

from __future__ import annotations

import sys
import time
import zlib

from tests.simulation.quorum_seeds import SeedFailed, main
from tests.simulation.replicas import SimulatedReplicas

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


def run_seeds(first: int, last: int, *, max_events: int) -> int:
    """Run seeds until one fails or max_events have happened; return the exit code."""
    began_s = time.process_time()
    events = digest = acknowledged = 0
    for seed in range(first, last + 1):
        try:
            cluster = run_seed(seed)
        except SeedFailed as error:
            print(f"{error}\nafter {events + error.events:,} events; replay it with")
            print(f"  scripts/simulate --replicas --seeds {seed}")
            return 1
        events += cluster.events
        acknowledged += len(cluster.checks.acknowledged)
        digest = zlib.crc32(f"{cluster.trace} {cluster.events}".encode(), digest)
        is_last = seed == last or events >= max_events
        if is_last or (seed - first + 1) % PROGRESS_SEEDS == 0:
            rate = events / max(time.process_time() - began_s, 0.001)
            text = f"seeds {first}-{seed}: {events:,} events, {rate:,.0f} a second"
            print(f"{text}, {acknowledged:,} records acknowledged", flush=True)
        if is_last:
            break
    print(f"no seed failed, digest {digest:08x}")
    return 0


if __name__ == "__main__":
    sys.exit(main(run_seeds, __doc__))
