"""Encodes and decodes a message by its plan: the codec if this module is compiled.

Cython compiles this file to C with the types of `walker.pxd`. Uncompiled it is slower than the
functions that `protocol.codec` generates, which are used instead; both produce equal bytes,
objects and errors (tests/protocol/test_walker.py compares them for all messages). Reasons:
docs/decisions/0010-one-request-path.md.

A reader checks every length against the remaining bytes before it allocates memory, and raises
IndexError where a message ends early, as the generated functions do. What a message announces is
also charged to the reader's allowance before it is made: one for each element of an array and for
each unknown tagged field, and one for so many bytes of a text or of bytes. A message that costs
more raises TooManyElements; nothing is charged for a single value.

Hot path: all of it. benchmarks/codec.py.

Kafka: the `read` and `write` methods of the generated message classes.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from ottla import native
from ottla.errors import CorruptMessage, TooManyElements, UnsupportedVersion
from ottla.protocol.tagged_fields import keep_unknown
from ottla.types import FileSlice, Uuid

if TYPE_CHECKING:
    from ottla.types import Buffer, SendItem

# Kinds of steps. Up to INTEGERS_END: integers of `width` bytes.
SIGNED = 1
UNSIGNED = 2
BOOL = 3
FLOAT64 = 4
UUID = 5
FIXED_END = 6
TEXT = 7
BYTES = 8
RECORDS = 9
STRUCT = 10

# Kinds of default values of fields that a version does not carry.
CONSTANT = 0
EMPTY_LIST = 1
MADE = 2

KINDS = {
    "int8": SIGNED,
    "int16": SIGNED,
    "int32": SIGNED,
    "int64": SIGNED,
    "uint16": UNSIGNED,
    "uint32": UNSIGNED,
    "bool": BOOL,
    "float64": FLOAT64,
    "Uuid": UUID,
    "str": TEXT,
    "bytes": BYTES,
    "Records": RECORDS,
    "struct": STRUCT,
}
DEFAULT_KINDS = {"constant": CONSTANT, "empty list": EMPTY_LIST, "made": MADE}

LONGEST_TEXT = 32767
UNBOUNDED = 1 << 62
"""The allowance of messages that no untrusted client sent."""
TEXT_SHIFT = 7
"""128 bytes of text cost as much as an element: 10 ns a byte where they are not UTF-8."""
BYTES_SHIFT = 10
"""1 KiB of bytes costs as much as an element: a copy, and a page of memory each fourth one."""
FIRST_BUFFER_BYTES = 256
_TEXT_SHIFT = TEXT_SHIFT  # compiled to C integers, which other modules do not see
_BYTES_SHIFT = BYTES_SHIFT
_new_object = object.__new__
_new_bytes: Any = bytes.__new__
_pack_double = struct.Struct(">d").pack
_unpack_double = struct.Struct(">d").unpack


class Step:
    """One field of a struct at one version."""

    __slots__ = (
        "compact",
        "default",
        "default_kind",
        "high",
        "is_array",
        "kind",
        "low",
        "name",
        "nullable",
        "plan",
        "smallest",
        "tag",
        "width",
    )

    kind: int
    name: str
    is_array: bool
    nullable: bool
    compact: bool
    plan: Plan | None
    default: Any
    default_kind: int
    smallest: int
    """Minimum size of an element, which bounds an announced array length."""
    width: int
    low: int
    high: int
    tag: int
    """-1 for a field without one."""


class Plan:
    """A struct at one version: its steps in wire order, and the fields it does not carry."""

    __slots__ = ("absent", "cls", "every", "flexible", "guarded", "steps", "tagged", "version")

    cls: Any
    steps: list[Step]
    absent: list[Step]
    """Fields that decoding sets to their defaults first: not carried, or tagged."""
    guarded: list[Step]
    """Fields that this version cannot carry and must not drop silently."""
    tagged: list[Step]
    every: list[Step]
    """All fields of the struct in all versions."""
    flexible: bool
    version: int


def default_of(step: Step) -> Any:
    """Return a field's default, a new object where it is mutable."""
    if step.default_kind == CONSTANT:
        return step.default
    return [] if step.default_kind == EMPTY_LIST else step.default()


