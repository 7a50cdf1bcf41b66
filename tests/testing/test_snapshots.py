"""`kafka.snapshot()` and `kafka.restore()`: topics, records, offsets and settings of a moment."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from ottla.errors import KafkaError
from ottla.testing import ClusterError
from tests.soaks import with_soaks
from tests.waits import WAIT_S

if TYPE_CHECKING:
    from ottla.testing import Kafka, KafkaFactory


@pytest.mark.parametrize("nodes", with_soaks([1, 3]))
def test_a_restored_cluster_is_that_of_the_snapshot(
    kafka_cluster: KafkaFactory, nodes: int
) -> None:
    """As often as wanted, and later snapshots stay."""
    kafka = kafka_cluster(nodes=nodes)
    orders = kafka.topic("orders", exact=True).produce("first").produce("second")
    with kafka.consumer("orders", group="readers") as consumer:
        while len(consumer.poll(WAIT_S)) == 0:
            pass
        consumer.commit()
    before = kafka.committed("readers")
    snapshot = kafka.snapshot()
    for _ in range(2):
        orders.produce("third")
        kafka.topic("more", exact=True)
        assert orders.values()[2:] == ["third"]
        kafka.restore(snapshot)
        assert orders.values() == ["first", "second"]
        assert kafka.committed("readers") == before
        assert "more" not in {topic.name for topic in kafka.admin.list_topics()}


def test_an_open_transaction_is_aborted_by_a_restore(kafka_cluster: KafkaFactory) -> None:
    """Consumers that read committed records do not wait for its producer."""
    kafka = kafka_cluster()
    orders = kafka.topic("orders").produce("before")
    with suppress(KafkaError, ValueError), kafka.transaction() as producer:
        producer.send(str(orders), value=b"open")
        producer.flush()
        kafka.restore(kafka.snapshot())
        raise ValueError
    orders.produce("after")
    with kafka.consumer(str(orders), group="g", isolation_level="read_committed") as consumer:
        values: list[bytes | None] = []
        while len(values) < 2:
            values += [record.value for record in consumer.poll(WAIT_S)]
    assert values == [b"before", b"after"]


def test_refusals(kafka: Kafka, kafka_cluster: KafkaFactory) -> None:
    """The shared node has other tests' topics."""
    with pytest.raises(ClusterError, match="that all tests share has no snapshots"):
        kafka.snapshot()
    with pytest.raises(ClusterError, match="there is no snapshot 4"):
        kafka_cluster().restore(4)
