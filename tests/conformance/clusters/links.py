"""Links between the nodes of `scripts/kill_cluster.py`, which can be cut one way or both."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_HOST = "127.0.0.1"
_CHUNK_BYTES = 65_536


class Links:
    """Ports before the nodes' own; bytes on a link that is cut wait until it is healed.

    TCP would repeat them as well; the nodes notice by their timeouts.
    """

    def __init__(self, source_of: Callable[[int], int | None]) -> None:
        """Make the links; source_of tells the node to which a local port belongs."""
        self._source_of = source_of
        self._cut: set[tuple[int, int]] = set()
        self._loop = asyncio.new_event_loop()
        self._healed = asyncio.Event()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    def open(self, node: int, port: int) -> int:
        """Open a port that leads to this port of the node; return it."""

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(OSError):
                await self._connect(node, port, reader, writer)
            writer.close()

        starting = asyncio.start_server(accept, _HOST, 0)
        server = asyncio.run_coroutine_threadsafe(starting, self._loop).result(10)
        return int(server.sockets[0].getsockname()[1])

    def cut(self, pairs: Iterable[tuple[int, int]]) -> None:
        """Pass nothing more from the first to the second node of each pair."""
        self._loop.call_soon_threadsafe(self._set, set(pairs))

    def heal(self) -> None:
        """Pass everything again."""
        self._loop.call_soon_threadsafe(self._set, set())

    def _set(self, pairs: set[tuple[int, int]]) -> None:
        self._cut = pairs
        self._healed.set()
        self._healed = asyncio.Event()

    async def _connect(
        self,
        node: int,
        port: int,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        source = self._source_of(writer.get_extra_info("peername")[1]) or 0
        await self._wait(source, node)
        there, to_node = await asyncio.open_connection(_HOST, port)
        try:
            await asyncio.gather(
                self._copy(reader, to_node, source, node), self._copy(there, writer, node, source)
            )
        finally:
            to_node.close()

    async def _copy(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, source: int, node: int
    ) -> None:
        while data := await reader.read(_CHUNK_BYTES):
            await self._wait(source, node)
            writer.write(data)
            await writer.drain()
        writer.close()

    async def _wait(self, source: int, node: int) -> None:
        while (source, node) in self._cut:
            await self._healed.wait()