def is_default(step: Step, value: Any) -> bool:
    """Whether a value equals the field's default, including nested structs."""
    if value is step.default:
        return True
    if step.default is None or value is None:
        return False
    if step.is_array:
        return not value
    if step.kind == STRUCT:
        return is_default_struct(step.plan, value)  # type: ignore[arg-type] # a struct has a plan
    return bool(value == step.default)


def is_default_struct(plan: Plan, message: Any) -> bool:
    """Whether all of a struct's fields, in all versions, hold their defaults."""
    for step in plan.every:
        if not is_default(step, getattr(message, step.name)):
            return False
    return not has_unknown_tags(plan, message)


def has_unknown_tags(plan: Plan, message: Any) -> bool:
    """Whether the message has unknown tagged fields."""
    return type(message) is not plan.cls and len(message.unknown_tagged_fields) > 0


# ---------------------------------------------------------------- decoding


class Reader:
    """A read position in a message."""

    __slots__ = ("allowance", "data", "end", "position", "source")

    source: memoryview
    data: Buffer
    position: int
    end: int
    allowance: int
    """Elements that the message may still announce."""

    def charge(self, elements: int) -> None:
        """Take what is about to be made from the allowance; TooManyElements where it is used up."""
        self.allowance -= elements
        if self.allowance < 0:
            raise TooManyElements("the message announces too many elements")

    def need(self, size: int) -> int:
        """Skip size bytes and return their start; raises IndexError if fewer remain."""
        start = self.position
        if size > self.end - start:
            raise IndexError("not enough bytes")
        self.position = start + size
        return start

    def uvarint(self) -> int:
        """Read an unsigned varint of at most five bytes."""
        byte = self.data[self.need(1)]
        if byte < 0x80:
            return byte
        value = byte & 0x7F
        shift = 7
        while True:
            byte = self.data[self.need(1)]
            bits = byte & 0x7F
            value |= bits << shift
            if byte < 0x80:
                return value
            shift += 7
            if shift > 28:
                raise CorruptMessage(
                    "varint is too long, the most significant bit in the 5th byte is set"
                )

    def integer(self, width: int, *, signed: bool) -> int:
        """Read a big-endian integer of 1, 2, 4 or 8 bytes."""
        start = self.need(width)
        byte = self.data[start]
        value = byte
        if signed and value > 127:
            value -= 256
        index = 1
        while index < width:
            byte = self.data[start + index]
            value = value * 256 + byte
            index += 1
        return value


def read(
    plan: Plan, source: memoryview, position: int, end: int, allowance: int
) -> tuple[Any, int]:
    """Read one message at position; return it and the position after it."""
    reader = reader_at(source, position, end, allowance)
    message = read_struct(reader, plan)
    return message, reader.position


def reader_at(source: memoryview, position: int, end: int, allowance: int) -> Reader:
    """Return a reader of a part of a buffer."""
    reader = Reader.__new__(Reader)  # without a call of its type
    reader.source = source
    reader.data = native.bytes_of(source)
    reader.position = position
    reader.end = end
    reader.allowance = allowance
    return reader


def read_struct(reader: Reader, plan: Plan) -> Any:
    """Read a struct's fields into a new object."""
    message = _new_object(plan.cls)
    for step in plan.absent:
        setattr(message, step.name, default_of(step))
    for step in plan.steps:
        setattr(message, step.name, read_field(reader, step))
    if plan.flexible:
        count = reader.uvarint()
        if count:
            return read_tags(reader, plan, message, count)
    return message


def read_field(reader: Reader, step: Step) -> Any:
    """Read a field's value; None for a null."""
    if step.is_array:
        return read_array(reader, step)
    if step.kind < FIXED_END:
        return read_fixed(reader, step)
    if step.kind == STRUCT:
        return read_single_struct(reader, step)
    length = read_length(reader, step.compact, 2 if step.kind == TEXT else 4)
    if length < 0:
        return null_of(step)
    if length > reader.end - reader.position or (step.kind == TEXT and length > LONGEST_TEXT):
        raise too_many(step)
    return read_run(reader, step.kind, length)


