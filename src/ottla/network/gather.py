"""Writes buffers with one `sendmsg` and file slices with `sendfile`, as far as the socket takes.

Kafka: org.apache.kafka.common.network.NetworkSend, FileRecords.writeTo. Hot path:
benchmarks/network.py.
"""

from __future__ import annotations

import socket
from collections import deque
from typing import TYPE_CHECKING

from ottla.types import FileSlice

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.types import Buffer, SendItem

SMALL_SLICE_BYTES = 32 * 1024
"""A slice up to this size is read and gathered: one call for many instead of two for each."""
_CORK: int | None = getattr(socket, "TCP_CORK", None)


def gather(items: Iterable[SendItem]) -> list[SendItem]:
    """Return the items with small slices read and neighbouring buffers joined into one.

    OSError when a slice cannot be read or its file is shorter than it.
    """
    gathered: list[SendItem] = []
    buffers: list[Buffer] = []
    for item in items:
        if type(item) is not FileSlice:
            buffers.append(item)  # type: ignore[arg-type] # FileSlice was tested by exact type
            continue
        file, position, size = item
        if size <= SMALL_SLICE_BYTES:
            data = file.read(position, size)
            if len(data) != size:
                raise OSError("a log file ended before the slice to be sent")
            buffers.append(data)
        else:
            if buffers:
                gathered.append(b"".join(buffers))
                buffers = []
            gathered.append(item)
    if buffers:
        gathered.append(buffers[0] if len(buffers) == 1 else b"".join(buffers))
    return gathered


class SendQueue:
    """What is still to be sent on one socket, in order."""

    __slots__ = ("_is_corked", "items", "size_bytes")

    def __init__(self) -> None:
        self.items: deque[Buffer | FileSlice] = deque()
        """Not sent yet, the first of them perhaps in part; read-only outside this module."""
        self.size_bytes = 0
        self._is_corked = False

    def add(self, items: Iterable[Buffer | FileSlice]) -> None:
        """Queue buffers and slices; small ones cost less after `gather`.

        The file of a slice is pinned while that is queued: a topic deleted meanwhile must not leave
        it open for good.
        """
        for item in items:
            if type(item) is FileSlice:
                item.file.pin()
                self.size_bytes += item.size
            else:
                self.size_bytes += len(item)
            self.items.append(item)

    def flush(self, sock: socket.socket) -> bool:
        """Send what the socket takes now; return whether everything is out.

        Raises OSError when the connection is broken or a file ends before its slice does.
        """
        try:
            if len(self.items) > 1 and not self._is_corked:
                self._cork(sock, on=True)
            while self.items:
                head = self.items[0]
                if type(head) is FileSlice:
                    self._send_slice(sock, head)
                else:
                    self._send_buffer(sock, head)  # type: ignore[arg-type] # as above
        except BlockingIOError:
            return False
        if self._is_corked:
            self._cork(sock, on=False)
        return True

    def clear(self) -> None:
        """Drop what was not sent."""
        for item in self.items:
            if type(item) is FileSlice:
                item.file.unpin()
        self.items.clear()
        self.size_bytes = 0

    def _cork(self, sock: socket.socket, *, on: bool) -> None:
        """Let the few bytes behind a slice leave with its last ones: one packet less for each."""
        self._is_corked = on
        if _CORK is not None:
            sock.setsockopt(socket.IPPROTO_TCP, _CORK, on)

    def _send_buffer(self, sock: socket.socket, data: Buffer) -> None:
        sent = sock.send(data)
        self.size_bytes -= sent
        if sent == len(data):
            self.items.popleft()
        else:
            self.items[0] = memoryview(data)[sent:]

    def _send_slice(self, sock: socket.socket, part: FileSlice) -> None:
        sent = part.file.send_to(sock, part.position, part.size)
        if sent == 0:
            raise OSError("a log file ended before the slice to be sent")
        self.size_bytes -= sent
        if sent == part.size:
            self.items.popleft()
            part.file.unpin()
        else:
            self.items[0] = FileSlice(part.file, part.position + sent, part.size - sent)
