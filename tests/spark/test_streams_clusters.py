"""The same program on a standalone cluster and through Spark Connect, both on loopback."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.spark.jvm.java import find_java
from ottla.spark.jvm.launching import OPENED_PACKAGES
from tests.ports import free_ports
from tests.spark.cluster_runs import CountingRun
from tests.waits import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.testing.cluster import Cluster

pytestmark = [pytest.mark.conformance, pytest.mark.spark, pytest.mark.timeout(600)]

HOST = "127.0.0.1"


def is_listening(port: int) -> bool:
    """Whether a port takes connections."""
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


@contextmanager
def spark_process(directory: Path, main: str, *arguments: str) -> Iterator[None]:
    """Run one of Spark's services of PySpark's own jars until the end of the block."""
    import pyspark

    home = Path(pyspark.__file__).parent
    command = [str(find_java().path), "-cp", f"{home / 'jars'}{os.sep}*", "-Xmx1g"]
    command += [f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in OPENED_PACKAGES]
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": HOST,
        "SPARK_SCALA_VERSION": "2.13",  # the launcher looks for a build otherwise
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    with (directory / "spark.log").open("ab") as log:
        process = subprocess.Popen(
            [*command, main, *arguments], stdout=log, stderr=log, env=environment, cwd=directory
        )
    try:
        yield
    finally:
        process.terminate()
        process.wait(60)


def test_a_standalone_cluster(node: Cluster, tmp_path: Path) -> None:
    """A master and a worker of PySpark's jars; executors are processes of their own."""
    (port,) = free_ports(1)
    master = f"spark://{HOST}:{port}"
    services = "org.apache.spark.deploy"
    quiet = ("--host", HOST, "--webui-port", "0")
    with spark_process(tmp_path, f"{services}.master.Master", *quiet, "--port", str(port)):
        wait_for(lambda: is_listening(port), limit_s=120)
        worker = (*quiet, "--cores", "2", "--memory", "2g", "--work-dir", str(tmp_path), master)
        with spark_process(tmp_path, f"{services}.worker.Worker", *worker):
            counting = CountingRun(node.bootstrap, tmp_path, "standalone")
            counting.send()
            counting.run(master, "--conf", f"spark.driver.host={HOST}")
            counting.check()


def test_spark_connect(node: Cluster, tmp_path: Path) -> None:
    """The program is a client: the query runs in the server."""
    (port,) = free_ports(1)
    settings = {
        "spark.connect.grpc.binding.address": HOST,
        "spark.connect.grpc.binding.port": str(port),
        "spark.ui.enabled": "false",
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        ),
    }
    given = [word for item in settings.items() for word in ("--conf", "=".join(item))]
    with spark_process(
        tmp_path,
        "org.apache.spark.deploy.SparkSubmit",
        *("--master", "local[2]", *given),
        *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"),
    ):
        wait_for(lambda: is_listening(port), limit_s=120)
        counting = CountingRun(node.bootstrap, tmp_path, "connect")
        counting.send()
        counting.run(f"sc://{HOST}:{port}")
        counting.check()
