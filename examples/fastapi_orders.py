"""A FastAPI application that produces: one producer for the application's life.

ottla server-start &
pip install fastapi uvicorn
uvicorn examples.fastapi_orders:app
curl -X POST localhost:8000/orders -H 'content-type: application/json' -d '{"id": 1, "total": 9.5}'
"""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

from ottla import AsyncAdmin, AsyncProducer, KafkaError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

TOPIC = "web-orders"


class Order(BaseModel):
    """The body of a request."""

    id: int
    total: float


class Stored(BaseModel):
    """Where the order is stored."""

    partition: int
    offset: int


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Open the producer when the application starts; its end sends what is still pending."""
    bootstrap = os.environ.get("OTTLA_BOOTSTRAP_SERVERS", "localhost:9092")
    async with AsyncAdmin(bootstrap_servers=bootstrap) as admin:
        await admin.create_topic(TOPIC, partitions=3, if_not_exists=True)
    async with AsyncProducer(bootstrap_servers=bootstrap, value_serializer="json") as producer:
        app.state.producer = producer
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/orders", status_code=201)
async def create_order(order: Order) -> Stored:
    """Answer when the brokers have the order: 201 with its place, or 503."""
    try:
        delivery = await app.state.producer.send(TOPIC, order.model_dump(), key=str(order.id))
        place = await delivery
    except KafkaError as error:
        raise HTTPException(503, f"the order is not stored: {error}") from error
    return Stored(partition=place.partition, offset=place.offset)
