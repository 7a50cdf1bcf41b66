"""Spark's own services of PySpark's jars, on loopback."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.spark.jvm.launching import OPENED_PACKAGES, find_java
from tests.ports import free_ports
from tests.waits import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

HOST = "127.0.0.1"
START_LIMIT_S = 120.0


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


@contextmanager
def standalone_cluster(directory: Path) -> Iterator[str]:
    """Run a master and a worker, whose executors are processes; yield the master's address."""
    (port,) = free_ports(1)
    master = f"spark://{HOST}:{port}"
    services = "org.apache.spark.deploy"
    quiet = ("--host", HOST, "--webui-port", "0")
    with spark_process(directory, f"{services}.master.Master", *quiet, "--port", str(port)):
        wait_for(lambda: is_listening(port), limit_s=START_LIMIT_S)
        worker = (*quiet, "--cores", "2", "--memory", "2g", "--work-dir", str(directory), master)
        with spark_process(directory, f"{services}.worker.Worker", *worker):
            yield master
