"""JSON with the schema of the value, or without: `{"schema": …, "payload": …}`.

Hot path: each schema is compiled once to a function that writes its values as text, and to one that
reads them; the text of a schema that was seen before is compared, not parsed.

Kafka: org.apache.kafka.connect.json.{JsonConverter, JsonConverterConfig}.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import math
import re
from collections import OrderedDict
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from functools import partial
from json.encoder import encode_basestring as _quote
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias, TypeVar

from ottla.config.checks import one_of_any_case
from ottla.config.definition import HIGH, LOW, Type, Width, double_text
from ottla.connect.converters import Converter, converter_definitions
from ottla.connect.data import (
    BOUNDS,
    DATE_NAME,
    DAY_MS,
    DECIMAL_NAME,
    TIME_NAME,
    TIMESTAMP_NAME,
    Schema,
    SchemaAndValue,
    SchemaType,
    Struct,
    check_value,
    date,
    decimal_bytes,
    decimal_from_bytes,
    struct_of,
    time_of_day,
    timestamp,
    timestamp_ms,
)
from ottla.connect.errors import DataException
from ottla.connect.values import (
    NULL,
    display_text,
    float32,
    float32_text,
    nearest_double,
    truncated,
    wrapped,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ottla.connect.data import Header

    Writer: TypeAlias = Callable[[Any], str]
    Reader: TypeAlias = Callable[[Any], Any]

_T = TypeVar("_T")
_MISSING: Final = object()
"""The absence of JSON: the empty text, or a name that an object lacks."""
_NODE_TYPES: Final[dict[type, str]] = {
    bool: "BOOLEAN",
    int: "NUMBER",
    float: "NUMBER",
    Decimal: "NUMBER",
    str: "STRING",
    list: "ARRAY",
    dict: "OBJECT",
    type(None): "NULL",
}
_ENVELOPE: Final = (
    'JsonConverter with schemas.enable requires "schema" and "payload" fields and may not contain '
    "additional fields. If you are trying to deserialize plain JSON data, set schemas.enable=false "
    "in your converter configuration."
)
_NOT_READ: Final = "Converting byte[] to Kafka Connect data failed due to serialization error: "
_NOT_WRITTEN: Final = "Converting Kafka Connect data to byte[] failed due to serialization error: "
# A string without an end is one match, too: an attempt at each of its quotes would be quadratic
_LEADING_ZEROS: Final = re.compile(r'("(?:[^"\\]|\\.)*+"?)|(?<![\d.eE+-])(-?)0+(?=\d)', re.DOTALL)
_MAX_CACHED_CHARS: Final = 4 << 20
"""Of schemas in messages, whose values take 20 times the memory of their texts."""
_PAYLOAD: Final = ',"payload":'
_PREFIXES: Final = 8
"""Texts of schemas that are compared with the beginning of a message, before it is parsed."""


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _exact(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:  # an exponent beyond those of the decimal module
        raise ValueError("the exponent is too large") from None


_PLAIN: Final = json.JSONDecoder(parse_constant=_no_constant)
_EXACT: Final = json.JSONDecoder(parse_constant=_no_constant, parse_float=_exact)


class _Cache(OrderedDict[Any, _T]):
    """Keeps the newest `size` entries; of texts as keys no more than `_MAX_CACHED_CHARS`."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size
        self._chars = 0

    def add(self, key: Any, value: _T) -> _T:
        self[key] = value
        self._chars += _chars(key)
        while len(self) > 1 and (len(self) > self.size or self._chars > _MAX_CACHED_CHARS):
            self._chars -= _chars(self.popitem(last=False)[0])
        return value


def _chars(key: Any) -> int:
    return len(key) if isinstance(key, str) else 0


