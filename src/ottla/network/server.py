"""Listening sockets on the node's loop.

Kafka: org.apache.kafka.network.SocketServer, Acceptor.
"""

from __future__ import annotations

import errno
import logging
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Protocol

from ottla.network.connection import Connection
from ottla.network.limits import UNLIMITED, ConnectionQuota, ReceiveWindow
from ottla.network.sockets import configure_accepted
from ottla.network.tls import Handshake, TlsConnection

if TYPE_CHECKING:
    import asyncio
    import socket
    import ssl
    from collections.abc import Callable, Collection, Iterable

    from ottla.network.connection import RequestHandler
    from ottla.network.limits import ConnectionPace, FrameBudget

log = logging.getLogger("ottla.network")
SCRATCH_BYTES = 256 * 1024
_ACCEPTS_A_TURN = 64
_OUT_OF_DESCRIPTORS = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_RETRY_ACCEPT_S = 0.1


class ListenerSecurity(Handshake, Protocol):
    """Secures the new connections of a listener: TLS and login."""

    def context(self) -> ssl.SSLContext | None:
        """Return the context that encrypts new connections, None for no encryption."""

    def expires_s(self) -> float | None:
        """Return when the certificate expires, in seconds since 1970; None without TLS."""

    def accepted(self, connection: Connection, listener: Listener) -> None:
        """Install the login as the handler of the connection's frames."""


