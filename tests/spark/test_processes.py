"""The JVM that one of Spark's Python processes works for, with a daemon between them or without."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from ottla.spark.forking.launcher import JVM
from ottla.spark.processes import DAEMON

PROGRAM = """
import os, sys
from importlib.machinery import ModuleSpec
from ottla.spark.processes import DAEMON, spark_jvm

sys.modules["__main__"].__spec__ = ModuleSpec({name!r}, None)
if {name!r} == DAEMON and (child := os.fork()):
    os.waitpid(child, 0)
else:
    print(spark_jvm().pid)
"""


@pytest.mark.parametrize("name", [DAEMON, "pyspark.worker"])
def test_all_of_a_jvms_processes_name_the_same_one(name: str) -> None:
    """Each kind has a daemon of its own: its process id is no name of the driver."""
    program = PROGRAM.format(name=name)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) == os.getpid()


def test_a_fork_of_the_servers_knows_its_jvm_by_a_variable() -> None:
    """The JVM is none of its ancestors."""
    program = PROGRAM.format(name="ottla.spark.forking.server")
    environment = {**os.environ, JVM: "1"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    assert int(done.stdout) == 1