def charge_run(reader: Reader, kind: int, length: int) -> None:
    """Charge for the copy of a text or of bytes; records are views."""
    if kind == TEXT:
        reader.charge(length >> _TEXT_SHIFT)
    elif kind == BYTES:
        reader.charge(length >> _BYTES_SHIFT)


def read_fixed(reader: Reader, step: Step) -> Any:
    """Read a value of fixed size."""
    if step.kind == SIGNED:
        return reader.integer(step.width, signed=True)
    if step.kind == UUID:
        start = reader.need(16)
        return _new_bytes(Uuid, reader.source[start : start + 16])
    if step.kind == UNSIGNED:
        return reader.integer(step.width, signed=False)
    if step.kind == BOOL:
        return reader.data[reader.need(1)] != 0
    start = reader.need(8)
    return _unpack_double(reader.source[start : start + 8])[0]


def read_length(reader: Reader, compact: bool, width: int) -> int:  # noqa: FBT001 - as compiled
    """Read the number of bytes or elements that follow; -1 for null."""
    if compact:
        return reader.uvarint() - 1
    return reader.integer(width, signed=True)


def read_run(reader: Reader, kind: int, length: int) -> Any:
    """Read a string, a copy of bytes, or a view of records."""
    start = reader.need(length)
    if length > 127:  # 1 << TEXT_SHIFT: most are shorter
        charge_run(reader, kind, length)
    part = reader.source[start : start + length]
    if kind == TEXT:
        return str(part, "utf-8", "replace")
    return bytes(part) if kind == BYTES else part


def null_of(step: Step) -> None:
    """Return None for a nullable field; raise CorruptMessage for others."""
    if not step.nullable:
        raise CorruptMessage(f"non-nullable field {step.name} was serialized as null")


def too_many(step: Step) -> CorruptMessage:
    """Return the error for a length that exceeds the message."""
    return CorruptMessage(f"{step.name}: more elements or bytes announced than the message holds")


def read_single_struct(reader: Reader, step: Step) -> Any:
    """Read a struct, preceded by a byte if it is nullable."""
    if step.nullable:
        if step.tag >= 0:
            if not reader.uvarint():
                return None
        elif reader.data[reader.need(1)] > 127:
            return None
    return read_struct(reader, step.plan)  # type: ignore[arg-type] # a struct has a plan


def read_array(reader: Reader, step: Step) -> Any:
    """Read an array."""
    length = read_length(reader, step.compact, 4)
    if length < 0:
        return null_of(step)
    if length * step.smallest > reader.end - reader.position:
        raise too_many(step)
    reader.charge(length)
    items: list[Any] = []
    read_items(reader, step, items, length)
    return items


def read_items(reader: Reader, step: Step, items: list[Any], count: int) -> None:
    """Append the next elements of an array that has been charged."""
    while count > 0:
        count -= 1
        if step.kind == STRUCT:
            items.append(read_struct(reader, step.plan))  # type: ignore[arg-type] # see above
        elif step.kind < FIXED_END:
            items.append(read_fixed(reader, step))
        else:
            items.append(read_element(reader, step))


def read_element(reader: Reader, step: Step) -> Any:
    """Read a string or bytes in an array, where null is not allowed."""
    size = read_length(reader, step.compact, 2 if step.kind == TEXT else 4)
    if (
        size < 0
        or size > reader.end - reader.position
        or (step.kind == TEXT and size > LONGEST_TEXT)
    ):
        raise CorruptMessage(f"bad length in {step.name}")
    return read_run(reader, step.kind, size)


