"""Muted (throttled) connections, and connections beyond the rate limit."""

from __future__ import annotations

import asyncio
import struct
from typing import TYPE_CHECKING

from tests.network.test_connection import frame, read_frame
from tests.network.test_limits import run
from tests.waits import until

if TYPE_CHECKING:
    from ottla.network.server import Listener
    from tests.network.test_connection import Echo

HOUR_MS = 3_600_000


class Pace:
    """Delays and refuses connections as scripted."""

    def __init__(self, waits_ms: list[int], refusals_ms: list[int]) -> None:
        self.waits_ms = waits_ms
        self.refusals_ms = refusals_ms

    def wait_ms(self, listener: str, now_ms: int) -> int:
        """Return the next wait, then none."""
        return self.waits_ms.pop(0) if self.waits_ms else 0

    def refuse_ms(self, address: str, now_ms: int) -> int:
        """Return the next refusal, then none."""
        return self.refusals_ms.pop(0) if self.refusals_ms else 0


def test_a_resting_connection_has_its_answer_and_is_not_heard() -> None:
    """Requests received while muted are processed in order afterwards."""

    async def scenario(echo: Echo, listener: Listener, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(frame(b"slow") + frame(b"next"))
        connection, body = await echo.next_waiting()
        connection.respond_and_mute([frame(body)], HOUR_MS)
        assert await read_frame(reader) == b"slow"
        assert connection.frame_count == 1
        assert connection._muting is not None
        connection._muting.cancel()
        connection._rested()
        assert await read_frame(reader) == b"next"
        writer.close()

    run(scenario)


def test_a_resting_connection_counts_as_silent_but_not_as_trickling() -> None:
    """A muted connection is not closed for an incomplete frame, but for being idle."""

    async def scenario(echo: Echo, listener: Listener, port: int) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(frame(b"slow") + struct.pack(">i", 1000) + b"half")
        connection, body = await echo.next_waiting()
        connection.respond_and_mute([frame(body)], HOUR_MS)
        assert listener.sweep(0, 10 * HOUR_MS) == 0
        assert listener.sweep(HOUR_MS, 10 * HOUR_MS) == 0
        connection._rested()
        assert listener.sweep(HOUR_MS + 1, 10 * HOUR_MS) == 0
        connection.mute(HOUR_MS)
        assert listener.sweep(HOUR_MS + 2000, 1000) == 1
        assert connection._muting is not None
        assert connection._muting.cancelled()
        writer.close()

    run(scenario)


def test_connections_that_come_too_fast_wait_in_the_backlog() -> None:
    """All connections are accepted in order when the delay of the first ends."""

    async def scenario(echo: Echo, listener: Listener, port: int) -> None:
        peers = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
        for number, (reader, writer) in enumerate(peers):
            writer.write(frame(b"%d" % number))
            assert await read_frame(reader) == b"%d" % number
            writer.close()

    run(scenario, pace=Pace([20], []))


def test_a_refused_connection_is_closed_unheard() -> None:
    """A refused connection delays no other one and is closed when the listener stops."""

    async def scenario(echo: Echo, listener: Listener, port: int) -> None:
        refused, refused_writer = await asyncio.open_connection("127.0.0.1", port)
        refused_writer.write(frame(b"hello"))
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(frame(b"welcome"))
        assert await read_frame(reader) == b"welcome"
        assert await _rest_of(refused) == b""
        held, held_writer = await asyncio.open_connection("127.0.0.1", port)
        await until(lambda: len(listener._held) == 1)
        listener.stop_accepting()
        assert await _rest_of(held) == b""
        for one in (refused_writer, writer, held_writer):
            one.close()

    run(scenario, pace=Pace([], [10, 0, HOUR_MS]))


async def _rest_of(reader: asyncio.StreamReader) -> bytes:
    """Return the bytes received until the peer closes the connection."""
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""
