"""Compiles an encoder and a decoder per (message class, version) on first use.

Kafka: the `read`/`write` methods of the generated message classes. Hot path: benchmarks/codec.py.

For each pair a Python function is generated as source text: nested structs are unrolled in place as
loops, runs of fixed-size fields are packed by one `struct.Struct`, and all names are globals of the
function. The text goes into `linecache`, so tracebacks and debuggers show it. Only the schema
classes of this package reach `exec`, no input.

Encoders append to a list (`w`) of buffers; records are appended as they are, never copied.
Decoders take a memoryview (`b`), a position (`p`) and the end (`e`) and return (object, position).
Every length is checked against the bytes that are left before anything is allocated, and charged to
the allowance (`left`) as the walker does.
"""

from __future__ import annotations

import linecache
import struct
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.errors import CorruptMessage, TooManyElements, UnsupportedVersion
from ottla.protocol import walker
from ottla.protocol.plans import FIXED, AtVersion, plan_of
from ottla.protocol.primitives import decode_uvarint, encode_uvarint
from ottla.protocol.tagged_fields import keep_unknown
from ottla.types import FileSlice, SendItem, Uuid

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.protocol.schema import Field, Struct, StructMeta

    Encoder = Callable[[Struct, list[SendItem]], None]
    Decoder = Callable[[memoryview, int, int, int], tuple[Any, int]]

S = TypeVar("S", bound="Struct")

WALKS = not (walker.__file__ or "").endswith(".py")
"""Whether the walker was compiled: then it is faster than functions written here."""
_encoders: dict[tuple[StructMeta, int], Encoder] = {}
_decoders: dict[tuple[StructMeta, int], Decoder] = {}


# ---------------------------------------------------------------- public functions


def encode_into(message: Struct, version: int, out: list[SendItem]) -> None:
    """Append the encoded message to out.

    Raises UnsupportedVersion when a field that is not ignorable holds a value that this version
    cannot carry, and ValueError for values outside their type.
    """
    key = (type(message), version)
    encoder = _encoders.get(key) or _compile_encoder(*key)
    try:
        encoder(message, out)
    except (struct.error, AttributeError, TypeError, OverflowError) as error:
        raise ValueError(f"{type(message).__name__} v{version}: {error}") from error


def encode(message: Struct, version: int) -> list[SendItem]:
    """Return the encoded message as buffers and file slices, in order."""
    out: list[SendItem] = []
    encode_into(message, version, out)
    return out


def to_bytes(message: Struct, version: int) -> bytes:
    """Return the encoded message as one object; file slices are read."""
    parts = encode(message, version)
    if len(parts) == 1 and type(parts[0]) is bytes:
        return parts[0]
    return b"".join([part.read() if isinstance(part, FileSlice) else part for part in parts])


def decode_at(
    cls: type[S],
    version: int,
    buffer: memoryview,
    position: int = 0,
    allowance: int = walker.UNBOUNDED,
) -> tuple[S, int]:
    """Decode one message at position; return it and the position after it.

    Raises CorruptMessage for bytes that are no such message (TooManyElements where it announces
    more than the allowance), UnsupportedVersion for a version outside the class's range. Records
    are views of the buffer, everything else is a copy.
    """
    key = (cls, version)
    decoder = _decoders.get(key) or _compile_decoder(*key)
    try:
        message, position = decoder(buffer, position, len(buffer), allowance)
    except (struct.error, IndexError) as error:
        raise CorruptMessage(f"{cls.__name__} v{version} ends early: {error}") from error
    return message, position


def decode(cls: type[S], version: int, buffer: Any) -> S:
    """Decode one message from the start of a bytes-like object."""
    return decode_at(cls, version, memoryview(buffer))[0]


# ---------------------------------------------------------------- generated functions


