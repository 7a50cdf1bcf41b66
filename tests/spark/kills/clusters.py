"""Three nodes in processes of their own, and a standalone Spark cluster on loopback."""

from __future__ import annotations

import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import psutil

from tests.conformance.clusters.nodes import OTTLA, Cluster
from tests.ports import free_ports
from tests.spark.kills.driver import descendants, is_executor, is_worker, kill_one
from tests.spark.test_streams_clusters import HOST, is_listening, spark_process
from tests.waits import wait_for

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator
    from pathlib import Path

SETTINGS = {"transaction.two.phase.commit.enable": "true"}
START_LIMIT_S = 120.0
_SERVICES = "org.apache.spark.deploy"


@contextmanager
def nodes_of(directory: Path, count: int) -> Iterator[Cluster]:
    """Run so many nodes, each broker and controller."""
    cluster = Cluster(directory, (OTTLA,) * count, has_links=False)
    cluster.format({one.node_id: SETTINGS for one in cluster.nodes})
    cluster.start()
    try:
        wait_for(lambda: all(one.is_ready for one in cluster.nodes), limit_s=START_LIMIT_S)
        yield cluster
    finally:
        cluster.kill()


def kill_node(cluster: Cluster, rng: random.Random) -> None:
    """Kill one node and start it again a moment later, once all others serve."""
    wait_for(lambda: all(one.is_ready for one in cluster.nodes), limit_s=START_LIMIT_S)
    node = rng.choice(cluster.nodes)
    node.kill()
    time.sleep(rng.uniform(0, 3))
    node.start()


@contextmanager
def spark_cluster(directory: Path) -> Iterator[str]:
    """Run a master and a worker of Spark; yield the master's address."""
    (port,) = free_ports(1)
    master = f"spark://{HOST}:{port}"
    quiet = ("--host", HOST, "--webui-port", "0")
    worker = (*quiet, "--cores", "2", "--memory", "2g", "--work-dir", str(directory), master)
    with ExitStack() as services:
        enter = services.enter_context
        enter(spark_process(directory, f"{_SERVICES}.master.Master", *quiet, "--port", str(port)))
        wait_for(lambda: is_listening(port), limit_s=START_LIMIT_S)
        enter(spark_process(directory, f"{_SERVICES}.worker.Worker", *worker))
        yield master


def kill_executor(rng: random.Random) -> bool:
    """Kill an executor of the standalone cluster; False while there is none."""
    return kill_one(psutil.Process().pid, rng, is_executor)


def kill_executors_worker(rng: random.Random) -> bool:
    """Kill a Python worker of an executor; False while there is none."""
    executors = [one.pid for one in descendants(psutil.Process().pid) if is_executor(one)]
    return bool(executors) and kill_one(rng.choice(executors), rng, is_worker)
