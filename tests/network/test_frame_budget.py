"""Memory for all unfinished frames of a node."""

from __future__ import annotations

import asyncio
import struct
from typing import TYPE_CHECKING

from ottla.network.framing import NO_ROOM, FrameReader
from ottla.network.limits import FrameBudget
from ottla.network.server import Listener
from ottla.network.sockets import listen

if TYPE_CHECKING:
    from ottla.network.connection import Connection

BODY_BYTES = 600_000


def test_the_oldest_grows_and_others_wait() -> None:
    """Above the limit only the oldest holder may grow; its release resumes the others."""
    budget, woken = FrameBudget(100), list[str]()
    assert budget.grow("a", 60, lambda: woken.append("a"))
    assert budget.grow("b", 40, lambda: woken.append("b"))
    assert not budget.grow("b", 41, lambda: woken.append("b"))
    assert budget.grow("a", 120, lambda: woken.append("a"))
    assert not budget.grow("c", 10, lambda: woken.append("c"))
    assert budget.used_bytes == 160
    budget.release("a")
    assert woken == ["b", "c"]
    assert budget.grow("b", 80, lambda: None)
    budget.release("b")
    budget.release("c")
    assert budget.used_bytes == 0


def test_what_is_received_counts_from_the_first_byte() -> None:
    """Beginnings of large frames and bytes read ahead; used up, reads become small."""
    budget = FrameBudget(1 << 20)
    window = budget.window(bytearray(256 * 1024))
    begun = memoryview((100 << 20).to_bytes(4, "big") + bytes(255 * 1024))
    readers = []
    for number in range(100):
        reader = FrameReader(100 << 20, budget, lambda: None)
        readers.append(reader)
        received = begun[: len(window.view)]
        assert reader.take(received) is None
        assert number not in {0, 99} or (reader.space() is NO_ROOM) is (number == 99)
    kept = sum(len(reader._frame or b"") for reader in readers)
    assert budget.used_bytes == kept < 2 << 20
    for reader in readers:
        reader.release()
    assert budget.used_bytes == 0
    assert len(window.view) == 256 * 1024
    ahead = FrameReader(1000, budget, lambda: None)
    small = (100).to_bytes(4, "big") + bytes(100)
    frame = ahead.take(memoryview(small * 1000))
    assert budget.used_bytes == len(ahead.left) > 100_000
    while frame is not None:
        frame = ahead.next_frame()
    assert budget.used_bytes == 0


class Counting:
    """Answers each frame with its size, and records the maximum memory in use."""

    def __init__(self, budget: FrameBudget) -> None:
        self._budget = budget
        self.max_bytes = 0

    def handle_frame(self, connection: Connection, frame: memoryview) -> None:
        self.max_bytes = max(self.max_bytes, self._budget.used_bytes)
        connection.respond([struct.pack(">ii", 4, len(frame))])

    def connection_closed(self, connection: Connection) -> None:
        pass


def test_many_large_frames_at_once_stay_within_the_budget() -> None:
    """Twelve senders whose frames together exceed the budget are all served."""

    async def main() -> None:
        budget = FrameBudget(2 * BODY_BYTES)
        handler = Counting(budget)
        loop = asyncio.get_running_loop()
        listener = Listener(
            loop,
            listen("127.0.0.1", 0),
            handler,
            name="TEST",
            max_frame_bytes=1 << 20,
            scratch=bytearray(65536),
            budget=budget,
        )
        port = listener.port
        listener.start()
        try:
            await asyncio.wait_for(asyncio.gather(*(send(port) for _ in range(12))), 60)
        finally:
            listener.close()
        assert 0 < handler.max_bytes <= 3 * BODY_BYTES
        assert budget.used_bytes == 0

    asyncio.run(main())


async def send(port: int) -> None:
    """Send one frame in pieces and read its answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(struct.pack(">i", BODY_BYTES))
    for _ in range(6):
        writer.write(bytes(BODY_BYTES // 6))
        await asyncio.sleep(0)
    assert await reader.readexactly(8) == struct.pack(">ii", 4, BODY_BYTES)
    writer.close()
    await writer.wait_closed()


def test_a_closed_connection_gives_its_part_back() -> None:
    """A connection closed within a frame releases its memory."""

    async def main() -> None:
        budget = FrameBudget(1 << 20)
        loop = asyncio.get_running_loop()
        listener = Listener(
            loop,
            listen("127.0.0.1", 0),
            Counting(budget),
            name="TEST",
            max_frame_bytes=1 << 20,
            scratch=bytearray(65536),
            budget=budget,
        )
        port = listener.port
        listener.start()
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(struct.pack(">i", BODY_BYTES) + bytes(BODY_BYTES // 2))
        async with asyncio.timeout(60):
            while not budget.used_bytes:  # noqa: ASYNC110 - there is no event for it
                await asyncio.sleep(0.01)
            writer.close()
            while budget.used_bytes:  # noqa: ASYNC110 - there is no event for it
                await asyncio.sleep(0.01)
        listener.close()

    asyncio.run(main())
