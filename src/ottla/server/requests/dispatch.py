"""From a frame to a handler and back: versions, decoding, errors, answers.

Kafka: kafka.server.KafkaApis.handle, RequestContext. Hot path: benchmarks/against_kafka.

A handler is a plain function `(ctx, request) -> response | Pending[response] | None`, bound to
its API by `@handles`. Where nobody answers (acks=0) it returns None.
"""

from __future__ import annotations

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.errors import ErrorCode, KafkaError, OttlaError
from ottla.protocol import codec
from ottla.protocol.api_keys import ApiKey, response_class
from ottla.protocol.frames import encode_response, split_header
from ottla.purgatory.pending import Pending
from ottla.server.requests.context import Context
from ottla.server.requests.fetch_lane import FetchLane
from ottla.server.requests.produce_lane import ProduceLane
from ottla.server.requests.throttling import MeasuredRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.network.connection import Connection
    from ottla.protocol.schema import Request, Response
    from ottla.server.broker.broker import Broker
    from ottla.types import SendItem

    Handler = Callable[[Context, Any], Any]
    ShortWay = Callable[[Connection, memoryview], bool]

log = logging.getLogger("ottla.dispatch")
HANDLER_MODULES = (
    "api_versions",
    "produce",
    "fetch",
    "offsets",
    "metadata",
    "topic_partitions",
    "groups",
    "transactions",
    "topics",
    "configs",
    "config_changes",
    "quotas",
    "config_resources",
    "features",
    "producers",
    "brokers",
    "membership",
    "credentials",
    "log_dirs",
    "telemetry",
    "sasl",
)
_FETCH, _API_VERSIONS = 1, 18
_FOR_CLIENTS = "broker"
_HEADER_BYTES = 10


class Api(NamedTuple):
    """An API as it is served: who handles it, in which versions, on which listeners."""

    key: ApiKey
    request: type[Request]
    handler: Handler
    lowest: int
    highest: int


_registry: dict[int, Api] = {}


def handles(request: type[Request], *, highest: int | None = None) -> Callable[[Handler], Handler]:
    """Bind a function to an API; `highest` limits the versions while a later one is not built.

    The API is served on the listeners that its request class names.
    """

    def bind(function: Handler) -> Handler:
        key = ApiKey(request.message_key)
        top = request.versions.highest if highest is None else highest
        _registry[key] = Api(key, request, function, request.versions.lowest, top)
        return function

    return bind


def served_apis(listener: str = "broker") -> dict[int, Api]:
    """Return the APIs served on a kind of listener ("broker", "controller"), by key."""
    for name in HANDLER_MODULES:
        import_module(f"ottla.server.handlers.{name}")
    return {key: api for key, api in _registry.items() if listener in api.request.api_listeners}


def _nothing_taken(_connection: Connection, _frame: memoryview) -> bool:
    return False


def _close_after_fault(connection: Connection, error: Exception) -> None:
    """Give up a request of which nobody knows what was appended."""
    extra = {"event": "request.failed", "client": connection.peer_host}
    log.error("request failed", exc_info=error, extra=extra)
    connection.finish()


