"""The context of a request: what a handler knows about it.

Kafka: org.apache.kafka.common.requests.RequestContext.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.security.acl import OPERATIONS
from ottla.security.authorizer import log_further_denials
from ottla.server.controller.channel import Requester

if TYPE_CHECKING:
    from ottla.network.connection import Connection
    from ottla.protocol.request_header import Header
    from ottla.replication.partition import Partition
    from ottla.security.acl import ResourceType
    from ottla.security.principal import Principal
    from ottla.server.broker.broker import Broker
    from ottla.server.controller.channel import ControllerChannel, RequestGuard
    from ottla.server.requests.api import Api
    from ottla.server.requests.throttling import QuotaUse
    from ottla.types import Uuid


MAX_LOGGED_DENIALS: Final = 10
"""Of an operation on a type of resource, in one request: a line costs 25 µs, and a request may name
100,000 resources."""
_ALL: Final = {
    resource_type: sum(1 << operation for operation in possible)
    for resource_type, possible in OPERATIONS.items()
}


class Context:
    """One request: the broker that serves it, its API, its connection and its header."""

    __slots__ = (
        "_denials",
        "api",
        "api_key",
        "api_version",
        "broker",
        "client_id",
        "connection",
        "correlation_id",
        "guard",
        "listener",
        "now_ms",
        "quota_use",
        "started_s",
    )

    def __init__(
        self,
        broker: Broker,
        connection: Connection,
        listener: str,
        api: Api,
        header: Header,
    ) -> None:
        """Take the header as `protocol.request_header.split_header` returns it."""
        self.broker = broker
        self.connection = connection
        self.listener = listener
        self.api = api
        self.api_key, self.api_version, self.correlation_id, client_id, _ = header
        self.client_id = client_id or ""
        self.now_ms = broker.clock.now_ms()
        self._denials: dict[tuple[int, int], int] | None = None
        """How often each operation on a type of resource was denied."""
        self.quota_use: QuotaUse | None = None
        """The cost of the request, where a quota limits its client."""
        self.guard: RequestGuard | None = None
        """Checks the rights to a forwarded request if this node decides it."""
        self.started_s = 0.0
        """When handling began, where requests are timed."""

    @property
    def principal(self) -> Principal:
        """Who sent the request."""
        return self.connection.principal

    @property
    def user(self) -> str:
        """The principal's name, as quotas know it."""
        return self.principal.name

    @property
    def client(self) -> str:
        """The peer's address, as log lines name a client: its client id proves nothing."""
        return self.connection.peer_host

    @property
    def client_host(self) -> str:
        """The peer's address as Kafka shows it in group descriptions."""
        return f"/{self.connection.peer_host}"

    @property
    def listener_name(self) -> str:
        """The listener on which the request came."""
        return self.connection.listener_name

    @property
    def is_forwarded(self) -> bool:
        """Whether a broker forwarded the request in an envelope."""
        return False

    @property
    def controller(self) -> ControllerChannel:
        """The active controller, or on a controller's listener this node's own."""
        broker = self.broker
        return broker.own_controller if self.listener == "controller" else broker.controller

    def authorize(self, operation: int, resource_type: int, name: str) -> bool:
        """Whether the client may do an operation; without an authorizer everyone may."""
        authorizer = self.broker.authorizer
        if authorizer is None:
            return True
        kind = operation, resource_type
        count = 0 if self._denials is None else self._denials.get(kind, 0)
        if authorizer.authorize(
            self.principal,
            self.client,
            operation,
            resource_type,
            name,
            request=self.api_key,
            is_logged=count < MAX_LOGGED_DENIALS,
        ):
            return True
        if self._denials is None:
            self._denials = {}
        self._denials[kind] = count + 1
        if count + 1 == MAX_LOGGED_DENIALS:
            log_further_denials(self.principal, self.client, kind, self.api_key)
        return False

    def is_allowed(self, operation: int, resource_type: int, name: str) -> bool:
        """Whether the client may do what its request did not ask for: a denial is not audited.

        So for one of several sufficient rights, and for each resource of a list of all.
        """
        authorizer = self.broker.authorizer
        return authorizer is None or authorizer.authorize(
            self.principal, self.client, operation, resource_type, name, is_audited=False
        )

    def authorize_any(self, operation: int, resource_type: int) -> bool:
        """Whether the client may do an operation on at least one resource of a kind."""
        authorizer = self.broker.authorizer
        return authorizer is None or authorizer.authorize_any(
            self.principal, self.client, operation, resource_type
        )

    def operations(self, resource_type: ResourceType, name: str) -> int:
        """Return the operations that the client may do with a resource, as bits (KIP-430)."""
        if self.broker.authorizer is None:
            return _ALL[resource_type]
        may, who, host = self.broker.authorizer.decide, str(self.principal), self.client
        return sum(
            1 << operation
            for operation in OPERATIONS[resource_type]
            if may(who, host, operation, resource_type, name).is_allowed
        )

    def current_leader(
        self, topic: str | Uuid, index: int, replica: Partition | None
    ) -> tuple[int, int] | None:
        """Return id and epoch of a leader, for clients with stale metadata (KIP-951).

        As this broker's replica knows it, else the metadata. The id is -1 where a partition has no
        leader; None where no leader is known. Kafka: KafkaApis.getCurrentLeader.
        """
        if replica is not None:
            return replica.leader_id, replica.leader_epoch
        topics = self.broker.image.topics
        known = topics.by_name.get(topic) if isinstance(topic, str) else topics.by_id.get(topic)
        partition = None if known is None else known.partitions.get(index)
        return None if partition is None else (partition.leader, partition.leader_epoch)

    def requester(self) -> Requester:
        """Return the client as the controller needs it.

        Topic changes over the mutation quota are throttled in the versions of old clients, and
        refused in others (KIP-599).
        """
        is_strict = self.api_version >= self.api.refused_over_quota_from
        return Requester(
            self.principal, self.client_id, is_strict, self.api_version, self.client, self.guard
        )