class _Source(AtVersion):
    """The text of one function and the globals that it needs."""

    def __init__(self, cls: StructMeta, version: int) -> None:
        super().__init__(cls, version)
        self.cls = cls
        self.lines: list[str] = []
        self.names: dict[str, Any] = {
            "Uuid": Uuid,
            "uvarint": encode_uvarint,
            "read_uvarint": decode_uvarint,
            "corrupt": CorruptMessage,
            "too_many": _too_many,
            "cannot_carry": _cannot_carry,
            "records_size": records_size,
        }
        self.counter = 0

    def line(self, depth: int, text: str) -> None:
        self.lines.append("  " * depth + text)

    def fresh(self, stem: str) -> str:
        self.counter += 1
        return f"{stem}{self.counter}"

    def bind(self, stem: str, value: Any) -> str:
        name = self.fresh(stem)
        self.names[name] = value
        return name

    def finish(self, kind: str) -> Any:
        filename = f"<{kind} {self.cls.__qualname__} v{self.version}>"
        text = "\n".join(self.lines) + "\n"
        linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
        exec(compile(text, filename, "exec"), self.names)  # noqa: S102 - text made above
        return self.names["run"]


def _check_version(cls: StructMeta, version: int) -> None:
    if version not in cls.versions:
        raise UnsupportedVersion(f"{cls.__name__} has no version {version}")


def _cannot_carry(name: str, version: int) -> UnsupportedVersion:
    return UnsupportedVersion(f"Attempted to write a non-default {name} at version {version}")


def _too_many() -> TooManyElements:
    return TooManyElements("the message announces too many elements")


def records_size(parts: Any) -> int:
    """Return the number of bytes in a records value of any form."""
    if not isinstance(parts, list):
        return parts.size if isinstance(parts, FileSlice) else len(parts)
    size = 0
    for part in parts:
        size += part.size if isinstance(part, FileSlice) else len(part)
    return size


# ---------------------------------------------------------------- encoders


def _compile_encoder(cls: StructMeta, version: int) -> Encoder:
    _check_version(cls, version)
    encoder = partial(walker.write, plan_of(cls, version)) if WALKS else write_encoder(cls, version)
    _encoders[cls, version] = encoder
    return encoder


def write_encoder(cls: StructMeta, version: int) -> Encoder:
    """Write the function that encodes a message at a version."""
    source = _Source(cls, version)
    source.line(0, "def run(o, out):")
    source.line(1, "w = out.append")
    _encode_struct(source, cls, "o", 1)
    encoder: Encoder = source.finish("encode")
    return encoder


def _encode_struct(source: _Source, cls: StructMeta, value: str, depth: int) -> None:
    fixed: list[tuple[str, str]] = []
    for field in cls.fields:
        if not source.carries(field):
            _refuse_lost_value(source, field, value, depth)
        elif source.is_tagged(field):
            continue
        elif field.element in FIXED and not field.is_array:
            fixed.append((FIXED[field.element], f"{value}.{field.name}"))
        else:
            _flush_fixed(source, fixed, depth)
            _encode_field(source, field, f"{value}.{field.name}", depth)
    _flush_fixed(source, fixed, depth)
    if source.flexible:
        _encode_tagged_fields(source, cls, value, depth)


def _refuse_lost_value(source: _Source, field: Field, value: str, depth: int) -> None:
    if field.ignorable:
        return
    source.line(depth, f"if {_is_not_default(source, field, f'{value}.{field.name}')}:")
    source.line(depth + 1, f"raise cannot_carry({field.name!r}, {source.version})")


def _is_not_default(source: _Source, field: Field, value: str) -> str:
    if field.default is None:
        return f"{value} is not None"
    if field.is_array:
        return f"{value} is None or {value}"
    if field.struct is not None:
        tests = [f"{value} is None", f"{value}.unknown_tagged_fields"]
        tests += [
            _is_not_default(source, one, f"{value}.{one.name}") for one in field.struct.fields
        ]
        return " or ".join(tests)
    plain = type(field.default) in (int, bool, str, bytes)
    return (
        f"{value} != {field.default!r}"
        if plain
        else f"{value} != {source.bind('default', field.default)}"
    )


