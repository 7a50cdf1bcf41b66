"""Unknown tagged fields, which are kept so that forwarded messages are complete.

Kafka: org.apache.kafka.common.protocol.types.RawTaggedField.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.protocol.schema import Struct, StructMeta

_carriers: dict[StructMeta, Any] = {}


def keep_unknown(message: Struct, unknown: list[tuple[int, bytes]]) -> Struct:
    """Return the message with these (tag, bytes) pairs.

    Only such a message becomes an instance of a subclass with a slot for them, so the common case
    has no cost.
    """
    cls = type(message)
    carrier = _carriers.get(cls) or _make_carrier(cls)
    copy: Struct = object.__new__(carrier)
    for field in cls.fields:
        setattr(copy, field.name, getattr(message, field.name))
    copy.unknown_tagged_fields = tuple(unknown)  # type: ignore[misc]
    return copy


def without_tags(cls: StructMeta) -> StructMeta:
    """Return the message class for a class that may carry unknown tagged fields."""
    base = cls.__base__
    return base if base is not None and _carriers.get(base) is cls else cls  # type: ignore[call-overload, return-value] # a message's base is one


def _make_carrier(cls: StructMeta) -> Any:
    namespace = {"__slots__": ("unknown_tagged_fields",), "__module__": cls.__module__}
    carrier = type.__new__(type(cls), cls.__name__, (cls,), namespace)
    carrier.take_fields_of(cls)
    _carriers[cls] = carrier
    return carrier
