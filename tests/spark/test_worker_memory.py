"""Modules of Spark's workers are exempted from garbage collection, those of other processes not."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from ottla.spark.processes import FROZEN_AT, note_use

WORKER = """
import gc, sys
from importlib.machinery import ModuleSpec
from ottla.spark.processes import note_use

sys.modules["__main__"].__spec__ = ModuleSpec({name!r}, None)
for _ in range({uses}):
    gc.collect()
    note_use()
    print(gc.get_freeze_count() > 1000)
"""


def frozen_after_each_use(name: str, uses: int) -> list[bool]:
    """Return, of a process with this main module, whether its modules are exempted."""
    program = WORKER.format(name=name, uses=uses)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return [line == "True" for line in done.stdout.split()]


def test_a_worker_exempts_its_modules_at_its_second_use() -> None:
    """The first use still loads modules, and what it leaves is collected after it."""
    first = FROZEN_AT[0]
    assert frozen_after_each_use("pyspark.daemon", 3) == [use >= first for use in (1, 2, 3)]


def test_other_processes_collect_all_garbage() -> None:
    """A driver, or a program that reads in its own process, is not Spark's worker."""
    assert frozen_after_each_use("pytest", 3) == [False] * 3
    before = gc.get_freeze_count()
    for _ in range(max(FROZEN_AT)):
        note_use()
    assert gc.get_freeze_count() == before
