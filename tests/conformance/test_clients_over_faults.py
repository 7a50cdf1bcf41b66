"""Third-party clients on three nodes that are stopped, killed and started under them.

Each client's ordinary programs (`clients/stock.py`): an idempotent producer with acks=all, and two
members of a group. OTTLA_TEST_LAYOUTS=all runs all clients, for longer, except kafkajs: the
session of its members is 6 s, shorter than some failovers, and its program ends with it.
"""

from __future__ import annotations

import os
from collections import Counter
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

import pytest

from ottla import Admin, KafkaError
from tests.conformance.clients.stock import (
    CLIENTS,
    Client,
    Program,
    client_or_skip,
    places,
    records_in,
)
from tests.conformance.clients.target import running_cluster
from tests.conformance.clusters.history import check_replicas
from tests.conformance.clusters.load import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conformance.clusters.nodes import Cluster, Node

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(900)]
LONG = os.environ.get("OTTLA_TEST_LAYOUTS") == "all"
NAMES = ("java", "franz-go", "sarama")
SELECTED = [one for one in CLIENTS if one.name in NAMES or (LONG and one.name != "kafkajs")]
PARTITIONS = 4
RECORDS = 4000 if LONG else 500
PAUSE_MS = 30
_OWN_TIME = {"message.timestamp.type": "LogAppendTime"}
"""The programs' records are of 2023: a start of a node forgets producers whose last record is older
than producer.id.expiration.ms, as Kafka's does, and a record that is sent again is then doubled."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Run three nodes, each broker and controller."""
    with running_cluster(tmp_path, "three") as running:
        yield running


class Programs(NamedTuple):
    """The programs of one client on its topic."""

    client: Client
    topic: str
    producer: Program
    members: tuple[Program, Program]

    def is_read(self) -> bool:
        """Whether the members have read every record."""
        return {number for one in self.members for number in one.numbers()} == set(range(RECORDS))

    def has_begun(self) -> bool:
        """Whether the producer has written."""
        return self.acknowledged() >= PARTITIONS

    def acknowledged(self) -> int:
        """Return how many records the producer reported."""
        return len(self.producer.said())


def _start(cluster: Cluster, client: Client, stack: ExitStack) -> Programs:
    topic = f"faults-{client.name}"
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topic(topic, partitions=PARTITIONS, configs=_OWN_TIME)
    consume = ("consume", cluster.bootstrap, topic, f"group-{topic}", "0")
    members = [stack.enter_context(Program(client, *consume)) for _ in range(2)]
    produce = ("produce", cluster.bootstrap, topic, str(RECORDS), "lz4", "0", str(PAUSE_MS))
    producer = stack.enter_context(Program(client, *produce))
    return Programs(client, topic, producer, (members[0], members[1]))


def _is_in_sync(admin: Admin) -> bool:
    return all(
        not isinstance(topic, KafkaError) and all(len(one.isr) == 3 for one in topic.partitions)
        for topic in admin.describe_topics([one.name for one in admin.list_topics()]).values()
    )


def _interrupt(node: Node, programs: list[Programs], admin: Admin, *, kill: bool) -> None:
    """Stop or kill a node; start it when every producer goes on; wait until it is in sync."""
    if kill:
        node.kill()
    else:
        node.stop()
    before = [one.acknowledged() for one in programs]
    wait_for(
        lambda: all(
            one.acknowledged() >= min(RECORDS, sent + 5 * PARTITIONS)
            for one, sent in zip(programs, before, strict=True)
        ),
        f"a producer does not go on without node {node.node_id}: {before}",
    )
    node.start()
    wait_for(lambda: node.is_ready, f"node {node.node_id} does not serve")
    wait_for(lambda: _is_in_sync(admin), "replicas do not come in sync")


def _check(cluster: Cluster, one: Programs) -> None:
    """Check that each record is there once, where it was acknowledged, and was read."""
    stored = records_in(cluster.bootstrap, one.topic, PARTITIONS)
    assert Counter(stored.values()) == Counter(range(RECORDS)), one.topic
    if one.client.says_offsets:
        assert places(one.producer.said()) == stored, one.topic
        read = [said for member in one.members for said in member.said()]
        assert places(read) == stored, one.topic
    for partition in range(PARTITIONS):
        end = sum(1 for index, _offset in stored if index == partition)
        check_replicas(partition, cluster.files_of(one.topic, partition), end)


def test_no_record_is_lost_or_doubled_over_faults(cluster: Cluster) -> None:
    """Each node is stopped or killed in turn; every client finishes, every record is read."""
    clients = [client_or_skip(one) for one in SELECTED]
    with ExitStack() as stack, Admin(bootstrap_servers=cluster.bootstrap) as admin:
        programs = [_start(cluster, one, stack) for one in clients]
        for one in programs:
            one.producer.wait_until(one.has_begun)
        faults = 0
        while any(one.acknowledged() < RECORDS for one in programs) or faults < 3:
            _interrupt(cluster.nodes[faults % 3], programs, admin, kill=faults % 2 == 1)
            faults += 1
        for one in programs:
            one.producer.wait()
            one.members[0].wait_until(one.is_read)
            for member in one.members:
                member.leave()
        for one in programs:
            _check(cluster, one)
