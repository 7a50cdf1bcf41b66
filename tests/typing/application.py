"""A program that uses every client: `mypy --strict` and pyright find nothing to complain about.

It is checked, not run: scripts/check.
"""

from __future__ import annotations

import json
import logging
from typing import assert_type

import ottla
from ottla import (
    Admin,
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    ConfigError,
    Consumer,
    ConsumerRecord,
    ConsumerSettings,
    Deliveries,
    Delivery,
    ErrorCode,
    IllegalStateError,
    KafkaError,
    NewTopic,
    OffsetAndMetadata,
    Producer,
    RebalanceListener,
    RecordDeserializationError,
    RecordMetadata,
    SerializationError,
    TimeoutError,  # noqa: A004 - Kafka's name
    TopicDescription,
    TopicExistsError,
    TopicPartition,
    Uuid,
)

BROKER = "localhost:9092"
log = logging.getLogger(__name__)


class Committing(RebalanceListener):
    """Commits before partitions go."""

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer

    def on_partitions_revoked(self, partitions: tuple[TopicPartition, ...]) -> None:
        """Commit what was processed."""
        assert_type(partitions[0].topic, str)
        self.consumer.commit()


class CommittingLater(RebalanceListener):
    """The same with coroutines, for AsyncConsumer."""

    def __init__(self, consumer: AsyncConsumer) -> None:
        self.consumer = consumer

    async def on_partitions_revoked(self, partitions: tuple[TopicPartition, ...]) -> None:
        """Commit what was processed."""
        await self.consumer.commit()


def produce() -> None:
    """Send records in each way."""
    with Producer(
        bootstrap_servers=[BROKER],
        client_id="orders",
        linger_ms=20,
        acks="all",
        compression_type="zstd",
        value_serializer=lambda value: json.dumps(value).encode(),
        key_serializer="string",
    ) as producer:
        delivery = producer.send("orders", {"id": 1}, key="1", headers={"source": b"web"})
        assert_type(delivery, Delivery)
        assert_type(delivery.result(timeout=10), RecordMetadata)
        assert_type(producer.send_and_wait("orders", None, "1", partition=0).offset, int)
        assert_type(producer.send_many("orders", ["a", "b"]), Deliveries)
        producer.send("orders", {"id": 2}, on_delivery=report)
        producer.flush(timeout=10)


def report(delivery: Delivery) -> None:
    """Log a record that was not delivered."""
    if delivery.error is not None:
        assert_type(delivery.error.code, ErrorCode)
        log.error("not delivered: %s", delivery.error)


def consume() -> None:
    """Read records in each way."""
    settings: ConsumerSettings = {
        "bootstrap_servers": BROKER,
        "group_id": "billing",
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
    }
    with Consumer(**settings) as consumer:
        consumer.subscribe(["orders"], listener=Committing(consumer))
        for record in consumer:
            assert_type(record, ConsumerRecord)
            assert_type(record.offset, int)
            break
        assert_type(consumer.poll(timeout=0.5, max_records=10), list[ConsumerRecord])
        place = TopicPartition("orders", 0)
        consumer.commit({place: OffsetAndMetadata(7), TopicPartition("orders", 1): 8})
        assert_type(consumer.committed([place]), dict[TopicPartition, OffsetAndMetadata | None])
        assert_type(consumer.assignment, frozenset[TopicPartition])
        consumer.seek(place, 0)


def administrate() -> None:
    """Create and describe topics."""
    with Admin(config={"bootstrap.servers": BROKER}, request_timeout_ms=5000) as admin:
        try:
            admin.create_topic("orders", partitions=3, configs={"retention.ms": "60000"})
        except TopicExistsError as error:
            log.info("%s (%s)", error, error.code.name)
        admin.create_topics([NewTopic("payments", 1), "refunds"])
        for name, description in admin.describe_topics(["orders"]).items():
            assert_type(name, str | Uuid)
            assert_type(description, TopicDescription | KafkaError)
            if isinstance(description, KafkaError):
                raise description
            assert_type(len(description.partitions), int)


def catch_errors(producer: Producer, consumer: Consumer) -> None:
    """Name errors by their classes."""
    try:
        producer.send_and_wait("orders", b"value")
        consumer.poll()
    except RecordDeserializationError as error:
        consumer.seek(TopicPartition(error.topic, error.partition), error.offset + 1)
    except (SerializationError, ConfigError, IllegalStateError) as error:
        log.critical("a mistake of the program: %s", error.message)
    except TimeoutError as error:
        assert_type(error.code, ErrorCode)
    except KafkaError as error:
        if error.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED or not error.is_retriable:
            raise
    except ottla.OttlaError:
        raise


async def work() -> None:
    """Use the asyncio clients."""
    async with AsyncAdmin(bootstrap_servers=BROKER) as admin:
        assert_type((await admin.list_topics())[0].name, str)
    async with AsyncProducer(bootstrap_servers=BROKER, linger_ms=5) as producer:
        delivery = await producer.send("orders", b"value", key=b"key")
        assert_type(await delivery, RecordMetadata)
        assert_type(await producer.send_and_wait("orders", b"value"), RecordMetadata)
    async with AsyncConsumer(bootstrap_servers=BROKER, group_id="billing") as consumer:
        consumer.subscribe("orders", listener=CommittingLater(consumer))
        async for record in consumer:
            assert_type(record, ConsumerRecord)
        assert_type(await consumer.poll(1.0), list[ConsumerRecord])
