"""Schemas and values of records, as connectors, transforms and converters exchange them.

Kafka: org.apache.kafka.connect.data. Values are Python's own: `int` for the four sizes of integers,
`float` for both sizes, `list`, `dict`, `Struct`; of logical types `decimal.Decimal`,
`datetime.date`, `datetime.time` and, for Timestamp, a `datetime.datetime` in UTC. A value without a
schema is what JSON can say.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field, replace
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.connect.errors import DataException, SchemaBuilderException

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class SchemaType(Enum):
    """The types of values; the value is the type's name in JSON envelopes."""

    INT8 = "int8"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    FLOAT32 = "float"
    FLOAT64 = "double"
    BOOLEAN = "boolean"
    STRING = "string"
    BYTES = "bytes"
    ARRAY = "array"
    MAP = "map"
    STRUCT = "struct"


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a struct: its name, its position, and the schema of its values."""

    name: str
    index: int
    schema: Schema


@dataclass(frozen=True, slots=True, eq=False)
class Schema:
    """The type of a value, with its meaning by name, version and parameters.

    >>> order = struct("order", id=INT64, note=STRING.as_optional())
    >>> [it.name for it in order.fields]
    ['id', 'note']
    """

    type: SchemaType
    optional: bool = False
    default: Any = None
    name: str | None = None
    """The name of the meaning: a logical type, or the user's name of a struct."""
    version: int | None = None
    doc: str | None = None
    parameters: Mapping[str, str] | None = None
    fields: tuple[Field, ...] = ()
    key_schema: Schema | None = None
    value_schema: Schema | None = None
    """The schema of a map's values, or of an array's elements."""
    _by_name: dict[str, Field] = field(init=False, repr=False)
    _hash: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Index the fields by name; SchemaBuilderException for two of the same name."""
        by_name = {it.name: it for it in self.fields}
        if len(by_name) != len(self.fields):
            twin = next(it.name for it in self.fields if by_name[it.name] is not it)
            raise SchemaBuilderException(
                f"Cannot create field because of field name duplication {twin}"
            )
        object.__setattr__(self, "_by_name", by_name)
        parameters = frozenset((self.parameters or {}).items())
        parts = (self.type, self.optional, self.name, self.version, self.doc, parameters)
        nested = (self.fields, self.key_schema, self.value_schema)
        object.__setattr__(self, "_hash", hash((parts, nested)))

    def __hash__(self) -> int:
        """Return a hash that is computed once: caches of converters look schemas up."""
        return self._hash

    def __eq__(self, other: object) -> bool:
        """Compare all that a schema says."""
        if self is other:
            return True
        if not isinstance(other, Schema) or self._hash != other._hash:
            return False
        return self._parts() == other._parts()

    def _parts(self) -> tuple[object, ...]:
        parts = (self.type, self.optional, self.default, self.name, self.version, self.doc)
        nested = (self.fields, self.key_schema, self.value_schema)
        return (*parts, self.parameters or None, *nested)

    def __str__(self) -> str:
        """Show name and type, as Kafka does."""
        return f"Schema{{{'' if self.name is None else self.name + ':'}{self.type.name}}}"

    def field(self, name: str) -> Field | None:
        """Return a field by name, None without one; DataException for other types than structs."""
        if self.type is not SchemaType.STRUCT:
            raise DataException("Cannot look up fields on non-struct type")
        return self._by_name.get(name)

    def as_optional(self) -> Schema:
        """Return the same schema, for values that may be None."""
        return replace(self, optional=True)

    def with_default(self, default: Any) -> Schema:
        """Return the same schema with a default; SchemaBuilderException if it does not fit."""
        try:
            check_value(self, default)
        except DataException as error:
            raise SchemaBuilderException("Invalid default value") from error
        return replace(self, default=default)

    def with_fields(self, fields: Iterable[tuple[str, Schema]]) -> Schema:
        """Return a required struct without default that has the name, version and doc of this."""
        numbered = (Field(name, index, of) for index, (name, of) in enumerate(fields))
        return replace(
            self,
            type=SchemaType.STRUCT,
            optional=False,
            default=None,
            fields=tuple(numbered),
            key_schema=None,
            value_schema=None,
        )


INT8: Final = Schema(SchemaType.INT8)
INT16: Final = Schema(SchemaType.INT16)
INT32: Final = Schema(SchemaType.INT32)
INT64: Final = Schema(SchemaType.INT64)
FLOAT32: Final = Schema(SchemaType.FLOAT32)
FLOAT64: Final = Schema(SchemaType.FLOAT64)
BOOLEAN: Final = Schema(SchemaType.BOOLEAN)
STRING: Final = Schema(SchemaType.STRING)
BYTES: Final = Schema(SchemaType.BYTES)

DECIMAL_NAME: Final = "org.apache.kafka.connect.data.Decimal"
DATE_NAME: Final = "org.apache.kafka.connect.data.Date"
TIME_NAME: Final = "org.apache.kafka.connect.data.Time"
TIMESTAMP_NAME: Final = "org.apache.kafka.connect.data.Timestamp"
SCALE: Final = "scale"
"""The parameter of a decimal's schema: digits after the point."""