def _flush_fixed(source: _Source, fixed: list[tuple[str, str]], depth: int) -> None:
    if not fixed:
        return
    packer = source.bind("pack", struct.Struct(">" + "".join(code for code, _ in fixed)).pack)
    source.line(depth, f"w({packer}({', '.join(value for _, value in fixed)}))")
    fixed.clear()


def _encode_field(source: _Source, field: Field, value: str, depth: int) -> None:
    nullable = source.version in field.nullable
    compact = source.is_flexible(field)
    local = source.fresh("v")
    source.line(depth, f"{local} = {value}")
    if not nullable:
        _encode_present(source, field, local, depth, compact=compact)
        return
    source.line(depth, f"if {local} is None:")
    source.line(depth + 1, f"w({_null_marker(source, field, compact=compact)!r})")
    source.line(depth, "else:")
    _encode_present(source, field, local, depth + 1, compact=compact, nullable=True)


def _null_marker(source: _Source, field: Field, *, compact: bool) -> bytes:
    if field.struct is not None and not field.is_array:
        return b"\0" if source.is_tagged(field) else b"\xff"  # a varint there, an int8 here
    if compact:
        return b"\0"
    return b"\xff\xff" if field.element == "str" and not field.is_array else b"\xff\xff\xff\xff"


def _encode_present(
    source: _Source, field: Field, value: str, depth: int, *, compact: bool, nullable: bool = False
) -> None:
    if field.is_array:
        source.line(depth, f"w({_length(source, f'len({value})', 'i', compact=compact)})")
        _encode_elements(source, field, value, depth)
    elif field.struct is not None:
        if nullable:
            source.line(depth, r"w(b'\x01')")
        _encode_struct(source, field.struct, value, depth)
    elif field.element == "Records":
        source.line(depth, f"w({_length(source, f'records_size({value})', 'i', compact=compact)})")
        source.line(depth, f"out.extend({value}) if isinstance({value}, list) else w({value})")
    else:
        _encode_scalar(source, field.element, value, depth, compact=compact)


def _encode_elements(source: _Source, field: Field, value: str, depth: int) -> None:
    if field.element in FIXED:
        codes = FIXED[field.element]
        source.names["pack"] = struct.pack
        if field.element == "Uuid":
            source.line(depth, f"w(b''.join({value}))")
        else:
            source.line(depth, f"w(pack(f'>{{len({value})}}{codes}', *{value}))")
        return
    item = source.fresh("x")
    source.line(depth, f"for {item} in {value}:")
    if field.struct is not None:
        before = len(source.lines)
        _encode_struct(source, field.struct, item, depth + 1)
        if len(source.lines) == before:
            source.line(depth + 1, "pass")
    else:
        _encode_scalar(source, field.element, item, depth + 1, compact=source.is_flexible(field))


def _encode_scalar(source: _Source, kind: str, value: str, depth: int, *, compact: bool) -> None:
    if kind in FIXED:
        packer = source.bind("pack", struct.Struct(">" + FIXED[kind]).pack)
        source.line(depth, f"w({packer}({value}))")
        return
    if kind == "str":
        encoded = source.fresh("s")
        source.line(depth, f"{encoded} = {value}.encode()")
        if compact:
            source.line(depth, f"if len({encoded}) > 32767: raise ValueError('text is too long')")
        source.line(depth, f"w({_length(source, f'len({encoded})', 'h', compact=compact)})")
        source.line(depth, f"w({encoded})")
        return
    source.line(depth, f"w({_length(source, f'len({value})', 'i', compact=compact)})")
    source.line(depth, f"w({value})")


