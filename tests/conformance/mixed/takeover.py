"""A cluster of one broker of each kind whose coordinators move from one to the other.

Kafka: none.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from ottla import Admin, KafkaError, TopicPartition
from tests.conformance.clusters.load import wait_for
from tests.conformance.clusters.nodes import KAFKA, OTTLA, Cluster

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tests.conformance.kafka import Kafka

SETTINGS = {
    "min.insync.replicas": "1",
    "default.replication.factor": "2",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "2",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "2",
    "transaction.state.log.min.isr": "1",
    # nothing is killed: a broker that a busy machine holds up stays in the cluster and in sync
    "broker.session.timeout.ms": "60000",
    "replica.lag.time.max.ms": "60000",
}
OTHER = {1: 2, 2: 1}
FIRST = pytest.mark.parametrize("first", [1, 2], ids=["ottla-kafka-ottla", "kafka-ottla-kafka"])


class Coordinators:
    """The internal topics of a running cluster, and who leads them."""

    def __init__(self, bootstrap: str, admin: Admin, topics: tuple[str, ...]) -> None:
        self.bootstrap = bootstrap
        self.admin = admin
        self._topics = topics

    def lead(self, node: int, *topics: str) -> None:
        """Let a broker lead partition 0 of the internal topics and of some others."""
        parts = [TopicPartition(one, 0) for one in (*self._topics, *topics)]
        self.admin.alter_partition_reassignments({one: [node, OTHER[node]] for one in parts})

        def are_moved() -> bool:
            self.admin.elect_leaders(partitions=parts)
            found = self.admin.describe_topics([one.topic for one in parts])
            partitions = [
                described.partitions[0]
                for described in found.values()
                if not isinstance(described, KafkaError)
            ]
            leaders = [one.leader and one.leader.node_id for one in partitions]
            return leaders == [node] * len(parts) and all(len(one.isr) == 2 for one in partitions)

        wait_for(are_moved, f"the coordinators do not move to node {node}")


@contextmanager
def running_pair(
    directory: Path, kafka: Kafka, settings: Mapping[str, str]
) -> Iterator[tuple[str, Admin]]:
    """Run node 1, of Ottla, and broker 2, of Kafka; give the address and an admin."""
    members = (OTTLA, KAFKA._replace(roles="broker"))
    running = Cluster(directory, members, kafka, has_links=False)
    running.format(settings_of={node: {**SETTINGS, **settings} for node in OTHER})
    try:
        running.start()
        wait_for(lambda: all(one.is_ready for one in running.nodes), "nodes do not serve")
        with Admin(bootstrap_servers=running.bootstrap) as admin:
            wait_for(lambda: len(admin.describe_cluster().brokers) == 2, "brokers are fenced")
            yield running.bootstrap, admin
    finally:
        running.kill()
