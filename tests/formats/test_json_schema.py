"""JSON Schema: documents, Confluent's wire format, validation, and the types for columns."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ottla.formats.json_schema import json_schema_type
from ottla.streams import Serdes, SerializationException

ORDER = {
    "title": "Order",
    "type": "object",
    "properties": {
        "item": {"type": "string"},
        "price": {"type": "number"},
        "count": {"oneOf": [{"type": "null"}, {"type": "integer"}]},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["item"],
}
TEA = {"item": "té", "price": 1.5, "count": None, "tags": ["x"]}


def test_documents_with_and_without_a_schema_id() -> None:
    """The head is a zero and the id, then the document in UTF-8; another id is refused."""
    plain = Serdes.json_schema(json.dumps(ORDER))
    known = Serdes.json_schema(ORDER, schema_id=258, former_ids=[7])
    data = plain.serialize(TEA)
    assert data == '{"item":"té","price":1.5,"count":null,"tags":["x"]}'.encode()
    assert plain.deserialize(data) == TEA
    assert known.serialize(TEA) == b"\x00\x00\x00\x01\x02" + data
    assert known.deserialize(b"\x00\x00\x00\x00\x07" + data) == TEA
    with pytest.raises(SerializationException, match="schema 3, not 258 or 7"):
        known.deserialize(b"\x00\x00\x00\x00\x03" + data)
    for bad in (data + b"x", data[:-1], b"\xff"):
        with pytest.raises(SerializationException):
            plain.deserialize(bad)
    with pytest.raises(ValueError, match="give schema_id, too"):
        Serdes.json_schema(ORDER, former_ids=[1])


@pytest.mark.parametrize("value", [{"price": float("nan")}, {"item": b"x"}, {1, 2}])
def test_values_that_json_does_not_have(value: Any) -> None:
    """They are refused when they are written, not by each reader."""
    with pytest.raises(SerializationException, match="the json schema Order serde cannot write"):
        Serdes.json_schema(ORDER).serialize(value)


def test_a_validator_refuses_documents() -> None:
    """Written or read, with its own reason; without one any document is taken."""

    class Invalid(Exception):
        pass

    def validate(document: Any) -> None:
        if "item" not in document:
            raise Invalid("'item' is a required property")

    checked = Serdes.json_schema(ORDER, validate=validate)
    assert checked.deserialize(checked.serialize({"item": "tea"})) == {"item": "tea"}
    with pytest.raises(SerializationException, match=r"cannot write .* 'item' is a required"):
        checked.serialize({})
    with pytest.raises(SerializationException, match=r"cannot read .* 'item' is a required"):
        checked.deserialize(b"{}")
    assert Serdes.json_schema(ORDER).deserialize(b"{}") == {}


def test_types_for_columns() -> None:
    """An order's columns; its serde reads them as JSON."""
    serde = Serdes.json_schema(ORDER)
    text = "STRUCT<`item`: STRING, `price`: DOUBLE, `count`: BIGINT, `tags`: ARRAY<STRING>>"
    assert serde.schema == text
    assert serde.for_columns is not None
    assert serde.for_columns.schema == text


LIST = {"type": "object", "properties": {"next": {"$ref": "#"}}}


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"type": "boolean"}, "BOOLEAN"),
        ({"type": ["integer", "null"]}, "BIGINT"),
        ({"type": "string", "enum": ["a", "b"]}, "STRING"),
        ({"type": "object", "additionalProperties": {"type": "number"}}, "MAP<STRING, DOUBLE>"),
        ({"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"type": "string"}}}, "STRING"),
        ({"type": ["integer", "string"]}, None),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, None),
        ({"type": "array"}, None),
        ({"type": "array", "items": [{"type": "string"}]}, None),
        ({"type": "object"}, None),
        ({"type": "object", "properties": {"a`b": {"type": "string"}}}, None),
        ({"$ref": "#/$defs/missing"}, None),
        ({"$ref": "other.json"}, None),
        (LIST, None),
        (True, None),
        ({}, None),
    ],
)
def test_types(schema: Any, text: str | None) -> None:
    """Of what Spark's JSON reader has a type for."""
    assert json_schema_type(schema) == text