def _length(source: _Source, length: str, code: str, *, compact: bool) -> str:
    if compact:
        return f"uvarint({length} + 1)"
    name = f"length_{code}"
    source.names[name] = struct.Struct(">" + code).pack
    return f"{name}({length})"


def _encode_tagged_fields(source: _Source, cls: StructMeta, value: str, depth: int) -> None:
    tagged = sorted(
        (f for f in cls.fields if source.carries(f) and source.is_tagged(f)),
        key=lambda f: f.tag or 0,
    )
    unknown = f"{value}.unknown_tagged_fields"
    source.names["tagged"] = _tagged_section
    local = source.fresh("t") if tagged else "{}"
    if tagged:
        source.line(depth, f"{local} = {{}}")
    for field in tagged:
        _encode_tagged_field(source, field, f"{value}.{field.name}", local, depth)
    present = f"{local} or {unknown}" if tagged else unknown
    source.line(depth, f"if {present}: out.extend(tagged({local}, {unknown}))")
    source.line(depth, r"else: w(b'\0')")


def _encode_tagged_field(source: _Source, field: Field, value: str, tags: str, depth: int) -> None:
    source.line(depth, f"if {_is_not_default(source, field, value)}:")
    parts = source.fresh("parts")
    saved = source.fresh("saved")
    source.line(depth + 1, f"{parts} = []; {saved} = out, w; out = {parts}; w = out.append")
    if field.element in FIXED and not field.is_array:
        _encode_scalar(source, field.element, value, depth + 1, compact=True)
    else:
        _encode_field(source, field, value, depth + 1)
    source.line(depth + 1, f"out, w = {saved}")
    source.line(depth + 1, f"{tags}[{field.tag}] = {parts}")


def _tagged_section(
    known: dict[int, list[SendItem]], unknown: tuple[tuple[int, bytes], ...]
) -> list[SendItem]:
    """Return the number of tagged fields, then tag, size, bytes of each, by rising tag."""
    every = dict(known)
    every.update((tag, [data]) for tag, data in unknown)
    out: list[SendItem] = [encode_uvarint(len(every))]
    for tag in sorted(every):
        out += (encode_uvarint(tag), encode_uvarint(records_size(every[tag])), *every[tag])
    return out


# ---------------------------------------------------------------- decoders


def _compile_decoder(cls: StructMeta, version: int) -> Decoder:
    _check_version(cls, version)
    decoder = partial(walker.read, plan_of(cls, version)) if WALKS else write_decoder(cls, version)
    _decoders[cls, version] = decoder
    return decoder


def write_decoder(cls: StructMeta, version: int) -> Decoder:
    """Write the function that decodes a message at a version."""
    source = _Source(cls, version)
    source.line(0, "def run(b, p, e, left):")
    result = _decode_struct(source, cls, 1)
    source.line(1, f"return {result}, p")
    decoder: Decoder = source.finish("decode")
    return decoder


def _decode_struct(source: _Source, cls: StructMeta, depth: int) -> str:
    value = source.fresh("o")
    source.line(depth, f"{value} = new({source.bind('cls', cls)})")
    source.names["new"] = object.__new__
    fixed: list[Field] = []
    for field in cls.fields:
        if not source.carries(field) or source.is_tagged(field):
            source.line(depth, f"{value}.{field.name} = {_default_text(source, field)}")
        elif field.element in FIXED and not field.is_array:
            fixed.append(field)
        else:
            _read_fixed(source, fixed, value, depth)
            _decode_field(source, field, f"{value}.{field.name}", depth)
    _read_fixed(source, fixed, value, depth)
    if source.flexible:
        _decode_tagged_fields(source, cls, value, depth)
    return value


def _default_text(source: _Source, field: Field) -> str:
    if field.default is None:
        return "None"
    if field.is_array:
        return "[]"
    if field.struct is not None:
        return f"{source.bind('make', field.make_default)}()"
    return source.bind("default", field.default)


