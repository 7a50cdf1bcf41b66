"""The cost of requests of clients with quotas, and the throttle time that follows from it.

A response is sent at once and contains the throttle time; the connection is muted for this time, so
the next request of a client that does not wait is read late.

Kafka: KafkaApis with ClientQuotaManager.throttle, RequestHandlerHelper (KIP-13, KIP-124, KIP-219).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

from ottla.protocol import codec
from ottla.protocol.api_keys import ApiKey, response_header_version
from ottla.protocol.fetch_values import FetchAnswer, FetchValues

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ottla.quota.meters import Limited
    from ottla.server.requests.context import Context
    from ottla.types import SendItem

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

    def answer(self, ctx: Context, response: Any) -> None:
        """Record the cost, send the response and mute the connection where it exceeds a quota."""
        if not self._handled_s:
            self.handled()  # the handler raised
        now_ms = ctx.broker.clock.monotonic_ms()
        if ctx.connection.is_closed:
            self._record_unanswered(ctx, response, now_ms)
        elif ctx.api_key == _PRODUCE:
            self._answer_produce(ctx, response, now_ms)
        elif response is None:
            ctx.connection.request_done()
        elif self._fetch is not None:
            self._answer_fetch(ctx, self._fetch, response, now_ms)
        else:
            throttle_ms = self._record_time(ctx, now_ms) if ctx.api.is_throttled else 0
            throttle_ms = max(throttle_ms, getattr(response, "throttle_time_ms", 0))
            self._send(ctx, self._frame(ctx, response, throttle_ms), throttle_ms, now_ms)

    def _record_unanswered(self, ctx: Context, response: Any, now_ms: int) -> None:
        """Record the cost of a client that disconnected before its response."""
        is_produce = ctx.api_key == _PRODUCE
        if is_produce:
            ctx.broker.quotas.produced.record(ctx.user, ctx.client_id, self._request_bytes, now_ms)
        if ctx.api.is_throttled and not (is_produce and response is None):
            self._record_time(ctx, now_ms)

    def _answer_produce(self, ctx: Context, response: Any, now_ms: int) -> None:
        """Record the request's bytes; without a response (acks=0) its time is not counted."""
        throttle_ms = ctx.broker.quotas.produced.record(
            ctx.user, ctx.client_id, self._request_bytes, now_ms
        )
        if response is None:
            ctx.connection.mute(throttle_ms)
            return
        time_throttle_ms = self._record_time(ctx, now_ms)
        throttle_ms = max(throttle_ms, time_throttle_ms)
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
