"""Whole clusters that lose nodes; `scripts/simulate --cluster --seeds 0-99` runs more seeds."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.simulation.cluster_seeds import ClusterRun


@pytest.mark.parametrize("seed", [1, 27, 54])
def test_acknowledged_records_are_kept(seed: int) -> None:
    """1: a high watermark that was not repeated; 27: a stop while a node starts."""
    run = ClusterRun(seed).run()
    assert len(run.acknowledged) > 50


def test_a_seed_gives_the_same_events_whatever_the_hash_seed_is() -> None:
    """So that a failure can be replayed."""
    command = [sys.executable, "-m", "tests.simulation.cluster_seeds", "--seeds", "2-2"]
    printed = [
        subprocess.run(
            command,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split("digest ")[1]
        for hash_seed in ("1", "2")
    ]
    assert printed[0] == printed[1]
