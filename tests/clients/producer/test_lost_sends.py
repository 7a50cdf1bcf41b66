"""Records that fail, and whose results are not asked for, are reported by flush and close.

Kafka: no counterpart; its producer loses them without a word.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import TYPE_CHECKING

import pytest

from ottla.clients.blocking import Producer
from ottla.clients.producer.failures import MAX_BATCHES, FailedSends
from ottla.clients.producer.producer import AsyncProducer
from ottla.errors import (
    DeliveryError,
    ErrorCode,
    KafkaError,
    TimeoutError,  # noqa: A004 - Kafka's, also a builtin one
)
from ottla.protocol.apis.produce import ProduceRequest
from ottla.testing.simulation import SimulatedNode
from tests.clients.producer.test_producer import Rig, _refuse

if TYPE_CHECKING:
    from ottla.testing.kafka import Kafka

TOO_LARGE = (
    "The message is 2070 bytes when serialized with its batch header which is larger than 1000, "
    "which is the value of the max.message.bytes configuration of the topic."
)


@pytest.fixture
def small(kafka: Kafka) -> tuple[str, str]:
    """Give a bootstrap server, and a topic that takes at most 1,000 bytes."""
    return kafka.bootstrap, str(kafka.topic("small", config={"max.message.bytes": "1000"}))


def test_flush_and_the_end_of_with_name_topic_count_and_first_cause(
    small: tuple[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    """Once each; an ERROR line comes when the first record fails, and one with the count of all."""
    bootstrap, topic = small
    cause = f"MESSAGE_TOO_LARGE: topic {topic!r}: {TOO_LARGE}"

    seen: list[DeliveryError] = []

    def lose() -> None:
        with Producer(bootstrap_servers=bootstrap) as producer:
            for _ in range(3):
                producer.send(topic, b"v" * 2000)
            with pytest.raises(DeliveryError) as caught:
                producer.flush()
            producer.flush()
            seen.append(caught.value)
            producer.send(topic, b"v" * 2000)

    with pytest.raises(DeliveryError) as at_the_end:
        lose()
    text = f"3 record(s) were not delivered (topic {topic!r}: 3); first cause: {cause}"
    assert [str(one) for one in seen] == [text]
    assert seen[0].counts == {topic: 3}
    assert seen[0].code == ErrorCode.MESSAGE_TOO_LARGE
    assert at_the_end.value.counts == {topic: 1}
    lines = [one for one in caplog.records if one.levelno == logging.ERROR]
    assert [one.getMessage() for one in lines] == [
        f"1 record(s) for topic {topic!r} were not delivered: {cause}",
        text,
        f"1 record(s) for topic {topic!r} were not delivered: {cause}",
    ]


def test_what_was_asked_for_is_not_reported_again(small: tuple[str, str]) -> None:
    """By result, error or on_delivery, before or after the failure."""
    bootstrap, topic = small
    heard: list[KafkaError | None] = []
    with Producer(bootstrap_servers=bootstrap) as producer:
        with pytest.raises(KafkaError, match="max\\.message\\.bytes"):
            producer.send(topic, b"v" * 2000).result(60)
        late = producer.send(topic, b"v" * 2000)
        done = threading.Event()
        late.batch.when_done().on_done(lambda _batch: done.set())
        assert done.wait(60)
        assert late.error is not None
        producer.send(topic, b"v" * 2000, on_delivery=lambda delivery: heard.append(delivery.error))
        producer.flush()
    assert [error.code for error in heard if error] == [ErrorCode.MESSAGE_TOO_LARGE]


def test_an_exception_of_the_block_takes_precedence(small: tuple[str, str]) -> None:
    """What was lost is in the log."""
    bootstrap, topic = small

    def lose() -> None:
        with Producer(bootstrap_servers=bootstrap) as producer:
            producer.send(topic, b"v" * 2000)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        lose()


def test_asyncio_reports_as_the_blocking_producer_does(small: tuple[str, str]) -> None:
    """A delivery that another task awaits is asked for."""
    bootstrap, topic = small

    async def run() -> None:
        async with AsyncProducer(bootstrap_servers=bootstrap) as producer:
            awaited = await producer.send(topic, b"v" * 2000)
            outcomes = await asyncio.gather(awaited, producer.flush(), return_exceptions=True)
            assert isinstance(outcomes[0], KafkaError)
            assert outcomes[1] is None
            await producer.send(topic, b"v" * 2000)
            with pytest.raises(DeliveryError):
                await producer.flush()
            await producer.send(topic, b"v" * 2000)
            with pytest.raises(DeliveryError):
                await producer.close()

    asyncio.run(run())


def test_records_that_close_gives_up_are_lost_records() -> None:
    """As in Kafka they fail when the producer is closed forcefully; here it is said."""
    node = SimulatedNode(3)

    async def run() -> None:
        await node.start()
        async with node.producer() as producer:
            await producer.send_and_wait("t", b"a")
            node.kill(power=False)
            await producer.send("t", b"b")
            with pytest.raises(DeliveryError, match=r"closed forcefully") as caught:
                await producer.close(timeout=1.0)
            assert caught.value.counts == {"t": 1}

    node.run(run())


def test_send_many_keeps_the_handles_of_what_was_queued() -> None:
    """max.block.ms passes half-way: the others have failed, and are reported if not asked for."""
    node = SimulatedNode(4)

    async def run() -> None:
        await node.start()
        producer = node.producer(max_block_ms=1_000, buffer_memory=40_000)
        await producer.send_and_wait("t", b"first")
        node.kill(power=False)
        deliveries = await producer.send_many("t", [b"v" * 1000] * 100)
        assert len(deliveries) == 100
        failed = [one for one in deliveries if one.done]
        assert 0 < len(failed) < 100
        assert isinstance(failed[-1].error, TimeoutError)
        assert "(buffer.memory) stayed full for 1000 ms" in str(failed[-1].error)
        await node.start()
        with pytest.raises(DeliveryError) as caught:
            await producer.flush()
        assert caught.value.counts == {"t": len(failed) - 1}
        assert deliveries[0].metadata.offset == 1
        await producer.close()

    node.run(run())


def test_a_batch_that_cannot_be_encoded_does_not_stop_the_others() -> None:
    """It fails alone; the loop goes on."""
    rig = Rig(partitions=2)
    bad, good = rig.send(b"a", 0), rig.send(b"b", 1)
    bad.batch.records[0] = (1 << 70, None, b"a", ())
    rig.finish()
    assert bad.failure() is not None
    assert str(bad.failure()).startswith("the records cannot be encoded: ")
    assert good.failure() is None


def test_asking_before_a_split_counts_for_the_halves() -> None:
    """Handles keep their positions in the original batch."""
    rig = Rig(batch_size=2000, linger_ms=5)
    rig.cluster.faults[ProduceRequest] = [
        _refuse(ErrorCode.MESSAGE_TOO_LARGE),
        _refuse(ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        _refuse(ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ]
    deliveries = [rig.send(b"%d" % n) for n in range(6)]
    deliveries[4].ask()
    deliveries[5].ask()
    deliveries[5].ask(asks=False)
    rig.finish()
    assert deliveries[1].error is not None
    error = rig.accumulator.failures.take()
    assert error is not None
    assert error.counts == {"t": 4}
    assert error.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_failures_that_nobody_reads_take_little_memory() -> None:
    """Of the oldest batches only the counts are kept, of the others no records."""
    rig = Rig()
    failures = FailedSends()
    for _ in range(MAX_BATCHES + 5):
        batch = rig.send(b"x").batch
        rig.accumulator.queue(batch.topic_partition).open = None
        failures.add(batch, KafkaError(ErrorCode.INVALID_RECORD, "first"))
    assert batch.records == []
    error = failures.take()
    assert error is not None
    assert error.counts == {"t": MAX_BATCHES + 5}
    assert failures.take() is None


def test_a_producer_that_is_not_closed_warns_at_exit(
    kafka: Kafka, caplog: pytest.LogCaptureFixture
) -> None:
    """Its daemon thread ends with the interpreter, as in Kafka, and so do queued records."""
    topic = str(kafka.topic("unsent"))
    with Producer(bootstrap_servers=kafka.bootstrap, linger_ms=60_000, client_id="p") as producer:
        producer.send(topic, b"1")
        producer.send(topic, b"2")
        warning = producer._core.exit_warning
        assert warning is not None
        assert warning.atexit
        alive = warning.peek()
        assert alive is not None
        core, warn, given, _ = alive
        warn(*given)
    text = f"not closed at exit, which may lose records: 2 for topic {topic!r}. Use `with`, or call"
    lines = [one.getMessage() for one in caplog.records if one.name == "ottla.clients"]
    assert lines == [f"[Producer clientId=p] {text} close()"]
    assert not warning.alive
    caplog.clear()
    warn(*given)
    assert not [one for one in caplog.records if one.name == "ottla.clients"]
    assert core.client.closed
