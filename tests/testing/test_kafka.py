"""Tests of the `kafka` and `kafka_cluster` fixtures."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.testing.kafka import Kafka


def test_records_come_back_as_they_were_sent(kafka: Kafka) -> None:
    """Values, keys and offsets are those that were produced."""
    orders = kafka.topic("orders", partitions=3)
    orders.produce_json([{"id": 1}, {"id": 2}], key="id")
    assert sorted(orders.values(), key=lambda row: row["id"]) == [{"id": 1}, {"id": 2}]
    orders.expect(key="1").within(2).exactly(1)


def test_a_missing_record_is_reported_with_the_topics_content(kafka: Kafka) -> None:
    """The text of a failed expectation shows what was there."""
    orders = kafka.topic("orders").produce(["present"])
    with pytest.raises(AssertionError, match="present"):
        orders.expect(value="absent").at_least(1)


def test_a_group_is_waited_for_by_state(kafka: Kafka) -> None:
    """wait_assigned and wait_lag look at the group, not at the clock."""
    orders = kafka.topic("orders", partitions=2).produce(["a", "b", "c"], keys=["1", "2", "3"])
    group = kafka.group("app")
    with kafka.consumer(orders, group=group) as consumer:
        seen = 0
        while seen < 3:
            seen += len(consumer.poll(1.0))
        kafka.wait_assigned(group, members=1)
        consumer.commit()
        kafka.wait_lag(0, group=group)
    assert sum(kafka.committed(group).values()) == 3


def test_acknowledged_records_survive_a_kill(kafka_cluster: Callable[..., Kafka]) -> None:
    """A killed node comes back on the same address with what it acknowledged."""
    kafka = kafka_cluster()
    orders = kafka.topic("orders").produce(["before"])
    kafka.kill(1)
    kafka.start(1)
    orders.produce(["after"])
    assert orders.values() == ["before", "after"]


@pytest.mark.usefixtures("kafka")
def test_the_package_is_imported_as_it_is() -> None:
    """Pytest does not rewrite a node's modules: it would parse them on the node's thread."""
    loaders = {
        type(module.__loader__).__name__
        for name, module in list(sys.modules.items())
        if name.startswith("ottla.server.")
    }
    assert "SourceFileLoader" in loaders
    assert "AssertionRewritingHook" not in loaders
