"""What a handler knows of a request, and what the quotas do to its response.

Kafka: org.apache.kafka.common.requests.RequestContext; KafkaApis with ClientQuotaManager.throttle,
RequestHandlerHelper (KIP-13, KIP-124, KIP-219).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ottla.protocol import codec
from ottla.protocol.api_keys import ApiKey, response_header_version
from ottla.protocol.fetch_values import FetchAnswer, FetchValues
from ottla.security.acl import OPERATIONS
from ottla.security.authorizer import log_further_denials
from ottla.server.controller.channel import Requester

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ottla.network.connection import Connection
    from ottla.protocol.request_header import Header
    from ottla.purgatory.work import Work
    from ottla.quota.meters import Limited
    from ottla.replication.partition import Partition
    from ottla.security.acl import ResourceType
    from ottla.security.principal import Principal
    from ottla.server.broker.broker import Broker
    from ottla.server.controller.channel import ControllerChannel, RequestGuard
    from ottla.server.requests.api import Api
    from ottla.types import SendItem, Uuid

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


T = TypeVar("T")
_PRODUCE: Final = int(ApiKey.PRODUCE)
_FETCH: Final = int(ApiKey.FETCH)
_PERCENT_PER_S: Final = 100.0
_FRAME_SIZE_BYTES: Final = 4


class QuotaUse:
    """The cost of one request, from its handler to its response."""

    __slots__ = ("_elapsed_s", "_fetch", "_handled_s", "_request_bytes", "_started_s", "_timed")

    def __init__(self, request_bytes: int, elapsed_s: Callable[[], float]) -> None:
        """Take the size of the request with its header, and the clock that measures work."""
        self._request_bytes = request_bytes
        self._elapsed_s = elapsed_s
        self._started_s = elapsed_s()
        self._handled_s = 0.0
        self._fetch: FetchValues | None = None
        """The request, where it is a consumer's fetch."""
        self._timed: Limited[Any] | None = None
        """The meter of the client's request time, if that is limited."""

    def begin(self, ctx: Context, request: Any) -> Any:
        """Return the request for the handler.

        A consumer's fetch is limited to the bytes that the quota allows an idle client at once:
        more would throttle it after each response.
        """
        if ctx.api_key != _FETCH or type(request) is not FetchValues or request.replica_id >= 0:
            return request
        broker = ctx.broker
        now_ms = broker.clock.monotonic_ms()
        max_bytes = broker.quotas.fetched.max_in_window(ctx.user, ctx.client_id, now_ms)
        max_bytes = int(min(request.max_bytes, broker.fetch_max_bytes, max_bytes))
        self._fetch = request._replace(max_bytes=max_bytes)
        return self._fetch

    def handled(self) -> None:
        """Note that the handler has returned."""
        self._handled_s = self._elapsed_s() - self._started_s

    def measured(self, handle: Callable[[], T]) -> T:
        """Handle a part of the request, and count its time as well."""
        begin_s = self._elapsed_s()
        try:
            return handle()
        finally:
            self._handled_s += self._elapsed_s() - begin_s

    def measured_work(self, work: Work[T]) -> Work[T]:
        """Do a work that only yields turns, and count the time of its steps as well."""
        while True:
            try:
                turn = self.measured(partial(next, work))
            except StopIteration as end:
                result: T = end.value
                return result
            yield turn

    def answer(self, ctx: Context, response: Any) -> None:
        """Record the cost, send the response and mute the connection where it exceeds a quota."""
        if not self._handled_s:
            self.handled()  # the handler raised
        now_ms = ctx.broker.clock.monotonic_ms()
        if ctx.connection.is_closed:
            is_produce = ctx.api_key == _PRODUCE
            if is_produce:
                ctx.broker.quotas.produced.record(
                    ctx.user, ctx.client_id, self._request_bytes, now_ms
                )
            if ctx.api.is_throttled and not (is_produce and response is None):
                self._record_time(ctx, now_ms)
        elif ctx.api_key == _PRODUCE:
            # record the request's bytes; without a response (acks=0) its time is not
            # counted
            throttle_ms = ctx.broker.quotas.produced.record(
                ctx.user, ctx.client_id, self._request_bytes, now_ms
            )
            if response is None:
                ctx.connection.mute(throttle_ms)
                return
            time_throttle_ms = self._record_time(ctx, now_ms)
            throttle_ms = max(throttle_ms, time_throttle_ms)
            self._send(ctx, self._frame(ctx, response, throttle_ms), throttle_ms, now_ms)
        elif response is None:
            ctx.connection.request_done()
        elif self._fetch is not None:
            self._answer_fetch(ctx, self._fetch, response, now_ms)
        else:
            throttle_ms = self._record_time(ctx, now_ms) if ctx.api.is_throttled else 0
            throttle_ms = max(throttle_ms, getattr(response, "throttle_time_ms", 0))
            self._send(ctx, self._frame(ctx, response, throttle_ms), throttle_ms, now_ms)

    def _answer_fetch(
        self, ctx: Context, request: FetchValues, response: FetchAnswer, now_ms: int
    ) -> None:
        """Record the response's bytes; over the quota, answer without records instead."""
        quota = ctx.broker.quotas.fetched
        frame = self._frame(ctx, response, 0)
        throttle_ms = self._record_time(ctx, now_ms)
        header_bytes = _FRAME_SIZE_BYTES + response_header_version(ctx.api_key, ctx.api_version)
        size = codec.records_size(list(frame)) - header_bytes
        throttle_ms = max(throttle_ms, quota.record(ctx.user, ctx.client_id, size, now_ms))
        if throttle_ms:
            quota.record_unthrottled(ctx.user, ctx.client_id, -size, now_ms)
            ctx.broker.fetch_sessions.take_back(request, response)
            for fetched in response.partitions:
                replica = ctx.broker.replicas.find_key(fetched.key)
                if replica is not None:
                    replica.bytes_out -= fetched.size_bytes
            is_incremental = request.session_epoch > 0 and not response.error_code
            empty = FetchAnswer(
                response.error_code, request.session_id if is_incremental else 0, ()
            )
            frame = self._frame(ctx, empty, throttle_ms)
        self._send(ctx, frame, throttle_ms, now_ms)

    def _record_time(self, ctx: Context, now_ms: int) -> int:
        requests = ctx.broker.quotas.requests
        timed = self._timed = requests.find(ctx.user, ctx.client_id, now_ms)
        if timed is None:
            return 0
        return requests.record_on(timed, self._handled_s * _PERCENT_PER_S, now_ms)

    @staticmethod
    def _frame(ctx: Context, response: Any, throttle_ms: int) -> bytes | Sequence[SendItem]:
        return ctx.api.form.write(response, ctx.correlation_id, ctx.api_version, throttle_ms)

    def _send(
        self, ctx: Context, frame: bytes | Sequence[SendItem], throttle_ms: int, now_ms: int
    ) -> None:
        """Send, and record the time of that as well: it can only throttle a later request."""
        timed = self._timed
        started_s = 0.0 if timed is None else self._elapsed_s()
        if throttle_ms:
            items: Any = (frame,) if type(frame) is bytes else frame
            ctx.connection.respond_and_mute(items, throttle_ms)
        elif type(frame) is bytes:
            ctx.connection.respond_bytes(frame)
        else:
            ctx.connection.respond(frame)  # type: ignore[arg-type] # items
        if timed is not None:
            sending_s = self._elapsed_s() - started_s
            timed.meter.record(sending_s * _PERCENT_PER_S, now_ms)
