"""Converters: the bytes they write, the values they read, and what they refuse."""

from __future__ import annotations

import datetime as dt
import json
import math
from decimal import Decimal
from typing import Any

import pytest

from ottla.config.problems import ConfigErrors
from ottla.connect.converters.json import JsonConverter
from ottla.connect.converters.primitive import (
    BooleanConverter,
    ByteArrayConverter,
    FloatConverter,
    IntegerConverter,
    ShortConverter,
    SimpleHeaderConverter,
    StringConverter,
)
from ottla.connect.data import (
    BYTES,
    DATE,
    FLOAT32,
    INT8,
    INT32,
    INT64,
    STRING,
    TIMESTAMP,
    Schema,
    Struct,
    array,
    decimal,
    mapping,
    struct,
)
from ottla.connect.errors import DataException

ORDER = struct(
    "order",
    id=INT64,
    note=STRING.as_optional(),
    price=decimal(2),
    at=TIMESTAMP,
    day=DATE,
    tags=array(STRING),
    sizes=mapping(INT32, FLOAT32),
    blob=BYTES,
)
VALUE = Struct(
    ORDER,
    id=5,
    note='é "x"',
    price=Decimal("-12.50"),
    at=dt.datetime(2020, 2, 29, 12, 0, 0, 250_000, dt.UTC),
    day=dt.date(1969, 12, 31),
    tags=["a", "b"],
    sizes={1: 0.5},
    blob=b"\x00\xff",
)


def _json(**settings: str) -> JsonConverter:
    converter = JsonConverter()
    converter.configure({name.replace("_", "."): of for name, of in settings.items()}, is_key=False)
    return converter


def test_json_with_schemas() -> None:
    """An envelope, whose schema is compared from the second message on."""
    converter = _json()
    data = converter.from_connect("t", (), ORDER, VALUE)
    assert data is not None
    payload = json.loads(data)["payload"]
    assert (payload["price"], payload["at"], payload["day"]) == ("+x4=", 1582977600250, -1)
    assert (payload["sizes"], payload["blob"]) == ([[1, 0.5]], "AP8=")
    first, second = (converter.to_connect("t", (), data) for _ in range(2))
    assert (first.schema, first.value) == (second.schema, second.value) == (ORDER, VALUE)
    assert first.schema is second.schema


def test_a_known_schema_hides_no_damage() -> None:
    """After the payload only the end of the envelope may follow."""
    converter = _json()
    data = converter.from_connect("t", (), INT8, 1)
    assert data is not None
    assert converter.to_connect("t", (), data) == (INT8, 1)
    with pytest.raises(DataException, match="may not contain additional fields"):
        converter.to_connect("t", (), data[:-1] + b',"more":1}')
    with pytest.raises(DataException, match="due to serialization error"):
        converter.to_connect("t", (), data[:-1])


def test_json_without_schemas() -> None:
    """Plain JSON; numbers keep all digits, zeros before them are allowed as in Kafka."""
    converter = _json(schemas_enable="false")
    assert converter.from_connect("t", (), ORDER, VALUE) is not None
    assert converter.from_connect("t", (), None, {1: "x"}) == b'[[1,"x"]]'
    assert converter.to_connect("t", (), b'{"a": [007, 1.5], "b": "01"} rest') == (
        None,
        {"a": [7, 1.5], "b": "01"},
    )
    assert converter.to_connect("t", (), b"") == (None, None)


def test_a_schema_in_the_place_of_another() -> None:
    """An envelope with two schemas, or schemas of alike texts, change no later message."""
    converter = _json()
    twice = b'{"schema":{"type":"string"},"payload":1,"schema":{"type":"int8"}}'
    assert converter.to_connect("t", (), twice) == (INT8, 1)
    assert converter.to_connect("t", (), twice[:38] + b'"x"}') == (STRING, "x")
    known = b'{"schema":{"type":"string","optional":true,"default":%s},"payload":null}'
    assert converter.to_connect("t", (), known % b'"1.5"').value == "1.5"
    assert converter.to_connect("t", (), known % b"1.5").value is None


def test_what_follows_an_envelope_costs_nothing() -> None:
    """A schema is known once, also by messages that end with a line feed or with zeros."""
    converter = _json()
    data = b'{"schema":{"type":"int8"},"payload":%s}\n'
    assert [converter.to_connect("t", (), data % it).value for it in (b"1", b"02", b"03")] == [
        *(1, 2, 3)
    ]
    assert len(converter._prefixes) == 1


def test_large_schemas_do_not_fill_the_memory() -> None:
    """Producers choose the schemas: as many are kept as their texts allow, at least the last."""
    converter = _json()
    for size, kept in ((1_500_000, 2), (5_000_000, 1), (1000, 4)):
        for it in "abcd":
            schema = '{"type":"int8","doc":"%s"}' % (it * size)
            data = f'{{"schema":{schema},"payload":1}}'.encode()
            assert converter.to_connect("t", (), data).value == 1
        assert len(converter._readers) == kept


