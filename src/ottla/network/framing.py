"""Cuts a byte stream into size-prefixed frames without trusting the announced size.

Kafka: org.apache.kafka.common.network.NetworkReceive. Hot path: benchmarks/network.py.

A frame's buffer grows with the bytes that have arrived (to at most twice that size), never to the
size that an untrusted client announced. Each frame owns its buffer, because record views may
outlive the read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.network.limits import FrameBudget

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
