"""A follower's Fetch on the connection to its leader.

Kafka: kafka.server.RemoteLeaderEndPoint.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.network.request_channel import FlatRequest
from ottla.protocol.apis.fetch import FetchRequest
from ottla.protocol.follower_fetch import (
    LOWEST_VERSION,
    read_fetch_response,
    write_fetch_request,
)
from ottla.protocol.versions import Versions

if TYPE_CHECKING:
    from ottla.protocol.fetch_values import FetchAnswer, FetchValues


class FollowerFetch(FlatRequest):
    """The request, and how its response is read."""

    __slots__ = ("_values",)
    message_key = FetchRequest.message_key
    versions = Versions(LOWEST_VERSION, FetchRequest.versions.highest)

    def __init__(self, values: FetchValues) -> None:
        self._values = values

    def write(self, version: int, correlation_id: int, client_id: str) -> bytes:
        """Return the frame."""
        return write_fetch_request(self._values, correlation_id, client_id, version)

    def read_response(self, frame: memoryview, version: int) -> FetchAnswer:
        """Read a response."""
        return read_fetch_response(frame, version)