DATE: Final = Schema(SchemaType.INT32, name=DATE_NAME, version=1)
TIME: Final = Schema(SchemaType.INT32, name=TIME_NAME, version=1)
TIMESTAMP: Final = Schema(SchemaType.INT64, name=TIMESTAMP_NAME, version=1)


def decimal(scale: int) -> Schema:
    """Return the schema of decimals with so many digits after the point."""
    return Schema(SchemaType.BYTES, name=DECIMAL_NAME, version=1, parameters={SCALE: str(scale)})


def array(elements: Schema) -> Schema:
    """Return the schema of a list."""
    return Schema(SchemaType.ARRAY, value_schema=elements)


def mapping(keys: Schema, values: Schema) -> Schema:
    """Return the schema of a dict."""
    return Schema(SchemaType.MAP, key_schema=keys, value_schema=values)


def struct(name: str | None = None, /, **fields: Schema) -> Schema:
    """Return the schema of a struct, whose fields are in the order of the arguments."""
    return struct_of(fields.items(), name=name)


def struct_of(fields: Iterable[tuple[str, Schema]], *, name: str | None = None) -> Schema:
    """Return the schema of a struct with any names of fields."""
    numbered = (Field(known, index, of) for index, (known, of) in enumerate(fields))
    return Schema(SchemaType.STRUCT, name=name, fields=tuple(numbered))


class Struct:
    """The values of a struct's fields, in the order of its schema.

    >>> Struct(struct(id=INT64, note=STRING.as_optional()), id=5)["id"]
    5
    """

    __slots__ = ("schema", "values")

    def __init__(self, schema: Schema, /, **values: Any) -> None:
        """Take values by name; DataException for unknown names and values that do not fit."""
        if schema.type is not SchemaType.STRUCT:
            raise DataException(f"Not a struct schema: {schema}")
        self.schema = schema
        self.values: list[Any] = [None] * len(schema.fields)
        for name, value in values.items():
            self[name] = value

    def __getitem__(self, name: str) -> Any:
        """Return a field's value, or the default of its schema; DataException for unknown names."""
        known = self._field(name)
        value = self.values[known.index]
        return known.schema.default if value is None else value

    def __setitem__(self, name: str, value: Any) -> None:
        """Set a field; DataException for unknown names and values that do not fit."""
        known = self._field(name)
        check_value(known.schema, value, name)
        self.values[known.index] = value

    def without_default(self, name: str) -> Any:
        """Return a field's value, None where none is set, whatever its default."""
        return self.values[self._field(name).index]

    def _field(self, name: str) -> Field:
        known = self.schema.field(name)
        if known is None:
            raise DataException(f"{name} is not a valid field name")
        return known

    def validate(self) -> None:
        """Raise DataException for a field without a value that is neither optional nor default."""
        for known, value in zip(self.schema.fields, self.values, strict=True):
            if value is None and (known.schema.optional or known.schema.default is not None):
                continue
            check_value(known.schema, value, known.name)

    def __eq__(self, other: object) -> bool:
        """Compare schema and values."""
        if not isinstance(other, Struct):
            return NotImplemented
        return self.values == other.values and self.schema == other.schema

    __hash__ = None  # type: ignore[assignment] # its values change

    def __repr__(self) -> str:
        """Show the fields that are set, as Kafka does."""
        named = zip(self.schema.fields, self.values, strict=True)
        shown = (f"{known.name}={value}" for known, value in named if value is not None)
        return f"Struct{{{','.join(shown)}}}"


class SchemaAndValue(NamedTuple):
    """A value with its schema, None without one."""

    schema: Schema | None
    value: Any


class Header(NamedTuple):
    """A header of a record."""

    key: str
    schema: Schema | None
    value: Any


BOUNDS: Final = {
    SchemaType.INT8: 1 << 7,
    SchemaType.INT16: 1 << 15,
    SchemaType.INT32: 1 << 31,
    SchemaType.INT64: 1 << 63,
}
"""The smallest numbers that are too large for a type."""
_CLASSES: Final[dict[SchemaType, tuple[type, ...]]] = {
    SchemaType.FLOAT32: (float,),
    SchemaType.FLOAT64: (float,),
    SchemaType.BOOLEAN: (bool,),
    SchemaType.STRING: (str,),
    SchemaType.BYTES: (bytes, bytearray, memoryview),
    SchemaType.ARRAY: (list, tuple),
    SchemaType.MAP: (dict,),
    SchemaType.STRUCT: (Struct,),
}
_LOGICAL: Final[dict[str, type]] = {
    DECIMAL_NAME: Decimal,
    DATE_NAME: dt.date,
    TIME_NAME: dt.time,
    TIMESTAMP_NAME: dt.datetime,
}


def check_value(schema: Schema, value: Any, name: str | None = None) -> None:
    """Raise DataException for a value that does not fit its schema, with the name of its field."""
    _check(schema, value, "value" if name is None else f'field: "{name}"')


