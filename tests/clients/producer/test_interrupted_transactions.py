"""Transactions that an outage or a cancellation interrupts, and what the next block does.

The nodes are simulated: an outage lasts longer than max.block.ms without waiting for it.
"""

from __future__ import annotations

# ruff: noqa: PT012 - the error must be raised in the block of the transaction
import asyncio
import random
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from ottla import (
    AbortableTransactionError,
    ConfigError,
    IllegalStateError,
    TimeoutError,  # noqa: A004 - Kafka's
)
from ottla.clients.blocking import Admin, Consumer, Producer
from ottla.testing.cluster import Cluster
from ottla.testing.simulation import SimulatedNode
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from ottla.clients.consumer.consumer import AsyncConsumer
    from ottla.clients.producer.producer import AsyncProducer

BLOCK_MS = 5000
OUTAGE_S = 3 * BLOCK_MS / 1000


def _run(node: SimulatedNode, work: Coroutine[Any, Any, None]) -> None:
    async def started() -> None:
        await node.start()
        await work

    node.run(started())


def _producer(node: SimulatedNode) -> AsyncProducer:
    return node.producer(transactional_id="id", max_block_ms=BLOCK_MS)


def _consumer(node: SimulatedNode, group_id: str = "reader", **settings: Any) -> AsyncConsumer:
    return node.consumer(
        group_id=group_id,
        isolation_level="read_committed",
        enable_auto_commit=False,
        **{"auto_offset_reset": "earliest", **settings},
    )


async def _values(node: SimulatedNode, topic: str, count: int) -> list[bytes]:
    """Return the committed values of a topic: at least count, and what follows within a second."""
    found: list[bytes] = []
    async with _consumer(node, f"reader-of-{topic}") as consumer:
        consumer.subscribe(topic)
        while len(found) < count:
            found += [record.value for record in await consumer.poll(1.0)]
        found += [record.value for record in await consumer.poll(1.0)]
    return found


def test_the_block_repeats_an_initialisation_that_timed_out() -> None:
    """Every later block said "from state INITIALIZING to state IN_TRANSACTION"."""
    node = SimulatedNode(11)

    async def work() -> None:
        async with _producer(node) as producer:
            node.kill(power=False)
            with pytest.raises(TimeoutError):
                async with producer.transaction():
                    pass
            await node.start()
            async with producer.transaction():
                await producer.send("t", b"after")
        assert await _values(node, "t", 1) == [b"after"]

    _run(node, work())


def test_the_next_block_completes_a_commit_that_timed_out() -> None:
    """Its records are committed once; the text of the error names the next call."""
    node = SimulatedNode(12)

    async def work() -> None:
        async with _producer(node) as producer:
            async with producer.transaction():
                await producer.send("t", b"before")
            with pytest.raises(TimeoutError, match="repeat commit_transaction"):
                async with producer.transaction():
                    await producer.send_and_wait("t", b"during")
                    node.kill(power=False)
            with pytest.raises(IllegalStateError, match="repeat commit_transaction"):
                await producer.begin_transaction()
            with pytest.raises(TimeoutError):  # the outage goes on
                async with producer.transaction():
                    pytest.fail("the block began a transaction while a commit was pending")
            await node.start()
            async with producer.transaction():
                await producer.send("t", b"after")
        assert await _values(node, "t", 3) == [b"before", b"during", b"after"]

    _run(node, work())


@pytest.mark.parametrize("turns", [0, 1, 2, 3, 5, 8, 13, 21])
def test_a_block_can_be_cancelled_at_any_time(turns: int) -> None:
    """During init, send, commit or abort: the next blocks work, and nothing is doubled."""
    node = SimulatedNode(13)

    async def block(producer: AsyncProducer, value: bytes) -> None:
        async with producer.transaction():
            await producer.send("t", value)

    async def work() -> None:
        async with _producer(node) as producer:
            for number in range(4):
                task = asyncio.create_task(block(producer, b"%d" % number))
                for _ in range(turns * (number + 1)):
                    await asyncio.sleep(0.0005)
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
            await block(producer, b"last")
        values = await _values(node, "t", 1)
        assert values[-1] == b"last"
        assert sorted(set(values)) == sorted(values)

    _run(node, work())


def test_the_next_block_reports_a_pending_commit_that_failed() -> None:
    """Its records expire while the outage lasts: it is aborted, and the caller is told once."""
    node = SimulatedNode(14)

    async def work() -> None:
        async with node.producer(
            transactional_id="id",
            max_block_ms=BLOCK_MS,
            request_timeout_ms=1000,
            delivery_timeout_ms=8000,
        ) as producer:
            await producer.init_transactions()
            with pytest.raises(TimeoutError):
                async with producer.transaction():
                    await producer.send("t", b"first")
                    node.kill(power=False)
                    await producer.send("t", b"lost")
            await asyncio.sleep(10)
            await node.start()
            with pytest.raises(AbortableTransactionError):
                async with producer.transaction():
                    pytest.fail("the block hid that records of the last one were lost")
            async with producer.transaction():
                await producer.send("t", b"after")
        assert await _values(node, "t", 1) == [b"after"]

    _run(node, work())


def _kill_in_commits(node: SimulatedNode, producer: AsyncProducer, rng: random.Random) -> None:
    """Kill the node in every third commit: before its requests are sent, or while they are."""
    commit = producer.commit_transaction

    def kill() -> None:
        if node.is_alive:
            node.kill(power=False)

    async def interrupted() -> None:
        delay_s = rng.choice((0, 0, 0.0005, 0.002, 0.01))
        timer = asyncio.get_running_loop().call_later(delay_s, kill)
        if producer._core.has_pending_commit or rng.random() > 0.3:
            timer.cancel()
        try:
            await commit()
        finally:
            timer.cancel()

    producer.commit_transaction = interrupted  # type: ignore[method-assign]


