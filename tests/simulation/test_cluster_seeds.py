"""Whole clusters over bad days; `scripts/simulate --cluster --seeds 0-99` runs more seeds."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.simulation.cluster_seeds import run_seed


@pytest.mark.parametrize("seed", [3])
def test_whole_clusters_survive_bad_days(seed: int) -> None:
    """Safe after every turn, live when the faults end; layouts of three to seven nodes.

    Seeds have clients of their own: transactions, members of a consumer group; see
    `test_cluster_shares` for seed 2.
    """
    run = run_seed(seed, rounds=2)
    assert len(run.work.acknowledged) > 50
    if run.transactions is not None:
        assert run.transactions.counts["copied"] > 0
        assert run.checks.markers.count > 0
    if run.members is not None:
        assert run.members.counts["commits"] > 5
        assert run.members.checks.changes > 20


@pytest.mark.soak
def test_a_cluster_survives_faults_that_last() -> None:
    """Among them a broker with empty disks; the cluster works again soon after each.

    Two rounds of faults; `.ci/simulations` runs the same seed with eight.
    """
    run = run_seed(13, rounds=2, lasting=True)
    assert len(run.work.acknowledged) > 50
    assert run.faults.counts["empty_disk"] > 0


_DIGEST = """
from tests.simulation.cluster_seeds import run_seed
print(run_seed(8, rounds=1).cluster.trace.digest())
"""


@pytest.mark.conformance
def test_a_seed_gives_the_same_events_whatever_the_hash_seed_is() -> None:
    """So that a failure can be replayed."""
    command = [sys.executable, "-c", _DIGEST]
    printed = [
        subprocess.run(
            command,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    ]
    assert printed[0] == printed[1]
    assert len(printed[0].strip()) == 32
