"""Framing, caller-driven loops, and the façades without a cluster."""

from __future__ import annotations

import asyncio
import json
import random
import socket
import threading
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla import (
    AsyncConsumer,
    AsyncProducer,
    AsyncShareConsumer,
    Consumer,
    Producer,
    TopicPartition,
)
from ottla.clients.client import ConnectionKey, parse_address
from ottla.clients.login import keep_renewed
from ottla.clients.loops import IDLE_SECONDS, CallerDrivenLoop
from ottla.clients.serdes import deserializer, serializer
from ottla.clients.settings import COMMON, read_settings
from ottla.clients.transport import SCRATCH_BYTES, FrameProtocol, Runtime
from ottla.errors import ConfigError, ErrorCode, IllegalStateError, KafkaError, SerializationError


class Sink:
    """Stands in for the runtime and keeps what the protocol delivers."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.broken: KafkaError | None = None

    def on_frame(self, _protocol: object, frame: memoryview) -> None:
        self.frames.append(bytes(frame))

    def on_broken(self, _protocol: object, reason: KafkaError) -> None:
        self.broken = reason


class RecordingRuntime(Runtime):
    """A runtime without a cluster that keeps which threads have run its loop."""

    def __init__(self) -> None:
        super().__init__(read_settings(COMMON, {"bootstrap.servers": "127.0.0.1:1"}, {}))
        self.thread_ids: list[int] = []

    def set_loop_thread(self, thread_id: int) -> None:
        super().set_loop_thread(thread_id)
        self.thread_ids.append(thread_id)


def _feed(protocol: FrameProtocol, data: bytes, rng: random.Random) -> None:
    position = 0
    while position < len(data):
        room = protocol.get_buffer(-1)
        count = min(len(room), len(data) - position, rng.choice([1, 3, 1000, 200_000]))
        room[:count] = data[position : position + count]
        protocol.buffer_updated(count)
        position += count


@pytest.mark.parametrize("seed", range(10))
def test_frames_of_any_size_survive_any_cut(seed: int) -> None:
    """Small ones, ones around the scratch buffer's size, and one above the growth step."""
    rng = random.Random(seed)
    sizes = [0, 1, SCRATCH_BYTES - 5, SCRATCH_BYTES - 4, SCRATCH_BYTES - 3, 5_000_000]
    sent = [b"the first", *(rng.randbytes(rng.choice(sizes)) for _ in range(12))]
    sink = Sink()
    protocol = FrameProtocol(cast("Runtime", sink), ConnectionKey(1))
    data = b"".join(len(frame).to_bytes(4, "big") + frame for frame in sent)
    _feed(protocol, data, rng)
    assert sink.frames == sent


