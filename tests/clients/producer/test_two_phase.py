"""Prepared transactions: an outside coordinator decides, in its own time (KIP-939)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from ottla import ConfigError, FatalTransactionError, IllegalStateError, PreparedTransaction
from ottla.clients.blocking import Producer
from ottla.clients.producer.producer import AsyncProducer
from ottla.errors import ErrorCode
from ottla.testing.cluster import Cluster
from ottla.testing.kafka import Kafka

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.testing.topic import TestTopic


@pytest.fixture(scope="module")
def kafka() -> Iterator[Kafka]:
    """Return a node whose transactions may have two phases, as those of development have."""
    with Cluster() as cluster, Kafka(cluster) as kafka:
        yield kafka


def producer(kafka: Kafka, transactional_id: str) -> Producer:
    """Return a producer of two-phase transactions."""
    return Producer(
        bootstrap_servers=kafka.bootstrap,
        transactional_id=transactional_id,
        transaction_two_phase_commit_enable=True,
    )


def committed(topic: TestTopic) -> list[bytes]:
    """Return the values that readers of committed records see."""
    return [record.value for record in topic.records(read_committed=True)]


def prepared(kafka: Kafka, topic: TestTopic, transactional_id: str) -> PreparedTransaction:
    """Prepare a transaction and close its producer, which leaves it open."""
    with producer(kafka, transactional_id) as first:
        first.init_transactions()
        first.begin_transaction()
        first.send(topic, b"prepared")
        return first.prepare_transaction()


def test_a_prepared_transaction_is_committed_by_the_next_process(kafka: Kafka) -> None:
    """The text of what was prepared is enough to find the decision."""
    topic = kafka.topic("taken")
    text = str(prepared(kafka, topic, "taken"))
    assert committed(topic) == []
    with producer(kafka, "taken") as second:
        found = second.init_transactions(keep_prepared=True)
        assert found == PreparedTransaction.parse(text)
        assert second.complete_transaction(PreparedTransaction.parse(text))
        assert committed(topic) == [b"prepared"]
        with second.transaction():
            second.send(topic, b"next")
    assert committed(topic) == [b"prepared", b"next"]


def test_what_was_not_decided_on_is_aborted(kafka: Kafka) -> None:
    """The outside coordinator knows of an earlier transaction only."""
    topic = kafka.topic("undecided")
    found = prepared(kafka, topic, "undecided")
    with producer(kafka, "undecided") as second:
        second.init_transactions(keep_prepared=True)
        with pytest.raises(IllegalStateError, match="PREPARED_TRANSACTION"):
            second.begin_transaction()
        with pytest.raises(IllegalStateError, match="PREPARED_TRANSACTION"):
            second.send(topic, b"late")
        assert not second.complete_transaction(found._replace(producer_epoch=99))
    assert committed(topic) == []


def test_without_the_wish_it_is_aborted(kafka: Kafka) -> None:
    """As every open transaction of an id whose next producer starts."""
    topic = kafka.topic("dropped")
    prepared(kafka, topic, "dropped")
    with producer(kafka, "dropped") as second:
        assert second.init_transactions() is None
    assert committed(topic) == []


def test_nothing_is_open_after_the_decision(kafka: Kafka) -> None:
    """The process ended between the decision and its note: completing again does nothing."""
    topic = kafka.topic("decided")
    with producer(kafka, "decided") as first:
        first.init_transactions()
        first.begin_transaction()
        first.send(topic, b"a")
        found = first.prepare_transaction()
        with pytest.raises(IllegalStateError):
            first.send(topic, b"b")
        first.commit_transaction()
    with producer(kafka, "decided") as second:
        assert second.init_transactions(keep_prepared=True) is None
        assert not second.complete_transaction(found)
    assert committed(topic) == [b"a"]


def test_the_asynchronous_producer(kafka: Kafka) -> None:
    """The same calls, awaited."""
    topic = kafka.topic("awaited")
    found = prepared(kafka, topic, "awaited")

    async def run() -> bool:
        async with AsyncProducer(
            bootstrap_servers=kafka.bootstrap,
            transactional_id="awaited",
            transaction_two_phase_commit_enable=True,
        ) as second:
            await second.init_transactions(keep_prepared=True)
            return await second.complete_transaction(found)

    assert asyncio.run(run())
    assert committed(topic) == [b"prepared"]


def test_settings_and_states_out_of_turn(kafka: Kafka) -> None:
    """Kafka's texts."""
    with pytest.raises(ConfigError, match="Transactions will not expire"):
        Producer(
            bootstrap_servers=kafka.bootstrap,
            transactional_id="x",
            transaction_timeout_ms=1000,
            transaction_two_phase_commit_enable=True,
        )
    with Producer(bootstrap_servers=kafka.bootstrap, transactional_id="y") as plain:
        plain.init_transactions()
        plain.begin_transaction()
        with pytest.raises(IllegalStateError, match="2PC is not enabled"):
            plain.prepare_transaction()
    with pytest.raises(ValueError, match="id:epoch"):
        PreparedTransaction.parse("7")


@pytest.mark.parametrize(
    ("config", "code"),
    [
        (
            {"transaction.two.phase.commit.enable": "false"},
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ),
        ({"unstable.api.versions.enable": "false"}, ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_a_broker_that_refuses(config: dict[str, str], code: ErrorCode) -> None:
    """They hold back readers for as long as they like: brokers must allow them."""
    with (
        Cluster(config=config) as cluster,
        Kafka(cluster) as kafka,
        producer(kafka, "refused") as refused,
    ):
        with pytest.raises(FatalTransactionError) as raised:
            refused.init_transactions()
        assert raised.value.code is code