def _read_fixed(source: _Source, fixed: list[Field], value: str, depth: int) -> None:
    if not fixed:
        return
    layout = struct.Struct(">" + "".join(FIXED[field.element] for field in fixed))
    targets = "".join(f"{value}.{field.name}, " for field in fixed)
    source.line(depth, f"{targets} = {source.bind('unpack', layout.unpack_from)}(b, p)")
    source.line(depth, f"p += {layout.size}")
    for field in fixed:
        if field.element == "Uuid":
            source.line(depth, f"{value}.{field.name} = Uuid({value}.{field.name})")
    fixed.clear()


def _decode_field(source: _Source, field: Field, target: str, depth: int) -> None:
    compact = source.is_flexible(field)
    if field.struct is not None and not field.is_array:
        _decode_single_struct(source, field, target, depth)
        return
    short = field.element == "str" and not field.is_array
    length = _read_length(source, "h" if short else "i", depth, compact=compact)
    source.line(depth, f"if {length} < 0:")
    if source.version in field.nullable:
        source.line(depth + 1, f"{target} = None")
    else:
        message = f"non-nullable field {field.name} was serialized as null"
        source.line(depth + 1, f"raise corrupt({message!r})")
    source.line(depth, "else:")
    _decode_present(source, field, target, length, depth + 1)


def _decode_single_struct(source: _Source, field: Field, target: str, depth: int) -> None:
    assert field.struct is not None
    if source.version not in field.nullable:
        inner = _decode_struct(source, field.struct, depth)
        source.line(depth, f"{target} = {inner}")
        return
    if source.is_tagged(field):
        source.line(depth, "present, p = read_uvarint(b, p)")
        source.line(depth, "if not present:")
    else:
        source.line(depth, "p += 1")
        source.line(depth, "if b[p - 1] > 127:")
    source.line(depth + 1, f"{target} = None")
    source.line(depth, "else:")
    inner = _decode_struct(source, field.struct, depth + 1)
    source.line(depth + 1, f"{target} = {inner}")


def _read_length(source: _Source, code: str, depth: int, *, compact: bool) -> str:
    length = source.fresh("n")
    if compact:
        source.line(depth, f"{length} = b[p] - 1; p += 1")
        source.line(
            depth, f"if {length} > 126: {length}, p = read_uvarint(b, p - 1); {length} -= 1"
        )
    else:
        name = f"length_{code}"
        source.names[name] = struct.Struct(">" + code).unpack_from
        source.line(depth, f"{length}, = {name}(b, p); p += {2 if code == 'h' else 4}")
    return length


def _decode_present(source: _Source, field: Field, target: str, length: str, depth: int) -> None:
    bound = _beyond(field.element, length)
    if field.is_array:
        bound = f"{length} * {source.smallest_size(field)} > e - p"
    source.line(depth, f"if {bound}:")
    message = f"{field.name}: more elements or bytes announced than the message holds"
    source.line(depth + 1, f"raise corrupt({message!r})")
    if field.is_array:
        _charge(source, length, depth)
        _decode_array(source, field, target, length, depth)
        return
    _charge_run(source, field.element, length, depth)
    source.line(depth, f"{target} = {_slice(field.element, length)}; p += {length}")


def _charge(source: _Source, elements: str, depth: int) -> None:
    source.line(depth, f"left -= {elements}")
    source.line(depth, "if left < 0: raise too_many()")


def _charge_run(source: _Source, kind: str, length: str, depth: int) -> None:
    """Charge for the copy of a text or of bytes."""
    if kind == "Records":
        return
    shift = walker.TEXT_SHIFT if kind == "str" else walker.BYTES_SHIFT
    source.line(depth, f"if {length} > 127:")
    _charge(source, f"{length} >> {shift}", depth + 1)


def _beyond(kind: str, length: str) -> str:
    """Return the condition for a length beyond the remaining bytes, and for texts beyond int16."""
    left = f"{length} > e - p"
    return f"{left} or {length} > 32767" if kind == "str" else left


