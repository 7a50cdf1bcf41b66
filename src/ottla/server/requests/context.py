"""What a handler knows about the request at hand.

Kafka: org.apache.kafka.common.requests.RequestContext.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ottla.network.connection import Connection
    from ottla.server.broker.broker import Broker


ANONYMOUS: Final = "ANONYMOUS"
"""The principal's name where nobody logs in."""


class Context:
    """One request: the broker that serves it, its connection and its header."""

    __slots__ = (
        "api_key",
        "api_version",
        "broker",
        "client_id",
        "connection",
        "correlation_id",
        "listener",
        "now_ms",
    )

    correlation_id: int
    client_id: str

    def __init__(
        self, broker: Broker, connection: Connection, listener: str, api_key: int, api_version: int
    ) -> None:
        self.broker = broker
        self.connection = connection
        self.listener = listener
        self.api_key = api_key
        self.api_version = api_version
        self.now_ms = broker.clock.now_ms()

    @property
    def user(self) -> str:
        """The principal's name, as quotas know it: nobody logs in yet."""
        return ANONYMOUS

    @property
    def client(self) -> str:
        """The peer's address, as log lines name a client: what it calls itself proves nothing."""
        return self.connection.peer_host

    @property
    def client_host(self) -> str:
        """The peer's address as Kafka shows it in group descriptions."""
        return f"/{self.connection.peer_host}"

    @property
    def listener_name(self) -> str:
        """The listener on which the request came."""
        return self.connection.listener_name
