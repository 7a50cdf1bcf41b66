"""The same program on a standalone cluster and through Spark Connect, both on loopback."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.ports import free_ports
from tests.spark.cluster_runs import CONNECT_LIMIT, LIMIT_S, CountingRun
from tests.spark.spark_services import (
    HOST,
    START_LIMIT_S,
    is_listening,
    spark_process,
    standalone_cluster,
)
from tests.waits import wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from ottla.testing.cluster import Cluster

pytestmark = [pytest.mark.conformance, pytest.mark.spark, pytest.mark.timeout(2700)]


def test_a_standalone_cluster(node: Cluster, tmp_path: Path) -> None:
    """A master and a worker of PySpark's jars; executors are processes of their own."""
    with standalone_cluster(tmp_path) as master:
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
        CONNECT_LIMIT: f"{LIMIT_S}s",
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
        wait_for(lambda: is_listening(port), limit_s=START_LIMIT_S)
        counting = CountingRun(node.bootstrap, tmp_path, "connect")
        counting.send()
        counting.run(f"sc://{HOST}:{port}")
        counting.check()
