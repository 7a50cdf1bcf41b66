"""Tests of network.server, network.connection and network.gather over real sockets."""

from __future__ import annotations

import asyncio
import socket
import struct
import tempfile
from typing import TYPE_CHECKING, Any

import pytest

from ottla.network.server import MOST_UNSENT_BYTES, Listener
from ottla.types import FileSlice

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ottla.network.connection import Connection


class OpenFile:
    """A file that slices can be sent from."""

    def __init__(self, content: bytes) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as this object
        self._file.write(content)
        self._file.flush()
        self._content = content

    def close(self) -> None:
        self._file.close()

    def read(self, position: int, size: int) -> bytes:
        return self._content[position : position + size]

    def fileno(self) -> int:
        return self._file.fileno()


class Echo:
    """Answers each frame with itself; `slow` ones when told; `close` closes."""

    def __init__(self) -> None:
        self._waiting: asyncio.Queue[tuple[Connection, bytes]] = asyncio.Queue()
        self.closed = 0
        self.large = OpenFile(bytes(range(256)) * 8192)

    def handle_frame(self, connection: Connection, frame: memoryview) -> None:
        body = bytes(frame)
        if body == b"slow":
            self._waiting.put_nowait((connection, body))
        elif body == b"close":
            connection.close()
        elif body == b"none":
            connection.request_done()
        elif body == b"file":
            size = len(self.large.read(0, 1 << 30))
            connection.respond([struct.pack(">i", size), FileSlice(self.large, 0, size)])
        elif body.startswith(b"around"):
            part = FileSlice(self.large, 7, int(body[6:]))
            connection.respond_around(struct.pack(">i", part.size + 3), part, b"end")
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
            loop, echo, name="TEST", max_frame_bytes=1 << 20, scratch=bytearray(65536)
        )
        port = listener.bind("127.0.0.1", 0)
        listener.start()
        try:
            await asyncio.wait_for(scenario(echo, port), 20)
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
    """A request that waits holds back those behind it on its own connection only."""

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
    """What the socket does not take at once is sent when it can."""

    async def scenario(echo: Echo, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
        writer.write(frame(b"file") + frame(b"after"))
        assert await read_frame(reader) == echo.large.read(0, 1 << 30)
        assert await read_frame(reader) == b"after"
        writer.close()

    run(scenario)


def test_an_answer_does_not_pile_up_in_the_kernel() -> None:
    """A reader that does not read holds little of the node's memory but the way's own buffers."""

    async def scenario(echo: Echo, port: int) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
        writer.write(frame(b"slow"))
        connection, _ = await echo.next_waiting()
        asked: Any = connection
        unsent = asked._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT)
        assert unsent == MOST_UNSENT_BYTES
        writer.close()

    run(scenario)


def test_slices_between_small_buffers_arrive_in_order() -> None:
    """Small ones and large ones, to a reader that lets them pile up."""
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
def test_a_stranger_is_closed_and_others_never_notice(bad: bytes) -> None:
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
