"""Connections of a session's clients to one side.

Kafka: none.
"""

from __future__ import annotations

import socket
import time
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Any

from ottla.protocol import codec, frames
from ottla.protocol.api_keys import ApiKey, request_class, response_class, response_header_version
from ottla.protocol.apis.api_versions import ApiVersionsRequest
from ottla.protocol.frames import ResponseHeader
from ottla.types import FileSlice
from tests.conformance.differential.case import build
from tests.conformance.differential.side import CLOSED

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.protocol.schema import Request
    from tests.conformance.sessions.steps import Step

_CORRELATION_ID = 7


class Link:
    """One connection; opened again after it was closed."""

    def __init__(self, port: int, client_id: str) -> None:
        self._port = port
        self._client_id = client_id
        self._socket: socket.socket | None = None
        self._expected: Step | None = None

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        if self._socket is not None:
            self._socket.close()
        self._socket = None

    def send(self, step: Step, fields: dict[str, Any]) -> None:
        """Send the request of a step."""
        request: Request = build(request_class(step.key), step.version, fields)
        parts = frames.encode_request(request, step.version, _CORRELATION_ID, self._client_id)
        self._expected = step
        self._write(b"".join(part for part in parts if not isinstance(part, FileSlice)))

    def send_probe(self, step: Step) -> None:
        """Send a request that is answered in order, after one that has no answer."""
        parts = frames.encode_request(ApiVersionsRequest(), 0, _CORRELATION_ID, self._client_id)
        self._expected = type(step)(step.number, step.client, ApiKey.API_VERSIONS, 0, {})
        self._write(b"".join(part for part in parts if not isinstance(part, FileSlice)))

    def _write(self, frame: bytes) -> None:
        if self._socket is None:
            self._socket = socket.create_connection(("127.0.0.1", self._port), 60)
        try:
            self._socket.sendall(frame)
        except ConnectionError:
            self.close()  # `receive` answers that it is closed

    def fileno(self) -> int:
        """Return the socket's descriptor, for select."""
        assert self._socket is not None
        return self._socket.fileno()

    @property
    def is_open(self) -> bool:
        """Whether there is a connection."""
        return self._socket is not None

    def receive(self) -> Any:
        """Return the answer to the last request, or CLOSED."""
        assert self._expected is not None
        if self._socket is None:
            return CLOSED
        key, version = self._expected.key, self._expected.version
        try:
            self._socket.settimeout(60)
            size = int.from_bytes(_read(self._socket, 4), "big")
            view = memoryview(_read(self._socket, size))
        except (EOFError, ConnectionError):
            self.close()
            return CLOSED
        header = response_header_version(key, version)
        position = codec.decode_at(ResponseHeader, header, view)[1]
        response, position = codec.decode_at(response_class(key), version, view, position)
        assert position == len(view), f"{key.name} v{version}: bytes are left over"
        return response


def wait_for(links: Iterable[Link], timeout_s: float, *, for_all: bool) -> bool:
    """Wait until one or all of the links have something to read; closed ones have."""
    waiting = [link for link in links if link.is_open]
    deadline = time.monotonic() + timeout_s
    found = False
    while waiting:
        left_s = max(0.0, deadline - time.monotonic())
        ready = wait([link.fileno() for link in waiting], left_s)
        found = found or bool(ready)
        waiting = [link for link in waiting if link.fileno() not in ready]
        if not for_all and found:
            return True
        if not ready:
            return False
    return True


def _read(connection: socket.socket, size: int) -> bytes:
    parts = []
    while size:
        part = connection.recv(size)
        if not part:
            raise EOFError
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