class Listener:
    """One bound address; accepts connections and gives their frames to a handler."""

    def __init__(  # noqa: PLR0913 - the parts that a node's listeners share
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        handler: RequestHandler,
        *,
        name: str,
        max_frame_bytes: int,
        scratch: bytearray,
        quota: ConnectionQuota | None = None,
        budget: FrameBudget | None = None,
        pace: ConnectionPace | None = None,
        security: ListenerSecurity | None = None,
        is_protected: bool = False,
    ) -> None:
        """Own a listening socket; scratch buffer, quota and budget are shared by the node.

        pace limits the rate of new connections; None is no limit. security secures them, None for
        PLAINTEXT. A protected listener, that of other nodes, accepts when the quota is used up.
        """
        self.is_protected = is_protected
        self.name = name
        self.port = int(sock.getsockname()[1])
        self._quota = quota or ConnectionQuota()
        self._budget = budget
        self.connections: dict[Connection, None] = {}
        """In the order in which they were accepted."""
        self.max_connections = UNLIMITED
        """Limit of this listener, in addition to the node's."""
        self._loop = loop
        self._handler = handler
        self.handle_frame = handler.handle_frame  # bound once: saves a call per frame
        self.max_frame_bytes = max_frame_bytes
        self._window = ReceiveWindow(scratch) if budget is None else budget.window(scratch)
        self._socket: socket.socket | None = sock
        """None after `stop_accepting`."""
        self._count = 0
        self._pace = pace
        self._security = security
        self._held: dict[socket.socket, None] = {}

    @property
    def certificate_expires_s(self) -> float | None:
        """When its certificate expires, in seconds since 1970; None without TLS."""
        return None if self._security is None else self._security.expires_s()

    @property
    def accepted_count(self) -> int:
        """Connections accepted so far."""
        return self._count

    def serve(self, handler: RequestHandler) -> None:
        """Replace the handler of frames, also for open connections."""
        self._handler = handler
        self.handle_frame = handler.handle_frame

    def start(self) -> None:
        """Begin to accept."""
        assert self._socket is not None, "a closed listener cannot accept"
        self._loop.add_reader(self._socket.fileno(), self._accept)

    def _accept(self) -> None:
        assert self._socket is not None
        for _ in range(_ACCEPTS_A_TURN):
            is_full = not self._quota.has_room() and not self.is_protected
            if is_full or len(self.connections) >= self.max_connections:
                self._wait_for_room()
                return
            try:
                sock, peer = self._socket.accept()
            except BlockingIOError:
                return
            except OSError as error:
                self._accept_failed(error)
                return
            host = peer[0]  # IPv4-mapped addresses count as IPv4, as the JVM reports them
            mapped = host.removeprefix("::ffff:")
            address = (mapped if "." in mapped else host), peer[1]
            if self._pace is None:
                self._add(sock, address)
            elif self._has_to_wait(sock, address, self._pace):
                return

    def _has_to_wait(
        self, sock: socket.socket, address: tuple[str, int], pace: ConnectionPace
    ) -> bool:
        """Add a connection unless the rate is exceeded; return whether accepting must pause."""
        wait_ms = pace.wait_ms(self.name, self._now_ms())
        if not wait_ms:
            self._add_unless_refused(sock, address, pace)
            return False
        assert self._socket is not None
        self._loop.remove_reader(self._socket.fileno())
        self._held[sock] = None
        self._loop.call_later(wait_ms / 1000, self._waited, sock, address, pace)
        return True

    def _waited(self, sock: socket.socket, address: tuple[str, int], pace: ConnectionPace) -> None:
        if sock in self._held:
            del self._held[sock]
            self._add_unless_refused(sock, address, pace)
            self._accept_again()

    def _add_unless_refused(
        self, sock: socket.socket, address: tuple[str, int], pace: ConnectionPace
    ) -> None:
        """Add a connection, or hold a refused one open unread to delay the client's next try."""
        refuse_ms = pace.refuse_ms(address[0], self._now_ms())
        if refuse_ms:
            extra = {"event": "connection.refused", "client": address[0]}
            log.info("connection refused: connection_creation_rate is exceeded", extra=extra)
            self._held[sock] = None
            self._loop.call_later(refuse_ms / 1000, self._drop, sock)
        else:
            self._add(sock, address)

    def _drop(self, sock: socket.socket) -> None:
        self._held.pop(sock, None)
        sock.close()

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)

    def _wait_for_room(self) -> None:
        """Leave new connections in the backlog until a connection ends."""
        assert self._socket is not None
        log.warning(
            "%d connections are open, and no more are accepted until one ends; raise "
            "max.connections and the limit on open files (ulimit -n), or find the client that "
            "does not close its connections",
            self._quota.count,
            extra={"event": "accept.full", "client": "any"},
        )
        self._loop.remove_reader(self._socket.fileno())
        self._quota.when_room(self._accept_again)

    def _accept_failed(self, error: OSError) -> None:
        """Pause when descriptors are exhausted; the peer stays in the backlog."""
        if error.errno not in _OUT_OF_DESCRIPTORS or self._socket is None:
            return
        extra = {"event": "accept.failed", "client": "any"}
        text = "cannot accept connections: %s; raise the limit on open files (ulimit -n)"
        log.warning(text, error, extra=extra)
        self._loop.remove_reader(self._socket.fileno())
        self._loop.call_later(_RETRY_ACCEPT_S, self._accept_again)

    def _accept_again(self) -> None:
        if self._socket is not None:
            self.start()

    def _add(self, sock: socket.socket, address: tuple[str, int]) -> None:
        if self.is_protected:
            self._quota.make_room()
        if not self._quota.admit(address[0]):
            extra = {"event": "connection.refused", "client": address[0]}
            text = "connection refused: the address has reached max.connections.per.ip"
            log.info(text, extra=extra)
            sock.close()
            return
        try:
            connection = self._make_connection(sock, address)
        except OSError:  # the client has reset it
            sock.close()
            self._quota.release(address[0])
            return
        self.connections[connection] = None
        if self._security is not None:
            self._security.accepted(connection, self)

    def _make_connection(self, sock: socket.socket, address: tuple[str, int]) -> Connection:
        configure_accepted(sock)
        self._count += 1
        local = sock.getsockname()
        security = self._security
        context = None if security is None else security.context()
        kind: Callable[..., Connection] = Connection
        if security is not None and context is not None:
            sock.getpeername()  # fails here after a reset: `wrap_socket` would leave a socket open
            kind = partial(TlsConnection, context=context, handshake=security)
        return kind(
            self._loop,
            sock,
            self,
            window=self._window,
            max_frame_bytes=self.max_frame_bytes,
            budget=self._budget,
            connection_id=f"{local[0]}:{local[1]}-{address[0]}:{address[1]}-0-{self._count}",
            listener_name=self.name,
            peer_host=address[0],
        )

    def sweep(self, now_ms: int, max_idle_ms: int) -> int:
        """Close connections that are idle or send too slowly; return how many.

        One call every few seconds replaces a timer per connection; max_idle_ms < 0 is no limit.
        """
        overdue = [
            connection
            for connection in self.connections
            if connection.is_overdue(now_ms, max_idle_ms)
        ]
        for connection in overdue:
            extra = {"event": "connection.overdue", "client": connection.peer_host}
            log.info("connection closed: it was idle or sent too slowly", extra=extra)
            connection.close()
        return len(overdue)

    def limit(self, max_connections: int) -> None:
        """Apply a changed limit: the connections that are idle longest are closed."""
        self.max_connections = max_connections
        close_excess(self.connections, max_connections)

    def connection_closed(self, connection: Connection) -> None:
        """Forget a connection."""
        self.connections.pop(connection, None)
        self._quota.release(connection.peer_host)
        self._handler.connection_closed(connection)

    def stop_accepting(self) -> None:
        """Close the listening socket; connections stay."""
        if self._socket is not None:
            self._loop.remove_reader(self._socket.fileno())
            self._socket.close()
            self._socket = None
        for sock in self._held:
            sock.close()
        self._held.clear()

    def close(self) -> None:
        """Stop accepting and close all connections."""
        self.stop_accepting()
        for connection in tuple(self.connections):
            connection.close()


def close_idlest(listeners: Iterable[Listener]) -> None:
    """Close the connection that is idle longest, if there is any."""
    idlest = min(
        (connection for listener in listeners for connection in listener.connections),
        key=_last_active_ms,
        default=None,
    )
    if idlest is not None:
        idlest.close()


def close_excess(connections: Collection[Connection], max_connections: int) -> None:
    """Close the connections that are idle longest, as Kafka does, down to the limit."""
    excess = len(connections) - max_connections
    if excess > 0:
        for connection in sorted(connections, key=_last_active_ms)[:excess]:
            connection.close()


def _last_active_ms(connection: Connection) -> float:
    """Return the time of its last activity; connections not yet swept are the newest."""
    return connection.last_active_ms if connection.last_active_ms >= 0 else inf