class JsonConverter(Converter):
    """JSON, with the schema of each value unless `schemas.enable` is false."""

    definitions: ClassVar = (
        converter_definitions()
        .define(
            "schemas.enable",
            Type.BOOLEAN,
            True,
            "Include schemas within each of the serialized values and keys.",
            importance=HIGH,
            group="Schemas",
            order=0,
            width=Width.MEDIUM,
            display_name="Enable Schemas",
        )
        .define(
            "schemas.cache.size",
            Type.INT,
            1000,
            "The maximum number of schemas that can be cached in this converter instance.",
            importance=HIGH,
            group="Schemas",
            order=1,
            width=Width.MEDIUM,
            display_name="Schema Cache Size",
        )
        .define(
            "schema.content",
            Type.STRING,
            None,
            "When set, this is used as the schema for all messages, and the schemas within each of "
            "the message will be ignored.Otherwise, the schema will be included in the content of "
            "each message. This configuration applies only 'schemas.enable' is true, and it "
            "exclusively affects the sink connector.",
            importance=HIGH,
            group="Schemas",
            order=2,
            width=Width.MEDIUM,
            display_name="Schema Content",
        )
        .define(
            "decimal.format",
            Type.STRING,
            "BASE64",
            "Controls which format this converter will serialize decimals in. This value is case "
            "insensitive and can be either 'BASE64' (default) or 'NUMERIC'",
            one_of_any_case("BASE64", "NUMERIC"),
            importance=LOW,
            group="Serialization",
            order=0,
            width=Width.MEDIUM,
            display_name="Decimal Format",
        )
        .define(
            "replace.null.with.default",
            Type.BOOLEAN,
            True,
            "Whether to replace fields that have a default value and that are null to the default "
            "value. When set to true, the default value is used, otherwise null is used.",
            importance=LOW,
            group="Serialization",
            order=1,
            width=Width.MEDIUM,
            display_name="Replace null with default",
        )
    )

    def _use(self, values: Mapping[str, Any]) -> None:
        self._with_schemas = bool(values["schemas.enable"])
        self._is_numeric = values["decimal.format"].upper() == "NUMERIC"
        self._with_defaults = bool(values["replace.null.with.default"])
        size = values["schemas.cache.size"]
        self._writers: _Cache[tuple[str, Writer]] = _Cache(size)
        self._readers: _Cache[tuple[Schema | None, Reader]] = _Cache(size)
        self._prefixes: list[tuple[str, Schema | None, Reader]] = []
        self._fixed: tuple[Schema, Reader] | None = None
        content = values["schema.content"]
        if content:
            parsed = _parse(content, _EXACT, "Failed to parse schema in converter config: ")
            schema = self._read_schema(parsed)
            self._fixed = None if schema is None else (schema, self._reader(schema))

    # -------------------------------------------------------- writing

    def from_connect(
        self, topic: str, headers: Sequence[Header], schema: Schema | None, value: Any
    ) -> bytes | None:
        """Return the JSON of a value, None for None without a schema."""
        del topic, headers
        try:
            if schema is None:
                if value is None:
                    return None
                prefix, text = '{"schema":null,"payload":', _write_any(value)
            else:
                known = self._writers.get(schema)
                if known is None:
                    prefix = ""
                    if self._with_schemas:
                        prefix = f'{{"schema":{self._schema_text(schema)},"payload":'
                    known = self._writers.add(schema, (prefix, self._writer(schema)))
                prefix, text = known[0], known[1](value)
            return (prefix + text + "}" if self._with_schemas else text).encode()
        except (UnicodeEncodeError, RecursionError) as error:
            raise DataException(_NOT_WRITTEN) from error

    def _schema_text(self, schema: Schema, field: str | None = None) -> str:
        """Return a schema as JSON, with the name of the field that has it."""
        parts = [f'"type":"{schema.type.value}"']
        if schema.type is SchemaType.ARRAY:
            parts.append(f'"items":{self._nested_text(schema.value_schema)}')
        elif schema.type is SchemaType.MAP:
            parts.append(f'"keys":{self._nested_text(schema.key_schema)}')
            parts.append(f'"values":{self._nested_text(schema.value_schema)}')
        elif schema.type is SchemaType.STRUCT:
            fields = (self._schema_text(it.schema, it.name) for it in schema.fields)
            parts.append(f'"fields":[{",".join(fields)}]')
        parts.append(f'"optional":{"true" if schema.optional else "false"}')
        if schema.name is not None:
            parts.append(f'"name":{_quote(schema.name)}')
        if schema.version is not None:
            parts.append(f'"version":{schema.version}')
        if schema.doc is not None:
            parts.append(f'"doc":{_quote(schema.doc)}')
        if schema.parameters is not None:
            entries = (f"{_quote(name)}:{_quote(of)}" for name, of in schema.parameters.items())
            parts.append(f'"parameters":{{{",".join(entries)}}}')
        if schema.default is not None:
            parts.append(f'"default":{self._writer(schema)(schema.default)}')
        if field is not None:
            parts.append(f'"field":{_quote(field)}')
        return "{" + ",".join(parts) + "}"

    def _nested_text(self, schema: Schema | None) -> str:
        return "null" if schema is None else self._schema_text(schema)

    def _writer(self, schema: Schema | None) -> Writer:
        """Compile the function that returns a value as JSON."""
        if schema is None:
            return _write_any
        write = self._present(schema)
        if schema.default is not None and self._with_defaults:
            default_text = write(schema.default)
            return lambda value: default_text if value is None else write(value)
        if schema.optional:
            return lambda value: "null" if value is None else write(value)
        return write  # which refuses None, too

    def _present(self, schema: Schema) -> Writer:  # noqa: PLR0911 - a branch a type
        """Compile the function for values that are not None."""
        if schema.name == DECIMAL_NAME:
            return partial(_write_decimal, schema, self._is_numeric)
        logical = _LOGICAL_WRITERS.get(schema.name)
        if logical is not None:
            return logical
        kind = schema.type
        bound = BOUNDS.get(kind)
        if bound is not None:
            return partial(_write_integer, kind, bound)
        if kind is SchemaType.ARRAY:
            return partial(_write_array, self._writer(schema.value_schema))
        if kind is SchemaType.MAP:
            keys, values = self._writer(schema.key_schema), self._writer(schema.value_schema)
            is_object = schema.key_schema is not None and (
                schema.key_schema.type is SchemaType.STRING
            )
            return partial(_write_map, keys, values, is_object)
        if kind is SchemaType.STRUCT:
            fields = [(f"{_quote(it.name)}:", self._writer(it.schema)) for it in schema.fields]
            return partial(_write_struct, schema, fields)
        return _WRITERS[kind]

    # -------------------------------------------------------- reading

    def to_connect(
        self, topic: str, headers: Sequence[Header], data: bytes | None
    ) -> SchemaAndValue:
        """Return the value of JSON; DataException for what is none, or does not fit its schema."""
        del topic, headers
        if data is None:
            return NULL
        try:
            text = data.decode()
            if not self._with_schemas:
                value = _parse(text, _PLAIN, _NOT_READ)
                return SchemaAndValue(None, None if value is _MISSING else value)
            if self._fixed is not None:
                fixed, read = self._fixed
                return SchemaAndValue(fixed, read(_parse(text, _EXACT, _NOT_READ)))
            for prefix, schema, read in self._prefixes:
                if text.startswith(prefix):
                    payload = _parsed_payload(text, len(prefix))
                    if payload is not _MISSING:
                        return SchemaAndValue(schema, read(payload))
            return self._to_connect_slowly(text)
        except (UnicodeDecodeError, RecursionError) as error:
            raise DataException(_NOT_READ) from error

    def _to_connect_slowly(self, text: str) -> SchemaAndValue:
        envelope = _parse(text, _EXACT, _NOT_READ)
        if not isinstance(envelope, dict) or envelope.keys() != {"schema", "payload"}:
            raise DataException(_ENVELOPE)
        key = repr(envelope["schema"])  # in which 1.5 differs from "1.5"
        known = self._readers.get(key)
        if known is None:
            schema = self._read_schema(envelope["schema"])
            known = self._readers.add(key, (schema, self._reader(schema)))
        if text.startswith('{"schema":{'):
            try:
                first, end = _EXACT.raw_decode(text, len('{"schema":'))
            except ValueError:  # zeros before a number
                first, end = None, 0
            prefix = text[: end + len(_PAYLOAD)]
            is_new = all(prefix != it for it, _, _ in self._prefixes)
            # Of two schemas in one envelope the last counts: the prefix is of the other one
            if prefix.endswith(_PAYLOAD) and is_new and repr(first) == key:
                self._prefixes.insert(0, (prefix, *known))
                del self._prefixes[_PREFIXES:]
        return SchemaAndValue(known[0], known[1](envelope["payload"]))

    def _read_schema(self, node: Any) -> Schema | None:
        """Return the schema that JSON describes; DataException if it describes none."""
        if node is None:
            return None
        kind = node.get("type") if isinstance(node, dict) else None
        if not isinstance(kind, str):
            raise DataException("Schema must contain 'type' field")
        try:
            type_ = SchemaType(kind)
        except ValueError:
            raise DataException(f"Unknown schema type: {kind}") from None
        schema = self._shape(type_, node)
        more: dict[str, Any] = {"optional": node.get("optional") is True}
        for name in ("name", "doc"):
            if isinstance(node.get(name), str):
                more[name] = node[name]
        if type(node.get("version")) is int:
            more["version"] = wrapped(node["version"], 32)
        parameters = node.get("parameters")
        if isinstance(parameters, dict) and parameters:
            if not all(isinstance(it, str) for it in parameters.values()):
                raise DataException("Schema parameters must have string values.")
            more["parameters"] = parameters
        schema = replace(schema, **more)
        if "default" in node:
            default = self._reader(schema)(node["default"])
            schema = schema if default is None else schema.with_default(default)
        return schema

    def _shape(self, kind: SchemaType, node: dict[str, Any]) -> Schema:  # noqa: C901 - a branch a type
        if kind is SchemaType.ARRAY:
            if node.get("items") is None:
                raise DataException("Array schema did not specify the element type")
            return Schema(kind, value_schema=self._read_schema(node["items"]))
        if kind is SchemaType.MAP:
            for name in ("key", "value"):
                if f"{name}s" not in node:
                    raise DataException(f"Map schema did not specify the {name} type")
                if node[f"{name}s"] is None:
                    raise DataException(f"{name}Schema cannot be null.")
            keys, values = self._read_schema(node["keys"]), self._read_schema(node["values"])
            return Schema(kind, key_schema=keys, value_schema=values)
        if kind is not SchemaType.STRUCT:
            return Schema(kind)
        fields = node.get("fields")
        if not isinstance(fields, list):
            raise DataException('Struct schema\'s "fields" argument is not an array.')
        named: list[tuple[str, Schema]] = []
        for it in fields:
            field = it.get("field") if isinstance(it, dict) else None
            if not isinstance(field, str):
                raise DataException("Struct schema's field name not specified properly")
            of = self._read_schema(it)
            if not field or of is None:
                raise DataException("fieldName cannot be null.")
            named.append((field, of))
        return struct_of(named)

    def _reader(self, schema: Schema | None) -> Reader:
        """Compile the function that returns the value of parsed JSON."""
        if schema is None:
            return _read_any
        read = self._present_reader(schema)
        default, kind = schema.default, schema.type.name
        if default is not None and self._with_defaults:
            return lambda node: default if node is None or node is _MISSING else read(node)
        if schema.optional:
            return lambda node: None if node is None or node is _MISSING else read(node)

        def required(node: Any) -> Any:
            if node is None or node is _MISSING:
                raise DataException(f"Invalid null value for required {kind} field")
            return read(node)

        return required

    def _present_reader(self, schema: Schema) -> Reader:  # noqa: PLR0911 - a branch a type
        logical = _LOGICAL_READERS.get(schema.name or "")
        if logical is not None:
            return partial(logical, schema)
        kind = schema.type
        if kind in BOUNDS:
            return partial(_read_integer, BOUNDS[kind].bit_length())
        if kind is SchemaType.ARRAY:
            return partial(_read_array, self._reader(schema.value_schema))
        if kind is SchemaType.MAP:
            keys, values = schema.key_schema, self._reader(schema.value_schema)
            if keys is None or keys.type is SchemaType.STRING:
                return partial(_read_object, values)
            return partial(_read_pairs, self._reader(keys), values)
        if kind is SchemaType.STRUCT:
            fields = [
                (it.name, self._reader(it.schema), it.schema, it.schema.type in _CHECKED)
                for it in schema.fields
            ]
            return partial(_read_struct, schema, fields)
        return _READERS[kind]


