"""A test suite for an application: the broker comes from the fixture `kafka`, with no container.

pytest examples/pytest_suite
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from ottla import Consumer, Producer

if TYPE_CHECKING:
    from ottla.testing import Kafka


def bill(kafka: Kafka, orders: str, invoices: str, count: int) -> None:
    """Write one invoice for each paid order: the code under test."""
    with (
        Producer(bootstrap_servers=kafka.bootstrap, value_serializer="json") as producer,
        Consumer(
            orders,
            bootstrap_servers=kafka.bootstrap,
            group_id=kafka.group("billing"),
            auto_offset_reset="earliest",
        ) as consumer,
    ):
        for record in consumer:
            order = json.loads(record.value)
            if order["state"] == "paid":
                producer.send(invoices, {"order": order["id"]}, key=record.key)
            count -= 1
            if not count:
                return


def test_a_paid_order_has_one_invoice(kafka: Kafka) -> None:
    """Exactly one: the expectation waits for a second one that must not come."""
    orders, invoices = kafka.topic("orders"), kafka.topic("invoices")
    orders.produce_json([{"id": 1, "state": "paid"}, {"id": 2, "state": "open"}], key="id")
    bill(kafka, orders, invoices, count=2)
    invoices.expect(key="1", value={"order": 1}).within(0.3).exactly(1)
    invoices.expect(key="2").exactly(0)


@pytest.mark.parametrize("state", ["open", "cancelled"])
def test_other_orders_have_none(kafka: Kafka, state: str) -> None:
    """Each test has topics of its own on the shared node."""
    orders, invoices = kafka.topic("orders"), kafka.topic("invoices")
    orders.produce_json({"id": 3, "state": state}, key="id")
    bill(kafka, orders, invoices, count=1)
    assert invoices.values() == []
