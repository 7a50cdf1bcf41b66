"""One accepted connection: frames in, one request in work at a time, answers out in order.

Kafka: org.apache.kafka.common.network.KafkaChannel with its mute states, SocketServer.Processor.
Hot path: benchmarks/network.py.

While a request waits (a long poll), the connection is muted: bytes stay in the kernel. The
reader is only taken off the loop when bytes do arrive meanwhile, so the common request pays no
epoll_ctl call.

A connection is in one `ConnectionState`; `MOVES` lists the legal moves. Only one that is READING
takes the next request, and only while little of its answers is unsent.
"""

from __future__ import annotations

import logging
from enum import Enum
from typing import TYPE_CHECKING, Final, Protocol

from ottla.errors import OttlaError
from ottla.network.framing import NO_ROOM, FrameReader, SendQueue, gather
from ottla.network.limits import frame_limit_ms
from ottla.security.principal import ANONYMOUS

if TYPE_CHECKING:
    import asyncio
    import socket
    from collections.abc import Sequence

    from ottla.network.limits import FrameBudget, ReceiveWindow
    from ottla.security.principal import Principal
    from ottla.types import SendItem

log = logging.getLogger("ottla.network")
_SIZE_BYTES = 4
_from_bytes = int.from_bytes
MAX_UNSENT_BYTES = 4 * 1024 * 1024
"""No new request is read from a socket with more than this unsent."""
MAX_FRAMES = 32
"""Handled in one turn of the loop: one read may hold thousands, and others wait meanwhile."""


class ConnectionState(Enum):
    """The states of a connection; the value is what it waits for."""

    READING = "the next request"
    BUSY = "the answer of the request in work"
    MUTED = "the end of a quota's throttle time (KIP-219)"
    RESUMING = "its next turn of the loop, for requests that are read already"
    ENDING = "room in the socket for the answers so far; no request follows"
    CLOSED = "nothing"


_READING, _BUSY, _MUTED = ConnectionState.READING, ConnectionState.BUSY, ConnectionState.MUTED
_RESUMING, _ENDING, _CLOSED = (
    ConnectionState.RESUMING,
    ConnectionState.ENDING,
    ConnectionState.CLOSED,
)
MOVES: Final[dict[ConnectionState, frozenset[ConnectionState]]] = {
    _READING: frozenset({_BUSY, _RESUMING, _ENDING, _CLOSED}),
    _BUSY: frozenset({_READING, _MUTED, _ENDING, _CLOSED}),
    _MUTED: frozenset({_READING, _ENDING, _CLOSED}),
    _RESUMING: frozenset({_READING, _ENDING, _CLOSED}),
    _ENDING: frozenset({_CLOSED}),
    _CLOSED: frozenset(),
}
"""The legal moves; the tests of `network` check each move that they make."""


class RequestHandler(Protocol):
    """What a connection gives its frames to."""

    def handle_frame(self, connection: Connection, frame: memoryview) -> None:
        """Answer by `connection.respond`, now or later, exactly once; or by `connection.finish`."""

    def connection_closed(self, connection: Connection) -> None:
        """Forget what was kept for the connection."""


