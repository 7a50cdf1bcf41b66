"""What a session of a cluster gives Java and its executors; a local one stays on loopback."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from ottla.spark.forking.launcher import JVM
from ottla.spark.jvm import local_session
from ottla.spark.jvm.launching import Java, Launch, end, java_command, launch
from ottla.spark.jvm.local_session import (
    LOCAL_SETTINGS,
    SETTINGS,
    defaults,
    executor_python,
)
from ottla.spark.jvm.options import JavaOptions, is_local, submit_arguments
from ottla.spark.jvm.submission import PYTHON

if TYPE_CHECKING:
    from collections.abc import Sequence

CLUSTERS = ("spark://host:7077", "yarn", "k8s://https://host:6443")
OPTIONS = JavaOptions("1g", "ERROR", fast_start=False, temp_dir=None)


def command(arguments: Sequence[str] = ()) -> list[str]:
    """Return the command for a Java and a Spark that are not there."""
    java = Java(Path("java"), 17)
    with TemporaryDirectory() as directory:
        return java_command(
            java,
            Path("spark"),
            OPTIONS,
            directory=Path(directory),
            archive=(),
            arguments=arguments,
        )


@pytest.mark.parametrize("master", CLUSTERS)
def test_executors_of_a_cluster_reach_the_driver(master: str) -> None:
    """The addresses of loopback, and how local checkpoints are written, are left out."""
    assert not set(LOCAL_SETTINGS) & set(defaults(master))
    assert not is_local(master)


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*]"])
def test_a_local_session_stays_on_loopback(master: str) -> None:
    """And runs this Python."""
    assert defaults(master) == SETTINGS | LOCAL_SETTINGS
    assert executor_python(master, {PYTHON: "other"}) == sys.executable


def test_the_python_of_executors(monkeypatch: pytest.MonkeyPatch) -> None:
    """By setting, by variable, or the path of this one."""
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    assert executor_python("yarn", {}) == sys.executable
    monkeypatch.setenv("PYSPARK_PYTHON", "python3.13")
    assert executor_python("yarn", {}) == "python3.13"
    assert executor_python("yarn", {PYTHON: "./environment/bin/python"}).startswith("./")


def test_java_finds_the_settings_of_hadoop(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the jars, so that a class archive made without them is still used."""
    monkeypatch.delenv("YARN_CONF_DIR", raising=False)
    monkeypatch.setenv("HADOOP_CONF_DIR", "/etc/hadoop/conf")
    found = command()
    path = found[found.index("-cp") + 1]
    assert path == "spark/jars/*:/etc/hadoop/conf"


def test_sparks_launcher_has_master_and_settings(tmp_path: Path) -> None:
    """It gives files to the cluster only by these arguments."""
    arguments = submit_arguments("yarn", {"spark.archives": "a.tar.gz#a"}, tmp_path)
    assert arguments == ["--master", "yarn", "--conf", "spark.archives=a.tar.gz#a"]
    assert command(arguments)[-5:] == ["org.apache.spark.deploy.SparkSubmit", *arguments]


def test_secrets_are_no_arguments(tmp_path: Path) -> None:
    """All users of a machine see those; the file is its owner's."""
    key = "spark.hadoop.fs.s3a.secret.key"
    arguments = submit_arguments(None, {key: "a=b c\\d\n#", "spark.a": "b"}, tmp_path)
    path = tmp_path / "secrets.properties"
    in_file = ["--properties-file", str(path), "--load-spark-defaults"]
    assert arguments == ["--conf", "spark.a=b", *in_file]
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.read_text() == key + "=a\\=b\\ c\\\\d\\n\\#\n"


@pytest.mark.parametrize("python", [None, "python3.13"])
def test_local_workers_import_the_installed_pyspark(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, python: str | None
) -> None:
    """With SPARK_HOME they would import its zip, and compile it in each process."""
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.delenv("SPARK_CONF_DIR", raising=False)
    printed = tmp_path / "printed"
    monkeypatch.setenv(JVM, "1")  # a function of another session has started this program
    program = "import os; print(*map(os.environ.get, ('SPARK_HOME', 'SPARK_CONF_DIR', 'JVM')))"
    program = program.replace("'JVM'", repr(JVM))
    command = [sys.executable, "-c", program]
    launched = launch(command, tmp_path, tmp_path / "address", log=printed, python=python)
    end(launched, timeout=60)
    home = None if python is None else tmp_path
    assert printed.read_text().split() == [str(home), str(tmp_path / "conf"), "None"]


def test_programs_that_a_driver_starts_have_its_python(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The launcher of its fork server is Spark's only: on other machines there is no such file."""
    seen: list[str | None] = []

    def made() -> SimpleNamespace:
        seen.append(os.environ.get("PYSPARK_PYTHON"))
        accumulators = SimpleNamespace(handle_error=None)
        return SimpleNamespace(sparkContext=SimpleNamespace(_accumulatorServer=accumulators))

    builder: Any = SimpleNamespace(getOrCreate=made)
    builder.appName = builder.master = builder.config = lambda *_: builder
    forks: Any = SimpleNamespace(python="launcher")
    process: Any = None
    monkeypatch.setattr(local_session, "_launched", [Launch(process, tmp_path, forks)])
    monkeypatch.setattr(SparkContext, "_gateway", object())
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    monkeypatch.setattr(SparkSession, "builder", builder)
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.setenv(name, "python3.13")
    local_session.session(master="local[2]")
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    local_session.session(master="yarn")
    assert seen == ["launcher", sys.executable]