_CHECKED: Final = frozenset({SchemaType.ARRAY, SchemaType.MAP})


# ---------------------------------------------------------------- texts


def _parse(text: str, decoder: json.JSONDecoder, failure: str) -> Any:
    """Return what a text begins with, as Kafka does not look at the rest; _MISSING for nothing."""
    text = text.lstrip(" \t\r\n")
    if not text:
        return _MISSING
    try:
        return decoder.raw_decode(text)[0]
    except (ValueError, RecursionError) as error:
        # Kafka allows zeros before a number, which the module of Python refuses
        repaired = _LEADING_ZEROS.sub(lambda match: match[1] or match[2], text)
        try:
            return decoder.raw_decode(repaired)[0]
        except (ValueError, RecursionError):
            raise DataException(failure) from error


def _parsed_payload(text: str, begin: int) -> Any:
    """Return the payload of an envelope that ends after it, _MISSING for another one."""
    try:
        payload, end = _EXACT.raw_decode(text, begin)
    except (ValueError, RecursionError):
        return _MISSING
    return payload if text.startswith("}", end) else _MISSING


def _refused(value: Any, text: str) -> DataException:
    """Return the error of a value without its JSON: of None, or of another type."""
    if value is None:
        text = "Conversion error: null value for field that is required and has no default value"
    return DataException(text)


