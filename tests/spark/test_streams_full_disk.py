"""The checkpoint's disk is full for a while: one line each time, then all is there once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark import full_disk
from tests.spark.full_disk import ROUNDS, namespace_command
from tests.spark.streams_topics import written
from tests.spark.test_streams_faults import create

if TYPE_CHECKING:
    from ottla.testing.cluster import Cluster

pytestmark = [pytest.mark.conformance, pytest.mark.spark, pytest.mark.timeout(1800)]
ROOT = Path(__file__).parents[2]
CASES = {
    "disk": ("No space left on device", "free space on it and start again"),
    "limit": ("File too large", "raise it and start again"),
}


@pytest.mark.parametrize("kind", CASES)
def test_a_full_disk(node: Cluster, tmp_path: Path, kind: str) -> None:
    """A machine that gives no disk for the first case does the second one twice."""
    name = f"full-{kind}"
    create(node, f"{name}-in", f"{name}-out")
    space = namespace_command(tmp_path) if kind == "disk" else None
    kind = "disk" if space else "limit"
    command = [*(space or ()), sys.executable, "-m", full_disk.__name__]
    done = subprocess.run(
        [*command, node.bootstrap, str(tmp_path), kind, name],
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    cause, advice = CASES[kind]
    assert 1 <= len(found["errors"]) <= ROUNDS
    for line, is_final in found["errors"]:
        assert cause in line
        assert advice in line
        assert "\n" not in line
        assert not is_final  # a supervisor tries again until there is space
    assert found["count"] == ROUNDS + 2
    assert written(node.bootstrap, f"{name}-out") == {"k": [0, 2, 4, 6, 8]}
