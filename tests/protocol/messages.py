"""All message classes, and random messages of them."""

from __future__ import annotations

import importlib
import math
import pkgutil
from typing import TYPE_CHECKING, Any

import ottla.protocol.apis
import ottla.protocol.records
from ottla.protocol import frames
from ottla.protocol.schema import Struct
from ottla.types import Uuid

if TYPE_CHECKING:
    from random import Random

    from ottla.protocol.schema import Field, Request, StructMeta

_INTEGERS = {
    "int8": (-(1 << 7), (1 << 7) - 1),
    "int16": (-(1 << 15), (1 << 15) - 1),
    "uint16": (0, (1 << 16) - 1),
    "int32": (-(1 << 31), (1 << 31) - 1),
    "uint32": (0, (1 << 32) - 1),
    "int64": (-(1 << 63), (1 << 63) - 1),
}
_BLOBS = (b"", b"\0", bytes(range(200)))
_VALUES: dict[str, tuple[Any, ...]] = {
    "str": ("", "a", "topic-1", "grüße", "日本語", "x" * 130),
    "bytes": _BLOBS,
    "Records": _BLOBS,
    "bool": (False, True),
    "float64": (0.0, -1.5, 1e300, math.pi),
}


def message_classes() -> dict[str, type[Struct]]:
    """Return every outermost message class by name."""
    modules = [frames]
    for package in (ottla.protocol.apis, ottla.protocol.records):
        names = (found.name for found in pkgutil.iter_modules(package.__path__))
        modules += [importlib.import_module(f"{package.__name__}.{name}") for name in names]
    return {
        name: value
        for module in modules
        for name, value in vars(module).items()
        if isinstance(value, type)
        and issubclass(value, Struct)
        and value.__module__ == module.__name__
        and "versions" in vars(value)
    }


def frame_of(request: Request, version: int, client_id: str | None = "me") -> bytearray:
    """Return the bytes after a request's size."""
    parts: list[Any] = frames.encode_request(request, version, -7, client_id)
    return bytearray(b"".join(parts)[4:])


def random_message(cls: StructMeta, version: int, rng: Random, depth: int = 0) -> Struct:
    """Make a random message that this version can carry completely."""
    values = {}
    for field in cls.fields:
        if version not in field.versions or (field.tag is not None and rng.random() < 0.4):
            continue
        values[field.name] = _random_value(field, version, rng, depth)
    return cls(**values)  # type: ignore[no-any-return]


def _random_value(field: Field, version: int, rng: Random, depth: int) -> Any:
    if version in field.nullable and rng.random() < 0.2:
        return None
    if field.is_array:
        size = rng.choice((0, 1, 2, 3) if depth < 2 else (0, 1, 1))
        return [_random_element(field, version, rng, depth) for _ in range(size)]
    return _random_element(field, version, rng, depth)


def _random_element(field: Field, version: int, rng: Random, depth: int) -> Any:
    if field.struct is not None:
        return random_message(field.struct, version, rng, depth + 1)
    if field.element in _INTEGERS:
        lowest, highest = _INTEGERS[field.element]
        return rng.choice((0, 1, lowest, highest, rng.randint(lowest, highest)))
    if field.element == "Uuid":
        return Uuid(rng.randbytes(16))
    return rng.choice(_VALUES[field.element])


def damage(frame: bytearray, rng: Random) -> None:
    """Flip a bit, cut the end off, or put two bytes in."""
    at = rng.randrange(len(frame))
    if rng.random() < 0.6:
        frame[at] ^= 1 << rng.randrange(8)
    elif rng.random() < 0.5:
        del frame[at:]
    else:
        frame[at:at] = rng.randbytes(2)