async def _transform(
    node: SimulatedNode, count: int, rng: random.Random, errors: list[Exception]
) -> int:
    """Copy `in` to `out` until count records are committed; return the pending commits met."""
    done = seen = pending = 0
    async with _producer(node) as producer, _consumer(node, "group") as consumer:
        _kill_in_commits(node, producer, rng)
        consumer.subscribe("in")
        while done < count:
            try:
                async with producer.process(consumer, max_records=3) as records:
                    for record in records:
                        await producer.send("out", record.value)
                        seen += 1
                        if seen % 7 == 0:
                            raise ZeroDivisionError
            except (TimeoutError, AbortableTransactionError, ZeroDivisionError) as error:
                errors.append(error)
                pending += producer._core.has_pending_commit
            if not node.is_alive:
                await node.start()
            if not producer._core.has_pending_commit:  # its offsets are not to be read yet
                done = await _committed(node)
    return pending


async def _committed(node: SimulatedNode) -> int:
    partition = TopicPartition("in", 0)
    async with _consumer(node, "group") as consumer:
        found = (await consumer.committed([partition]))[partition]
    return 0 if found is None else found.offset


@pytest.mark.soak
def test_a_loop_processes_each_record_once() -> None:
    """Errors of the block, outages during the commit: `process` continues where it must."""
    count, pending = 30, 0
    errors: list[Exception] = []

    async def work(node: SimulatedNode, rng: random.Random) -> None:
        nonlocal pending
        async with node.producer() as producer:
            for number in range(count):
                await producer.send_and_wait("in", b"%d" % number)
        pending += await _transform(node, count, rng, errors)
        assert await _values(node, "out", count) == [b"%d" % number for number in range(count)]

    for seed in range(20, 28):
        node = SimulatedNode(seed)
        _run(node, work(node, random.Random(seed)))
    assert pending > 1
    assert {type(error) for error in errors} >= {TimeoutError, ZeroDivisionError}


def test_an_abort_returns_to_the_records_without_a_committed_offset() -> None:
    """auto.offset.reset=latest would pass over them: nothing is committed yet."""
    node = SimulatedNode(30)

    async def work() -> None:
        async with (
            _producer(node) as producer,
            node.producer() as source,
            _consumer(node, "group", auto_offset_reset="latest") as consumer,
        ):
            await source.send_and_wait("in", b"old")
            consumer.subscribe("in")
            await consumer.poll(1.0)
            while not consumer.assignment:
                await consumer.poll(1.0)
            await consumer.position(TopicPartition("in", 0))
            await source.send_and_wait("in", b"new")
            seen: list[bytes] = []
            with pytest.raises(ZeroDivisionError):
                async with producer.process(consumer, 30) as records:
                    seen += [record.value for record in records]
                    raise ZeroDivisionError
            async with producer.process(consumer, 30) as records:
                seen += [record.value for record in records]
            assert seen == [b"new", b"new"]

    _run(node, work())


def test_a_consumer_that_is_closed_hides_no_error_of_the_block() -> None:
    """The one after it reads the records again; seeking in the closed one would be refused."""
    node = SimulatedNode(31)

    async def work() -> None:
        async with _producer(node) as producer, node.producer() as source:
            await source.send_and_wait("in", b"a")
            with pytest.raises(ZeroDivisionError):
                async with _consumer(node, "group") as consumer:
                    consumer.subscribe("in")
                    async with producer.process(consumer, 30):
                        await consumer.close()
                        raise ZeroDivisionError
            async with _consumer(node, "group") as consumer:
                consumer.subscribe("in")
                async with producer.process(consumer, 30) as records:
                    assert [record.value for record in records] == [b"a"]

    _run(node, work())


def test_the_blocking_clients_have_the_same_loop() -> None:
    """An error of the block, then the same records; `seek_to_committed` reads them again too."""
    with Cluster() as cluster:
        address: dict[str, Any] = {"bootstrap_servers": cluster.bootstrap}
        with Admin(**address) as admin:
            admin.create_topic("in", 1)
            admin.create_topic("out", 1)
        with Producer(**address) as source:
            source.send_many("in", [b"a", b"b"])
        with (
            Producer(**address, transactional_id="id") as producer,
            Consumer(
                "in",
                group_id="g",
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                **address,
            ) as consumer,
        ):
            with pytest.raises(ZeroDivisionError), producer.process(consumer, 30) as records:
                assert [record.value for record in records] == [b"a", b"b"]
                raise ZeroDivisionError
            with producer.process(consumer, 30, max_records=1) as records:
                producer.send("out", records[0].value)
            assert [record.value for record in consumer.poll(30)] == [b"b"]
            consumer.seek_to_committed()
            with producer.process(consumer, 30) as records:
                for record in records:
                    producer.send("out", record.value)
            partition = TopicPartition("in", 0)
            assert consumer.committed([partition])[partition].offset == 2  # type: ignore[union-attr]
        with (
            Consumer(group_id="h", **address) as consumer,
            Producer(**address, transactional_id="other") as producer,
            pytest.raises(ConfigError, match=r"enable\.auto\.commit"),
            producer.process(consumer),
        ):
            pytest.fail("the consumer commits by itself")