def test_a_negative_or_huge_frame_breaks_the_connection() -> None:
    """An untrusted length is rejected before memory is allocated."""
    for size in (b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff"):
        sink = Sink()
        protocol = FrameProtocol(cast("Runtime", sink), ConnectionKey(1))
        _feed(protocol, size, random.Random(1))
        assert "announced a frame" in str(sink.broken)


@pytest.mark.parametrize(
    ("answer", "cause"),
    [
        (bytes.fromhex("15030300020246"), "the listener speaks TLS, this client does not: set "),
        (b"HTTP/1.1 400 Bad Request\r\n", "the peer speaks HTTP, not Kafka's protocol: check the"),
        (b"220 mail ready\r\n", "the peer announced a frame of 842149920 bytes: is it a broker's"),
    ],
)
def test_what_is_no_broker_is_named_by_its_first_bytes(answer: bytes, cause: str) -> None:
    """The first response is small: what announces more speaks another protocol."""
    sink = Sink()
    protocol = FrameProtocol(cast("Runtime", sink), ConnectionKey(1))
    room = protocol.get_buffer(-1)
    room[: len(answer)] = answer
    protocol.buffer_updated(len(answer))
    assert str(sink.broken).startswith(cause)


async def _give(value: Any) -> Any:
    await asyncio.sleep(0.001)
    return value


def test_a_loop_in_turns_runs_in_the_callers_thread_and_in_its_own_meanwhile() -> None:
    """Calls run in the caller's thread; timers also fire without calls."""
    runtime = RecordingRuntime()
    loop = CallerDrivenLoop(runtime, "test")
    fired = threading.Event()
    try:
        assert [loop.call(_give(n)) for n in range(20)] == list(range(20))
        assert threading.get_ident() in runtime.thread_ids
        loop.loop.call_soon_threadsafe(lambda: loop.loop.call_later(0.05, fired.set))
        assert fired.wait(30)
        assert loop.call(_give("again")) == "again"
        with pytest.raises(ZeroDivisionError):
            loop.call(_fail())
    finally:
        loop.stop()


def test_the_loops_own_thread_sleeps_during_a_long_call() -> None:
    """A consumer's poll that waits costs no processor: other waits than whole ones are no rule."""
    loop = CallerDrivenLoop(RecordingRuntime(), "test")
    waits: list[float] = []

    class Recording(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            waits.append(timeout or 0.0)
            return super().wait(timeout)

    loop._recheck = Recording()

    async def poll() -> list[float]:
        await asyncio.sleep(IDLE_SECONDS)
        waits.clear()
        while len(waits) < 4:  # noqa: ASYNC110 - of another thread
            await asyncio.sleep(0.01)
        return list(waits)

    try:
        assert loop.call(poll())[1:] == [IDLE_SECONDS] * 3
    finally:
        loop.stop()


async def _fail() -> None:
    raise ZeroDivisionError


def test_a_blocking_client_works_inside_a_running_loop() -> None:
    """As in a notebook: the thread drives the loop instead."""
    loop = CallerDrivenLoop(RecordingRuntime(), "test")

    async def cell() -> Any:
        return loop.call(_give(7))

    try:
        assert asyncio.run(cell()) == 7
    finally:
        loop.stop()


def test_no_one_there_fails_in_time_with_one_line() -> None:
    """max.block.ms of a producer, the timeout of a consumer's query."""
    with (
        Producer(bootstrap_servers="127.0.0.1:1", max_block_ms=1000) as producer,
        pytest.raises(
            KafkaError, match=r"cannot reach 127\.0\.0\.1:1 \(.*refused.*ottla server-start"
        ),
    ):
        producer.send("t", b"v")
    with (
        Consumer(bootstrap_servers="127.0.0.1:1") as consumer,
        pytest.raises(KafkaError, match=r"cannot reach 127\.0\.0\.1:1"),
    ):
        consumer.partitions_for("t", timeout=1)


def test_closing_twice_and_at_once_is_harmless() -> None:
    """close() right after the constructor, and again."""
    began = time.monotonic()
    for _ in range(3):
        producer, consumer = (
            Producer(bootstrap_servers="127.0.0.1:1"),
            Consumer(bootstrap_servers="127.0.0.1:1", group_id="g"),
        )
        for client in (producer, consumer):
            client.close()
            client.close()
    assert time.monotonic() - began < 180, "none waits for request.timeout.ms"


def test_mixed_subscriptions_are_refused() -> None:
    """Topics by name and user-assigned partitions exclude each other."""
    consumer = AsyncConsumer("t", bootstrap_servers="h:1", group_id="g")
    with pytest.raises(IllegalStateError, match="mutually exclusive"):
        consumer.assign([TopicPartition("t", 0)])
    with pytest.raises(KafkaError, match=r"you must provide a valid group\.id"):
        AsyncConsumer("t", bootstrap_servers="h:1")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("host:9093", ("host", 9093)),
        ("[::1]:9094", ("::1", 9094)),
        ("PLAINTEXT://a.b:1", ("a.b", 1)),
    ],
)
def test_addresses(text: str, expected: tuple[str, int]) -> None:
    """Every form of a bootstrap server."""
    assert parse_address(text) == expected


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("localhost", "url"),
        ("host:x", "url"),
        (":9092", "url"),
        ("host:99999", "port"),
    ],
)
def test_invalid_addresses_are_refused_with_kafkas_text(text: str, kind: str) -> None:
    """What is not HOST:PORT; there is no default port."""
    with pytest.raises(ConfigError) as caught:
        Producer(bootstrap_servers=[text])
    assert str(caught.value) == f"Invalid {kind} in bootstrap.servers: {text}"


@pytest.mark.parametrize(
    ("name", "value", "data"),
    [
        ("json", {"a": [1, "é"]}, '{"a":[1,"é"]}'.encode()),
        ("string", "é", "é".encode()),
        ("org.apache.kafka.common.serialization.LongSerializer", 5, b"\0" * 7 + b"\x05"),
        ("integer", -1, b"\xff" * 4),
        ("double", 1.5, b"\x3f\xf8" + b"\0" * 6),
    ],
)
def test_named_serdes(name: str, value: object, data: bytes) -> None:
    """The usual ones by name, Java's class names too, and back."""
    to_bytes = serializer(name, "value")
    assert to_bytes is not None
    assert to_bytes(value) == data
    assert to_bytes(None) is None
    back = deserializer(name.replace("Serializer", "Deserializer"))
    assert back is not None
    assert back(data) == value


