"""The APIs that are served: which function handles each, and how its messages are read and written.

A handler is a plain function `(ctx, request) -> response | Pending[response] | None`, bound to
its API by `@handles`. It returns None where the client gets no response (acks=0). Requests and
responses are message objects of the codec, unless `@handles` names another `Form`.

Kafka: kafka.server.KafkaApis.handle, org.apache.kafka.common.protocol.ApiKeys.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, partial, wraps
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from ottla.errors import ErrorCode, KafkaError, TooManyElements
from ottla.protocol import codec
from ottla.protocol.api_keys import ApiKey, response_class
from ottla.protocol.frames import encode_response
from ottla.server.requests.parts import (
    ELEMENTS_IN_A_TURN,
    PARTS,
    LargeRequest,
    in_parts,
    max_elements,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ottla.protocol.schema import Request
    from ottla.protocol.walker import Reader
    from ottla.server.requests.context import Context
    from ottla.types import SendItem

    Handler = Callable[[Context, Any], Any]

HANDLER_MODULES = (
    "api_versions",
    "produce",
    "fetch",
    "offsets",
    "metadata",
    "topic_partitions",
    "groups",
    "consumer_groups",
    "share.groups",
    "share.fetch",
    "share.offsets",
    "share.state",
    "streams_groups",
    "transactions",
    "topics",
    "delete_records",
    "configs",
    "config_changes",
    "quotas",
    "config_resources",
    "features",
    "producers",
    "brokers",
    "replicas",
    "membership",
    "quorum",
    "controller.brokers",
    "controller.envelope",
    "credentials",
    "delegation_tokens",
    "acls",
    "log_dirs",
    "telemetry",
    "sasl",
)


@dataclass(frozen=True, slots=True)
class Form:
    """How the messages of an API are read and written, and the response of an error."""

    read: Callable[[Reader, int], Any]
    """(reader, version) → request; CorruptMessage when there is none."""
    write: Callable[[Any, int, int, int], bytes | Sequence[SendItem]]
    """(response, correlation id, version, throttle time in ms) → frame."""
    fail: Callable[[Any, KafkaError], Any]
    """(request, error) → response; None when no response can carry the error."""


@dataclass(frozen=True, slots=True)  # attributes of named tuples are found slowly
class Api:
    """An API as it is served: its handler, its versions and its form."""

    key: ApiKey
    request: type[Request]
    handler: Handler
    """Answers a request of any size; what it does for one part of a large request is `whole`."""
    whole: Handler
    lowest: int
    highest: int
    form: Form


_registry: dict[tuple[int, str], Api] = {}
"""By key and kind of listener."""


def handles(
    request: type[Request],
    *,
    form: Form | None = None,
    listener: str | None = None,
) -> Callable[[Handler], Handler]:
    """Bind a function to an API.

    The API is served on the listeners that its request class names, or on the one named here.
    """

    def bind(function: Handler) -> Handler:
        key = ApiKey(request.message_key)
        lowest, highest = request.versions
        own = form or codec_form(request, key)
        handler = _parted(function) if key in PARTS else function
        api = Api(key, request, handler, function, lowest, highest, own)
        for kind in request.api_listeners if listener is None else (listener,):
            _registry[key, kind] = api
        return function

    return bind


def _parted(function: Handler) -> Handler:
    @wraps(function)
    def handler(ctx: Context, request: Any) -> Any:
        return in_parts(ctx, request, partial(function, ctx))

    return handler


@cache
def served_apis(listener: str = "broker", *, unstable: bool = False) -> Mapping[int, Api]:
    """Return the APIs served on a kind of listener ("broker", "controller"), by key.

    Unstable versions are included only with `unstable`. The result is kept: ApiVersions and
    Envelope need it with each request.
    """
    for name in HANDLER_MODULES:
        import_module(f"ottla.server.handlers.{name}")
    return {
        key: api if unstable else _without_unstable(api)
        for (key, kind), api in _registry.items()
        if kind == listener
    }


def _without_unstable(api: Api) -> Api:
    hidden = int(api.request.latest_version_unstable)
    return replace(api, highest=api.highest - hidden)


def codec_form(request: type[Request], key: ApiKey) -> Form:
    """Return the form of an API whose messages are objects."""
    allowance = min(max_elements(key), ELEMENTS_IN_A_TURN)

    def read(reader: Reader, version: int) -> Any:
        source, position = reader.source, reader.position
        try:
            return codec.decode_at(request, version, source, position, allowance)[0]
        except TooManyElements:
            raise LargeRequest(request, version, reader) from None

    def write(
        response: Any, correlation_id: int, version: int, throttle_time_ms: int
    ) -> bytes | Sequence[SendItem]:
        if throttle_time_ms and hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = throttle_time_ms
        items = encode_response(correlation_id, key, version, response)
        return items if len(items) > 1 else cast("bytes", items[0])  # which is sent faster

    def fail(_request: Any, error: KafkaError) -> Any:
        response: Any = response_class(key)()
        if not hasattr(response, "error_code"):
            return None
        response.error_code = int(error.code)
        if hasattr(response, "error_message"):
            is_known = error.code is not ErrorCode.UNKNOWN_SERVER_ERROR
            response.error_message = error.message if is_known else None
        return response

    return Form(read, write, fail)
