"""The bytes of one connection that a node opens to another: frames out, frames in.

Kafka: org.apache.kafka.common.network.KafkaChannel, as NetworkClient uses it.
"""

from __future__ import annotations

import asyncio
import errno
import re
from typing import TYPE_CHECKING, Final, Protocol, cast

from ottla.errors import KafkaError
from ottla.network.framing import FrameReader

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.types import Buffer

SCRATCH_BYTES: Final = 64 * 1024
MAX_FRAME_BYTES: Final = 100 * 1024 * 1024
"""As socket.request.max.bytes is by default."""

_ERRNO: Final = re.compile(r"\[Errno (\d+)\]")
_UNUSABLE: Final = {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.ENETUNREACH}
"""Errors of an address family that this machine does not have."""


def is_refused(error: Exception) -> bool:
    """Whether a host answered that no process listens at the address of a connection.

    Of a host name with several addresses each has to be refused, or of a family that this machine
    does not have; asyncio joins their errors in one text.
    """
    if isinstance(error, ConnectionRefusedError):
        return True
    if not isinstance(error, OSError) or error.errno is not None:
        return False
    found = {int(number) for number in _ERRNO.findall(str(error))}
    return errno.ECONNREFUSED in found and found <= {errno.ECONNREFUSED, *_UNUSABLE}


class FrameReceiver(Protocol):
    """What a connection reports to."""

    def connected(self) -> None:
        """Handle that frames may be sent."""

    def received(self, frame: memoryview) -> None:
        """Handle a frame, without its size."""

    def lost(self, error: Exception | None) -> None:
        """Handle that the connection has ended; None when the other side closed it."""


class OutgoingConnection(asyncio.BufferedProtocol):
    """Cuts the stream of bytes into frames, on the loop that connects it."""

    def __init__(self, receiver: FrameReceiver) -> None:
        self._receiver = receiver
        self._transport: asyncio.WriteTransport | None = None
        self._scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._reader = FrameReader(MAX_FRAME_BYTES, None, lambda: None)
        self._is_large = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Report that it is open."""
        self._transport = cast("asyncio.WriteTransport", transport)
        self._receiver.connected()

    def connection_lost(self, exc: Exception | None) -> None:
        """Report its end."""
        self._transport = None
        self._receiver.lost(exc)

    def send(self, parts: Sequence[Buffer]) -> None:
        """Send bytes, if it is open."""
        if self._transport is not None:
            self._transport.write(b"".join(parts))

    def abort(self) -> None:
        """Close it without a farewell; `lost` follows."""
        if self._transport is not None:
            self._transport.abort()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        """Return the buffer for the next bytes: that of a large frame, or a shared one."""
        space = self._reader.space()
        self._is_large = space is not None
        return self._scratch if space is None else space

    def buffer_updated(self, nbytes: int) -> None:
        """Report the frames that are complete; bytes that are no frame end the connection."""
        reader = self._reader
        try:
            if self._is_large:
                frame = reader.advance(nbytes)
            else:
                frame = reader.take_whole(self._scratch[:nbytes])
            while frame is not None:
                self._receiver.received(frame)
                frame = reader.next_frame()
        except KafkaError:
            self.abort()
