"""Values as text and text as values, numbers of other types, inferred schemas.

Kafka: org.apache.kafka.connect.data.Values. Headers and literals in settings are read this way.
"""

from __future__ import annotations

import base64
import datetime as dt
import math
import re
import struct
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Final

from ottla.config.definition import double_text
from ottla.connect.data import (
    BOOLEAN,
    BOUNDS,
    BYTES,
    DATE,
    DATE_NAME,
    DAY_MS,
    FLOAT32,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    TIME,
    TIME_NAME,
    TIMESTAMP,
    TIMESTAMP_NAME,
    Schema,
    SchemaAndValue,
    SchemaType,
    Struct,
    array,
    date,
    decimal,
    mapping,
    time_of_day,
    timestamp,
    timestamp_ms,
)
from ottla.connect.date_format import DateFormat
from ottla.connect.errors import DataException

if TYPE_CHECKING:
    from collections.abc import Iterable

NULL: Final = SchemaAndValue(None, None)
_DATE_FORMAT: Final = DateFormat("yyyy-MM-dd")
_TIME_FORMAT: Final = DateFormat("HH:mm:ss.SSS'Z'")
_TIMESTAMP_FORMAT: Final = DateFormat("yyyy-MM-dd'T'HH:mm:ss.SSS'Z'")
_JAVA_DATE_FORMAT: Final = DateFormat("EEE MMM dd HH:mm:ss zzz yyyy")
_DECIMAL: Final = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,10})?", re.ASCII)
_LONGEST_NUMBER: Final = 4000
"""Digits of numbers in texts: converting more takes time that grows with their square."""


def wrapped(number: int, bits: int) -> int:
    """Return the low bits of a number, as Java's narrowing casts do."""
    half = 1 << (bits - 1)
    return ((number + half) & ((1 << bits) - 1)) - half


def saturated(number: float, bits: int) -> int:
    """Return the nearest whole number towards 0 that has so many bits, 0 for NaN."""
    if isinstance(number, float) and math.isnan(number):
        return 0
    half = 1 << (bits - 1)
    return int(max(-half, min(half - 1, number)))


def float32(number: float) -> float:
    """Return the nearest number of single precision."""
    try:
        return float(struct.unpack("f", struct.pack("f", number))[0])
    except OverflowError:
        return math.copysign(math.inf, number)


def nearest_double(number: float | Decimal) -> float:
    """Return the nearest number of double precision, an infinity for one that is too large."""
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def float32_text(number: float) -> str:
    """Return the shortest text that gives the same number of single precision."""
    if math.isfinite(number):
        for digits in range(1, 9):
            shorter = float(f"{number:.{digits}g}")
            if float32(shorter) == number:
                return double_text(shorter)
    return double_text(number)


def parse_decimal(text: str) -> Decimal | None:
    """Return a number as java.math.BigDecimal reads it, None for other texts."""
    if len(text) > _LONGEST_NUMBER or not _DECIMAL.fullmatch(text):
        return None
    try:
        number = Decimal(text)
    except InvalidOperation:  # an exponent beyond those of the decimal module
        return None
    exponent = number.as_tuple().exponent
    assert isinstance(exponent, int)
    bound = BOUNDS[SchemaType.INT32]  # of a BigDecimal's scale
    return number if -bound <= -exponent < bound else None


# ---------------------------------------------------------------- values to texts


def to_text(value: Any, schema: Schema | None = None) -> str | None:
    """Return a value as text, None for None; texts within lists, dicts and structs are quoted."""
    return None if value is None else _text(value, schema, embedded=False)


def _text(value: Any, schema: Schema | None, *, embedded: bool) -> str:  # noqa: C901, PLR0911 - a branch a type
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        is_single = schema is not None and schema.type is SchemaType.FLOAT32
        return float32_text(value) if is_single else double_text(value)
    if isinstance(value, int | Decimal):
        return str(value)
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"' if embedded else value
    if isinstance(value, bytes | bytearray | memoryview):
        encoded = base64.b64encode(value).decode()
        return f'"{encoded}"' if embedded else encoded
    if isinstance(value, list | tuple):
        of = None if schema is None else schema.value_schema
        return "[" + ",".join(_text(it, of, embedded=True) for it in value) + "]"
    if isinstance(value, dict):
        keys = None if schema is None else schema.key_schema
        of = None if schema is None else schema.value_schema
        entries = (
            f"{_text(key, keys, embedded=True)}:{_text(it, of, embedded=True)}"
            for key, it in value.items()
        )
        return "{" + ",".join(entries) + "}"
    if isinstance(value, Struct):
        fields = (
            f"{_text(it.name, STRING, embedded=True)}:"
            f"{_text(value[it.name], it.schema, embedded=True)}"
            for it in value.schema.fields
        )
        return "{" + ",".join(fields) + "}"
    if isinstance(value, dt.date | dt.time):
        return moment_text(value)
    raise DataException(
        f"Failed to serialize unexpected value type {type(value).__name__}: {value}"
    )