def _invalid_type(kind: str, value: Any) -> DataException:
    return _refused(value, f"Invalid type for {kind}: {type(value).__name__}")


def _write_integer(kind: SchemaType, bound: int, value: Any) -> str:
    if type(value) is not int or not -bound <= value < bound:
        raise _invalid_type(kind.name, value)
    return str(value)


def _write_boolean(value: Any) -> str:
    if value is True:
        return "true"
    if value is False:
        return "false"
    raise _invalid_type("BOOLEAN", value)


def _write_string(value: Any) -> str:
    if not isinstance(value, str):
        raise _invalid_type("STRING", value)
    return _quote(value)


def _write_float32(value: Any) -> str:
    if type(value) is not float:
        raise _invalid_type("FLOAT32", value)
    return float32_text(float32(value)) if math.isfinite(value) else f'"{double_text(value)}"'


def _write_float64(value: Any) -> str:
    if type(value) is not float:
        raise _invalid_type("FLOAT64", value)
    return double_text(value) if math.isfinite(value) else f'"{double_text(value)}"'


def _write_bytes(value: Any) -> str:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise _refused(value, f"Invalid type for bytes type: {type(value).__name__}")
    return f'"{base64.b64encode(value).decode()}"'


def _write_array(write: Writer, value: Any) -> str:
    if not isinstance(value, list | tuple):
        raise _invalid_type("ARRAY", value)
    return "[" + ",".join(map(write, value)) + "]"


