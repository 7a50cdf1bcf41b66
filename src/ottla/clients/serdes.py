"""Serializers and deserializers: callables, or the names of built-in ones.

Kafka: org.apache.kafka.common.serialization.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ottla.errors import ConfigError, SerializationError
from ottla.formats.primitives import NUMBERS, write_json

if TYPE_CHECKING:
    from collections.abc import Callable

    Converter = Callable[[Any], Any]


def to_bytes(value: Any) -> bytes | None:
    """Return the bytes of a value without a serializer: bytes unchanged, str as UTF-8."""
    if value is None or type(value) is bytes:
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise TypeError(
        f"a key or value must be bytes, str or None, not {type(value).__name__}; "
        "give a value_serializer, for example value_serializer='json'"
    )


_NUMBERS = {name: NUMBERS[name] for name in ("double", "short", "integer", "long")}
_SERIALIZERS: dict[str, Converter] = {
    "bytes": bytes,
    "string": str.encode,
    "json": write_json,
    **{name: codec.write for name, codec in _NUMBERS.items()},
}
_DESERIALIZERS: dict[str, Converter] = {
    "bytes": bytes,
    "string": bytes.decode,
    "json": json.loads,
    **{name: codec.read for name, codec in _NUMBERS.items()},
}


def serializer(given: Any, part: str) -> Converter | None:
    """Return the function for the serializer setting of keys or values; None to use `to_bytes`.

    The function raises SerializationError for what cannot be converted. Text that a serializer
    returns, as json.dumps does, becomes UTF-8.
    """
    convert = _converter(given, _SERIALIZERS, "serializer")
    if convert is None:
        return None

    def serialize(value: Any) -> bytes | None:
        try:
            return to_bytes(convert(value))
        except Exception as error:
            raise SerializationError(
                f"a {part} of type {type(value).__name__} cannot be converted by "
                f"{part}_serializer: {error}"
            ) from error

    return serialize


def deserializer(given: Any) -> Converter | None:
    """Return the function for a deserializer setting; None returns bytes."""
    return _converter(given, _DESERIALIZERS, "deserializer")


def _converter(given: Any, named: dict[str, Converter], kind: str) -> Converter | None:
    if given is None:
        return None
    if callable(given):
        function: Converter = given
    elif isinstance(given, str):
        name = given.rpartition(".")[2].lower().removesuffix(kind)
        if name in ("bytes", "bytearray"):
            return None
        if name not in named:
            raise ConfigError(
                f"unknown {kind} {given!r}: give a function or one of {', '.join(named)}",
            )
        function = named[name]
    else:
        raise ConfigError(f"a {kind} is a function or a name")
    return lambda value: None if value is None else function(value)
