"""One request of each API and version about one name, built from its schema."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.protocol import codec, frames
from ottla.protocol.api_keys import ApiKey, response_class, response_header_version
from ottla.protocol.frames import ResponseHeader
from ottla.protocol.schema import Request, Struct
from ottla.records.builder import encode_batch
from ottla.server.requests.api import served_apis
from ottla.types import ZERO_UUID, Uuid

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.protocol.schema import Field, StructMeta

BROKER, LOGGER = 4, 8
BY_ID = 1
RESOURCE_TYPES = (2, BROKER, LOGGER, 16, 32)
LOGIN = frozenset({ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})
"""Served by the login itself."""
TLS_STORE = "listener.name.tls.ssl.truststore.location"


class Named(NamedTuple):
    """What a request is about: everything with this name, or nothing."""

    name: str
    topic_id: Uuid
    broker: str
    path: str
    elements: int = 1
    """Elements of each outermost list; the names of further ones have a suffix."""

    def element(self, index: int) -> Named:
        """Return what the element of a list is about."""
        name = f"{self.name}{index}" if index else self.name
        return self._replace(name=name, elements=1)


class Walked(NamedTuple):
    """One request."""

    key: ApiKey
    version: int
    variant: int
    request: Request

    def __str__(self) -> str:
        return f"{self.key.name} {self.version} {self.variant}"

    def frame(self, client_id: str = "walker") -> bytes:
        """Return the bytes without their size."""
        items = frames.encode_request(self.request, self.version, 7, client_id)
        return b"".join(items)[4:]  # type: ignore[arg-type] # no file slices


def walk(listener: str, named: Named) -> Iterator[Walked]:
    """Yield a request of each API that a listener serves, in each version and variant."""
    for key, api in sorted(served_apis(listener, unstable=True).items()):
        if key in LOGIN or key == ApiKey.ENVELOPE:
            continue
        for version in range(api.lowest, api.highest + 1):
            for variant in _variants(api.request, version):
                made = made_of(api.request, version, named, variant)
                assert isinstance(made, Request)
                yield Walked(ApiKey(key), version, variant, made)


def _variants(cls: StructMeta, version: int) -> tuple[int, ...]:
    """Return the kinds of resources that a request names, or whether it names topics by ids."""
    structs = list(_structs(cls))
    if any(field.name == "resource_type" for one in structs for field in one.fields):
        return RESOURCE_TYPES
    return (0, BY_ID) if any(_is_name_or_id(one, version) for one in structs) else (0,)


def _structs(cls: StructMeta) -> Iterator[StructMeta]:
    yield cls
    for field in cls.fields:
        if field.struct is not None:
            yield from _structs(field.struct)


def _is_name_or_id(cls: StructMeta, version: int) -> bool:
    """Whether a message gives a topic by one of two fields, of which the other is empty."""
    fields = {field.name: field for field in cls.fields if version in field.versions}
    return "topic_id" in fields and "name" in fields and version in fields["name"].nullable


def made_of(cls: StructMeta, version: int, named: Named, variant: int) -> Struct:
    """Return a message that is about a name in each of its fields."""
    values: dict[str, Any] = {}
    omitted = ("name" if variant == BY_ID else "topic_id") if _is_name_or_id(cls, version) else ""
    for field in cls.fields:
        if version not in field.versions or field.tag is not None:
            continue
        if field.name == omitted:
            values[field.name] = None if omitted == "name" else ZERO_UUID
            continue
        if field.is_array:
            values[field.name] = [
                _element(field, version, named.element(index), variant)
                for index in range(named.elements)
            ]
        else:
            values[field.name] = _element(field, version, named, variant)
    return cls(**values)  # type: ignore[no-any-return]


def _element(field: Field, version: int, named: Named, variant: int) -> Any:
    if field.struct is not None:
        return made_of(field.struct, version, named, variant)
    if field.element == "str":
        return _text(field.name, named, variant)
    if field.element == "Uuid":
        return named.topic_id
    if field.element in {"bytes", "Records"}:
        return encode_batch([(1, b"key", b"value", ())]) if field.element == "Records" else b""
    default = None if field.is_array else field.make_default()
    return {"resource_type": variant, "acks": -1}.get(field.name, default or 0)


def _text(field: str, named: Named, variant: int) -> str:
    if field == "resource_name" and variant in {BROKER, LOGGER}:
        return named.broker
    if variant == BROKER and field in {"name", "configuration_keys"}:
        return TLS_STORE
    return named.path if variant == BROKER and field == "value" else named.name


def comparable(walked: Walked, frame: bytes, named: Named) -> Any:
    """Return the content of an answer without the name, so that two can be compared."""
    return _comparable(_decoded(walked, frame), named)


def _comparable(value: Any, named: Named) -> Any:
    if isinstance(value, Struct):
        return {
            field.name: _comparable(getattr(value, field.name), named)
            for field in type(value).fields
        }
    if isinstance(value, list):
        return [_comparable(one, named) for one in value]
    if isinstance(value, str):
        is_name = value in {named.broker, named.path}
        return "?" if is_name else value.replace(named.name, "?")
    return "?" if value == named.topic_id else value


def codes_of(walked: Walked, frame: bytes) -> set[int]:
    """Return all error codes in an answer."""
    return set(_codes(_decoded(walked, frame)))


def _decoded(walked: Walked, frame: bytes) -> Any:
    header = response_header_version(walked.key, walked.version)
    body = memoryview(frame)[4:]
    position = codec.decode_at(ResponseHeader, header, body, 0)[1]
    return codec.decode_at(response_class(walked.key), walked.version, body, position)[0]


def _codes(message: Any) -> Iterator[int]:
    for field in type(message).fields:
        value = getattr(message, field.name)
        if field.name.endswith("error_code"):
            yield value
        for one in value if isinstance(value, list) else (value,):
            if isinstance(one, Struct):
                yield from _codes(one)


def absent() -> Named:
    """Return what nothing is named as."""
    return Named("zyxwvuts", Uuid(b"no such topic id"), "7", "/nowhere/zyxwvuts")


def existing(topic_id: Uuid, path: str) -> Named:
    """Return what everything is named as."""
    assert topic_id != ZERO_UUID
    return Named("abcdefgh", topic_id, "1", path)