def read_tags(reader: Reader, plan: Plan, message: Any, count: int) -> Any:
    """Read tagged fields; unknown ones are kept."""
    if count > reader.end - reader.position:
        raise CorruptMessage("more tagged fields announced than the message holds")
    reader.charge(count)
    unknown = []
    while count > 0:
        count -= 1
        tag = reader.uvarint()
        size = reader.uvarint()
        if size > reader.end - reader.position:
            raise CorruptMessage("tagged field is longer than the message")
        step = step_of_tag(plan, tag)
        if step is None:
            if size > 127:
                charge_run(reader, BYTES, size)
            start = reader.need(size)
            unknown.append((tag, bytes(reader.source[start : start + size])))
        else:
            setattr(message, step.name, read_field(reader, step))
    return keep_unknown(message, unknown) if unknown else message


def step_of_tag(plan: Plan, tag: int) -> Step | None:
    """Return the field with this tag, None for an unknown one."""
    for step in plan.tagged:
        if step.tag == tag:
            return step
    return None


# ---------------------------------------------------------------- encoding


class Writer:
    """A growing buffer; records are inserted between its parts without a copy."""

    __slots__ = ("buffer", "out", "raw", "room", "size")

    buffer: bytearray
    raw: bytearray
    room: int
    size: int
    out: list[SendItem]

    def need(self, size: int) -> int:
        """Reserve size bytes and return their position."""
        start = self.size
        if start + size > self.room:
            self.buffer.extend(bytes(start + size))
            self.room = len(self.buffer)
            self.raw = self.buffer
        self.size = start + size
        return start

    def byte(self, value: int) -> None:
        """Write one byte."""
        start = self.need(1)
        self.raw[start] = value

    def integer(self, value: int, width: int) -> None:
        """Write a big-endian integer; the caller has checked its range."""
        start = self.need(width)
        index = width - 1
        while index >= 0:
            self.raw[start + index] = value & 0xFF
            value >>= 8
            index -= 1

    def uvarint(self, value: int) -> None:
        """Write an unsigned varint."""
        while value > 0x7F:
            self.byte((value & 0x7F) | 0x80)
            value >>= 7
        self.byte(value)

    def run(self, data: bytes, size: int) -> None:
        """Copy bytes."""
        start = self.need(size)
        raw = native.bytes_of(data)
        index = 0
        while index < size:
            self.raw[start + index] = raw[index]
            index += 1

    def flush(self) -> None:
        """Append the written bytes to the output as one part."""
        if self.size:
            self.out.append(bytes(self.raw[: self.size]))
            self.size = 0

    def frame(self, following_bytes: int) -> bytes:
        """Return what was written, its first four bytes being the size of all that follows."""
        size = self.size
        self.size = 0
        self.integer(size - 4 + following_bytes, 4)
        return bytes(self.raw[:size])


def writer_into(out: list[SendItem]) -> Writer:
    """Return a writer that appends its parts to a list."""
    writer = Writer.__new__(Writer)  # without a call of its type
    writer.buffer = native.new_bytearray(FIRST_BUFFER_BYTES)
    writer.raw = writer.buffer
    writer.room = FIRST_BUFFER_BYTES
    writer.size = 0
    writer.out = out
    return writer


def write(plan: Plan, message: Any, out: list[SendItem]) -> None:
    """Append the encoded message to out."""
    writer = writer_into(out)
    write_struct(writer, plan, message)
    writer.flush()


def write_struct(writer: Writer, plan: Plan, message: Any) -> None:
    """Write a struct's fields."""
    for step in plan.guarded:
        if not is_default(step, getattr(message, step.name)):
            refuse(plan, message, step)
    for step in plan.steps:
        write_field(writer, step, getattr(message, step.name))
    if plan.flexible:
        if is_untagged(plan, message):
            writer.byte(0)
        else:
            write_tags(writer, plan, message)


def refuse(plan: Plan, message: Any, lost: Step) -> None:
    """Raise UnsupportedVersion for a field, or the error of a preceding one."""
    scratch = writer_into([])
    for step in plan.every:
        if step is lost:
            break
        if step in plan.steps:
            write_field(scratch, step, getattr(message, step.name))
    raise UnsupportedVersion(
        f"Attempted to write a non-default {lost.name} at version {plan.version}"
    )


def is_untagged(plan: Plan, message: Any) -> bool:
    """Whether there are no tagged fields to write."""
    for step in plan.tagged:
        if not is_default(step, getattr(message, step.name)):
            return False
    return not has_unknown_tags(plan, message)


