"""`python -m tests.simulation.cluster_seeds FIRST-LAST`: many seeds of whole clusters.

Prints progress, events per second, a digest of all traces and, for a seed that fails, the command
that replays it. `scripts/simulate --cluster` calls it; with --lasting there are faults that last.
"""

from __future__ import annotations

import gc
import sys
from functools import partial

from tests.simulation.clusters.run import ROUNDS, ClusterRun
from tests.simulation.seed_runs import SeedFailed, SeedResult, SeedRuns

PROGRESS_SEEDS = 20
_failed: list[ClusterRun] = []
"""Kept: what coroutines of a run that was given up do in the end is of no interest."""


def run_seed(seed: int, *, rounds: int = ROUNDS, lasting: bool = False) -> ClusterRun:
    """Run a cluster through faults, then without, and check what must hold."""
    run = ClusterRun(seed, rounds=rounds, lasting=lasting)
    try:
        return run.run()
    except Exception as error:
        _failed.append(run)
        raise SeedFailed(seed, run.events, error) from error


def _result(seed: int, *, lasting: bool = False) -> SeedResult:
    gc.disable()  # a run leaves cycles, and little else is to be found by looking for them
    gc.collect()  # what the run before has left
    run = run_seed(seed, lasting=lasting)
    return SeedResult(run.events, run.cluster.trace.digest(), len(run.work.acknowledged))


if __name__ == "__main__":
    options = [one for one in sys.argv[1:] if one == "--lasting"]
    sys.argv = [one for one in sys.argv if one != "--lasting"]
    seeds = partial(_result, lasting=bool(options))
    command = " ".join(("--cluster", *options))
    sys.exit(SeedRuns(command, seeds, progress=PROGRESS_SEEDS).main(__doc__))
