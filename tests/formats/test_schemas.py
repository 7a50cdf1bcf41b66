"""Serdes by schemas: Avro, Protobuf, Confluent's wire format, and the types for columns."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.struct_pb2 import Struct
from google.protobuf.timestamp_pb2 import Timestamp

from ottla.streams import Serdes, SerializationException

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "item", "type": "string"},
        {"name": "count", "type": ["null", "long"]},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
    ],
}
TEA = {"item": "tea", "count": None, "tags": ["x"]}


def test_avro_with_and_without_a_schema_id() -> None:
    """The head is a zero and the id; another id, and bytes that are left, are refused."""
    plain, known = Serdes.avro(ORDER), Serdes.avro(ORDER, schema_id=258)
    data = plain.serialize(TEA)
    assert data is not None
    assert plain.deserialize(data) == TEA
    assert known.serialize(TEA) == b"\x00\x00\x00\x01\x02" + data
    assert known.deserialize(b"\x00\x00\x00\x01\x02" + data) == TEA
    with pytest.raises(SerializationException, match="schema 3, not 258"):
        known.deserialize(b"\x00\x00\x00\x00\x03" + data)
    for bad in (data + b"x", data[:-1]):
        with pytest.raises(SerializationException):
            plain.deserialize(bad)
    with pytest.raises(SerializationException, match="cannot write"):
        plain.serialize({"item": 1})


def test_types_for_columns() -> None:
    """Avro and Protobuf have Spark's types, unless JSON does not carry them."""
    text = "STRUCT<`item`: STRING, `count`: BIGINT, `tags`: ARRAY<STRING>>"
    assert Serdes.avro(ORDER).schema == text
    assert Serdes.avro({"type": "fixed", "name": "F", "size": 2}).schema is None
    assert Serdes.protobuf(Timestamp).schema == "STRUCT<`seconds`: BIGINT, `nanos`: INT>"
    assert Serdes.protobuf(Struct).schema is None  # a map


def test_protobuf_messages_and_what_columns_make_of_them() -> None:
    """A dict of the fields is written as a message; the head names the first message."""
    serde = Serdes.protobuf(Timestamp, schema_id=7)
    message = Timestamp(seconds=5, nanos=1)
    data = serde.serialize(message)
    assert data is not None
    assert data.startswith(b"\x00\x00\x00\x00\x07\x00")
    assert serde.deserialize(data) == message
    assert serde.serialize({"seconds": 5, "nanos": 1}) == data
    assert serde.for_columns is not None
    assert serde.for_columns.serialize(message) == b'{"seconds":5,"nanos":1}'
    assert serde.for_columns.deserialize(b'{"seconds":5,"nanos":1}') == message


def changed(**types: Any) -> dict[str, Any]:
    """Return a schema of orders with other fields."""
    fields = [{"name": name, **kind} for name, kind in types.items()]
    return {"type": "record", "name": "Order", "fields": fields}


def test_avro_of_a_former_schema() -> None:
    """By its id: a new field has its default, one that is gone is left out, a number is widened."""
    old = changed(item={"type": "string"}, count={"type": "int"}, gone={"type": "string"})
    new = changed(
        item={"type": "string"}, count={"type": "long"}, price={"type": "double", "default": 1.5}
    )
    data = Serdes.avro(old, schema_id=1).serialize({"item": "tea", "count": 2, "gone": "x"})
    with pytest.raises(SerializationException, match="schema 1, not 2"):
        Serdes.avro(new, schema_id=2).deserialize(data)
    both = Serdes.avro(new, schema_id=2, former={1: old})
    expected = {"item": "tea", "count": 2, "price": 1.5}
    assert both.deserialize(data) == expected
    written = both.serialize(expected)
    assert written is not None
    assert written.startswith(b"\x00\x00\x00\x00\x02")
    assert both.deserialize(written) == expected
    with pytest.raises(SerializationException, match="schema 3, not 2 or 1"):
        both.deserialize(b"\x00\x00\x00\x00\x03" + written[5:])


@pytest.mark.parametrize(
    "types",
    [
        {"item": {"type": "string"}, "count": {"type": "string"}},
        {"item": {"type": "string"}, "price": {"type": "double"}},
    ],
    ids=["another type", "a new field without a default"],
)
def test_avro_of_a_schema_that_does_not_resolve(types: dict[str, Any]) -> None:
    """The error is one of the record, which the handler decides on."""
    old = changed(item={"type": "string"}, count={"type": "int"})
    data = Serdes.avro(old, schema_id=1).serialize({"item": "tea", "count": 2})
    with pytest.raises(SerializationException, match="the avro Order serde cannot read"):
        Serdes.avro(changed(**types), schema_id=2, former={1: old}).deserialize(data)


def test_protobuf_of_a_former_schema() -> None:
    """The ids of former versions are read: Protobuf's fields are known by their numbers."""
    data = Serdes.protobuf(Timestamp, schema_id=1).serialize(Timestamp(seconds=5))
    with pytest.raises(SerializationException, match="schema 1, not 2"):
        Serdes.protobuf(Timestamp, schema_id=2).deserialize(data)
    both = Serdes.protobuf(Timestamp, schema_id=2, former_ids=[1])
    assert both.deserialize(data) == Timestamp(seconds=5)


def test_former_schemas_need_ids() -> None:
    """Bytes without a head do not say which schema wrote them."""
    with pytest.raises(ValueError, match="give schema_id, too"):
        Serdes.avro(ORDER, former={1: ORDER})
