"""Frames of the protocol on a connection: read as they arrive, written in gathered pieces.

A frame's buffer grows with the bytes that have arrived (to at most twice that size), never to the
size that an untrusted client announced. Each frame owns its buffer, because record views may
outlive the read.

Kafka: org.apache.kafka.common.network.NetworkReceive; org.apache.kafka.common.network.NetworkSend,
FileRecords.writeTo. Hot path: benchmarks/network.py.
"""

from __future__ import annotations

import socket
from collections import deque
from typing import TYPE_CHECKING, Final

from ottla.errors import ErrorCode, KafkaError
from ottla.types import FileSlice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ottla.network.limits import FrameBudget
    from ottla.types import Buffer, SendItem

FIRST_BYTES = 64 * 1024
_UNCOUNTED_BYTES: Final = 16 * 1024
"""Read ahead by a connection without being counted: the requests of a producer that pipelines."""
NO_ROOM = memoryview(bytearray())
"""The empty buffer that `space` returns while the node's frame budget is used up."""
_from_bytes = int.from_bytes

_TLS_HANDSHAKE: Final = b"\x16\x03"
_HTTP_METHODS: Final = frozenset({b"GET ", b"HEAD", b"POST", b"PUT "})


class FrameReader:
    """The unfinished frame of one connection, and the bytes read after the last complete one."""

    __slots__ = (
        "_budget",
        "_filled",
        "_frame",
        "_resume",
        "_size",
        "is_inside_frame",
        "left",
        "max_bytes",
    )

    def __init__(
        self, max_bytes: int, budget: FrameBudget | None, resume: Callable[[], None]
    ) -> None:
        """resume() is called when a budget that was used up has room again."""
        self.max_bytes = max_bytes
        self._budget = budget
        self._resume = resume
        self.left = b""
        """Bytes read after the last frame; they are kept here rather than in the kernel."""
        self.is_inside_frame = False
        """Whether a frame has begun and is not complete; the time limit for frames applies."""
        self._frame: bytearray | None = None
        self._size = 0
        self._filled = 0

    @property
    def received_bytes(self) -> int:
        """Bytes of the unfinished frame that have arrived."""
        return self._filled if self._frame is not None else len(self.left)

    def space(self) -> memoryview | None:
        """Return the buffer to receive into, or None: use the shared buffer and `take`.

        Returns NO_ROOM while the node's frame budget is used up; `resume` is called once there is
        room.
        """
        frame = self._frame
        if frame is None:
            return None
        if self._filled == len(frame):
            size = min(self._size, 2 * self._filled)
            if self._budget and not self._budget.grow(self, size, self._resume):
                return NO_ROOM
            frame.extend(bytes(size - self._filled))
        return memoryview(frame)[self._filled :]

    def advance(self, count: int) -> memoryview | None:
        """Account for bytes received into `space`; return the frame once it is complete."""
        self._filled += count
        if self._filled < self._size or self._frame is None:
            return None
        frame, self._frame = self._frame, None
        self.is_inside_frame = False
        self.release()
        return memoryview(frame)

    def release(self) -> None:
        """Return the unfinished frame's share of the budget."""
        if self._budget:
            self._budget.release(self)

    def take_whole(self, received: memoryview) -> memoryview | None:
        """As `take`; most often what was received is one frame, which is copied once then."""
        size = len(received) - 4
        if not self.left and 0 <= size <= self.max_bytes and _from_bytes(received[:4]) == size:
            return memoryview(bytearray(received[4:]))
        return self.take(received)

    def take(self, received: memoryview) -> memoryview | None:
        """Take bytes from the shared buffer; return the first complete frame, keep the others."""
        if not self.left and len(received) >= 4:
            size = _from_bytes(received[:4], "big", signed=True)
            if len(received) - 4 < size <= self.max_bytes:
                self._start(received, size)  # the beginning of a large frame, copied once
                return None
        self.left = self.left + received if self.left else bytes(received)
        frame = self.next_frame()
        if len(self.left) > _UNCOUNTED_BYTES and self._budget:
            self._budget.count(self, len(self.left))
        return frame

    def next_frame(self) -> memoryview | None:
        """Return the next frame from buffered bytes; raise KafkaError for an illegal size."""
        left = self.left
        if not left:  # is_inside_frame stays: a large frame may have begun
            return None
        available = len(left) - 4
        self.is_inside_frame = True
        if available < 0:
            return None
        size = _from_bytes(left[:4], "big", signed=True)
        if not 0 <= size <= self.max_bytes:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Invalid receive (size = {size} larger than {self.max_bytes})"
                f"{_other_protocol(bytes(left[:4]))}",
            )
        if available >= size:
            frame = memoryview(bytearray(left[4 : size + 4]))
            if len(left) > _UNCOUNTED_BYTES >= available - size and self._budget:
                self._budget.release(self)
            self.left = left[size + 4 :]
            self.is_inside_frame = bool(self.left)
            return frame
        self._start(left, size)
        return None

    def _start(self, begun: bytes | memoryview, size: int) -> None:
        filled = len(begun) - 4
        self._size, self._filled = size, filled
        room = min(size, max(FIRST_BYTES, 2 * filled))
        if self._budget and not self._budget.grow(self, room, self._resume):
            room = filled
            self._budget.count(self, room)
        self._frame = bytearray(room)
        self._frame[:filled] = begun[4:]
        self.is_inside_frame = True
        self.left = b""


def _other_protocol(start: bytes) -> str:
    """Return what a client speaks whose first bytes are no size, for the line in the log."""
    if start.startswith(_TLS_HANDSHAKE):
        return ": the client speaks TLS, the listener does not; check its security.protocol"
    if start in _HTTP_METHODS:
        return ": the client speaks HTTP; check its port"
    return ""


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
