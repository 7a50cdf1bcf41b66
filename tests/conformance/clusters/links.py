"""Links between the nodes of `scripts/kill_cluster.py`, which can be cut one way or both."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    _Link = Callable[[], tuple[int, int]]
    """Gives the two nodes, the sender first."""

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
        server = asyncio.run_coroutine_threadsafe(starting, self._loop).result(60)
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
        source_port = writer.get_extra_info("peername")[1]
        source = cache(lambda: self._source_of(source_port) or 0)
        await self._wait(lambda: (source(), node))
        there, to_node = await asyncio.open_connection(_HOST, port)
        try:
            await asyncio.gather(
                self._copy(reader, to_node, lambda: (source(), node)),
                self._copy(there, writer, lambda: (node, source())),
            )
        finally:
            to_node.close()

    async def _copy(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, link: _Link
    ) -> None:
        while data := await reader.read(_CHUNK_BYTES):
            await self._wait(link)
            writer.write(data)
            await writer.drain()
        writer.close()

    async def _wait(self, link: _Link) -> None:
        """Wait while the link is cut.

        Whose connection it is takes long to find out on a machine with many sockets, and all links
        stand still meanwhile: that is asked only while there is a cut.
        """
        while self._cut and link() in self._cut:
            await self._healed.wait()
