"""A connection of the HTTP server, with limits on idle time and on the number of connections.

At the limit the connection that has been idle longest is closed, and no request is refused: clients
that only open connections must not make a probe fail, which would restart a healthy node.

Kafka: none; the JVM's exporters bring their own server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    import asyncio

REQUEST_LIMIT_S = 5.0
"""Time limit for a request to arrive, and for the first one of a connection to begin."""
CONNECTIONS_MAX = 64
_UNFINISHED = {h11.IDLE, h11.SEND_BODY, h11.ERROR}
"""States of the client before its request is complete."""


class HttpConnection(H11Protocol):
    """One connection, on the server's loop."""

    _since_s = 0.0
    """Start of its idle time, or of the response that is being written."""
    _request_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as theirs
        """Count the connection, close another one at the limit, and wait for a request."""
        super().connection_made(transport)
        self._since_s = self.loop.time()
        self._watch()
        if len(self.connections) > CONNECTIONS_MAX:
            self._make_room()

    def data_received(self, data: bytes) -> None:
        """Receive bytes; a request that began must be complete in time."""
        was_idle = self.is_idle
        super().data_received(data)
        if was_idle and not self.is_idle:
            self._since_s = self.loop.time()
        self._watch()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        self._since_s = self.loop.time()
        super().on_response_complete()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._forget_timer()
        super().connection_lost(exc)

    def end(self) -> None:
        """Close at once; the client may lose the end of an answer."""
        self._forget_timer()
        self.connections.discard(self)
        self.transport.abort()

    @property
    def is_idle(self) -> bool:
        """Whether no response is being written."""
        return self.cycle is None or self.cycle.response_complete

    def _watch(self) -> None:
        if self.conn.their_state not in _UNFINISHED:
            self._forget_timer()
        elif self._request_timer is None and self.timeout_keep_alive_task is None:
            # further bytes do not restart it: the limit is for the whole request
            self._request_timer = self.loop.call_later(REQUEST_LIMIT_S, self.end)

    def _forget_timer(self) -> None:
        if self._request_timer is not None:
            self._request_timer.cancel()
            self._request_timer = None

    def _make_room(self) -> None:
        """Close the connection that has been idle longest, else that with the oldest response."""
        others: list[Any] = [other for other in self.connections if other is not self]
        min(others, key=_order).end()


def _order(connection: HttpConnection) -> tuple[bool, float]:
    return not connection.is_idle, connection._since_s  # noqa: SLF001 - of the same module
