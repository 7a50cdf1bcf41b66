"""The transactional producer against a node, with transaction versions 1 and 2."""

from __future__ import annotations

# ruff: noqa: PT012 - the error must be raised in the block of the transaction
import asyncio
import time
from functools import partial
from threading import Event
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from ottla import (
    AbortableTransactionError,
    FatalTransactionError,
    IllegalStateError,
    RecordTooLargeError,
    TimeoutError,  # noqa: A004 - Kafka's
    TransactionAbortedError,
)
from ottla.cli.perf.producer_perf_test import producer_perf_test
from ottla.clients.blocking import Admin, Consumer, Producer
from ottla.clients.producer.producer import AsyncProducer
from ottla.errors import ErrorCode, KafkaError
from ottla.purgatory.pending import Pending
from ottla.records.validator import AppendOrigin
from ottla.testing.cluster import Cluster
from ottla.types import TopicPartition
from tests.clients.test_metrics import value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.server.node.node import Node
    from ottla.testing.kafka import Kafka


@pytest.fixture(scope="module", params=[1, 2])
def bootstrap(request: pytest.FixtureRequest) -> Iterator[str]:
    """Return the address of a node at a transaction version."""
    with Cluster() as cluster:
        if request.param == 1:
            with Admin(bootstrap_servers=cluster.bootstrap) as admin:
                admin.update_features({"transaction.version": 1}, upgrade_type=2)
        yield cluster.bootstrap


def _values(bootstrap: str, topic: str, count: int) -> list[bytes]:
    """Return the first committed values of a topic."""
    with Consumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=f"reader-of-{topic}",
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    ) as consumer:
        found: list[bytes] = []
        while len(found) < count:
            found += [record.value for record in consumer.poll(10)]
        return found


def test_only_committed_records_are_read(bootstrap: str) -> None:
    """Of several transactions over two topics, those that were aborted are left out."""
    with Producer(bootstrap_servers=bootstrap, transactional_id="several") as producer:
        producer.init_transactions()
        for number in range(6):
            producer.begin_transaction()
            for topic in ("several-a", "several-b"):
                producer.send(topic, b"%d" % number)
            if number % 2:
                producer.flush()  # so that an aborted record is in the log
                producer.abort_transaction()
            else:
                producer.commit_transaction()
    for topic in ("several-a", "several-b"):
        assert _values(bootstrap, topic, 3) == [b"0", b"2", b"4"]


def test_a_block_commits_or_aborts(bootstrap: str) -> None:
    """The context manager initialises, commits at the end and aborts on an exception."""
    with Producer(bootstrap_servers=bootstrap, transactional_id="block") as producer:
        with producer.transaction():
            producer.send("block", b"first")
        with pytest.raises(ZeroDivisionError), producer.transaction():
            dropped = producer.send("block", b"dropped")
            raise ZeroDivisionError
        with producer.transaction():
            producer.send("block", b"last")
        assert dropped.error is None or isinstance(dropped.error, TransactionAbortedError)
    assert _values(bootstrap, "block", 2) == [b"first", b"last"]


def test_offsets_are_part_of_the_transaction(bootstrap: str) -> None:
    """They count when the transaction commits, and not when it is aborted."""
    with (
        Producer(bootstrap_servers=bootstrap, transactional_id="offsets") as producer,
        Consumer(
            "offsets-in",
            bootstrap_servers=bootstrap,
            group_id="offsets",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        ) as consumer,
    ):
        with producer.transaction():
            producer.send_many("offsets-in", [b"1", b"2"])
        while not consumer.poll(10):
            pass
        (partition,) = consumer.assignment
        with pytest.raises(ZeroDivisionError), producer.transaction():
            producer.send_offsets_to_transaction({partition: 2}, consumer.group_metadata())
            raise ZeroDivisionError
        assert consumer.committed([partition])[partition] is None
        with producer.transaction():
            producer.send_offsets_to_transaction({partition: 2}, consumer.group_metadata())
        committed = consumer.committed([partition])[partition]
        assert committed is not None
        assert committed.offset == 2


def test_a_newer_producer_fences_the_older(bootstrap: str) -> None:
    """The older one's transaction is aborted, and all its later calls say so."""
    with (
        Producer(bootstrap_servers=bootstrap, transactional_id="fenced") as older,
        Producer(bootstrap_servers=bootstrap, transactional_id="fenced") as newer,
    ):
        older.init_transactions()
        older.begin_transaction()
        older.send_and_wait("fenced", b"older")
        with newer.transaction():
            newer.send("fenced", b"newer")
        with pytest.raises(FatalTransactionError) as fenced:
            older.commit_transaction()
        assert fenced.value.code == ErrorCode.PRODUCER_FENCED
        with pytest.raises(FatalTransactionError):
            older.begin_transaction()
        with pytest.raises(FatalTransactionError):
            older.send("fenced", b"older")
        with pytest.raises(FatalTransactionError):
            older.abort_transaction()
    assert _values(bootstrap, "fenced", 1) == [b"newer"]


