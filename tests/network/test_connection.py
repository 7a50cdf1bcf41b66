"""Tests of network.server, network.connection and network.framing over real sockets."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from ottla.network import connection as connection_module
from ottla.network.connection import MAX_UNSENT_BYTES
from ottla.network.server import Listener
from ottla.network.sockets import NOTSENT_LOWAT_BYTES, listen
from ottla.types import FileSlice
from tests.network.open_file import OpenFile

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ottla.network.connection import Connection


class Echo:
    """Echoes each frame; `slow` ones on release; `close` closes."""

    def __init__(self) -> None:
        self._waiting: asyncio.Queue[tuple[Connection, bytes]] = asyncio.Queue()
        self.closed = 0
        self.frame_counts: Counter[str] = Counter()
        self.large = OpenFile(bytes(range(256)) * 8192)

    def handle_frame(self, connection: Connection, frame: memoryview) -> None:
        body = bytes(frame)
        self.frame_counts[connection.connection_id] += 1
        if body == b"slow":
            self._waiting.put_nowait((connection, body))
        elif body == b"close":
            connection.close()
        elif body == b"finish":
            connection.finish()
            connection.request_done()
        elif body == b"none":
            connection.request_done()
        elif body == b"file":
            size = len(self.large.read(0, 1 << 30))
            connection.respond([struct.pack(">i", size), FileSlice(self.large, 0, size)])
        elif body.startswith(b"around"):
            part = FileSlice(self.large, 7, int(body[6:]))
            connection.respond((struct.pack(">i", part.size + 3), part, b"end"))
        else:
            connection.respond([struct.pack(">i", len(body)), body])

    def connection_closed(self, connection: Connection) -> None:
        self.closed += 1

    async def next_waiting(self) -> tuple[Connection, bytes]:
        return await self._waiting.get()


def run(scenario: Callable[[Echo, int], Awaitable[None]]) -> None:
    """Run a scenario against an echo listener on a free port."""

    async def main() -> None:
        echo = Echo()
        loop = asyncio.get_running_loop()
        listener = Listener(
            loop,
            listen("127.0.0.1", 0),
            echo,
            name="TEST",
            max_frame_bytes=1 << 20,
            scratch=bytearray(65536),
        )
        port = listener.port
        listener.start()
        try:
            await asyncio.wait_for(scenario(echo, port), 60)
        finally:
            listener.close()
            echo.large.close()

    asyncio.run(main())


def frame(body: bytes) -> bytes:
    """Return the body with its size in front."""
    return struct.pack(">i", len(body)) + body


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    """Read one frame."""
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    return await reader.readexactly(size)


def test_pipelined_requests_are_answered_in_order() -> None:
    """A waiting request delays later requests on its own connection only."""

    async def scenario(echo: Echo, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(frame(b"a") + frame(b"slow") + frame(b"none") + frame(b"b"))
        assert await read_frame(reader) == b"a"
        other, other_writer = await asyncio.open_connection("127.0.0.1", port)
        other_writer.write(frame(b"x"))
        assert await read_frame(other) == b"x"
        writer.write(frame(b"c"))
        connection, body = await echo.next_waiting()
        connection.respond([frame(body)])
        assert [await read_frame(reader) for _ in range(3)] == [b"slow", b"b", b"c"]
        writer.close()
        other_writer.close()

    run(scenario)


def test_a_large_file_slice_survives_a_slow_reader() -> None:
    """Bytes that the socket does not accept at once are sent later."""

    async def scenario(echo: Echo, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
        writer.write(frame(b"file") + frame(b"after"))
        assert await read_frame(reader) == echo.large.read(0, 1 << 30)
        assert await read_frame(reader) == b"after"
        writer.close()

    run(scenario)


def test_an_answer_does_not_pile_up_in_the_kernel() -> None:
    """A client that does not read uses little memory of the node beyond socket buffers."""

    async def scenario(echo: Echo, port: int) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
        writer.write(frame(b"slow"))
        connection, _ = await echo.next_waiting()
        asked: Any = connection
        unsent = asked._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT)
        assert unsent == NOTSENT_LOWAT_BYTES
        writer.close()

    run(scenario)


def test_slices_between_small_buffers_arrive_in_order() -> None:
    """Small and large responses arrive in order although the client reads late."""
    sizes = [1, 32 * 1024, 32 * 1024 + 1, 300_000, 2_000_000, 5, 2_000_000, 70_000]

    async def scenario(echo: Echo, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
        for size in sizes:
            writer.write(frame(b"around%d" % size) + frame(b"next"))
        for size in sizes:
            assert await read_frame(reader) == echo.large.read(7, size) + b"end"
            assert await read_frame(reader) == b"next"
        writer.close()

    run(scenario)


def test_a_large_request_arrives_whole() -> None:
    """A frame larger than the shared buffer is received into its own."""

    async def scenario(echo: Echo, port: int) -> None:
        body = bytes(range(251)) * 4000
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(frame(body) + frame(b"next"))
        assert await read_frame(reader) == body
        assert await read_frame(reader) == b"next"
        writer.close()

    run(scenario)


@pytest.mark.parametrize("bad", [struct.pack(">i", -1), b"GET / HTTP/1.1\r\n\r\n", frame(b"close")])
def test_an_untrusted_client_is_closed_and_others_never_notice(bad: bytes) -> None:
    """An illegal size closes its connection; another one goes on."""

    async def scenario(echo: Echo, port: int) -> None:
        good, good_writer = await asyncio.open_connection("127.0.0.1", port)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(bad)
        assert await reader.read() == b""
        assert echo.closed == 1
        good_writer.write(frame(b"still here"))
        assert await read_frame(good) == b"still here"
        good_writer.close()
        writer.close()

    run(scenario)


def test_a_large_frame_may_begin_while_a_buffered_one_waits_to_be_taken_up() -> None:
    """Bytes of a frame must never be read as requests: the reader keeps its place."""

    async def scenario(echo: Echo, port: int) -> None:
        body = bytes(range(251)) * 1200
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(frame(b"slow") + frame(b"following"))
        connection, _ = await echo.next_waiting()
        whole = frame(body)
        writer.write(whole[:5000])
        await asyncio.sleep(0)
        connection.respond([frame(b"slow")])
        connection._on_readable()  # as the loop does, in the same turn
        for _ in range(5):
            await asyncio.sleep(0)
        writer.write(whole[5000:] + frame(b"last"))
        answers = [await read_frame(reader) for _ in range(4)]
        assert answers == [b"slow", b"following", body, b"last"]
        writer.close()

    run(scenario)


def test_frames_of_one_read_are_taken_up_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands fit into one read; the others are served between them, and all are answered."""
    monkeypatch.setattr(connection_module, "MAX_FRAMES", 3)

    async def scenario(echo: Echo, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        bodies = [b"%d" % number for number in range(500)]
        writer.write(b"".join(map(frame, bodies)))
        await writer.drain()
        seen: list[int] = []
        loop = asyncio.get_running_loop()
        while not seen or seen[-1] < len(bodies):
            await asyncio.sleep(0)
            seen.append(sum(echo.frame_counts.values()))
            assert seen[-1] - (seen[-2] if len(seen) > 1 else 0) <= 3
            assert loop.is_running()
        assert [await read_frame(reader) for _ in bodies] == bodies
        writer.close()

    run(scenario)


def test_answers_that_no_one_reads_hold_further_requests_back() -> None:
    """Queued responses are bounded for any number of requests in one read; all are sent."""

    async def scenario(echo: Echo, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
        writer.write(frame(b"slow") + frame(b"file") * 20 + frame(b"end"))
        connection, body = await echo.next_waiting()
        connection.respond([frame(body)])
        for _ in range(50):
            await asyncio.sleep(0)
        size = len(echo.large.read(0, 1 << 30))
        assert connection._queue.size_bytes <= MAX_UNSENT_BYTES + size + 4
        assert await read_frame(reader) == b"slow"
        for _ in range(20):
            assert len(await read_frame(reader)) == size
        assert await read_frame(reader) == b"end"
        writer.close()

    run(scenario)


@pytest.mark.parametrize("following", [b"", struct.pack(">i", -1), frame(b"finish")])
def test_what_was_answered_is_sent_before_the_end(following: bytes) -> None:
    """Responses to earlier requests are sent before a half-closed or invalid connection ends."""

    async def scenario(echo: Echo, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
        writer.write(frame(b"file") * 2 + following)
        writer.write_eof()
        for _ in range(2):
            assert await read_frame(reader) == echo.large.read(0, 1 << 30)
        assert await reader.read() == b""
        assert (echo.closed, echo.large.pins) == (1, 0)
        writer.close()

    run(scenario)
