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

from ottla import Admin, Producer
from ottla.spark.jvm.java import find_java
from ottla.spark.jvm.launching import OPENED_PACKAGES
from tests.ports import free_ports
from tests.spark.streams_topics import latest
from tests.waits import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.testing.cluster import Cluster

pytestmark = [pytest.mark.conformance, pytest.mark.spark, pytest.mark.timeout(600)]

PROGRAM = """
from ottla.streams import Consumed, Serdes, StreamsBuilder, StreamsConfig, expr

builder = StreamsBuilder(StreamsConfig(application_id="{name}"))
numbers = builder.stream("{name}-in", consumed=Consumed(value=Serdes.json(schema="n BIGINT")))
odd = numbers.filter(expr("value.n % 2 = 1")).select_key(expr("CAST(value.n % 3 AS STRING)"))
odd.group_by_key().count().to_stream().to("{name}-out")
"""
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


def run_program(node: Cluster, directory: Path, name: str, master: str) -> None:
    """Run the program from topic to topic, twice on one checkpoint."""
    program = directory / "app.py"
    program.write_text(PROGRAM.format(name=name))
    with Admin(bootstrap_servers=node.bootstrap) as admin:
        for topic in (f"{name}-in", f"{name}-out"):
            admin.create_topic(topic, partitions=2)
    with Producer(bootstrap_servers=node.bootstrap) as producer:
        for number in range(20):
            producer.send(f"{name}-in", b'{"n":%d}' % number, partition=number % 2)
    command = [sys.executable, "-m", "ottla", "streams", "run", str(program), "--once"]
    command += ["--bootstrap-server", node.bootstrap, "--checkpoint", str(directory / "checkpoint")]
    done = subprocess.run(
        [*command, "--master", master], capture_output=True, text=True, timeout=400, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    counts = latest(node.bootstrap, f"{name}-out", 3)
    assert {key: int.from_bytes(value) for key, value in counts.items()} == {"0": 3, "1": 4, "2": 3}


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
            run_program(node, tmp_path, "standalone", master)


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
        run_program(node, tmp_path, "connect", f"sc://{HOST}:{port}")
