"""Where a blocking client must not wait: in its own thread, and in a forked process."""

from __future__ import annotations

import asyncio
import os
import threading
import time
import warnings
from typing import TYPE_CHECKING, Any

import pytest

from ottla import AsyncProducer, Consumer, IllegalStateError, KafkaError, Producer
from ottla.clients import loops
from ottla.clients.loops import CallerDrivenLoop, LoopThread
from ottla.clients.producer.batches import ProducerBatch, delivery_of
from ottla.errors import ClosedError, ErrorCode
from ottla.types import TopicPartition
from tests.clients.test_transport import RecordingRuntime
from tests.waits import WAIT_S, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable

NOWHERE = "127.0.0.1:1"


def _errors_after_fork(*calls: Callable[[], Any]) -> list[str]:
    """Return what calls raise in a forked process."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # about threads
        child = os.fork()
    if not child:
        for call in calls:
            try:
                call()
                os.write(writing, b"none\n")
            except IllegalStateError as error:
                os.write(writing, f"{error}\n".encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        lines = pipe.read().splitlines()
    os.waitpid(child, 0)
    return lines


def test_clients_are_refused_after_a_fork() -> None:
    """Calls would wait for a thread that is not there, or read the other process's sockets."""
    with (
        Producer(bootstrap_servers=NOWHERE) as producer,
        Consumer("t", bootstrap_servers=NOWHERE, group_id="g") as consumer,
    ):
        batch = ProducerBatch(TopicPartition("t", 0), 0, producer._core)
        delivery = delivery_of(batch, 0)
        calls = (producer.flush, delivery.result, producer.close, consumer.poll, consumer.close)
        lines = _errors_after_fork(*calls)
        assert lines == ["the client was made before a fork: make it in the new process"] * 5
        producer.flush()  # its loop still wakes in this process


def test_a_call_in_a_callback_of_the_consumers_loop_is_refused() -> None:
    """An interceptor's on_commit runs in it: the call would wait for itself."""
    loop = CallerDrivenLoop(RecordingRuntime(), "test")

    async def value() -> int:
        return 1

    async def callback() -> None:
        loop.call(value())

    try:
        with pytest.raises(KafkaError, match="it would wait for itself") as caught:
            loop.call(callback())
        assert caught.value.code == ErrorCode.INVALID_REQUEST
        assert loop.call(value()) == 1
    finally:
        loop.stop()


@pytest.mark.parametrize("is_begun", [True, False])
def test_a_call_in_a_notebook_ends_with_the_loop(*, is_begun: bool) -> None:
    """The loop's own thread runs such a call: after its end nothing would wake the caller."""
    loop = CallerDrivenLoop(RecordingRuntime(), "test")
    begun = threading.Event()
    errors: list[BaseException] = []

    async def endless() -> None:
        begun.set()
        await asyncio.get_running_loop().create_future()

    async def cell() -> None:
        loop.call(endless())

    def run() -> None:
        try:
            asyncio.run(cell())
        except BaseException as error:
            errors.append(error)

    caller = threading.Thread(target=run, daemon=True)
    if not is_begun:
        loop.call(asyncio.sleep(0))
        with loop._driving:  # its own thread does not get to the call
            caller.start()
            wait_for(lambda: len(loop._calls) == 1)
            stopping = threading.Thread(target=loop.stop)
            stopping.start()
            wait_for(lambda: loop._closed)
        stopping.join()
    else:
        caller.start()
        begun.wait()
        loop.stop()
    caller.join(WAIT_S)
    assert [type(error) for error in errors] == [ClosedError]


def test_result_is_refused_in_the_loops_thread() -> None:
    """It would stop the loop that has to end the wait; `await` is right there."""

    async def main() -> None:
        producer = await AsyncProducer(bootstrap_servers=NOWHERE).start()
        batch = ProducerBatch(TopicPartition("t", 0), 0, producer._core)
        with pytest.raises(KafkaError, match="it would wait for itself"):
            delivery_of(batch, 0).result(1)
        await producer.close()

    asyncio.run(main())


def test_a_call_that_comes_as_the_loop_ends_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread has just closed the client: the loop never gets to the call."""
    monkeypatch.setattr(loops, "_new_loop", asyncio.new_event_loop)
    thread = LoopThread("test", lambda: ClosedError("closed"))
    run = thread.loop.run_until_complete
    refused: list[object] = []

    async def value() -> int:
        return 1

    def call() -> None:
        try:
            refused.append(thread.call(value(), 10))
        except (KafkaError, TimeoutError) as error:
            refused.append(error)

    caller = threading.Thread(target=call)

    def run_and_call(work: Any) -> Any:
        result = run(work)
        caller.start()
        while not thread.loop._ready:  # type: ignore[attr-defined] # queued after the last turn
            time.sleep(0.001)
        return result

    thread.loop.run_until_complete = run_and_call  # type: ignore[method-assign, assignment]
    thread.stop()
    caller.join()
    assert isinstance(refused[0], ClosedError)