def _write_map(keys: Writer, values: Writer, is_object: bool, value: Any) -> str:  # noqa: FBT001
    if not isinstance(value, dict):
        raise _invalid_type("MAP", value)
    if is_object:
        entries = (
            f"{_quote('null') if key is None else keys(key)}:{values(it)}"
            for key, it in value.items()
        )
        return "{" + ",".join(entries) + "}"
    return "[" + ",".join(f"[{keys(key)},{values(it)}]" for key, it in value.items()) + "]"


def _write_struct(schema: Schema, fields: list[tuple[str, Writer]], value: Any) -> str:
    if not isinstance(value, Struct):
        raise _invalid_type("STRUCT", value)
    if value.schema is not schema and value.schema != schema:
        raise DataException("Mismatching schema.")
    named = zip(fields, value.values, strict=True)
    return "{" + ",".join([name + write(it) for (name, write), it in named]) + "}"


def _write_decimal(schema: Schema, is_numeric: bool, value: Any) -> str:  # noqa: FBT001
    if not isinstance(value, Decimal):
        kind = type(value).__name__
        raise _refused(value, f"Invalid type for Decimal, expected BigDecimal but was {kind}")
    if is_numeric:
        if not value.is_finite():
            raise DataException(f"Decimal value {value} is not a number")
        return str(value)
    return f'"{base64.b64encode(decimal_bytes(schema, value)).decode()}"'