def test_an_unknown_serde_lists_the_known() -> None:
    """INVALID_CONFIG with names."""
    with pytest.raises(KafkaError, match="one of") as caught:
        serializer("avro", "key")
    assert caught.value.code == ErrorCode.INVALID_CONFIG


def test_what_cannot_be_serialized_is_named() -> None:
    """With the part, the type and the serializer's own error as the cause."""
    to_bytes = serializer("json", "key")
    assert to_bytes is not None
    with pytest.raises(SerializationError) as caught:
        to_bytes({1})
    assert str(caught.value) == (
        "a key of type set cannot be converted by key_serializer: "
        "Object of type set is not JSON serializable"
    )
    assert isinstance(caught.value.__cause__, TypeError)


def test_a_serializer_may_return_text_but_nothing_else() -> None:
    """json.dumps returns str; what is no bytes fails at the call, not with its whole batch."""
    to_bytes = serializer(json.dumps, "value")
    assert to_bytes is not None
    assert to_bytes({"a": 1}) == b'{"a": 1}'
    wrong = serializer(lambda _value: 3, "value")
    assert wrong is not None
    with pytest.raises(SerializationError, match="of type dict cannot be converted"):
        wrong({})


def test_a_connection_that_the_core_has_closed_is_aborted_when_it_is_made() -> None:
    """The attempt that followed it stays the current one."""

    async def main() -> None:
        consumer = await AsyncConsumer(bootstrap_servers="127.0.0.1:1").start()
        runtime, key = consumer._runtime, ConnectionKey(7)
        runtime.open(key, "127.0.0.1", 1)
        attempt = runtime._connecting[key]
        runtime.close(key)
        runtime.open(key, "127.0.0.1", 1)
        current = runtime._connecting[key]
        protocol = FrameProtocol(runtime, key, attempt)
        aborted: list[bool] = []
        transport = SimpleNamespace(abort=lambda: aborted.append(True))
        protocol.connection_made(cast("asyncio.BaseTransport", transport))
        assert aborted
        assert runtime._connecting[key] is current
        assert key not in runtime._protocols
        runtime.on_lost(protocol, "")
        await consumer.close()

    asyncio.run(main())


def test_a_port_out_of_range_is_an_error_of_the_connection() -> None:
    """A broker may advertise any number."""

    async def main() -> None:
        consumer = await AsyncConsumer(bootstrap_servers="127.0.0.1:1").start()
        runtime, key = consumer._runtime, ConnectionKey(7)
        runtime.open(key, "127.0.0.1", 1 << 20)
        attempt = runtime._connecting[key]
        await attempt
        assert key not in runtime._connecting
        await consumer.close()

    asyncio.run(main())


@pytest.mark.parametrize("kind", [AsyncProducer, AsyncConsumer, AsyncShareConsumer])
def test_a_close_that_is_cancelled_leaves_no_connection(kind: Any) -> None:
    """A second cancellation, as of a timeout around `async with`, ends the wait only."""

    async def main(address: str) -> None:
        group = {} if kind is AsyncProducer else {"group_id": "g"}
        client = await kind(bootstrap_servers=address, **group).start()
        runtime = client._runtime
        while not runtime._protocols:  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0.01)
        never = asyncio.get_running_loop().create_future()
        for name in ("_wait_for_all", "_leave"):
            if hasattr(client, name):
                setattr(client, name, lambda *_: never)
        closing = asyncio.create_task(client.close())
        await asyncio.sleep(0.05)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert client._core.client.closed
        assert not runtime._protocols

    with socket.create_server(("127.0.0.1", 0)) as server:
        asyncio.run(main(f"127.0.0.1:{server.getsockname()[1]}"))


def test_a_renewal_that_raises_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    """A file with bytes that are no text ended the thread, and later logins failed for good."""
    renewed = threading.Event()

    class Credential:
        def __init__(self) -> None:
            self.attempts = 0

        def renew(self) -> bool:
            self.attempts += 1
            if self.attempts == 1:
                raise UnicodeDecodeError("utf-8", b"", 0, 1, "invalid start byte")
            renewed.set()
            return True

        def seconds_to_renewal(self) -> float:
            return 60 if self.attempts else 0

    credential = Credential()
    keep_renewed(credential, "test", 0)
    assert renewed.wait(30)
    assert "cannot renew the credential" in caplog.text