class Dispatcher:
    """Answers the frames of all connections of one kind of listener."""

    def __init__(self, broker: Broker, listener: str = _FOR_CLIENTS) -> None:
        self._broker = broker
        self._listener = listener
        self._apis = served_apis(listener)
        self._produce_lane = ProduceLane(broker)
        self._fetch_lane = FetchLane(broker)
        self._short_ways: tuple[ShortWay, ...] = (
            (self._produce_lane.take, self._fetch_lane.take)
            if listener == _FOR_CLIENTS
            else (_nothing_taken, _nothing_taken)
        )
        """By API key, which they compare with all of the frame's."""

    def connection_closed(self, connection: Connection) -> None:
        """Forget whose metrics came over it; the rest is kept by the connection itself."""
        self._broker.telemetry.connection_closed(connection.connection_id)

    def handle_frame(self, connection: Connection, frame: memoryview) -> None:
        """Decode and answer one request; a stranger's bytes close the connection."""
        if len(frame) > _HEADER_BYTES and frame[1] <= _FETCH:
            try:
                if self._short_ways[frame[1]](connection, frame):
                    return
            except Exception as error:  # noqa: BLE001 - it must not end the connection's turn half-way
                _close_after_fault(connection, error)
                return
        try:
            key, version, correlation_id, client_id, position = split_header(frame)
            ctx = Context(self._broker, connection, self._listener, key, version)
            ctx.correlation_id = correlation_id
            ctx.client_id = client_id or ""
            request = self._decode(ctx, frame, position)
        except KafkaError as error:
            client = connection.peer_host
            log.info("closing: %s", error, extra={"event": "request.invalid", "client": client})
            connection.finish()
            return
        if request is not None:
            quotas = self._broker.quotas
            if quotas.is_on and quotas.concerns(ctx.user, ctx.client_id):
                measured = MeasuredRequest(ctx, request, len(frame), self._encode)
                measured.handle(self._apis[key].handler, self._error_response)
            else:
                self._answer(ctx, request)

    def _decode(self, ctx: Context, frame: memoryview, position: int) -> Request | None:
        api = self._apis.get(ctx.api_key)
        if api is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"api key {ctx.api_key} is not served")
        if not api.lowest <= ctx.api_version <= api.highest:
            if ctx.api_key == _API_VERSIONS:
                self._refuse_api_versions(ctx)
                return None
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        return codec.decode_at(api.request, ctx.api_version, frame, position)[0]

    def _refuse_api_versions(self, ctx: Context) -> None:
        """Answer a too new ApiVersions in version 0, so that the client can fall back."""
        from ottla.server.handlers.api_versions import unsupported_version

        ctx.api_version = 0
        self._send(ctx, unsupported_version(ctx))

    def _answer(self, ctx: Context, request: Request) -> None:
        api = self._apis[ctx.api_key]
        try:
            result = api.handler(ctx, request)
        except Exception as error:  # noqa: BLE001 - whatever a handler raises must be answered
            self._fail(ctx, error)
            return
        if type(result) is Pending:
            result.on_done(lambda done: self._answer_later(ctx, done))
        else:
            self._send(ctx, result)

    def _answer_later(self, ctx: Context, done: Pending[Any]) -> None:
        if done.error is not None:
            self._fail(ctx, done.error)
        else:
            self._send(ctx, done.value)

    def _fail(self, ctx: Context, error: Exception) -> None:
        response = self._error_response(ctx, error)
        if response is not None:
            self._send(ctx, response)

    def _error_response(self, ctx: Context, error: Exception) -> Response | None:
        """Return an answer with a top-level error code where the API has one, else close."""
        code = error.code if isinstance(error, KafkaError) else ErrorCode.UNKNOWN_SERVER_ERROR
        if not isinstance(error, OttlaError):
            extra = {"event": "request.failed", "client": ctx.client}
            log.error("request failed", exc_info=error, extra=extra)
        response = response_class(ctx.api_key)()
        if not hasattr(response, "error_code"):
            ctx.connection.finish()
            return None
        response.error_code = int(code)
        if hasattr(response, "error_message"):
            response.error_message = str(error) if isinstance(error, KafkaError) else None
        return response

    def _send(self, ctx: Context, response: Response | None) -> None:
        if response is None:
            ctx.connection.request_done()
            return
        frame = self._encode(ctx, response)
        if frame is not None:
            ctx.connection.respond(frame)

    def _encode(self, ctx: Context, response: Response) -> list[SendItem] | None:
        try:
            return encode_response(ctx.correlation_id, ctx.api_key, ctx.api_version, response)
        except (OttlaError, ValueError) as error:
            extra = {"event": "response.invalid", "client": ctx.client}
            log.exception("cannot encode", exc_info=error, extra=extra)
            ctx.connection.finish()
            return None