def write_field(writer: Writer, step: Step, value: Any) -> None:
    """Write a field's value; a null for None in a nullable field."""
    if value is None and step.nullable:
        write_null(writer, step)
    elif step.is_array:
        write_array(writer, step, value)
    elif step.kind < FIXED_END:
        write_fixed(writer, step, value)
    elif step.kind == STRUCT:
        if step.nullable:
            writer.byte(1)
        write_struct(writer, step.plan, value)  # type: ignore[arg-type] # a struct has a plan
    elif step.kind == RECORDS:
        write_records(writer, step, value)
    else:
        write_run(writer, step, value)


def write_null(writer: Writer, step: Step) -> None:
    """Write a null."""
    if step.kind == STRUCT and not step.is_array:
        writer.byte(0 if step.tag >= 0 else 0xFF)
    elif step.compact:
        writer.byte(0)
    else:
        writer.integer(-1, 2 if step.kind == TEXT and not step.is_array else 4)


def write_fixed(writer: Writer, step: Step, value: Any) -> None:
    """Write a value of fixed size; ValueError when it is out of range."""
    if step.kind in (SIGNED, UNSIGNED):
        number = value
        if number < step.low or number > step.high:
            raise ValueError(f"{step.name} = {value} is out of range")
        writer.integer(number, step.width)
    elif step.kind == BOOL:
        writer.byte(1 if value else 0)
    elif step.kind == UUID:
        if len(value) != 16:
            raise ValueError(f"{step.name}: a Uuid has 16 bytes")
        writer.run(value, 16)
    else:
        writer.run(_pack_double(value), 8)


def write_length(writer: Writer, length: int, compact: bool, width: int) -> None:  # noqa: FBT001
    """Write the number of bytes or elements that follow."""
    if compact:
        writer.uvarint(length + 1)
    else:
        writer.integer(length, width)


def write_run(writer: Writer, step: Step, value: Any) -> None:
    """Write a string or bytes."""
    if step.kind == TEXT:
        data = value.encode()
        if len(data) > LONGEST_TEXT:
            raise ValueError("text is too long")
        write_length(writer, len(data), step.compact, 2)
    else:
        data = value if type(value) is bytes else bytes(memoryview(value))
        write_length(writer, len(data), step.compact, 4)
    writer.run(data, len(data))


def write_records(writer: Writer, step: Step, value: Any) -> None:
    """Write the size of records and append them without a copy."""
    write_length(writer, size_of(value), step.compact, 4)
    writer.flush()
    if isinstance(value, list):
        writer.out.extend(value)
    else:
        writer.out.append(value)


def size_of(parts: Any) -> int:
    """Return the number of bytes of a records value: a buffer or a list of parts."""
    if isinstance(parts, list):
        return sum([size_of(part) for part in parts])
    return parts.size if isinstance(parts, FileSlice) else len(parts)


def write_array(writer: Writer, step: Step, value: Any) -> None:
    """Write an array."""
    write_length(writer, len(value), step.compact, 4)
    for item in value:
        if step.kind == STRUCT:
            write_struct(writer, step.plan, item)  # type: ignore[arg-type] # see above
        elif step.kind < FIXED_END:
            write_fixed(writer, step, item)
        else:
            write_run(writer, step, item)


def write_tags(writer: Writer, plan: Plan, message: Any) -> None:
    """Write tagged fields with non-default values and unknown ones, in the order of tags."""
    found: dict[int, list[SendItem]] = {}
    for step in plan.tagged:
        value = getattr(message, step.name)
        if not is_default(step, value):
            parts: list[SendItem] = []
            inner = writer_into(parts)
            write_field(inner, step, value)
            inner.flush()
            found[step.tag] = parts
    for tag, data in message.unknown_tagged_fields:
        found[tag] = [data]
    writer.uvarint(len(found))
    for tag in sorted(found):
        parts = found[tag]
        writer.uvarint(tag)
        writer.uvarint(size_of(parts))
        writer.flush()
        writer.out.extend(parts)
