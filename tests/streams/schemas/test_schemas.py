"""Serdes by schemas: Avro, Protobuf, Confluent's wire format, and the types for columns."""

from __future__ import annotations

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