def test_numbers_without_bounds() -> None:
    """Too large ones are infinite, as in Java; NaN is no decimal; nor are depths without end."""
    converter, plain = _json(), _json(schemas_enable="false", decimal_format="numeric")
    for payload, value in ((b"9" * 400, math.inf), (b"-" + b"9" * 400, -math.inf)):
        data = b'{"schema":{"type":"double"},"payload":%s}' % payload
        assert converter.to_connect("t", (), data).value == value
    with pytest.raises(DataException, match="due to serialization error"):
        converter.to_connect("t", (), b'{"schema":null,"payload":1e99999999999999999999}')
    with pytest.raises(DataException, match=r"^Decimal value NaN is not a number$"):
        plain.from_connect("t", (), decimal(2), Decimal("NaN"))
    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]
    with pytest.raises(DataException, match="due to serialization error"):
        plain.from_connect("t", (), None, deep)
    with pytest.raises(DataException, match="due to serialization error"):
        converter.to_connect("t", (), b'{"schema":null,"payload":' + b"[" * 900 + b"]" * 900 + b"}")


_ENDLESS = '"' + '\\"' * 100_000
"""A string without an end, at each of whose quotes another might begin."""


@pytest.mark.parametrize(
    "text", ["{", "NaN", "nul", "\xff", "[" * 100_000, "1" * 5000, '{"a":1e', _ENDLESS]
)
def test_bytes_that_are_no_json(text: str) -> None:
    """A DataException, whatever they are."""
    with pytest.raises(DataException, match="due to serialization error"):
        _json(schemas_enable="false").to_connect("t", (), text.encode("latin-1"))


@pytest.mark.parametrize("name", ["", "no-such", "idna", "undefined", "zlib", "a\0b"])
def test_encodings_that_are_none_of_texts(name: str) -> None:
    """Refused when the converter is configured, not at each record."""
    with pytest.raises(ConfigErrors, match="Unsupported encoding"):
        StringConverter().configure({"converter.encoding": name}, is_key=False)


@pytest.mark.parametrize(
    ("schema", "payload", "message"),
    [
        ('{"type":"int8"}', "null", "Invalid null value for required INT8 field"),
        ('{"type":"wrong"}', "1", "Unknown schema type: wrong"),
        ("{}", "1", "Schema must contain 'type' field"),
        ('{"type":"array"}', "1", "Array schema did not specify the element type"),
        ('{"type":"struct"}', "1", 'Struct schema\'s "fields" argument is not an array.'),
        ('{"type":"bytes"}', '"?"', "Invalid bytes field"),
        ('{"type":"int8","default":null}', "1", "Invalid null value for required INT8 field"),
    ],
)
def test_schemas_and_payloads_that_do_not_fit(schema: str, payload: str, message: str) -> None:
    """Kafka's texts."""
    with pytest.raises(DataException) as raised:
        _json().to_connect("t", (), f'{{"schema":{schema},"payload":{payload}}}'.encode())
    assert str(raised.value) == message


def test_settings_of_json() -> None:
    """Decimals as numbers, defaults for nulls or not, one schema for all messages."""
    price = decimal(2)
    assert (
        _json(decimal_format="numeric", schemas_enable="false").from_connect(
            "t", (), price, Decimal("1.50")
        )
        == b"1.50"
    )
    optional = INT8.as_optional().with_default(7)
    plain = {"schemas_enable": "false"}
    assert _json(**plain).from_connect("t", (), optional, None) == b"7"
    kept = _json(**plain, replace_null_with_default="false")
    assert kept.from_connect("t", (), optional, None) == b"null"
    fixed = _json(schema_content='{"type":"int8"}')
    assert fixed.to_connect("t", (), b"5") == (INT8, 5)
    with pytest.raises(ConfigErrors, match="String must be one of"):
        _json(decimal_format="hex")


@pytest.mark.parametrize(
    ("converter", "schema", "value", "data"),
    [
        (StringConverter(), STRING, "é", "é".encode()),
        (StringConverter(), None, {"a": [1, True]}, b"{a=[1, true]}"),
        (ByteArrayConverter(), BYTES, b"x", b"x"),
        (BooleanConverter(), None, True, b"\x01"),
        (IntegerConverter(), INT32, -2, b"\xff\xff\xff\xfe"),
        (ShortConverter(), None, 258, b"\x01\x02"),
        (FloatConverter(), FLOAT32, 0.5, b"?\x00\x00\x00"),
    ],
)
def test_single_values(converter: Any, schema: Schema | None, value: Any, data: bytes) -> None:
    """There and back; None stays None."""
    converter.configure({}, is_key=True)
    assert converter.from_connect("t", (), schema, value) == data
    if not isinstance(value, dict):
        assert converter.to_connect("t", (), data).value == value
    assert converter.from_connect("t", (), None, None) is None
    assert converter.to_connect("t", (), None).value is None


def test_single_values_that_are_refused() -> None:
    """By type and by size."""
    for converter, schema, value in (
        (ByteArrayConverter(), STRING, "x"),
        (BooleanConverter(), None, 1),
        (IntegerConverter(), INT8, 1),
        (ShortConverter(), None, 1 << 15),
    ):
        with pytest.raises(DataException):
            converter.from_connect("t", (), schema, value)
    with pytest.raises(DataException, match=r"^Failed to deserialize integer: $"):
        IntegerConverter().to_connect("t", (), b"x")


def test_headers_are_texts() -> None:
    """Their type is seen from the text."""
    converter = SimpleHeaderConverter()
    assert converter.from_connect_header("t", "h", None, [1, "x"]) == b'[1,"x"]'
    assert converter.to_connect_header("t", "h", b"5") == (INT8, 5)
    assert converter.to_connect_header("t", "h", None) == (None, None)