def display_text(value: Any, schema: Schema | None = None) -> str:
    """Return a value as Java's toString shows it: `{a=1}`, `[1, 2]`, `Struct{a=1}`."""
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple):
        of = None if schema is None else schema.value_schema
        return "[" + ", ".join(display_text(it, of) for it in value) + "]"
    if isinstance(value, dict):
        keys = None if schema is None else schema.key_schema
        of = None if schema is None else schema.value_schema
        entries = (f"{display_text(key, keys)}={display_text(it, of)}" for key, it in value.items())
        return "{" + ", ".join(entries) + "}"
    if isinstance(value, Struct):
        named = zip(value.schema.fields, value.values, strict=True)
        shown = (f"{it.name}={display_text(of, it.schema)}" for it, of in named if of is not None)
        return "Struct{" + ",".join(shown) + "}"
    if isinstance(value, dt.date | dt.time):
        return _JAVA_DATE_FORMAT.format(timestamp_ms(value))
    return _text(value, schema, embedded=False)


def moment_text(value: dt.date | dt.time) -> str:
    """Return a date, a time or a timestamp as text, by its milliseconds as in Kafka."""
    value_ms = timestamp_ms(value)
    if value_ms < DAY_MS:
        return _TIME_FORMAT.format(value_ms)
    return (_DATE_FORMAT if value_ms % DAY_MS == 0 else _TIMESTAMP_FORMAT).format(value_ms)


# ---------------------------------------------------------------- conversions


def as_long(value: Any) -> int:
    """Return a whole number; DataException for a value that is no number."""
    return truncated(_as_number(value))


def as_double(value: Any) -> float:
    """Return a number; DataException for a value that is none."""
    return nearest_double(_as_number(value))


def _as_number(value: Any) -> float | Decimal:
    number = parse_decimal(value) if isinstance(value, str) else value
    if isinstance(number, int | float | Decimal) and not isinstance(number, bool):
        return number
    kind = type(value).__name__
    raise DataException(f"Unable to convert {to_text(value)} ({kind}) to a number")


def truncated(number: float | Decimal) -> int:
    """Return a number as Java's longValue does: floats saturate, others keep the low bits."""
    if isinstance(number, float):
        return saturated(number, 64)
    if isinstance(number, Decimal) and number.adjusted() > _LONGEST_NUMBER:
        return 0  # as of multiples of 2^64, without the time for its digits
    return wrapped(int(number), 64)


def infer_schema(value: Any) -> Schema | None:
    """Return the schema of a value, None if it has none; integers are INT64, floats FLOAT64."""
    for kind, schema in _INFERRED:
        if isinstance(value, kind):
            return schema
    if isinstance(value, Struct):
        return value.schema
    if isinstance(value, list | tuple):
        elements = _common(value)
        return None if elements is None else array(elements)
    if isinstance(value, dict):
        keys, values = _common(value), _common(value.values())
        return None if keys is None or values is None else mapping(keys, values)
    return None


def _common(values: Iterable[Any]) -> Schema | None:
    """Return the schema of all values, None if they differ in type or there are none."""
    kinds = {None if it is None else infer_schema(it) or NULL for it in values}
    optional = None in kinds
    types = {it.type for it in kinds if isinstance(it, Schema)}
    if NULL in kinds or len(types) != 1:
        return None
    return Schema(types.pop(), optional=optional)


_INFERRED: Final[tuple[tuple[Any, Schema], ...]] = (
    (str, STRING),
    (bool, BOOLEAN),
    (int, INT64),
    (float, FLOAT64),
    (bytes | bytearray | memoryview, BYTES),
)


# ---------------------------------------------------------------- texts to values


def parse_string(text: str | None) -> SchemaAndValue:
    """Return the value that a text stands for: a number, a list, a date; else the text itself."""
    if text is None:
        return NULL
    if not text:
        return SchemaAndValue(STRING, text)
    try:
        return _Parser(text).parse(embedded=False) or NULL
    except RecursionError:
        return SchemaAndValue(STRING, text)


