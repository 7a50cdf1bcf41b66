"""The node that tests share runs only in the modules that use it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.waits import WAIT_S

if TYPE_CHECKING:
    from ottla.testing import Kafka

USES = """
def test_uses_it(kafka):
    assert kafka.topic("orders").produce(["one"]).values() == ["one"]
"""
LOOKS = """
def test_looks(request):
    assert request.getfixturevalue("_shared_kafka_cluster").is_running is IS_FOREIGN
"""


def _run(directory: Path, *options: str) -> str:
    root = Path(__file__).parents[2]
    tests = directory / "suite"  # below the root directory, as ours
    tests.mkdir(parents=True)
    shared = "from tests.conftest import _shared_kafka_cluster, _stopped_shared_node\n"
    (tests / "conftest.py").write_text(shared)
    looks = LOOKS.replace("IS_FOREIGN", str(bool(options)))
    for name, text in {"first": USES, "second": looks, "third": USES}.items():
        (tests / f"test_{name}.py").write_text(text)
    (directory / "pytest.ini").write_text("[pytest]\naddopts = --import-mode=importlib\n")
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", *options],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(root), "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        timeout=4 * WAIT_S,
        check=False,
    )
    return ran.stdout + ran.stderr


def test_it_stops_at_the_end_of_a_module_and_starts_again(tmp_path: Path) -> None:
    """The second module finds it stopped."""
    assert "3 passed" in _run(tmp_path / "own")


def test_a_foreign_broker_is_not_stopped(kafka: Kafka, tmp_path: Path) -> None:
    """That of --ottla-url is no node of the tests."""
    assert "3 passed" in _run(tmp_path / "foreign", "--ottla-url", kafka.bootstrap)
