"""Tests of network.limits and Listener.sweep over real sockets, with times passed in."""

from __future__ import annotations

import asyncio
import struct
from functools import partial
from typing import TYPE_CHECKING

import pytest

from ottla.network.limits import ConnectionQuota, frame_limit_ms, parse_overrides
from ottla.network.server import Listener, close_idlest
from ottla.network.sockets import listen
from tests.network.test_connection import Echo, frame, read_frame
from tests.waits import until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ottla.network.limits import ConnectionPace

IDLE_MS = 600_000


def run(
    scenario: Callable[[Echo, Listener, int], Awaitable[None]],
    quota: ConnectionQuota | None = None,
    pace: ConnectionPace | None = None,
) -> None:
    """Run a scenario against a listener on a free port."""

    async def main() -> None:
        echo = Echo()
        listener = Listener(
            asyncio.get_running_loop(),
            listen("127.0.0.1", 0),
            echo,
            name="TEST",
            max_frame_bytes=100 << 20,
            scratch=bytearray(65536),
            quota=quota,
            pace=pace,
        )
        port = listener.port
        listener.start()
        try:
            await asyncio.wait_for(scenario(echo, listener, port), 60)
        finally:
            listener.close()
            echo.large.close()

    asyncio.run(main())


@pytest.mark.parametrize("sent", [b"\0", struct.pack(">i", 100 << 20) + b"ab"])
def test_a_frame_that_trickles_ends_at_thirty_seconds(sent: bytes) -> None:
    """An announced size or a single byte extends no time limit; an idle connection stays."""

    async def scenario(echo: Echo, listener: Listener, port: int) -> None:
        quiet, quiet_writer = await asyncio.open_connection("127.0.0.1", port)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        await until(lambda: sum(c._reader.is_inside_frame for c in listener.connections) == 1)
        assert listener.sweep(0, IDLE_MS) == 0
        writer.write(b"c")
        await asyncio.sleep(0.02)
        assert listener.sweep(29_900, IDLE_MS) == 0
        assert listener.sweep(30_100, IDLE_MS) == 1
        assert await reader.read() == b""
        quiet_writer.write(frame(b"still here"))
        assert await read_frame(quiet) == b"still here"
        quiet_writer.close()
        writer.close()

    run(scenario)


def test_a_large_frame_at_a_fair_speed_is_awaited() -> None:
    """Every received KiB extends the time by a second."""

    async def scenario(echo: Echo, listener: Listener, port: int) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(struct.pack(">i", 100 << 20) + bytes(100 * 1024))
        await until(lambda: sum(c._reader.received_bytes for c in listener.connections) == 102400)
        assert listener.sweep(0, IDLE_MS) == 0
        assert listener.sweep(129_000, IDLE_MS) == 0
        assert listener.sweep(131_000, IDLE_MS) == 1
        writer.close()

    run(scenario)
    assert frame_limit_ms(0) == 30_000


def test_silence_ends_a_connection_even_while_its_request_waits() -> None:
    """connections.max.idle.ms counts from the last bytes either way, as in Kafka."""

    async def scenario(echo: Echo, listener: Listener, port: int) -> None:
        silent, silent_writer = await asyncio.open_connection("127.0.0.1", port)
        waiting, waiting_writer = await asyncio.open_connection("127.0.0.1", port)
        await until(lambda: len(listener.connections) == 2)
        assert listener.sweep(0, 1000) == 0
        waiting_writer.write(frame(b"slow"))
        connection, body = await echo.next_waiting()
        assert listener.sweep(1001, -1) == 0
        assert listener.sweep(1002, 1000) == 1
        assert await silent.read() == b""
        connection.respond([frame(body)])
        assert await read_frame(waiting) == b"slow"
        waiting_writer.write(frame(b"slow"))
        connection, body = await echo.next_waiting()
        assert listener.sweep(1500, 1000) == 0
        assert listener.sweep(2502, 1000) == 1
        connection.respond([frame(body)])
        assert await waiting.read() == b""
        silent_writer.close()
        waiting_writer.close()

    run(scenario)


def test_a_full_node_accepts_again_when_a_connection_ends() -> None:
    """max.connections: a new connection waits in the backlog and is served later."""

    async def scenario(echo: Echo, listener: Listener, port: int) -> None:
        _, first_writer = await asyncio.open_connection("127.0.0.1", port)
        second, second_writer = await asyncio.open_connection("127.0.0.1", port)
        second_writer.write(frame(b"patient"))
        await until(lambda: len(listener.connections) == 1)
        await asyncio.sleep(0.05)
        assert len(listener.connections) == 1
        first_writer.close()
        assert await read_frame(second) == b"patient"
        second_writer.close()

    run(scenario, ConnectionQuota(1))


def test_an_address_has_its_own_limit() -> None:
    """max.connections.per.ip closes excess connections; overrides take precedence."""

    async def scenario(echo: Echo, listener: Listener, port: int) -> None:
        good, good_writer = await asyncio.open_connection("127.0.0.1", port)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await reader.read() == b""
        good_writer.write(frame(b"x"))
        assert await read_frame(good) == b"x"
        good_writer.close()
        writer.close()

    run(scenario, ConnectionQuota(9, 5, {"127.0.0.1": 1}))
    assert parse_overrides("127.0.0.1:3, ::1:4") == {"127.0.0.1": 3, "::1": 4}


def test_clients_do_not_shut_out_other_nodes() -> None:
    """A protected listener accepts beyond max.connections; the idlest client's connection ends."""

    async def main() -> None:
        loop, quota, echo = asyncio.get_running_loop(), ConnectionQuota(3), Echo()
        clients, nodes = (
            Listener(
                loop,
                listen("127.0.0.1", 0),
                echo,
                name=name,
                max_frame_bytes=1000,
                scratch=bytearray(65536),
                quota=quota,
                is_protected=name == "NODES",
            )
            for name in ("CLIENTS", "NODES")
        )
        quota.close_idlest = partial(close_idlest, [clients])
        clients.start()
        nodes.start()
        opened = [await asyncio.open_connection("127.0.0.1", clients.port) for _ in range(5)]
        await until(lambda: len(clients.connections) == 3)
        for count in range(1, 6):
            reader, writer = await asyncio.open_connection("127.0.0.1", nodes.port)
            writer.write(frame(b"node"))
            assert await read_frame(reader) == b"node"
            assert len(nodes.connections) == count
            opened.append((reader, writer))
        assert not clients.connections
        for _, writer in opened:
            writer.close()
        clients.close()
        nodes.close()
        echo.large.close()

    asyncio.run(main())