class Connection:
    """A non-blocking socket on the node's loop."""

    __slots__ = (
        "_fd",
        "_handler",
        "_is_handling",
        "_is_reading",
        "_is_writing",
        "_loop",
        "_muting",
        "_queue",
        "_reader",
        "_seen",
        "_socket",
        "_state",
        "_window",
        "attachment",
        "connection_id",
        "frame_count",
        "is_closed",
        "is_in_login",
        "last_active_ms",
        "listener_name",
        "peer_host",
        "principal",
    )

    def __init__(  # noqa: PLR0913 - the socket, its listener's settings, and its names
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        handler: RequestHandler,
        *,
        window: ReceiveWindow,
        max_frame_bytes: int,
        budget: FrameBudget | None,
        connection_id: str,
        listener_name: str,
        peer_host: str,
    ) -> None:
        self._loop = loop
        self._socket = sock
        self._fd = sock.fileno()
        self._handler = handler
        self._window = window
        self._reader = FrameReader(max_frame_bytes, budget, self._read_again)
        self._queue = SendQueue()
        self._state = _READING
        self._is_handling = False
        self._is_writing = False
        self._is_reading = True
        self._muting: asyncio.TimerHandle | None = None
        self.is_closed = False
        self.is_in_login = False
        """Whether its request precedes the login: it is of no user, and no quota concerns it."""
        self.frame_count = 0
        self.last_active_ms = -1
        self._seen = (-1, 0)
        self.connection_id = connection_id
        self.listener_name = listener_name
        self.peer_host = peer_host
        self.principal: Principal = ANONYMOUS
        """Who has logged in; ANONYMOUS without a login."""
        self.attachment: object = None
        loop.add_reader(self._fd, self._on_readable)

    def serve(self, handler: RequestHandler, max_frame_bytes: int) -> None:
        """Give the next frames to another handler, and bound their size."""
        self._handler = handler
        self._reader.max_bytes = max_frame_bytes

    @property
    def peer_port(self) -> int:
        """The port that the peer speaks from."""
        return int(self.connection_id.rsplit("-", 2)[0].rpartition(":")[2])

    def is_overdue(self, now_ms: int, max_idle_ms: int) -> bool:
        """Whether it was silent for too long, or its frame arrives too slowly; polled.

        Time counts from the first such question after anything was achieved: a frame complete, or
        bytes of an answer taken. A request that waits for its answer is silence, as in Kafka.
        """
        seen = (self.frame_count, self._queue.size_bytes)
        if self.last_active_ms < 0 or seen != self._seen:
            self._seen = seen
            self.last_active_ms = now_ms
            return False
        waited_ms = now_ms - self.last_active_ms
        if self._reader.is_inside_frame and self._is_reading and self._muting is None:
            return waited_ms > frame_limit_ms(self._reader.received_bytes)
        return 0 <= max_idle_ms < waited_ms

    def _on_readable(self) -> None:
        if self._state is not _READING or self._queue.size_bytes > MAX_UNSENT_BYTES:
            self._stop_reading()
            return
        try:
            frame = self._receive() if self._reader.is_inside_frame else self._receive_whole()
        except BlockingIOError:
            return
        except OSError:
            self.close()
            return
        except OttlaError as error:
            self._close_invalid(error)
            return
        if frame is not None:
            self._handle_frames(frame)

    @property
    def _may_process(self) -> bool:
        """Whether the next request may be read or handled."""
        return self._state is _READING and self._queue.size_bytes <= MAX_UNSENT_BYTES

    def _stop_reading(self) -> None:
        if self._is_reading:
            self._loop.remove_reader(self._fd)
            self._is_reading = False

    def _handle_frames(self, frame: memoryview | None) -> None:
        """Handle this frame and those buffered behind it, until one has to wait."""
        self._is_handling = True
        left = MAX_FRAMES
        try:
            while frame is not None:
                self._state = _BUSY
                self.frame_count += 1
                self._handler.handle_frame(self, frame)
                if self._state is not _READING or not self._reader.left:
                    return
                left -= 1
                if not left or self._queue.size_bytes > MAX_UNSENT_BYTES:
                    self._process_soon()
                    return
                frame = self._reader.next_frame()
        except OttlaError as error:
            self._close_invalid(error)
        finally:
            self._is_handling = False

    def _close_invalid(self, error: OttlaError) -> None:
        """Close a connection whose bytes are no frames."""
        extra = {"event": "frame.invalid", "client": self.peer_host}
        log.info("closing: %s", error, extra=extra)
        self.finish()

    def _receive_whole(self) -> memoryview | None:
        """Receive between frames: most often one whole frame, of which only the size is checked."""
        scratch, reader = self._window.view, self._reader
        count = self._socket.recv_into(scratch)
        size = count - _SIZE_BYTES
        if 0 <= size <= reader.max_bytes and _from_bytes(scratch[:_SIZE_BYTES]) == size:
            return memoryview(bytearray(scratch[_SIZE_BYTES:count]))
        if count:
            return reader.take(scratch[:count])
        self.finish()
        return None

    def _receive(self) -> memoryview | None:
        space = self._reader.space()
        if space is NO_ROOM:
            self._stop_reading()
            return None
        if space is not None:
            count = self._socket.recv_into(space)
            frame = self._reader.advance(count) if count else None
        else:
            scratch = self._window.view
            count = self._socket.recv_into(scratch)
            frame = self._reader.take(scratch[:count]) if count else None
        if not count:
            self.finish()
        return frame

    def respond(self, items: Sequence[SendItem]) -> None:
        """Send the answer of the request in work and process the next one."""
        if self.is_closed:
            return
        try:
            gathered = gather(items)
        except OSError:
            self.close()
            return
        if len(gathered) == 1 and type(gathered[0]) is bytes:
            self.respond_bytes(gathered[0])
        elif self._queued(gathered):
            self.request_done()

    def respond_bytes(self, data: bytes) -> None:
        """Respond in one piece, which a socket most often takes whole."""
        if self.is_closed:
            return
        try:
            sent = 0 if self._queue.items else self._socket.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            self.close()
            return
        if sent == len(data) or self._queued((memoryview(data)[sent:],)):
            self.request_done()

    def _queued(self, items: Sequence[SendItem]) -> bool:
        """Queue items and send what the socket takes; False when the connection is broken."""
        try:
            self._queue.add(items)
            self._flush()
        except OSError:
            self.close()
            return False
        return True

    def respond_and_mute(self, items: Sequence[SendItem], throttle_time_ms: int) -> None:
        """Send the answer at once, and mute the connection for a while (KIP-219)."""
        if not self.is_closed and self._queued(items):
            self.mute(throttle_time_ms)

    def mute(self, throttle_time_ms: int) -> None:
        """End the request in work, and process the next one only after a while."""
        if throttle_time_ms and not self.is_closed:
            self._muting = self._loop.call_later(throttle_time_ms / 1000, self._rested)
            if self._state is _BUSY:
                self._state = _MUTED
        else:
            self.request_done()

    def _rested(self) -> None:
        self._muting = None
        self.last_active_ms = -1  # what it sent meanwhile could not arrive: time counts from now
        self.request_done()

    def request_done(self) -> None:
        """Process the next request; called by the handler itself where there is no answer."""
        if self._state is _BUSY or self._state is _MUTED:
            self._state = _READING
        if not self._is_handling:
            self._process_soon()

    def _process_soon(self) -> None:
        """Go on with what was read, or read; when there is room for answers again at the latest."""
        if not self._may_process:
            return
        if self._reader.left:
            self._state = _RESUMING
            self._loop.call_soon(self._resume)
        else:
            self._read_again()

    def _resume(self) -> None:
        if self._state is not _RESUMING:
            return
        self._state = _READING
        try:
            frame = self._reader.next_frame()
        except OttlaError as error:
            self._close_invalid(error)
            return
        self._handle_frames(frame)
        self._read_again()

    def _read_again(self) -> None:
        if self._is_reading or not self._may_process:
            return
        self._loop.add_reader(self._fd, self._on_readable)
        self._is_reading = True

    def _flush(self) -> None:
        if self._queue.flush(self._socket):
            if self._is_writing:
                self._loop.remove_writer(self._fd)
                self._is_writing = False
        else:
            self._await_room()

    def _await_room(self) -> None:
        if not self._is_writing:
            self._loop.add_writer(self._fd, self._on_writable)
            self._is_writing = True

    def _on_writable(self) -> None:
        try:
            self._flush()
        except OSError:
            self.close()
            return
        if self._state is _ENDING and not self._queue.items:
            self.close()
        self._process_soon()

    def finish(self) -> None:
        """Process no further requests, and close when the answers so far are sent."""
        if self._queue.items and not self.is_closed:
            self._state = _ENDING
            self._reader.left = b""
            self._reader.release()
            self._stop_reading()
        else:
            self.close()

    def close(self) -> None:
        """Close at once; what was not sent is dropped."""
        if self.is_closed:
            return
        self.is_closed, self._state = True, _CLOSED
        self._reader.release()
        self._queue.clear()
        if self._muting is not None:
            self._muting.cancel()
        self._loop.remove_reader(self._fd)
        if self._is_writing:
            self._loop.remove_writer(self._fd)
        self._socket.close()
        self._handler.connection_closed(self)
