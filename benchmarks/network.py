"""CPU of one echoed frame through network.server, framing, connection and gather.

    python benchmarks/network.py [frames]

The minimum cost of every request: receive, cut a frame, send a response.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import sys
import threading
import time
from typing import TYPE_CHECKING

from ottla.network.server import SCRATCH_BYTES, Listener
from ottla.network.sockets import listen

if TYPE_CHECKING:
    from ottla.network.connection import Connection


class Echo:
    """Answers each frame with itself."""

    def handle_frame(self, connection: Connection, frame: memoryview) -> None:
        """Send the frame back."""
        connection.respond([struct.pack(">i", len(frame)) + frame])

    def __init__(self, closed: asyncio.Event) -> None:
        self._closed = closed

    def connection_closed(self, _connection: Connection) -> None:
        """Stop when the only client disconnects."""
        self._closed.set()


def serve(ready: list[int], started: threading.Event, cpu: list[float]) -> None:
    """Run the listener until its only client disconnects."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        scratch = bytearray(SCRATCH_BYTES)
        closed = asyncio.Event()
        echo = Echo(closed)
        sock = listen("127.0.0.1", 0)
        listener = Listener(loop, sock, echo, name="ECHO", max_frame_bytes=1 << 24, scratch=scratch)
        ready.append(listener.port)
        listener.start()
        before = time.thread_time()
        started.set()
        await closed.wait()
        cpu.append(time.thread_time() - before)
        listener.close()

    try:
        import uvloop
    except ImportError:
        asyncio.run(main())
    else:
        uvloop.run(main())


def measure(size: int, frames: int) -> float:
    """Return the server's CPU time per frame in microseconds."""
    ready: list[int] = []
    cpu: list[float] = []
    started = threading.Event()
    thread = threading.Thread(target=serve, args=(ready, started, cpu))
    thread.start()
    started.wait()
    frame = struct.pack(">i", size) + bytes(size)
    with socket.create_connection(("127.0.0.1", ready[0])) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(frames):
            client.sendall(frame)
            left = len(frame)
            while left:
                left -= len(client.recv(left))
    thread.join()
    return cpu[0] / frames * 1e6


def main() -> None:
    """Print one line per size."""
    frames = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    for size in (100, 10_000, 1_000_000):
        count = max(frames * 100 // max(size, 100), 200)
        print(f"{size:>9} B: {measure(size, min(count, frames)):8.1f} µs of CPU per frame")


if __name__ == "__main__":
    main()