def _slice(kind: str, length: str) -> str:
    if kind == "str":
        return f"str(b[p:p + {length}], 'utf-8', 'replace')"
    return f"b[p:p + {length}]" if kind == "Records" else f"bytes(b[p:p + {length}])"


def _decode_array(source: _Source, field: Field, target: str, length: str, depth: int) -> None:
    if field.element in FIXED:
        _decode_fixed_array(source, field, target, length, depth)
        return
    items = source.fresh("a")
    source.line(depth, f"{target} = {items} = []")
    source.line(depth, f"for _ in range({length}):")
    if field.struct is not None:
        item = _decode_struct(source, field.struct, depth + 1)
        source.line(depth + 1, f"{items}.append({item})")
        return
    compact = source.is_flexible(field)
    size = _read_length(source, "h" if field.element == "str" else "i", depth + 1, compact=compact)
    bound = f"{size} < 0 or {_beyond(field.element, size)}"
    source.line(depth + 1, f"if {bound}: raise corrupt('bad length in {field.name}')")
    _charge_run(source, field.element, size, depth + 1)
    source.line(depth + 1, f"{items}.append({_slice(field.element, size)}); p += {size}")


def _decode_fixed_array(
    source: _Source, field: Field, target: str, length: str, depth: int
) -> None:
    code = FIXED[field.element]
    width = struct.calcsize(">" + code)
    source.names["unpack_from"] = struct.unpack_from
    if field.element == "Uuid":
        source.line(
            depth, f"{target} = [Uuid(b[i:i + 16]) for i in range(p, p + {length} * 16, 16)]"
        )
    else:
        source.line(depth, f"{target} = list(unpack_from(f'>{{{length}}}{code}', b, p))")
    source.line(depth, f"p += {length} * {width}")


def _decode_tagged_fields(source: _Source, cls: StructMeta, value: str, depth: int) -> None:
    count = source.fresh("n")
    source.line(depth, f"{count} = b[p]; p += 1")
    source.line(depth, f"if {count}:")
    source.line(depth + 1, f"{count}, p = read_uvarint(b, p - 1); unknown = []")
    text = "more tagged fields announced than the message holds"
    source.line(depth + 1, f"if {count} > e - p: raise corrupt({text!r})")
    _charge(source, count, depth + 1)
    source.line(depth + 1, f"for _ in range({count}):")
    source.line(depth + 2, "tag, p = read_uvarint(b, p); size, p = read_uvarint(b, p)")
    source.line(
        depth + 2, "if size > e - p: raise corrupt('tagged field is longer than the message')"
    )
    branch = "if"
    for field in cls.fields:
        if source.carries(field) and source.is_tagged(field):
            source.line(depth + 2, f"{branch} tag == {field.tag}:")
            _decode_tagged_field(source, field, f"{value}.{field.name}", depth + 3)
            branch = "elif"
    if branch == "elif":
        source.line(depth + 2, "else:")
    inner = depth + (3 if branch == "elif" else 2)
    _charge_run(source, "bytes", "size", inner)
    source.line(inner, "unknown.append((tag, bytes(b[p:p + size]))); p += size")
    source.line(depth + 1, f"if unknown: {value} = keep_unknown({value}, unknown)")
    source.names["keep_unknown"] = keep_unknown


def _decode_tagged_field(source: _Source, field: Field, target: str, depth: int) -> None:
    if field.element in FIXED and not field.is_array:
        layout = struct.Struct(">" + FIXED[field.element])
        source.line(depth, f"{target}, = {source.bind('unpack', layout.unpack_from)}(b, p)")
        source.line(depth, f"p += {layout.size}")
        if field.element == "Uuid":
            source.line(depth, f"{target} = Uuid({target})")
    else:
        _decode_field(source, field, target, depth)