def test_a_refused_record_aborts(bootstrap: str) -> None:
    """The commit raises its error; after the abort the producer goes on."""
    with (
        Admin(bootstrap_servers=bootstrap) as admin,
        Producer(bootstrap_servers=bootstrap, transactional_id="refused") as producer,
    ):
        admin.create_topic("refused", configs={"max.message.bytes": "2000"})
        producer.init_transactions()
        producer.begin_transaction()
        large = producer.send("refused", bytes(3000))
        with pytest.raises(AbortableTransactionError) as failed:
            producer.commit_transaction()
        assert failed.value.code == ErrorCode.MESSAGE_TOO_LARGE
        assert large.error is not None
        with pytest.raises(AbortableTransactionError):
            producer.send("refused", b"small")
        producer.abort_transaction()
        with producer.transaction():
            producer.send("refused", b"small")
    assert _values(bootstrap, "refused", 1) == [b"small"]


def test_unsent_records_of_a_failed_transaction_fail_at_once(bootstrap: str) -> None:
    """As in Kafka; they cannot be sent any more, and flush would wait for delivery.timeout.ms."""
    with (
        Admin(bootstrap_servers=bootstrap) as admin,
        Producer(
            bootstrap_servers=bootstrap,
            transactional_id="unsent",
            linger_ms=60_000,
            batch_size=1000,
        ) as producer,
    ):
        admin.create_topic("unsent", 2, configs={"max.message.bytes": "2000"})
        producer.init_transactions()
        producer.begin_transaction()
        large = producer.send("unsent", bytes(3000), partition=0)
        unsent = producer.send("unsent", b"small", partition=1)
        with pytest.raises(RecordTooLargeError):
            large.result(60)
        with pytest.raises(RecordTooLargeError):
            unsent.result(60)
        producer.flush(60)
        producer.abort_transaction()
        with producer.transaction():
            producer.send("unsent", b"small")
    assert _values(bootstrap, "unsent", 1) == [b"small"]


def test_calls_out_of_turn_are_refused(bootstrap: str) -> None:
    """As by Kafka's producer; nothing is sent."""
    with Producer(bootstrap_servers=bootstrap, transactional_id="turns") as producer:
        for call in (
            producer.begin_transaction,
            producer.commit_transaction,
            producer.abort_transaction,
        ):
            with pytest.raises(IllegalStateError):
                call()
        producer.init_transactions()
        with pytest.raises(IllegalStateError):
            producer.send("turns", b"outside")
        with pytest.raises(IllegalStateError):
            producer.send_many("turns", [b"outside"])
        producer.begin_transaction()
        with pytest.raises(IllegalStateError):
            producer.begin_transaction()
        producer.commit_transaction()  # of nothing
    with (
        Producer(bootstrap_servers=bootstrap) as plain,
        pytest.raises(IllegalStateError, match=r"transactional\.id"),
    ):
        plain.begin_transaction()


def test_an_invalid_timeout_is_fatal(bootstrap: str) -> None:
    """The broker's transaction.max.timeout.ms is the limit."""
    with (
        Producer(
            bootstrap_servers=bootstrap, transactional_id="t", transaction_timeout_ms=10**9
        ) as producer,
        pytest.raises(FatalTransactionError) as refused,
    ):
        producer.init_transactions()
    assert refused.value.code == ErrorCode.INVALID_TRANSACTION_TIMEOUT


def test_an_absent_cluster_is_a_timeout() -> None:
    """max.block.ms limits each call, which may be repeated."""
    with Producer(
        bootstrap_servers="127.0.0.1:1", transactional_id="t", max_block_ms=100
    ) as producer:
        for _ in range(2):
            with pytest.raises((TimeoutError, KafkaError)):
                producer.init_transactions()


def test_the_asyncio_producer(bootstrap: str) -> None:
    """The same methods as coroutines."""

    async def run() -> None:
        async with AsyncProducer(bootstrap_servers=bootstrap, transactional_id="a") as producer:
            async with producer.transaction():
                await producer.send("asyncio", b"one")
            with pytest.raises(ZeroDivisionError):
                async with producer.transaction():
                    await producer.send("asyncio", b"two")
                    raise ZeroDivisionError
            await producer.begin_transaction()
            await producer.send("asyncio", b"three")
            await producer.commit_transaction()

    asyncio.run(run())
    assert _values(bootstrap, "asyncio", 2) == [b"one", b"three"]


