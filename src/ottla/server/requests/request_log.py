"""Log lines of all requests, on demand: API, version, client and size, never the content.

Kafka: kafka.network.RequestChannel's request log (kafka.request.logger).

A listener has this handler before its dispatcher only while `ottla.requests` has level DEBUG: at
other levels requests cost nothing more.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ottla.errors import KafkaError
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.request_header import split_header
from ottla.server.requests.api import served_apis

if TYPE_CHECKING:
    from ottla.network.connection import Connection, RequestHandler

log = logging.getLogger("ottla.requests")


def requests_are_logged() -> bool:
    """Whether the level of the logger enables a line for each request."""
    return log.isEnabledFor(logging.DEBUG)


class RequestLog:
    """Writes a line for each frame and passes it on."""

    def __init__(self, handler: RequestHandler, listener: str) -> None:
        self._handler = handler
        self._names = {key: ApiKey(key).name for key in served_apis(listener)}
        self.connection_closed = handler.connection_closed

    def handle_frame(self, connection: Connection, frame: memoryview) -> None:
        """Write the line of one request."""
        try:
            key, version, correlation_id, client_id, _ = split_header(frame)
        except KafkaError:
            pass  # the dispatcher reports it
        else:
            log.debug(
                "%s version %d, %d bytes",
                self._names.get(key, key),
                version,
                len(frame),
                extra={
                    "event": "request",
                    "correlation_id": correlation_id,
                    "client_id": client_id,
                    "connection": connection.connection_id,
                },
            )
        self._handler.handle_frame(connection, frame)
