"""Calls inside `on_delivery`, and after the producer is closed."""

from __future__ import annotations

import asyncio
import logging
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from ottla.clients.blocking import Producer
from ottla.clients.producer.batches import Deliveries
from ottla.clients.producer.producer import AsyncProducer, call_on_delivery
from ottla.errors import ErrorCode, KafkaError
from tests.clients.producer.test_producer import T0, Rig

if TYPE_CHECKING:
    from ottla.clients.producer.batches import Delivery


def _raises(_delivery: Delivery) -> None:
    raise ZeroDivisionError


def test_a_callback_that_raises_costs_no_other_record(caplog: pytest.LogCaptureFixture) -> None:
    """Other callbacks, other batches of the response and later records are not affected."""
    rig = Rig(partitions=3, linger_ms=5)
    first = rig.send(b"a", 0)
    offsets: list[int] = []
    first.batch.callbacks = [(0, _raises), (0, lambda done: offsets.append(done.metadata.offset))]
    others = [rig.send(b"b", partition) for partition in (1, 2)]
    with caplog.at_level(logging.ERROR):
        rig.finish()
    assert [one.metadata.offset for one in others] == [0, 0]
    assert offsets == [0]
    assert "Error executing user-provided callback on message for topic-partition 't-0'" in (
        caplog.text
    )
    later = [rig.send(b"c", partition) for partition in range(3)]
    rig.finish()
    assert [one.metadata.offset for one in later] == [1, 1, 1]


def test_a_callback_that_comes_late_and_raises_is_logged_too(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A record that is done already calls back at once; `send` returns all the same."""
    rig = Rig()
    done = rig.send(b"a")
    rig.finish()
    lock = threading.Lock()
    done.batch.owner = SimpleNamespace(runtime=SimpleNamespace(lock=lock))
    with caplog.at_level(logging.ERROR):
        call_on_delivery(done, _raises)
    assert "ZeroDivisionError" in caplog.text
    held: list[bool] = []
    call_on_delivery(done, lambda _delivery: held.append(lock.locked()))
    assert held == [False]  # it may wait for the producer's thread, which takes this lock


def test_nothing_is_taken_after_close() -> None:
    """A record sent to a closed producer would wait for ever."""
    rig = Rig()
    rig.send(b"a")
    rig.accumulator.close()
    with pytest.raises(KafkaError, match="after producer has been closed"):
        rig.send(b"b")
    with pytest.raises(KafkaError, match="after producer has been closed"):
        rig.accumulator.append_many("t", [b"b"], 0, Deliveries())
    rig.finish()
    assert rig.cluster.logs[T0].values == [b"a"]


def test_close_refuses_from_its_beginning_and_fails_what_is_left_at_its_end() -> None:
    """Neither a thread that sends during close nor a late answer leaves records behind."""
    aborts: list[bool] = []

    async def closed() -> None:
        producer = AsyncProducer(bootstrap_servers="127.0.0.1:1")
        core = producer._core
        core.sender.abort_all = lambda: aborts.append(core.client.closed)  # type: ignore[method-assign]  # what is called when

        async def flush(_timeout: float | None = None) -> None:
            assert core.accumulator.closing

        producer.flush = flush  # type: ignore[method-assign, assignment]  # what is called when
        await producer.start()
        await producer.close()

    asyncio.run(closed())
    assert aborts == [False, True]


@pytest.fixture
def producer() -> Producer:
    """Return a producer without a cluster."""
    return Producer(bootstrap_servers="127.0.0.1:1")


def _in_its_thread(producer: Producer, what: object) -> list[object]:
    """Call something as a callback is called; return what it returned or raised."""
    seen: list[object] = []
    done = threading.Event()

    def run() -> None:
        try:
            seen.append(what())  # type: ignore[operator]  # any function
        except KafkaError as error:
            seen.append(error)
        done.set()

    producer._thread.loop.call_soon_threadsafe(run)
    assert done.wait(60)
    return seen


def test_a_producer_may_be_closed_in_a_callback(producer: Producer) -> None:
    """Its thread does not wait for itself, and ends; closing again does no harm."""
    assert _in_its_thread(producer, producer.close) == [None]
    producer.close()
    assert producer._core.client.closed
    assert not producer._thread._thread.is_alive()
    assert producer._thread.loop.is_closed()


def test_what_waits_is_refused_in_a_callback(producer: Producer) -> None:
    """Instead of a deadlock: flush in Kafka's words."""
    (refused,) = _in_its_thread(producer, producer.flush)
    assert isinstance(refused, KafkaError)
    assert refused.code == ErrorCode.INVALID_REQUEST
    assert "KafkaProducer.flush() invocation inside a callback" in str(refused)
    (refused,) = _in_its_thread(producer, lambda: producer.send("unknown", b""))
    assert isinstance(refused, KafkaError)
    assert refused.code == ErrorCode.INVALID_REQUEST, "its metadata could not arrive meanwhile"
    (refused,) = _in_its_thread(producer, lambda: producer.partitions_for("t"))
    assert isinstance(refused, KafkaError)
    assert refused.code == ErrorCode.INVALID_REQUEST
    producer.close()


def test_send_many_looks_at_all_values_first(producer: Producer) -> None:
    """One that can never be sent is refused at once, and none is queued."""
    with pytest.raises(TypeError):
        producer.send_many("t", [b"one", 3])
    assert not producer._core.accumulator.unfinished
    producer.close()
