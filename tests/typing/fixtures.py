"""Tests of a user with the types of the fixtures: both checkers accept them.

They are checked, not run: scripts/check.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, assert_type

import pytest

from ottla import Consumer, ConsumerRecord
from ottla.testing import Cluster, ClusterError, Expectation, Kafka, TestTopic

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.testing import KafkaFactory


@pytest.fixture(scope="package")
def warehouse() -> Iterator[Kafka]:
    """Give a broker with settings."""
    with Cluster(config={"num.partitions": 3}) as cluster, Kafka(cluster) as kafka:
        yield kafka


def check_topics(kafka: Kafka) -> None:
    """Fill and read."""
    orders = kafka.topic("orders", partitions=3, config={"retention.ms": 60_000})
    assert_type(orders, TestTopic)
    assert_type(orders.produce(b"abc").produce(["a", None]).produce_json({"id": 1}), TestTopic)
    assert_type(orders.values(), list[Any])
    assert_type(orders.values_text(), list[str | None])
    expected = orders.expect(key="1", value={"id": 1}, where=lambda one: one.offset > 0)
    assert_type(expected, Expectation)
    assert_type(expected.within(2).exactly(1), list[ConsumerRecord])
    with kafka.consumer(orders, group=kafka.group(), max_poll_records=1) as consumer:
        assert_type(consumer, Consumer)


def check_clusters(kafka_cluster: KafkaFactory) -> None:
    """Start and kill."""
    try:
        assert_type(kafka_cluster(config={"num.partitions": 3}), Kafka)
    except ClusterError:
        kafka_cluster().kill()
