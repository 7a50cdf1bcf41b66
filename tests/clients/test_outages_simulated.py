"""Clients of a simulated node outlive its outage, whatever it takes.

Kafka: its clients wait for brokers without a limit of their own.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import pytest

from ottla.errors import TimeoutError  # noqa: A004 - Kafka's, also a builtin one
from ottla.testing.simulation import SimulatedNode

if TYPE_CHECKING:
    from ottla.clients.consumer.record_decoder import ConsumerRecord

OUTAGE_S = 13.0


@pytest.mark.parametrize("outage_s", [OUTAGE_S, 120.0])
def test_iteration_and_background_sends_continue_after_an_outage(
    outage_s: float, caplog: pytest.LogCaptureFixture
) -> None:
    """`async for` raised BROKER_NOT_AVAILABLE after 10 s; each client warns twice per address."""
    node = SimulatedNode(5)
    values: list[bytes] = []
    has_read = asyncio.Event()

    async def consume() -> None:
        async with node.consumer("t", group_id="g", auto_offset_reset="earliest") as consumer:
            async for record in consumer:
                values.append(record.value)
                has_read.set()
                if len(values) == 2:
                    return

    async def run() -> None:
        await node.start()
        async with node.producer(delivery_timeout_ms=600_000) as producer:
            await producer.send_and_wait("t", b"before")
            consumer = asyncio.create_task(consume())
            await has_read.wait()
            node.kill(power=False)
            during = await producer.send("t", b"during")
            await asyncio.sleep(outage_s)
            assert not during.done
            assert not consumer.done()
            await node.start()
            await during
            await consumer

    with caplog.at_level(logging.WARNING, "ottla.clients"):
        node.run(run())
    assert values == [b"before", b"during"]
    lines = [one.getMessage() for one in caplog.records if one.name == "ottla.clients"]
    for kind in ("[Producer clientId=ottla-producer]", "[Consumer clientId=ottla-consumer, "):
        failed, recovered = [line for line in lines if line.startswith(kind)]
        assert "node1:9092: Connection refused. Trying again." in failed
        assert "node1:9092: works again after " in recovered
        assert "(the failure was: Connection refused)" in recovered


def test_calls_with_a_timeout_end_with_it() -> None:
    """Everything else keeps waiting; the error names address and cause."""
    node = SimulatedNode(6)

    async def run() -> list[str]:
        texts = []
        async with (
            node.consumer("t", group_id="g") as consumer,
            node.producer(max_block_ms=2_000) as producer,
            node.admin() as admin,
        ):
            start_s = node.loop.time()
            assert await consumer.poll(timeout=2.0) == []
            assert 2.0 <= node.loop.time() - start_s < 2.1
            for call in (
                producer.send("t", b"v"),
                consumer.partitions_for("t", timeout=1.0),
                admin.list_topics(timeout=30.0),
            ):
                with pytest.raises(TimeoutError) as caught:
                    await call
                texts.append(str(caught.value))
            start_s = node.loop.time()
            with pytest.raises(TimeoutError):
                await admin.describe_cluster()
            assert 59.0 <= node.loop.time() - start_s <= 61.0
        return texts

    where = (
        "cannot reach node1:9092 (node1:9092: Connection refused; is a broker running there? "
        "Start one with `ottla server-start`, or correct bootstrap_servers)"
    )
    assert node.run(run()) == [
        f"Topic t not present in metadata after 2000 ms: {where}",
        f"Timeout of 1000ms expired before the partitions of topic 't' were known: {where}",
        f"the call timed out (default.api.timeout.ms): {where}",
    ]


def test_a_batch_is_given_up_after_delivery_timeout() -> None:
    """As in Kafka, delivery.timeout.ms bounds a send; the consumer has no such limit."""
    node = SimulatedNode(7)

    async def run() -> str:
        await node.start()
        async with node.producer(delivery_timeout_ms=30_000, request_timeout_ms=10_000) as producer:
            await producer.send_and_wait("t", b"before")
            node.kill(power=False)
            delivery = await producer.send("t", b"during")
            start_s = node.loop.time()
            with pytest.raises(TimeoutError) as caught:
                await delivery
            assert 29.9 < node.loop.time() - start_s < 31.0
            return str(caught.value)

    assert node.run(run()).startswith("1 record(s) for t-0: not delivered within 30")


def test_a_committing_consumer_reads_on_after_an_outage() -> None:
    """The membership is renewed, and commits succeed again."""
    node = SimulatedNode(8)

    async def run() -> list[ConsumerRecord]:
        await node.start()
        async with (
            node.producer() as producer,
            node.consumer("t", group_id="g", auto_offset_reset="earliest") as consumer,
        ):
            await producer.send_and_wait("t", b"one")
            while not await consumer.poll():
                pass
            await consumer.commit()
            node.kill(power=False)
            for _ in range(60):
                assert await consumer.poll(1.0) == []
            await node.start()
            await producer.send_and_wait("t", b"two")
            while not (found := await consumer.poll()):
                pass
            await consumer.commit()
            return found

    assert [record.value for record in node.run(run())] == [b"two"]


def test_an_admin_client_that_looks_for_a_coordinator_waits_without_spinning() -> None:
    """A look-up during an outage polled without a pause until it timed out."""
    node = SimulatedNode(5)
    polls = 0

    async def run() -> None:
        nonlocal polls
        await node.start()
        async with node.admin() as admin:
            await admin.list_topics()
            node.kill(power=False)
            client = admin._client
            poll = client.poll

            def count(now_ms: int) -> None:
                nonlocal polls
                polls += 1
                poll(now_ms)

            client.poll = count  # type: ignore[method-assign]
            with pytest.raises(TimeoutError):
                await admin.list_group_offsets("g", timeout=10)

    node.run(run())
    assert polls < 500