class _Parser:
    """Reads tokens: a delimiter each, and what stands between them."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.index = 0
        self.next_token: str | None = None
        self.previous: str | None = None

    # -------------------------------------------------------- tokens

    def mark(self) -> int:
        return self.index - len(self.next_token or "")

    def rewind(self, index: int) -> None:
        self.index = index
        self.next_token = self.previous = None

    def has_next(self) -> bool:
        return self.next_token is not None or self.index < len(self.text)

    def next(self) -> str:
        token = self._token() if self.next_token is None else self.next_token
        self.next_token = None
        self.previous = token
        return token

    def _token(self) -> str:
        start, text = self.index, self.text
        escaped = False
        while self.index < len(text):
            char = text[self.index]
            if char == "\\":
                escaped = not escaped
            elif char in ':,{}[]"' and not escaped:
                if start == self.index:
                    self.index += 1
                return text[start : self.index]
            else:
                escaped = False
            self.index += 1
        return text[start:]

    def can_consume(self, expected: str) -> bool:
        """Take the next token, without its blanks, if it is the expected one."""
        if self.next_token is None:
            if not self.has_next():
                return False
            self.next_token = self._token()
        while not self.next_token.strip() and self.index < len(self.text):
            self.next_token = self._token()
        if self.next_token.strip() != expected:
            return False
        self.next_token = None
        return True

    # -------------------------------------------------------- values

    def parse(self, *, embedded: bool) -> SchemaAndValue | None:  # noqa: PLR0911 - a branch a type
        """Return the next value, None for null."""
        if not self.has_next():
            return None
        if embedded and self.can_consume('"'):
            return self._quoted()
        for literal, meaning in _LITERALS.items():
            start = self.mark()
            if self.can_consume(literal) and (embedded or not self.has_next()):
                return meaning
            self.rewind(start)
        start = self.mark()
        try:
            if self.can_consume("["):
                return self._array()
            if self.can_consume("{"):
                return self._map()
        except DataException:
            self.rewind(start)
        token = self.next()
        if not token.strip():
            return SchemaAndValue(STRING, token)
        return self._plain(token.strip(), embedded=embedded)

    def _plain(self, token: str, *, embedded: bool) -> SchemaAndValue:
        if token[0].isdigit():
            position = self.mark()
            tokens: list[str] = []
            while len(tokens) < 4 and self.has_next():
                tokens.append(self.next())
            moment = _moment(token + "".join(tokens)) if len(tokens) == 4 else None
            if moment is not None:
                return moment
            self.rewind(position)
            moment = _moment(token)
            if moment is not None:
                return moment
        number = parse_decimal(token) if token[0].isdigit() or token[0] in "+-" else None
        if number is not None:
            return _number(number)
        if embedded:
            raise DataException("Failed to parse embedded value")
        return SchemaAndValue(STRING, self.text)

    def _quoted(self) -> SchemaAndValue:
        parts: list[str] = []
        while self.has_next() and not self.can_consume('"'):
            parts.append(self.next())
        content = "".join(parts)
        return _moment(content) or SchemaAndValue(STRING, content)

    def _array(self) -> SchemaAndValue:
        values: list[Any] = []
        common = _Common()
        while self.has_next():
            if self.can_consume("]"):
                if common.schema is None:
                    return SchemaAndValue(Schema(SchemaType.ARRAY), values)
                aligned = [_aligned(common.schema, it) for it in values]
                return SchemaAndValue(array(common.schema), aligned)
            if self.can_consume(","):
                raise DataException(f"Unable to parse an empty array element: {self.text}")
            element = self.parse(embedded=True)
            common.merge(element)
            values.append(None if element is None else element.value)
            position = self.mark()
            if self.can_consume("]"):
                self.rewind(position)
            elif not self.can_consume(","):
                raise DataException("Array elements missing ',' delimiter")
        raise DataException(f"Array is missing terminating ']': {self.text}")

    def _map(self) -> SchemaAndValue:
        values: dict[Any, Any] = {}
        keys, elements = _Common(), _Common()
        while self.has_next():
            if self.can_consume("}"):
                return _aligned_map(values, keys.schema, elements.schema)
            if self.can_consume(","):
                raise DataException(
                    f"Unable to parse a map entry with no key or value: {self.text}"
                )
            key = self.parse(embedded=True)
            if key is None or key.value is None:
                raise DataException(f"Map entry may not have a null key: {self.text}")
            if isinstance(key.value, list | dict):
                raise DataException(f"Map entry has a key that Python cannot use: {self.text}")
            if not self.can_consume(":"):
                raise DataException(f"Map entry is missing ':' at {self.index} in {self.text}")
            element = self.parse(embedded=True)
            values[key.value] = None if element is None else element.value
            self.can_consume(",")
            keys.merge(key)
            elements.merge(element)
        raise DataException(f"Map is missing terminating '}}': {self.text}")


_LITERALS: Final[dict[str, SchemaAndValue | None]] = {
    "null": None,
    "true": SchemaAndValue(BOOLEAN, True),
    "false": SchemaAndValue(BOOLEAN, False),
}


def _aligned_map(
    values: dict[Any, Any], keys: Schema | None, elements: Schema | None
) -> SchemaAndValue:
    if keys is None:
        return SchemaAndValue(Schema(SchemaType.MAP), values)
    schema = Schema(SchemaType.MAP, key_schema=keys, value_schema=elements)
    aligned = {
        _aligned(keys, key): it if elements is None else _aligned(elements, it)
        for key, it in values.items()
    }
    return SchemaAndValue(schema, aligned)


def _aligned(schema: Schema, value: Any) -> Any:
    """Return an element in the schema that all have in common; DataException if that fails."""
    if value is None:
        raise DataException("Unable to convert a null value to a schema that requires a value")
    if schema.type is SchemaType.FLOAT32:
        return float32(as_double(value))
    if schema.type is SchemaType.FLOAT64:
        return as_double(value)
    if schema.type not in BOUNDS:
        return value
    of_number = {DATE_NAME: date, TIME_NAME: time_of_day, TIMESTAMP_NAME: timestamp}.get(
        schema.name or ""
    )
    if of_number is None:
        return as_long(value)
    return value if isinstance(value, dt.date | dt.time) else of_number(as_long(value))


def _number(number: Decimal) -> SchemaAndValue:
    """Return a number with the smallest type that holds it."""
    exponent = number.as_tuple().exponent
    assert isinstance(exponent, int)
    size = number.copy_abs()  # `abs` rounds, and raises for large exponents
    if size == 0 or (1 <= size <= 10**19 and number == number.to_integral_value()):
        whole = int(number)
        for schema in (INT8, INT16, INT32, INT64):
            bound = BOUNDS[schema.type]
            if -bound <= whole < bound:
                return SchemaAndValue(schema, whole)
    double = float(number)
    single = float32(double)
    if exponent != 0 and math.isfinite(single):
        return SchemaAndValue(FLOAT32, single)
    if exponent != 0 and math.isfinite(double):
        return SchemaAndValue(FLOAT64, double)
    return SchemaAndValue(decimal(-exponent), number)


def _moment(token: str) -> SchemaAndValue | None:
    token = token.replace("\\:", ":")
    known = _MOMENTS.get(len(token))
    value_ms = None if known is None else known[1].parse(token)
    if known is None or value_ms is None:
        return None
    schema = known[0]
    if schema is TIMESTAMP:
        return SchemaAndValue(schema, timestamp(value_ms))
    if schema is DATE:
        return SchemaAndValue(schema, date(value_ms // DAY_MS))
    return SchemaAndValue(schema, time_of_day(value_ms))


_MOMENTS: Final = {
    10: (DATE, _DATE_FORMAT),
    13: (TIME, _TIME_FORMAT),
    24: (TIMESTAMP, _TIMESTAMP_FORMAT),
}


class _Common:
    """Finds the schema that values of several schemas have in common."""

    def __init__(self) -> None:
        self.schema: Schema | None = None
        self._compatible = True

    def merge(self, latest: SchemaAndValue | None) -> None:
        if latest is None or latest.schema is None or not self._compatible:
            return
        self.schema = latest.schema if self.schema is None else _merged(self.schema, latest.schema)
        self._compatible = self.schema is not None


_ORDER: Final = tuple(it.type for it in (INT8, INT16, INT32, INT64, FLOAT32, FLOAT64))


def _merged(previous: Schema, latest: Schema) -> Schema | None:
    if previous.type is not latest.type:
        if previous.type in _ORDER and latest.type in _ORDER:
            is_wider = _ORDER.index(latest.type) > _ORDER.index(previous.type)
            return latest if is_wider else previous
        return None
    return latest  # none of the parser's schemas is optional