def _check(schema: Schema, value: Any, location: str) -> None:
    if value is None:
        if not schema.optional:
            raise DataException(
                f"Invalid value: null used for required {location}, schema type: {schema.type.name}"
            )
        return
    if not _fits(schema, value):
        name = "" if schema.name is None else f' "{schema.name}"'
        raise DataException(
            f"Invalid object for schema{name} with type {schema.type.name}: "
            f"{type(value).__name__} for {location}"
        )
    if schema.type is SchemaType.STRUCT:
        if value.schema != schema:
            raise DataException("Struct schemas do not match.")
        value.validate()
    elif schema.type is SchemaType.ARRAY:
        elements = _nested(schema.value_schema, location := f"element of array {location}")
        for element in value:
            _check(elements, element, location)
    elif schema.type is SchemaType.MAP:
        keys = _nested(schema.key_schema, key_location := f"key of map {location}")
        values = _nested(schema.value_schema, location := f"value of map {location}")
        for key, element in value.items():
            _check(keys, key, key_location)
            _check(values, element, location)


def _nested(schema: Schema | None, location: str) -> Schema:
    if schema is None:
        raise DataException(f"No schema defined for {location}")
    return schema


def _fits(schema: Schema, value: Any) -> bool:
    """Whether a value has the class and the range of its schema; elements are not looked at."""
    logical = None if schema.name is None else _LOGICAL.get(schema.name)
    if logical is not None:
        is_moment = isinstance(value, dt.datetime)  # which is a date, too
        return isinstance(value, logical) and is_moment == (logical is dt.datetime)
    bound = BOUNDS.get(schema.type)
    if bound is not None:
        return type(value) is int and -bound <= value < bound
    return isinstance(value, _CLASSES[schema.type])


DAY_MS: Final = 86_400_000
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_EPOCH_DAY: Final = _EPOCH.toordinal()


def timestamp_ms(value: dt.date | dt.time) -> int:
    """Return milliseconds since the epoch, rounded down, of a value of any of the three types."""
    if isinstance(value, dt.datetime):
        aware = value if value.tzinfo is not None else value.replace(tzinfo=dt.UTC)
        return (aware - _EPOCH) // dt.timedelta(milliseconds=1)
    if isinstance(value, dt.time):
        seconds = value.hour * 3600 + value.minute * 60 + value.second
        return seconds * 1000 + value.microsecond // 1000
    return (value.toordinal() - _EPOCH_DAY) * DAY_MS


def timestamp(value_ms: int) -> dt.datetime:
    """Return a moment in UTC; DataException outside of the years 1 to 9999 that Python has."""
    try:
        return _EPOCH + dt.timedelta(milliseconds=value_ms)
    except OverflowError:
        raise DataException(f"Timestamp {value_ms} is outside of the years 1 to 9999") from None


def date(days: int) -> dt.date:
    """Return the date so many days after the epoch; DataException as `timestamp` does."""
    try:
        return dt.date.fromordinal(_EPOCH_DAY + days)
    except (ValueError, OverflowError):
        raise DataException(f"Date {days} is outside of the years 1 to 9999") from None


def time_of_day(value_ms: int) -> dt.time:
    """Return the time so many milliseconds after midnight."""
    if not 0 <= value_ms < DAY_MS:
        raise DataException(
            "Time values must use number of milliseconds greater than 0 and less than 86400000"
        )
    seconds, rest_ms = divmod(value_ms, 1000)
    return dt.time(seconds // 3600, seconds // 60 % 60, seconds % 60, rest_ms * 1000)


def scale_of(schema: Schema) -> int:
    """Return the digits after the point of a decimal's schema; DataException without a number."""
    scale = (schema.parameters or {}).get(SCALE)
    if scale is None:
        raise DataException("Invalid Decimal schema: scale parameter not found.")
    try:
        return int(scale)
    except ValueError:
        raise DataException("Invalid scale parameter found in Decimal schema: ") from None


def decimal_bytes(schema: Schema, value: Decimal) -> bytes:
    """Return the unscaled number, big-endian; DataException for another scale than the schema's."""
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise DataException(f"Decimal value {value} is not a number")
    scale = scale_of(schema)
    if -exponent != scale:
        raise DataException(
            "Decimal value has mismatching scale for given Decimal schema. "
            f"Schema has scale {scale}, value has scale {-exponent}."
        )
    unscaled = int("".join(map(str, digits)))
    if sign:
        unscaled = -unscaled
    bits = (unscaled if unscaled >= 0 else ~unscaled).bit_length()
    return unscaled.to_bytes(bits // 8 + 1, "big", signed=True)


def decimal_from_bytes(schema: Schema, data: bytes) -> Decimal:
    """Return the decimal with this unscaled number."""
    if not data:
        raise DataException("Zero length BigInteger")
    unscaled = int.from_bytes(data, "big", signed=True)
    digits = tuple(map(int, str(abs(unscaled))))
    return Decimal((int(unscaled < 0), digits, -scale_of(schema)))
