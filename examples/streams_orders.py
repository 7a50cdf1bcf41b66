"""Orders joined with their customers by a foreign key: both are tables of changes.

ottla streams run examples/streams_orders.py --bootstrap-server localhost:9092 --checkpoint DIR
"""

from __future__ import annotations

from typing import Any

from ottla.streams import StreamsBuilder, StreamsConfig


def with_customer(order: dict[str, Any], customer: dict[str, Any] | None) -> dict[str, Any]:
    """Return an order with its customer's name."""
    return {**order, "name": None if customer is None else customer["name"]}


builder = StreamsBuilder(StreamsConfig(application_id="orders"))
orders = builder.table("orders")
customers = builder.table("customers")
orders.left_join(
    customers, with_customer, foreign_key=lambda _, order: order["customer"]
).to_stream().to("orders-with-customers")
