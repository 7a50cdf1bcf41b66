"""The coordinators' logs taken over by the other kind of broker in the middle of a transaction.

One broker of each kind has all partitions; the leaders of `__transaction_state` and
`__consumer_offsets` move to the other one and back while transactions are open.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ottla import Consumer, GroupMetadata, NewTopic, OffsetAndMetadata, Producer, TopicPartition
from tests.conformance.clusters.load import wait_for
from tests.conformance.mixed import takeover
from tests.conformance.mixed.takeover import FIRST, OTHER, running_pair

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conformance.kafka import Kafka

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(300)]
SETTINGS = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}
INTERNAL = ("__transaction_state", "__consumer_offsets")
SOURCE = TopicPartition("source", 0)


class Coordinators(takeover.Coordinators):
    """Both coordinators, and their clients."""

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
    """Run both brokers with the internal topics."""
    with running_pair(tmp_path_factory.mktemp("takeover"), kafka, SETTINGS) as (bootstrap, admin):
        admin.create_topics([NewTopic(SOURCE.topic, 1), NewTopic("target", 1)])
        admin.alter_group_offsets("first", {SOURCE: 1})
        with Producer(bootstrap_servers=bootstrap, transactional_id="a") as producer:
            producer.init_transactions()
        yield Coordinators(bootstrap, admin, INTERNAL)


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
    left = coordinators.producer(f"left-{first}", timeout_ms=10_000)
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
