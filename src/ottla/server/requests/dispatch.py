"""From a frame to a handler and back: versions, decoding, quotas, errors, responses, times.

Every request takes the same steps in `handle_frame`: the API's form bounds and decodes it,
`call_guarded` authorizes it by the declaration of its API, the handler validates and acts. Its
connection is authenticated before (`requests/login.py`). `_answer` writes the response, now or when
the handler's Pending is done; `_fail` refuses what the request names.

Kafka: kafka.server.KafkaApis.handle, RequestHandlerHelper; kafka.network.RequestChannel's request
log (kafka.request.logger); kafka.network.RequestChannel.updateRequestMetrics. Hot path:
benchmarks/against_kafka.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.errors import ErrorCode, KafkaError, OttlaError
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.apis.api_versions import ApiVersionsResponse
from ottla.protocol.request_header import split_header
from ottla.purgatory.pending import Pending, as_pending
from ottla.server.requests.api import served_apis
from ottla.server.requests.context import Context, QuotaUse
from ottla.server.requests.parts import LargeRequest, decoded
from ottla.server.requests.rights import call_guarded

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.network.connection import Connection, RequestHandler
    from ottla.protocol.request_header import Header
    from ottla.server.broker.broker import Broker
    from ottla.server.requests.api import Api


log = logging.getLogger("ottla.dispatch")
requests_log = logging.getLogger("ottla.requests")
_API_VERSIONS: Final = 18


class Dispatcher:
    """Answers the frames of all connections of one kind of listener."""

    def __init__(
        self,
        broker: Broker,
        listener: str,
        elapsed_s: Callable[[], float],
        times: RequestTimes | None,
    ) -> None:
        """Take the clock that measures work, and where to note times, None for nowhere."""
        self._broker = broker
        self._listener = listener
        self._elapsed_s = elapsed_s
        self._times = times
        unstable = broker.metadata.config.unstable_api_versions_enable
        self._apis = served_apis(listener, unstable=unstable)

    def connection_closed(self, connection: Connection) -> None:
        """Forget whose metrics came over it, and probe the broker that it was of."""
        self._broker.failure_detection.connection_closed(connection)
        self._broker.telemetry.connection_closed(connection.connection_id)
        self._broker.share.connection_closed(connection)
        self._broker.fetch_sessions.connection_closed(connection)

    def handle_frame(  # noqa: C901, PLR0912 - each further function costs half a microsecond here
        self, connection: Connection, frame: memoryview
    ) -> None:
        """Decode and answer one request; bytes that are no request close the connection."""
        broker = self._broker
        try:
            header = split_header(frame)
            api = self._apis.get(header[0])
            if api is None or not api.lowest <= header[1] <= api.highest:
                api, header = self._refuse(api, connection, header)
                if api is None:
                    return
            request = api.form.read(header[4], header[1])
        except LargeRequest as large:
            self._handle_large(connection, len(frame), api, header, large)  # type: ignore[arg-type] # its form raised
            return
        except KafkaError as error:
            _close(connection, error)
            return
        ctx = Context(broker, connection, self._listener, api, header)
        if self._times is not None:
            ctx.started_s = self._elapsed_s()
        quotas = broker.quotas
        if (
            quotas.is_on
            and not connection.is_in_login
            and quotas.concerns(connection.principal.name, ctx.client_id)
        ):
            ctx.quota_use = QuotaUse(len(frame), self._elapsed_s)
            request = ctx.quota_use.begin(ctx, request)
        try:
            if broker.authorizer is None:
                result = api.handler(ctx, request)
            else:
                result = call_guarded(ctx, request)
        except Exception as error:  # noqa: BLE001 - whatever a handler raises must be answered
            self._fail(ctx, request, error)
        else:
            if ctx.quota_use is not None:
                ctx.quota_use.handled()
            if isinstance(result, Pending):
                if not result.succeeded:
                    self._answer_later(ctx, request, result)
                    return
                result = result.value
            self._answer(ctx, result)
        if self._times is not None:
            self._times.add(ctx, self._elapsed_s() - ctx.started_s)

    def _handle_large(
        self,
        connection: Connection,
        frame_bytes: int,
        api: Api,
        header: Header,
        large: LargeRequest,
    ) -> None:
        """Handle a request after the turns that it takes to decode it."""
        broker = self._broker
        ctx = Context(broker, connection, self._listener, api, header)
        ctx.started_s = self._elapsed_s()
        is_in_login = connection.is_in_login  # not any more when it is decoded

        def handle(done: Pending[Any]) -> None:
            if connection.is_closed:
                return
            if done.error is not None:
                _close(connection, done.error)
                return
            quotas = broker.quotas
            if (
                quotas.is_on
                and not is_in_login
                and quotas.concerns(connection.principal.name, ctx.client_id)
            ):
                ctx.quota_use = QuotaUse(frame_bytes, self._elapsed_s)
            request = done.value
            try:
                if broker.authorizer is None:
                    result = api.handler(ctx, request)
                else:
                    result = call_guarded(ctx, request)
            except Exception as error:  # noqa: BLE001 - as above
                result = Pending.failed(error)
            if ctx.quota_use is not None:
                ctx.quota_use.handled()
            self._answer_later(ctx, request, as_pending(result))

        decoded(ctx, large).on_done(handle)

    def _refuse(
        self, api: Api | None, connection: Connection, header: Header
    ) -> tuple[Api | None, Header]:
        """Raise for an API or a version that is not served.

        A too new ApiVersions is answered in version 0, so that the client can fall back.
        """
        if api is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"api key {header[0]} is not served")
        if header[0] != _API_VERSIONS:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        ctx = Context(self._broker, connection, self._listener, api, (header[0], 0, *header[2:]))
        served = ApiVersionsResponse.ApiVersion(
            api_key=_API_VERSIONS, min_version=api.lowest, max_version=api.highest
        )
        code = int(ErrorCode.UNSUPPORTED_VERSION)
        self._answer(ctx, ApiVersionsResponse(error_code=code, api_keys=[served]))
        return None, header

    def _answer_later(self, ctx: Context, request: Any, pending: Pending[Any]) -> None:
        local_s = 0.0 if self._times is None else self._elapsed_s() - ctx.started_s

        def answer(done: Pending[Any]) -> None:
            if done.error is not None:
                self._fail(ctx, request, done.error)
            else:
                self._answer(ctx, done.value)
            if self._times is not None:
                total_s = self._elapsed_s() - ctx.started_s
                self._times.waits.append(Wait(ctx.api_key, ctx.api_version, local_s, total_s))

        pending.on_done(answer)

    def _fail(self, ctx: Context, request: Any, error: Exception) -> None:
        """Refuse what the request names; close where no response can say so (acks=0)."""
        if not isinstance(error, OttlaError):
            extra = {"event": "request.failed", "client": ctx.client}
            log.error("request failed; report this traceback as a bug", exc_info=error, extra=extra)
        if not isinstance(error, KafkaError):
            error = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
        if self._times is not None:
            self._times.errors[ctx.api_key, int(error.code)] += 1
        response = ctx.api.form.fail(request, error, ctx.api_version)
        if response is None:
            ctx.connection.finish()
        else:
            self._answer(ctx, response)

    def _answer(self, ctx: Context, response: Any) -> None:
        """Send a response; None stands for a request that gets none."""
        use = ctx.quota_use
        if use is None and response is None:
            ctx.connection.request_done()
            return
        try:
            if use is not None:
                use.answer(ctx, response)
                return
            frame = ctx.api.form.write(response, ctx.correlation_id, ctx.api_version, 0)
        except (OttlaError, ValueError) as error:
            extra = {"event": "response.invalid", "client": ctx.client}
            log.exception(
                "cannot encode; report this traceback as a bug", exc_info=error, extra=extra
            )
            ctx.connection.finish()
            return
        if type(frame) is bytes:
            ctx.connection.respond_bytes(frame)
        else:
            ctx.connection.respond(frame)  # type: ignore[arg-type] # items


def _close(connection: Connection, error: Exception) -> None:
    """Close a connection whose bytes are no request that is served."""
    extra = {"event": "request.invalid", "client": connection.peer_host}
    log.info("closing: %s", error, extra=extra)
    connection.finish()


# ---------------------------------------------------------------- times, the log of requests


class Wait(NamedTuple):
    """A request that was not answered at once; times from the start of its handling."""

    key: int
    version: int
    local_s: float
    total_s: float


class RequestTimes:
    """Samples of all listeners of a node."""

    def __init__(self) -> None:
        self.immediate: dict[int, dict[int, list[float]]] = {}
        """By API key and version: seconds of requests that were answered at once."""
        self.waits: list[Wait] = []
        self.errors: Counter[tuple[int, int]] = Counter()
        """By API key and error code: responses with an error for the whole request."""

    def add(self, ctx: Context, total_s: float) -> None:
        """Note a request that was answered at once."""
        by_version = self.immediate.get(ctx.api_key)
        if by_version is None:
            by_version = self.immediate[ctx.api_key] = {}
        samples = by_version.get(ctx.api_version)
        if samples is None:
            samples = by_version[ctx.api_version] = []
        samples.append(total_s)


def requests_are_logged() -> bool:
    """Whether the level of the logger enables a line for each request."""
    return requests_log.isEnabledFor(logging.DEBUG)


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
            requests_log.debug(
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
