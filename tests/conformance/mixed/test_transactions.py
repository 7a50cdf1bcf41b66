"""The coordinators' logs taken over by the other kind of broker in the middle of a transaction.

One broker of each kind has all partitions; the leaders of `__transaction_state` and
`__consumer_offsets` move to the other one and back while transactions are open.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ottla import (
    Admin,
    Consumer,
    GroupMetadata,
    KafkaError,
    NewTopic,
    OffsetAndMetadata,
    Producer,
    TopicPartition,
)
from tests.conformance.clusters.load import wait_for
from tests.conformance.clusters.nodes import KAFKA, OTTLA, Cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conformance.kafka import Kafka

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(300)]
SETTINGS = {
    number: {
        "min.insync.replicas": "1",
        "default.replication.factor": "2",
        "offsets.topic.num.partitions": "1",
        "offsets.topic.replication.factor": "2",
        "transaction.state.log.num.partitions": "1",
        "transaction.state.log.replication.factor": "2",
        "transaction.state.log.min.isr": "1",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    }
    for number in (1, 2)
}
STATES = TopicPartition("__transaction_state", 0)
OFFSETS = TopicPartition("__consumer_offsets", 0)
SOURCE = TopicPartition("source", 0)
OTHER = {1: 2, 2: 1}
FIRST = pytest.mark.parametrize("first", [1, 2], ids=["ottla-kafka-ottla", "kafka-ottla-kafka"])


class Coordinators:
    """The internal topics of a running cluster, and who leads them."""

    def __init__(self, cluster: Cluster, admin: Admin) -> None:
        self.bootstrap = cluster.bootstrap
        self.admin = admin

    def lead(self, node: int) -> None:
        """Let a broker lead both internal topics."""
        both = [STATES, OFFSETS]
        self.admin.alter_partition_reassignments({one: [node, OTHER[node]] for one in both})

        def are_moved() -> bool:
            self.admin.elect_leaders(partitions=both)
            found = self.admin.describe_topics([one.topic for one in both])
            partitions = [
                described.partitions[0]
                for described in found.values()
                if not isinstance(described, KafkaError)
            ]
            leaders = [one.leader and one.leader.node_id for one in partitions]
            return leaders == [node, node] and all(len(one.isr) == 2 for one in partitions)

        wait_for(are_moved, f"the coordinators do not move to node {node}")

    def producer(self, name: str, timeout_ms: int = 60_000) -> Producer:
        """Return a transactional producer."""
        return Producer(
            bootstrap_servers=self.bootstrap,
            transactional_id=name,
            transaction_timeout_ms=timeout_ms,
        )

    def committed(self, topic: str, count: int) -> list[bytes | None]:
        """Read so many committed records of partition 0, and see that no other follows."""
        with Consumer(
            bootstrap_servers=self.bootstrap,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
        ) as consumer:
            part = TopicPartition(topic, 0)
            consumer.assign([part])
            values: list[bytes | None] = []

            def is_read() -> bool:
                values.extend(one.value for one in consumer.poll(0.5))
                return consumer.position(part) == consumer.end_offsets([part])[part]

            wait_for(is_read, f"{topic} is not read to its end")
            wait_for(lambda: is_read() and len(values) >= count, f"{topic} has {values}")
            return values


@pytest.fixture(scope="module")
def coordinators(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Coordinators]:
    """Run node 1, of Ottla, and broker 2, of Kafka."""
    members = (OTTLA, KAFKA._replace(roles="broker"))
    running = Cluster(tmp_path_factory.mktemp("takeover"), members, kafka, has_links=False)
    running.format(settings_of=SETTINGS)
    try:
        running.start()
        wait_for(lambda: all(one.is_ready for one in running.nodes), "nodes do not serve")
        with Admin(bootstrap_servers=running.bootstrap) as admin:
            wait_for(lambda: len(admin.describe_cluster().brokers) == 2, "brokers are fenced")
            admin.create_topics([NewTopic(SOURCE.topic, 1), NewTopic("target", 1)])
            admin.alter_group_offsets("first", {SOURCE: 1})
            with Producer(bootstrap_servers=running.bootstrap, transactional_id="a") as producer:
                producer.init_transactions()
            yield Coordinators(running, admin)
    finally:
        running.kill()


@FIRST
def test_an_open_transaction_is_continued_by_the_other_kind(
    coordinators: Coordinators, first: int
) -> None:
    """Records and pending offsets from both, committed by the first again; then one aborted."""
    topic, group = f"target-{first}", f"group-{first}"
    coordinators.admin.create_topics([NewTopic(topic, 1)])
    coordinators.lead(first)
    with coordinators.producer(f"moved-{first}") as producer:
        producer.init_transactions()
        for number, commits in enumerate((True, False, True)):
            producer.begin_transaction()
            producer.send(topic, b"%d a" % number)
            producer.send_offsets_to_transaction(
                {SOURCE: 2 * number + 1}, GroupMetadata(group, -1, "", None)
            )
            producer.flush()
            coordinators.lead(OTHER[first])
            producer.send(topic, b"%d b" % number)
            producer.send("target", b"added by the other kind")
            producer.flush()
            coordinators.lead(first)
            if commits:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
    assert coordinators.committed(topic, 4) == [b"0 a", b"0 b", b"2 a", b"2 b"]
    found = coordinators.admin.list_group_offsets(group)
    assert found == {SOURCE: OffsetAndMetadata(5)}


@FIRST
def test_a_transaction_that_was_left_is_aborted_by_the_other_kind(
    coordinators: Coordinators, first: int
) -> None:
    """Its timeout passes under the other coordinator; the producer comes back to a new epoch."""
    topic = f"left-{first}"
    coordinators.admin.create_topics([NewTopic(topic, 1)])
    coordinators.lead(first)
    left = coordinators.producer(f"left-{first}", timeout_ms=4000)
    left.init_transactions()
    left.begin_transaction()
    left.send(topic, b"lost")
    left.flush()
    coordinators.lead(OTHER[first])
    with coordinators.producer(f"other-{first}") as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.send(topic, b"kept")
    assert coordinators.committed(topic, 1) == [b"kept"]
    with coordinators.producer(f"left-{first}") as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.send(topic, b"again")
    assert coordinators.committed(topic, 2) == [b"kept", b"again"]
    left.close(0)
