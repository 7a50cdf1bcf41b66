"""Nodes in processes of their own, and what is killed of them and of a standalone Spark cluster."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import psutil

from tests.conformance.clusters.nodes import OTTLA, Cluster
from tests.spark.kills.driver import descendants, is_executor, is_worker, kill_one
from tests.waits import wait_for

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator
    from pathlib import Path

SETTINGS = {"transaction.two.phase.commit.enable": "true"}
START_LIMIT_S = 120.0


ALONE = {
    "default.replication.factor": "1",
    "min.insync.replicas": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
"""The settings of a cluster of one node, besides."""


@contextmanager
def nodes_of(directory: Path, count: int) -> Iterator[Cluster]:
    """Run so many nodes, each broker and controller."""
    cluster = Cluster(directory, (OTTLA,) * count, has_links=False)
    settings = SETTINGS | (ALONE if count == 1 else {})
    cluster.format({one.node_id: settings for one in cluster.nodes})
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


def kill_executor(rng: random.Random) -> bool:
    """Kill an executor of the standalone cluster; False while there is none."""
    return kill_one(psutil.Process().pid, rng, is_executor)


def kill_executors_worker(rng: random.Random) -> bool:
    """Kill a Python worker of an executor; False while there is none."""
    executors = [one.pid for one in descendants(psutil.Process().pid) if is_executor(one)]
    return bool(executors) and kill_one(rng.choice(executors), rng, is_worker)
