"""Reads and writes single values of messages: for APIs that a broker serves without the codec.

Compiled by Cython with `flat.pxd`; runs uncompiled too.

Hot path: all of it. benchmarks/against_kafka.
Kafka: org.apache.kafka.common.protocol.Readable, Writable.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from ottla import native
from ottla.errors import CorruptMessage
from ottla.protocol.primitives import SMALL_UVARINTS, encode_uvarint
from ottla.protocol.walker import reader_at
from ottla.types import Uuid

if TYPE_CHECKING:
    from ottla.protocol.walker import Reader, Writer

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_UUID_BYTES: Final = 16
_LONGEST_TEXT: Final = 32767
_SMALL: Final = len(SMALL_UVARINTS) - 1
_TEXT_SHIFT: Final = 7  # as the walker's
MAX_ELEMENTS: Final = 25_000
"""The allowance of a request that is read as flat values, in one turn: 10,000 topics of one
partition, and some. An element takes up to 0.5 µs."""
_MAX_ELEMENTS: Final = MAX_ELEMENTS


def reader_over(source: memoryview, position: int) -> Reader:
    """Return a reader at a position of a frame, with the allowance of a request."""
    return reader_at(source, position, len(source), _MAX_ELEMENTS)


def read_count(reader: Reader, flexible: bool) -> int:  # noqa: FBT001 - as compiled
    """Read the length of an array that may not be null, which the message must be able to hold."""
    count = reader.uvarint() - 1 if flexible else reader.integer(4, signed=True)
    if count < 0:
        raise CorruptMessage("a non-nullable array was serialized as null")
    if count > reader.end - reader.position:
        raise CorruptMessage("more elements announced than the message holds")
    reader.charge(count)
    return count


def read_nullable_text(reader: Reader, flexible: bool) -> str | None:  # noqa: FBT001 - see above
    """Read a text; None for null."""
    length = reader.uvarint() - 1 if flexible else reader.integer(2, signed=True)
    if length < 0:
        return None
    if length > _LONGEST_TEXT:
        raise CorruptMessage("a text that is too long")
    start = reader.need(length)
    if length > 127:
        reader.charge(length >> _TEXT_SHIFT)
    return native.text_at(reader.data, start, length)


def read_text(reader: Reader, flexible: bool) -> str:  # noqa: FBT001 - see above
    """Read a text that may not be null."""
    text = read_nullable_text(reader, flexible)
    if text is None:
        raise CorruptMessage("a non-nullable text was serialized as null")
    return text


def read_uuid(reader: Reader) -> Uuid:
    """Read an id."""
    found: Uuid = native.new_bytes(Uuid, reader.data, reader.need(_UUID_BYTES), _UUID_BYTES)
    return found


def skip_tags(reader: Reader) -> None:
    """Step over tagged fields, none of which is known."""
    count = reader.uvarint()
    if count:
        reader.charge(count)
    while count > 0:
        count -= 1
        reader.uvarint()
        reader.need(reader.uvarint())


def encode_text(text: str, flexible: bool) -> bytes:  # noqa: FBT001 - as compiled
    """Return a text with its length; ValueError when it is too long."""
    data = text.encode()
    if len(data) > _LONGEST_TEXT:
        raise ValueError("text is too long")
    return (encode_uvarint(len(data) + 1) if flexible else _INT16.pack(len(data))) + data


def encode_count(count: int, flexible: bool) -> bytes:  # noqa: FBT001 - as compiled
    """Return the length of an array."""
    if flexible:
        return SMALL_UVARINTS[count + 1] if count < _SMALL else encode_uvarint(count + 1)
    return _INT32.pack(count)


def write_text(writer: Writer, text: str, flexible: bool) -> None:  # noqa: FBT001 - as compiled
    """Write a text with its length; ValueError when it is too long."""
    data = text.encode()
    if len(data) > _LONGEST_TEXT:
        raise ValueError("text is too long")
    if flexible:
        writer.uvarint(len(data) + 1)
    else:
        writer.integer(len(data), 2)
    writer.run(data, len(data))


def write_nullable_text(writer: Writer, text: str | None, flexible: bool) -> None:  # noqa: FBT001 - as above
    """Write a text, or null for None."""
    if text is not None:
        write_text(writer, text, flexible)
    elif flexible:
        writer.byte(0)
    else:
        writer.integer(-1, 2)


def write_count(writer: Writer, count: int, flexible: bool) -> None:  # noqa: FBT001 - as above
    """Write the length of an array."""
    if flexible:
        writer.uvarint(count + 1)
    else:
        writer.integer(count, 4)
