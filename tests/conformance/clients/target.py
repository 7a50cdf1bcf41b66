"""What the tests of clients run against: one node, three, or a cluster of both kinds.

OTTLA_TEST_CLUSTER selects it: nothing for one Ottla node, `three` for three of them, `mixed` for
two and a real Kafka in one quorum. Topics of a cluster have three replicas.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from ottla import Admin
from ottla.records.batches import iterate_batches
from tests.conformance.clients.node_process import running_node
from tests.conformance.clusters.history import Lost
from tests.conformance.clusters.load import wait_for
from tests.conformance.clusters.nodes import KAFKA, OTTLA, Cluster
from tests.conformance.kafka import find_kafka

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ottla.records.batch import RecordBatch

SELECTED = os.environ.get("OTTLA_TEST_CLUSTER", "")
_MEMBERS = {"three": (OTTLA,) * 3, "mixed": (OTTLA, KAFKA, OTTLA)}


class Target(Protocol):
    """A node or a cluster that runs."""

    @property
    def bootstrap(self) -> str:
        """The addresses for clients."""

    def create_topic(self, name: str, partitions: int = 1) -> str:
        """Create a topic that keeps records of any age."""

    def batches_of(self, topic: str, partition: int) -> list[RecordBatch]:
        """Return the batches in a partition's files."""


class ClusterTarget:
    """Three nodes."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.bootstrap = cluster.bootstrap

    def create_topic(self, name: str, partitions: int = 1) -> str:
        """Create a topic that keeps records of any age; return when all brokers have it."""
        with Admin(bootstrap_servers=self.bootstrap) as admin:
            admin.create_topic(name, partitions=partitions, configs={"retention.ms": "-1"})
        return name

    def batches_of(self, topic: str, partition: int) -> list[RecordBatch]:
        """Return the batches in the files of the replicas, which are equal."""
        wait_for(
            lambda: len(set(self.cluster.files_of(topic, partition).values())) == 1,
            f"the replicas of {topic}-{partition} differ",
        )
        file = self.cluster.files_of(topic, partition)[1]
        return list(iterate_batches(memoryview(file)))


@contextmanager
def running_target(directory: Path) -> Iterator[Target]:
    """Run what is selected for as long as the block lasts."""
    if not SELECTED:
        with running_node(directory) as node:
            yield node
        return
    with running_cluster(directory, SELECTED) as cluster:
        yield ClusterTarget(cluster)


@contextmanager
def running_cluster(directory: Path, name: str) -> Iterator[Cluster]:
    """Run the cluster of this name for as long as the block lasts."""
    kafka = find_kafka() if KAFKA in _MEMBERS[name] else None
    cluster = Cluster(directory, _MEMBERS[name], kafka, has_links=False)
    cluster.format()
    try:
        cluster.start()
        wait_until_registered(cluster)
        yield cluster
    finally:
        cluster.kill()


def wait_until_ready(cluster: Cluster) -> None:
    """Wait until all nodes serve; say which one does not, with the end of what it printed."""

    def are_ready() -> bool:
        cluster.check()
        return all(node.is_ready for node in cluster.nodes)

    try:
        wait_for(are_ready, "a node does not serve")
    except Lost as error:
        late = [one for one in cluster.nodes if not one.is_ready]
        printed = "".join(f"\n{one.node_id}: {one.log.read_text()[-3000:]}" for one in late)
        raise Lost(f"{error}: {printed}") from error


def wait_until_registered(cluster: Cluster) -> None:
    """Wait until all nodes serve and every broker is known."""
    wait_until_ready(cluster)
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        wait_for(
            lambda: len(admin.describe_cluster().brokers) == len(cluster.brokers),
            "a broker is not registered",
        )
