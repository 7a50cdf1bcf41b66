"""A connection over TLS: the same frames, over OpenSSL in place of the socket.

The socket stays non-blocking and its bytes go from OpenSSL into the frame's own buffer; a file
slice is read in pieces and encrypted from there. The handshake runs in a worker, because its
signature takes a millisecond.

Kafka: org.apache.kafka.common.network.SslTransportLayer. Hot path: benchmarks/network.py.
"""

from __future__ import annotations

import logging
import ssl
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from ottla.network.connection import Connection
from ottla.network.framing import SendQueue
from ottla.network.limits import FRAME_GRACE_MS
from ottla.types import FileSlice

if TYPE_CHECKING:
    import asyncio
    import socket
    from collections.abc import Callable

    from ottla.network.connection import RequestHandler
    from ottla.network.limits import FrameBudget, ReceiveWindow
    from ottla.types import Buffer

log = logging.getLogger("ottla.network")
CHUNK_BYTES: Final = 128 * 1024
"""Encrypted with one call, and read from a file at once."""
_NO_TLS: Final = frozenset({"HTTP_REQUEST", "WRONG_VERSION_NUMBER", "HTTPS_PROXY_REQUEST"})
_ALERT: Final = bytes.fromhex("15030300020250")
"""The alert internal_error, as Java sends it to who does not speak TLS; OpenSSL then sends none."""
_WAITS = (ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Handshake(Protocol):
    """Runs handshakes, and takes connections when theirs is done."""

    def run(self, job: Callable[[], Any], done: Callable[[Any, Exception | None], None]) -> None:
        """Run one step in a worker, then done(result, error) on the loop."""

    def secured(self, connection: TlsConnection, tls: ssl.SSLSocket) -> None:
        """Handle that a connection is encrypted; KafkaError refuses it."""


class TlsSocket:
    """The calls of a socket that a connection needs, over TLS."""

    __slots__ = ("_closes", "has_pending", "is_in_worker", "tls")

    def __init__(self, sock: socket.socket, context: ssl.SSLContext) -> None:
        self.tls = context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
        self.has_pending = False
        """Whether decrypted bytes are left, of which the system does not notify."""
        self.is_in_worker = False
        """A worker uses the descriptor: closed now, its number could go to another connection."""
        self._closes = False

    def fileno(self) -> int:
        """Return the descriptor."""
        return self.tls.fileno()

    def setsockopt(self, *option: Any) -> None:
        """Set an option of the socket."""
        self.tls.setsockopt(*option)

    def recv_into(self, buffer: memoryview) -> int:
        """Fill a buffer as far as possible; BlockingIOError without a byte, OSError at an error."""
        view = memoryview(buffer)
        filled, size = 0, len(view)
        self.has_pending = False
        tls = self.tls
        try:
            while filled < size:
                count = tls.recv_into(view[filled:])
                if not count:
                    break
                filled += count
        except _WAITS:
            if not filled:
                raise BlockingIOError from None
        except OSError:
            if not filled:
                raise
        else:
            self.has_pending = filled == size and tls.pending() > 0
        return filled

    def send(self, data: Buffer) -> int:
        """Encrypt and send the first part of data; the same data must come again after a wait."""
        try:
            return self.tls.send(memoryview(data)[:CHUNK_BYTES])
        except _WAITS:
            raise BlockingIOError from None

    def refuse_plain(self) -> None:
        """Send an alert to a client that does not speak TLS, so that it can name the cause."""
        plain: Any = super(ssl.SSLSocket, self.tls)  # the calls without TLS
        with suppress(OSError):
            plain.send(_ALERT)
            # what is left unread would reset the connection, and the alert be lost
            plain.recv(CHUNK_BYTES)

    def finish_worker(self) -> None:
        """Note that the worker is done; close now if that was requested meanwhile."""
        self.is_in_worker = False
        if self._closes:
            self.close()

    def close(self) -> None:
        """Announce the end and close."""
        if self.is_in_worker:
            self._closes = True
            return
        with suppress(OSError, ValueError):
            self.tls.unwrap()
        self.tls.close()


class TlsSendQueue(SendQueue):
    """Sends file slices through OpenSSL: piece by piece, each in a buffer of its own."""

    __slots__ = ()

    def _send_slice(self, sock: socket.socket, part: FileSlice) -> None:
        file, position, size = part
        count = min(size, CHUNK_BYTES)
        data = file.read(position, count)
        if len(data) != count:
            raise OSError("a log file ended before the slice to be sent")
        self.items[0] = data
        if count < size:
            self.items.insert(1, FileSlice(file, position + count, size - count))
        else:
            file.unpin()
        self._send_buffer(sock, data)


class TlsConnection(Connection):
    """A connection that begins with a handshake."""

    __slots__ = ("_handshake", "_is_secured", "_limit", "_tls")

    def __init__(  # noqa: PLR0913 - as its base
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        handler: RequestHandler,
        *,
        context: ssl.SSLContext,
        handshake: Handshake,
        window: ReceiveWindow,
        max_frame_bytes: int,
        budget: FrameBudget | None,
        connection_id: str,
        listener_name: str,
        peer_host: str,
    ) -> None:
        self._tls = TlsSocket(sock, context)
        self._handshake = handshake
        self._is_secured = False
        super().__init__(
            loop,
            cast("socket.socket", self._tls),
            handler,
            window=window,
            max_frame_bytes=max_frame_bytes,
            budget=budget,
            connection_id=connection_id,
            listener_name=listener_name,
            peer_host=peer_host,
        )
        self._queue = TlsSendQueue()
        self._limit: asyncio.TimerHandle | None = loop.call_later(
            FRAME_GRACE_MS / 1000, self._too_slow
        )

    def _too_slow(self) -> None:
        self._refuse("the handshake took too long")

    def _on_readable(self) -> None:
        if not self._is_secured:
            self._stop_reading()
            self._step()
            return
        super()._on_readable()
        while self._tls.has_pending and self._is_reading and self._may_process:
            super()._on_readable()

    def _read_again(self) -> None:
        if not self._is_secured:
            return
        super()._read_again()
        if self._tls.has_pending and self._is_reading and self._may_process:
            self._loop.call_soon(self._read_pending)

    def _read_pending(self) -> None:
        if self._tls.has_pending and not self.is_closed:
            self._on_readable()

    # The handshake

    def _step(self) -> None:
        """Let a worker take the next step."""
        if self.is_closed:
            return
        self._tls.is_in_worker = True
        self._handshake.run(self._tls.tls.do_handshake, self._stepped)

    def _stepped(self, _result: Any, error: Exception | None) -> None:
        self._tls.finish_worker()
        if self.is_closed:
            return
        if error is None:
            self._secured()
        elif isinstance(error, ssl.SSLWantReadError):
            self._loop.add_reader(self._fd, self._on_readable)
            self._is_reading = True
        elif isinstance(error, ssl.SSLWantWriteError):
            self._loop.add_writer(self._fd, self._on_room)
            self._is_writing = True
        else:
            if isinstance(error, ssl.SSLError) and error.reason in _NO_TLS:
                self._tls.refuse_plain()
            self._refuse(_reason(error))

    def _on_room(self) -> None:
        self._loop.remove_writer(self._fd)
        self._is_writing = False
        self._step()

    def _secured(self) -> None:
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None
        self._is_secured = True
        try:
            self._handshake.secured(self, self._tls.tls)
        except ValueError as error:
            self._refuse(str(error))
            return
        # frames may have come with the handshake's last message
        self._tls.has_pending = True
        self._read_again()

    def _refuse(self, reason: str) -> None:
        extra = {"event": "tls.failed", "client": self.peer_host}
        text = "failed TLS handshake on %s from %s: %s"
        log.info(text, self.listener_name, self.peer_host, reason, extra=extra)
        self.close()

    def close(self) -> None:
        """Close at once."""
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None
        super().close()


def _reason(error: Exception) -> str:
    """Return one line for the log."""
    if isinstance(error, ssl.SSLError):
        if error.reason in _NO_TLS:
            return "the client does not speak TLS; check its security.protocol and its port"
        return (error.reason or str(error)).lower().replace("_", " ")
    return str(error) or "the client closed the connection"
