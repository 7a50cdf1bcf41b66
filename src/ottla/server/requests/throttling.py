"""Requests on a node where some client has a quota: measured, answered, and kept waiting.

Kafka: KafkaApis with ClientQuotaManager.throttle, RequestHandlerHelper (KIP-13, KIP-124, KIP-219).

An answer leaves at once and says for how long its connection is not heard; a client that does not
wait finds its next request read late.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from ottla.protocol import codec
from ottla.protocol.api_keys import ApiKey, response_header_version
from ottla.protocol.apis.fetch import FetchResponse
from ottla.purgatory.pending import Pending

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.protocol.apis.fetch import FetchRequest
    from ottla.protocol.schema import Request, Response
    from ottla.server.requests.context import Context
    from ottla.types import SendItem

    Encode = Callable[[Context, Response], list[SendItem] | None]

EXEMPT: Final = frozenset(
    {
        ApiKey.ALTER_PARTITION,
        ApiKey.BEGIN_QUORUM_EPOCH,
        ApiKey.END_QUORUM_EPOCH,
        ApiKey.ENVELOPE,
        ApiKey.FETCH_SNAPSHOT,
        ApiKey.VOTE,
        ApiKey.WRITE_TXN_MARKERS,
    }
)
"""What nodes ask each other: keeping that waiting would harm everybody."""
_PERCENT_PER_NS: Final = 100 / 1_000_000_000
_FRAME_SIZE_BYTES: Final = 4


class MeasuredRequest:
    """One request, from its handler to its answer."""

    __slots__ = (
        "_ctx",
        "_encode",
        "_handled_ns",
        "_now_ms",
        "_request",
        "_request_bytes",
        "_started_ns",
    )

    def __init__(self, ctx: Context, request: Request, request_bytes: int, encode: Encode) -> None:
        """Take a request and its size with header; encode returns None when it has hung up."""
        self._ctx = ctx
        self._request = request
        self._request_bytes = request_bytes
        self._encode = encode
        self._started_ns = 0
        self._handled_ns = 0
        self._now_ms = 0

    def handle(
        self,
        handler: Callable[[Context, Any], Any],
        on_error: Callable[[Context, Exception], Response | None],
    ) -> None:
        """Run the handler and answer, now or when it is done.

        on_error makes an answer of an exception, or hangs up and returns None.
        """
        ctx = self._ctx
        self._started_ns = time.perf_counter_ns()
        if self._is_consumers_fetch:
            self._limit_fetch()
        try:
            result = handler(ctx, self._request)
        except Exception as error:  # noqa: BLE001 - whatever a handler raises must be answered
            result = on_error(ctx, error)
        self._handled_ns = time.perf_counter_ns() - self._started_ns
        if type(result) is not Pending:
            self._answer(result)
            return
        result.on_done(
            lambda done: self._answer(
                done.value if done.error is None else on_error(ctx, done.error)
            )
        )

    @property
    def _is_consumers_fetch(self) -> bool:
        request: Any = self._request
        return (
            self._ctx.api_key == ApiKey.FETCH
            and request.replica_id < 0
            and request.replica_state.replica_id < 0
        )

    def _limit_fetch(self) -> None:
        """Read no more than an idle client may have at once, lest it wait for each answer."""
        ctx, request = self._ctx, self._request
        now_ms = ctx.broker.clock.monotonic_ms()
        max_bytes = ctx.broker.quotas.fetched.max_in_window(ctx.user, ctx.client_id, now_ms)
        fetch: FetchRequest = request  # type: ignore[assignment] # by its key
        fetch.max_bytes = int(min(fetch.max_bytes, ctx.broker.fetch_max_bytes, max_bytes))

    def _answer(self, response: Response | None) -> None:
        ctx = self._ctx
        self._now_ms = ctx.broker.clock.monotonic_ms()
        if ctx.connection.is_closed:
            self._count_unanswered(response)
        elif ctx.api_key == ApiKey.PRODUCE:
            self._answer_produce(response)
        elif response is None:
            ctx.connection.request_done()
        elif self._is_consumers_fetch:
            self._answer_fetch(response)
        else:
            pause_ms = 0 if ctx.api_key in EXEMPT else self._request_throttle_time_ms()
            self._send(response, max(pause_ms, getattr(response, "throttle_time_ms", 0)))

    def _count_unanswered(self, response: Response | None) -> None:
        """Count what a client has cost that went away before its answer: the quota is no less."""
        ctx = self._ctx
        is_produce = ctx.api_key == ApiKey.PRODUCE
        if is_produce:
            ctx.broker.quotas.produced.record(
                ctx.user, ctx.client_id, self._request_bytes, self._now_ms
            )
        if ctx.api_key not in EXEMPT and not (is_produce and response is None):
            self._request_throttle_time_ms()

    def _answer_produce(self, response: Response | None) -> None:
        """Count the request's bytes; without an answer (acks=0) its time is free."""
        ctx = self._ctx
        pause_ms = ctx.broker.quotas.produced.record(
            ctx.user, ctx.client_id, self._request_bytes, self._now_ms
        )
        if response is None:
            ctx.connection.rest(pause_ms)
        else:
            self._send(response, max(pause_ms, self._request_throttle_time_ms()))

    def _answer_fetch(self, response: Response) -> None:
        """Count the answer's bytes; when they are too many, answer with nothing instead."""
        ctx, quota = self._ctx, self._ctx.broker.quotas.fetched
        items = self._encode(ctx, response)
        if items is None:
            return
        pause_ms = self._request_throttle_time_ms()
        header_bytes = _FRAME_SIZE_BYTES + response_header_version(ctx.api_key, ctx.api_version)
        size = codec.records_size(items) - header_bytes
        pause_ms = max(pause_ms, quota.record(ctx.user, ctx.client_id, size, self._now_ms))
        if not pause_ms:
            self._send_items(items, 0)
            return
        quota.record_freely(ctx.user, ctx.client_id, -size, self._now_ms)
        self._send(self._empty_fetch(response), pause_ms)

    def _empty_fetch(self, unsent: Any) -> FetchResponse:
        request: Any = self._request
        self._ctx.broker.fetch_sessions.take_back(request, unsent)
        self._uncount(unsent)
        is_incremental = request.session_epoch > 0 and not unsent.error_code
        return FetchResponse(
            error_code=unsent.error_code,
            session_id=request.session_id if is_incremental else 0,
            responses=[],
        )

    def _uncount(self, unsent: FetchResponse) -> None:
        """Take back the bytes that the partitions have counted as sent."""
        replicas = self._ctx.broker.replicas
        for topic in unsent.responses:
            by_id = replicas.by_topic_id.get(topic.topic_id, {})
            for data in topic.partitions:
                index = data.partition_index
                partition = by_id.get(index) or replicas.find(topic.topic, index)
                if partition is not None and data.records:
                    partition.bytes_out -= codec.records_size(data.records)

    def _request_throttle_time_ms(self) -> int:
        ctx = self._ctx
        return ctx.broker.quotas.requests.record(
            ctx.user,
            ctx.client_id,
            self._handled_ns * _PERCENT_PER_NS,
            self._now_ms,
        )

    def _send(self, response: Response, pause_ms: int) -> None:
        if pause_ms and hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = pause_ms
        items = self._encode(self._ctx, response)
        if items is not None:
            self._send_items(items, pause_ms)

    def _send_items(self, items: list[SendItem], pause_ms: int) -> None:
        """Send, and count the time of that too: it can only hold up a later request."""
        ctx = self._ctx
        started_ns = time.perf_counter_ns()
        if pause_ms:
            ctx.connection.respond_and_rest(items, pause_ms)
        else:
            ctx.connection.respond(items)
        if ctx.api_key not in EXEMPT:
            ctx.broker.quotas.requests.record_freely(
                ctx.user,
                ctx.client_id,
                (time.perf_counter_ns() - started_ns) * _PERCENT_PER_NS,
                self._now_ms,
            )
