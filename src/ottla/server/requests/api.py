"""The APIs that are served: which function handles each, and how its messages are read and written.

A handler is a plain function `(ctx, request) -> response | Pending[response] | None`, bound to its
API by `@handles`, the one declaration of an API: its right, who decides it, what quotas do to it,
its listeners, its form. None stands for no response (acks=0). Requests and responses are message
objects of the codec, unless `@handles` names another `Form`.

Kafka: kafka.server.KafkaApis.handle, org.apache.kafka.common.protocol.ApiKeys.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, partial, wraps
from importlib import import_module
from pkgutil import walk_packages
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

from ottla.errors import ErrorCode, KafkaError, TooManyElements
from ottla.protocol import codec
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.frames import encode_response
from ottla.protocol.schema import parse_versions
from ottla.server.requests.parts import (
    ELEMENTS_IN_A_TURN,
    PARTS,
    LargeRequest,
    in_parts,
    max_elements,
)
from ottla.server.requests.refusals import refused, refused_without_text
from ottla.server.requests.rights import InOrder, if_enabled, refusing_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ottla.protocol.schema import Request
    from ottla.protocol.walker import Reader
    from ottla.server.requests.context import Context
    from ottla.server.requests.rights import Check
    from ottla.types import SendItem

    Handler = Callable[[Context, Any], Any]


@dataclass(frozen=True, slots=True)
class Form:
    """How the messages of an API are read and written, and the response of an error."""

    read: Callable[[Reader, int], Any]
    """(reader, version) → request; CorruptMessage when there is none."""
    write: Callable[[Any, int, int, int], bytes | Sequence[SendItem]]
    """(response, correlation id, version, throttle time in ms) → frame."""
    fail: Callable[[Any, KafkaError, int], Any]
    """(request, error, version) → response; None when no response can carry the error."""


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
    right: Check
    is_forwarded: bool
    """Whether a broker forwards it to the active controller, which checks the client's rights."""
    is_throttled: bool
    """Whether request quotas delay it; between nodes that would harm the whole cluster."""
    refused_over_quota_from: int
    """The version from which too many mutations are refused, not only throttled (KIP-599)."""
    notes: Mapping[int, str]
    """By version, what it brought for the handler; the schema has the fields."""


_registry: dict[tuple[int, str], Api] = {}
"""By key and kind of listener."""


def handles(  # noqa: PLR0913 - the whole declaration of an API
    request: type[Request],
    *,
    right: Check | tuple[Check, ...],
    is_enabled: Callable[[Context], bool] | None = None,
    disabled_has_text: bool = False,
    forwarded: bool = False,
    throttled: bool = True,
    refused_over_quota_from: int = 0,
    notes: Mapping[int, str] = MappingProxyType({}),
    form: Form | None = None,
    listener: str | None = None,
) -> Callable[[Handler], Handler]:
    """Bind a function to an API: its right, or several of which each is needed, and the rest.

    The API is served on the listeners that its request class names, or on the one named here. In a
    cluster for which it is not enabled it is refused before any right is looked at, also without an
    authorizer: by its code alone, as in Kafka, or with the text of the code.
    """
    checked = InOrder(right) if isinstance(right, tuple) else right
    if is_enabled is not None:
        checked = if_enabled(is_enabled, checked)

    def bind(function: Handler) -> Handler:
        key = ApiKey(request.message_key)
        if is_enabled is not None:
            function = _refused_unless(is_enabled, function, has_text=disabled_has_text)
        lowest, highest = request.versions
        api = Api(
            key,
            request,
            _parted(function) if key in PARTS else function,
            function,
            lowest,
            highest,
            form or codec_form(request),
            checked,
            forwarded,
            throttled,
            refused_over_quota_from,
            notes,
        )
        for kind in request.api_listeners if listener is None else (listener,):
            _registry[key, kind] = api
        return function

    return bind


def _refused_unless(
    is_enabled: Callable[[Context], bool], function: Handler, *, has_text: bool
) -> Handler:
    @wraps(function)
    def handler(ctx: Context, request: Any) -> Any:
        if is_enabled(ctx):
            return function(ctx, request)
        code = ErrorCode.UNSUPPORTED_VERSION
        if has_text:
            raise KafkaError(code)
        return refused_without_text(request, code, ctx.api_version)

    return handler


def _parted(function: Handler) -> Handler:
    @wraps(function)
    def handler(ctx: Context, request: Any) -> Any:
        return in_parts(ctx, request, refusing_parts(ctx, request, partial(function, ctx)))

    return handler


@cache
def served_apis(listener: str = "broker", *, unstable: bool = False) -> Mapping[int, Api]:
    """Return the APIs served on a kind of listener ("broker", "controller"), by key.

    Unstable versions are included only with `unstable`. The result is kept: ApiVersions and
    Envelope need it with each request.
    """
    handlers = import_module("ottla.server.handlers")
    for module in walk_packages(handlers.__path__, f"{handlers.__name__}."):
        import_module(module.name)
    return {
        key: api if unstable else _without_unstable(api)
        for (key, kind), api in _registry.items()
        if kind == listener
    }


def _without_unstable(api: Api) -> Api:
    hidden = int(api.request.latest_version_unstable)
    return replace(api, highest=api.highest - hidden)


def codec_form(
    request: type[Request],
    *,
    fail: Callable[[Any, KafkaError, int], Any] | None = None,
    errors_in_items: str = "none",
) -> Form:
    """Return the form of an API whose messages are objects.

    In the versions `errors_in_items` the refusal of a whole request names each item as well,
    although the response has a code for all of them.
    """
    key = ApiKey(request.message_key)
    allowance = min(max_elements(key), ELEMENTS_IN_A_TURN)
    in_items = parse_versions(errors_in_items)

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

    def refuse(message: Any, error: KafkaError, version: int) -> Any:
        return refused(message, error, version, in_items=version in in_items)

    return Form(read, write, fail or refuse)