def test_a_transaction_of_a_fixture(kafka: Kafka) -> None:
    """Two lines in a test."""
    topic = kafka.topic()
    with kafka.transaction() as producer:
        producer.send(str(topic), b"value")
    with pytest.raises(ZeroDivisionError), kafka.transaction("mine") as producer:
        producer.send_and_wait(str(topic), b"aborted")
        raise ZeroDivisionError
    assert topic.values(read_committed=True) == [b"value"]
    assert topic.values() == [b"value", b"aborted"]


def test_the_performance_tool_sends_in_transactions(bootstrap: str) -> None:
    """Each lasts for the duration; the rest is committed at the end."""
    options = (
        "--topic perf --num-records 50 --record-size 10 --throughput 500 --transactional-id perf "
        f"--transaction-duration-ms 20 --bootstrap-server {bootstrap}"
    )
    result = CliRunner().invoke(producer_perf_test, options.split())
    assert result.exit_code == 0, result.output
    assert "50 records sent" in result.stdout
    assert len(_values(bootstrap, "perf", 50)) == 50
    with Admin(bootstrap_servers=bootstrap) as admin:
        end = admin.list_offsets({TopicPartition("perf", 0): -1})[TopicPartition("perf", 0)]
    assert not isinstance(end, KafkaError)
    assert end.offset > 51  # markers of several transactions


def test_a_transaction_after_records_that_were_given_up() -> None:
    """The sequences of records that were sent, refused and dropped leave no gap."""
    with Cluster() as cluster:
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            admin.update_features({"transaction.version": 1}, upgrade_type=2)
        with Producer(
            bootstrap_servers=cluster.bootstrap,
            transactional_id="given-up",
            retry_backoff_ms=20,
            delivery_timeout_ms=60_000,
            request_timeout_ms=30_000,
        ) as producer:
            producer.init_transactions()
            with producer.transaction():
                producer.send("given-up", b"before")
            cluster.run(_refuse_records)
            producer.begin_transaction()
            dropped = producer.send("given-up", b"dropped")
            while not value(producer.metrics(), "record-retry-total"):
                assert not dropped.done
                time.sleep(0.005)  # leaves the interpreter to the producer's and the node's threads
            producer.abort_transaction()
            with pytest.raises(TransactionAbortedError):
                dropped.result()
            cluster.run(_take_records)
            with producer.transaction():
                producer.send("given-up", b"after")
        assert _values(cluster.bootstrap, "given-up", 2) == [b"before", b"after"]


def test_an_abort_waits_for_a_partition_that_is_being_added() -> None:
    """Else the coordinator's transaction would stay open, and its timeout fence the producer."""
    with Cluster() as cluster:
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            admin.update_features({"transaction.version": 1}, upgrade_type=2)
            with Producer(
                bootstrap_servers=cluster.bootstrap, transactional_id="adding"
            ) as producer:
                with producer.transaction():
                    producer.send("adding", b"before")
                arrived = Event()
                cluster.run(partial(_answer_additions_late, arrived=arrived))
                producer.begin_transaction()
                dropped = producer.send("adding", b"dropped")
                assert arrived.wait(60)
                producer.abort_transaction()
                with pytest.raises(TransactionAbortedError):
                    dropped.result()
                described = admin.describe_transactions(["adding"])["adding"]
                assert not isinstance(described, KafkaError)
                assert described.state in ("PrepareAbort", "CompleteAbort", "CompleteCommit")
                with producer.transaction():
                    producer.send("adding", b"after")
        assert _values(cluster.bootstrap, "adding", 2) == [b"before", b"after"]


def _answer_additions_late(node: Node, arrived: Event) -> None:
    transactions: Any = node.broker.transactions
    add = transactions.add_partitions

    def add_late(*given: Any, **named: Any) -> Any:
        added, late = add(*given, **named), Pending[Any]()
        loop = asyncio.get_running_loop()
        arrived.set()
        added.on_done(lambda done: loop.call_later(0.3, late.complete, done.value) and None)
        return late

    transactions.add_partitions = add_late


def _refuse_records(node: Node) -> None:
    replicas: Any = node.broker.replicas
    append = replicas.append

    def refuse(*given: Any, **named: Any) -> Any:
        if AppendOrigin.COORDINATOR in given or "origin" in named:
            return append(*given, **named)
        raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)

    replicas.append = refuse


def _take_records(node: Node) -> None:
    del node.broker.replicas.append