def _write_moment(name: str, class_: type, value: Any) -> str:
    if type(value) is not class_:
        given = type(value).__name__
        raise _refused(value, f"Invalid type for {name}, expected Date but was {given}")
    value_ms = timestamp_ms(value)  # type: ignore[arg-type] # one of the three classes
    return str(value_ms // DAY_MS if class_ is dt.date else value_ms)


_LOGICAL_WRITERS: Final[dict[str | None, Writer]] = {
    DATE_NAME: partial(_write_moment, "Date", dt.date),
    TIME_NAME: partial(_write_moment, "Time", dt.time),
    TIMESTAMP_NAME: partial(_write_moment, "Timestamp", dt.datetime),
}
_WRITERS: Final[dict[SchemaType, Writer]] = {
    SchemaType.BOOLEAN: _write_boolean,
    SchemaType.STRING: _write_string,
    SchemaType.FLOAT32: _write_float32,
    SchemaType.FLOAT64: _write_float64,
    SchemaType.BYTES: _write_bytes,
}


def _write_any(value: Any) -> str:  # noqa: PLR0911 - a branch a type
    """Return a value without a schema as JSON."""
    if value is None:
        return "null"
    kind = type(value)
    if kind is str:
        return _quote(value)
    if kind is bool:
        return "true" if value else "false"
    if kind is int:
        return str(value)
    if kind is float:
        return _write_float64(value)
    if isinstance(value, dict):
        is_object = all(isinstance(key, str) for key in value)
        return _write_map(_write_any, _write_any, is_object, value)
    if isinstance(value, list | tuple):
        return _write_array(_write_any, value)
    if isinstance(value, bytes | bytearray | memoryview):
        return _write_bytes(value)
    if isinstance(value, Struct):
        raise DataException("Mismatching schema.")
    raise DataException(f"Class {kind.__name__} does not have corresponding schema type.")


# ---------------------------------------------------------------- parsed JSON to values


def _read_any(node: Any) -> Any:
    """Return JSON as it is, with floats for its numbers with a point."""
    if isinstance(node, Decimal):
        return float(node)
    if isinstance(node, list):
        return [_read_any(it) for it in node]
    if isinstance(node, dict):
        return {name: _read_any(it) for name, it in node.items()}
    return None if node is _MISSING else node


def _read_integer(bits: int, node: Any) -> int:
    """Return a number's low bits, 0 for what is none, as Kafka's JSON library does."""
    if type(node) is int:
        return wrapped(node, bits)
    return wrapped(truncated(node), bits) if isinstance(node, Decimal) else 0


def _read_float(node: Any) -> float:
    if isinstance(node, int | Decimal) and type(node) is not bool:
        return nearest_double(node)
    return 0.0


def _read_bytes(node: Any) -> bytes | None:
    if not isinstance(node, str):
        return None
    try:
        return base64.b64decode("".join(node.split()), validate=True)
    except ValueError as error:
        raise DataException("Invalid bytes field") from error


def _read_array(read: Reader, node: Any) -> list[Any]:
    """Return the elements of an array, the values of an object, nothing of anything else."""
    elements = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    return [read(it) for it in elements]


def _read_object(values: Reader, node: Any) -> dict[Any, Any]:
    if not isinstance(node, dict):
        raise DataException(
            "Maps with string fields should be encoded as JSON objects, but found "
            + _NODE_TYPES[type(node)]
        )
    return {name: values(it) for name, it in node.items()}


def _read_pairs(keys: Reader, values: Reader, node: Any) -> dict[Any, Any]:
    if not isinstance(node, list):
        raise DataException(
            "Maps with non-string fields should be encoded as JSON array of tuples, but found "
            + _NODE_TYPES[type(node)]
        )
    pairs: dict[Any, Any] = {}
    for it in node:
        if not isinstance(it, list):
            raise DataException(
                f"Found invalid map entry instead of array tuple: {_NODE_TYPES[type(it)]}"
            )
        if len(it) != 2:
            raise DataException(f"Found invalid map entry, expected length 2 but found :{len(it)}")
        key = keys(it[0])
        if isinstance(key, list | dict | Struct):
            raise DataException(f"Python cannot use {display_text(key)} as the key of a map")
        pairs[key] = values(it[1])
    return pairs


def _read_struct(
    schema: Schema, fields: list[tuple[str, Reader, Schema, bool]], node: Any
) -> Struct:
    if not isinstance(node, dict):
        raise DataException(
            f"Structs should be encoded as JSON objects, but found {_NODE_TYPES[type(node)]}"
        )
    made = Struct(schema)
    values = made.values
    for index, (name, read, of, is_checked) in enumerate(fields):
        value = read(node.get(name))
        if is_checked or (value is None and not of.optional):
            check_value(of, value, name)
        values[index] = value
    return made


def _read_decimal(schema: Schema, node: Any) -> Decimal:
    if isinstance(node, int | Decimal) and type(node) is not bool:
        return Decimal(node)
    if not isinstance(node, str):
        raise DataException(
            "Invalid type for Decimal, underlying representation should be numeric or bytes but "
            f"was {_NODE_TYPES[type(node)]}"
        )
    try:
        return decimal_from_bytes(schema, _read_bytes(node) or b"")
    except (ValueError, DataException) as error:
        raise DataException("Invalid bytes for Decimal field") from error


def _read_date(_schema: Schema, node: Any) -> dt.date:
    return date(_int32("Date", node))


def _read_time(_schema: Schema, node: Any) -> dt.time:
    return time_of_day(_int32("Time", node))


def _read_timestamp(_schema: Schema, node: Any) -> dt.datetime:
    if type(node) is not int:
        raise DataException(
            "Invalid type for Timestamp, underlying representation should be integral but was "
            + _NODE_TYPES[type(node)]
        )
    return timestamp(wrapped(node, 64))


def _int32(name: str, node: Any) -> int:
    bound = BOUNDS[SchemaType.INT32]
    if type(node) is not int or not -bound <= node < bound:
        raise DataException(
            f"Invalid type for {name}, underlying representation should be integer but was "
            + _NODE_TYPES[type(node)]
        )
    return node


_LOGICAL_READERS: Final[dict[str, Callable[[Schema, Any], Any]]] = {
    DECIMAL_NAME: _read_decimal,
    DATE_NAME: _read_date,
    TIME_NAME: _read_time,
    TIMESTAMP_NAME: _read_timestamp,
}
_READERS: Final[dict[SchemaType, Reader]] = {
    SchemaType.BOOLEAN: lambda node: node is True,
    SchemaType.STRING: lambda node: node if isinstance(node, str) else None,
    SchemaType.FLOAT32: lambda node: float32(_read_float(node)),
    SchemaType.FLOAT64: _read_float,
    SchemaType.BYTES: _read_bytes,
}
