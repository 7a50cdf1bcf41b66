"""`python -m tests.simulation.cluster_seeds FIRST-LAST`: many seeds of whole clusters.

Prints progress, events per second, a digest of all traces and, for a seed that fails, the command
that replays it. `scripts/simulate --cluster` calls it.
"""

from __future__ import annotations

import gc
import sys
import time
import zlib

from tests.simulation.clusters.run import ROUNDS, ClusterRun
from tests.simulation.quorum_seeds import SeedFailed, main

PROGRESS_SEEDS = 20
_failed: list[ClusterRun] = []
"""Kept: what coroutines of a run that was given up do in the end is of no interest."""


def run_seed(seed: int, *, rounds: int = ROUNDS) -> ClusterRun:
    """Run a cluster through faults, then without, and check what must hold."""
    run = ClusterRun(seed, rounds=rounds)
    try:
        return run.run()
    except Exception as error:
        _failed.append(run)
        raise SeedFailed(seed, run.events, error) from error


def run_seeds(first: int, last: int, *, max_events: int) -> int:
    """Run seeds until one fails or max_events have happened; return the exit code."""
    began_s = time.process_time()
    events = digest = acknowledged = 0
    gc.disable()  # a run leaves cycles, and little else is to be found by looking for them
    for seed in range(first, last + 1):
        try:
            run = run_seed(seed)
        except SeedFailed as error:
            print(f"{error}\nafter {events + error.events:,} events; replay it with")
            print(f"  scripts/simulate --cluster --seeds {seed}", flush=True)
            return 1
        events += run.events
        acknowledged += len(run.work.acknowledged)
        digest = zlib.crc32(f"{run.cluster.trace.digest()} {run.events}".encode(), digest)
        del run
        gc.collect()
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
