"""Values as text and text as values; patterns of dates."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest

from ottla.connect.data import (
    DATE,
    FLOAT32,
    INT8,
    INT16,
    INT64,
    STRING,
    TIME,
    TIMESTAMP,
    Schema,
    SchemaType,
    Struct,
    array,
    decimal,
    mapping,
    struct,
)
from ottla.connect.date_format import DateFormat
from ottla.connect.errors import DataException
from ottla.connect.values import (
    NULL,
    as_long,
    display_text,
    float32,
    infer_schema,
    parse_string,
    wrapped,
)
from ottla.connect.values import to_text as text_of


@pytest.mark.parametrize(
    ("text", "schema", "value"),
    [
        ("", STRING, ""),
        ("x", STRING, "x"),
        ("5", INT8, 5),
        ("300", INT16, 300),
        ("1.5", FLOAT32, 1.5),
        ("99999999999999999999", decimal(0), Decimal(99999999999999999999)),
        ("1e9999999", decimal(-9_999_999), Decimal("1e9999999")),
        ("1e2147483649", STRING, "1e2147483649"),
        ("true", Schema(SchemaType.BOOLEAN), True),
        ("[1, 300]", array(INT16), [1, 300]),
        ("[1, x]", STRING, "[1, x]"),
        ("[1, null]", STRING, "[1, null]"),
        ("[1, 2.5, 300]", array(FLOAT32), [1.0, 2.5, 300.0]),
        ('["2020-02-29", 5]', array(DATE), [dt.date(2020, 2, 29), dt.date(1970, 1, 6)]),
        ('["2020-02-29", 2.5]', STRING, '["2020-02-29", 2.5]'),
        ('["12:30:00.250Z", 99999999999]', STRING, '["12:30:00.250Z", 99999999999]'),
        ('{"a": 1}', mapping(STRING, INT8), {"a": 1}),
        ("2020-02-29", DATE, dt.date(2020, 2, 29)),
        ("12:30:00.250Z", TIME, dt.time(12, 30, 0, 250_000)),
        (
            "2020-02-29T12:30:00.250Z",
            TIMESTAMP,
            dt.datetime(2020, 2, 29, 12, 30, 0, 250_000, dt.UTC),
        ),
    ],
)
def test_texts_stand_for_values(text: str, schema: Schema, value: Any) -> None:
    """The smallest type that holds a number, a moment, or the text itself."""
    assert parse_string(text) == (schema, value)
    if not isinstance(value, list):
        assert parse_string(text_of(value, schema)) == (schema, value)


def test_null_deep_texts_and_small_numbers() -> None:
    """`null` has no value; brackets without end are a text; a number may be nearly 0."""
    assert parse_string("1e-9999999") == (FLOAT32, 0.0)
    assert parse_string("null") == parse_string(None) == NULL
    deep = "[" * 50_000
    assert parse_string(deep) == (STRING, deep)


def test_values_have_texts() -> None:
    """Texts inside of others are quoted; Java's toString is another form."""
    item = Struct(struct("item", a=STRING, b=array(INT8)), a='say "x"', b=[1, 2])
    assert text_of(item) == '{"a":"say \\"x\\"","b":[1,2]}'
    assert display_text(item) == 'Struct{a=say "x",b=[1, 2]}'
    assert text_of(float32(0.1), FLOAT32) == "0.1"
    assert text_of(1e10) == "1.0E10"
    with pytest.raises(DataException, match=r"^Failed to serialize unexpected value type object"):
        text_of(object())


def test_values_of_other_types() -> None:
    """Numbers keep their low bits; what is no number is refused."""
    assert wrapped(300, 8) == 44
    assert as_long("7.9") == 7
    assert text_of([1]) == "[1]"
    with pytest.raises(DataException, match=r"^Unable to convert x \(str\) to a number$"):
        as_long("x")
    assert infer_schema([1, None]) == array(INT64.as_optional())
    assert infer_schema([1, "x"]) is None


@pytest.mark.parametrize(
    ("pattern", "text", "at"),
    [
        ("yyyyMMdd", "20200229", "2020-02-29T00:00:00"),
        ("EEE, d MMM yyyy h:mm a", "Sat, 29 Feb 2020 3:05 PM", "2020-02-29T15:05:00"),
        ("yyyy-MM-dd HH:mm Z", "2020-02-29 10:00 +0000", "2020-02-29T10:00:00"),
        ("D yyyy G 'o''clock'", "60 2020 AD o'clock", "2020-02-29T00:00:00"),
    ],
)
def test_patterns(pattern: str, text: str, at: str) -> None:
    """Format and parse, in UTC."""
    moment = dt.datetime.fromisoformat(at).replace(tzinfo=dt.UTC)
    value_ms = int(moment.timestamp() * 1000)
    assert DateFormat(pattern).format(value_ms) == text
    assert DateFormat(pattern).parse(text) == value_ms


def test_lenient_and_invalid_patterns() -> None:
    """Fields roll over; offsets count; letters without a meaning are refused."""
    format_ = DateFormat("yyyy-MM-dd HH:mm Z")
    assert format_.parse("2019-14-01 24:00 +0100") == format_.parse("2020-02-01 23:00 UTC")
    assert format_.parse("2019/01/01") is None
    for pattern, reason in (("yyyy-bb", "Illegal pattern character 'b'"), ("'x", "Unterminated")):
        with pytest.raises(ValueError, match=reason):
            DateFormat(pattern)
