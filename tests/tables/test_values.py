"""Values decoded into typed columns, and those that cannot be decoded."""

from __future__ import annotations

import json
import struct
from datetime import UTC, datetime
from io import BytesIO
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, timestamp_pb2

from ottla.errors import KafkaError
from ottla.tables.values import Avro, Decoder, Json, Protobuf, decoder_of, flattened

SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "sizes", "type": {"type": "map", "values": "int"}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "other", "type": ["null", "Kind"]},
    ],
}
NOW = datetime(2026, 1, 2, tzinfo=UTC)
ORDER = {"id": 1, "note": None, "at": NOW, "tags": ["x"], "sizes": {"s": 3}, "kind": "A"}


def decoded(decoder: Decoder | None, *values: bytes | None) -> list[Any]:
    """Return the values as Python objects."""
    assert decoder is not None
    array = pa.array(values, pa.binary())
    if decoder.needs_sample:
        decoder.infer(array)
    found = decoder.decode(array, lambda row: f"row {row}")
    assert found.type == decoder.type
    return list(found.to_pylist())


def test_names_of_formats() -> None:
    """Kafka's primitives, text, and raw bytes."""
    assert decoder_of("bytes") is None
    assert decoded(decoder_of("string"), "é".encode(), None) == ["é", None]
    assert decoded(decoder_of("long"), struct.pack(">q", -5), None) == [-5, None]
    assert decoded(decoder_of("double"), struct.pack(">d", 0.5)) == [0.5]
    with pytest.raises(KafkaError, match="value at row 1 is not long"):
        decoded(decoder_of("long"), struct.pack(">q", 1), b"short")
    with pytest.raises(KafkaError, match="value at row 2 is not UTF-8"):
        decoded(decoder_of("string"), b"a", b"b", b"\xff")


def test_json() -> None:
    """By a schema or by the first values; line breaks inside are no ends of values."""
    decoder = Json("id bigint, name varchar")
    assert decoded(decoder, b'{"id":1,\n"name":"a"}', None, b'{"id":2,"x":3}', None) == [
        {"id": 1, "name": "a"},
        None,
        {"id": 2, "name": None},
        None,
    ]
    assert decoded(decoder, None) == [None]
    assert decoded(Json(), b'{"a":{"b":[1]},"c":null}') == [{"a": {"b": [1]}, "c": None}]
    assert decoded(Json("id int", invalid="null"), b"{", b'{"id":1}', b"[]") == [
        None,
        {"id": 1},
        None,
    ]


def test_a_later_field_of_json() -> None:
    """Where the fields are those of the first values it is an error, not a lost column."""
    decoder = Json()
    decoder.infer(pa.array([b'{"id":1,"at":{"x":1}}'], pa.binary()))
    assert decoded(decoder, b'{"id":2}') == [{"id": 2, "at": None}]
    for value in (b'{"id":2,"new":1}', b'{"at":{"new":1}}'):
        with pytest.raises(KafkaError, match=r"row 1 is not JSON of .* \(give a schema\)"):
            decoded(decoder, b'{"id":2}', value)


@pytest.mark.parametrize(
    "value",
    [b"", b" ", b"nonsense", b'{"id":1}{"id":2}', b'{"id":1}}\n{"v":{"id":2}', b'{"id":"x"}', b"7",
     b'"', b'{"id":"', b"\xff", b"[" * 5000],
)  # fmt: skip
def test_a_value_cannot_pass_for_others(value: bytes) -> None:
    """Documents are told apart by rows; the error names the row of the wrong one."""
    with pytest.raises(KafkaError, match=r"value at row 1 is not JSON of struct<id: int64>"):
        decoded(Json("id bigint"), b'{"id":5}', value, b'{"id":6}')


def test_schemas_that_are_none() -> None:
    """Each names what is wrong."""
    for schema, text in (("id", "'id' is no field"), ("id blob", "is no field"), (5, "not int")):
        with pytest.raises(ValueError, match=text):
            Json(schema)
    with pytest.raises(KafkaError, match="no common JSON type"):
        decoded(Json(), b"x")
    with pytest.raises(ValueError, match="invalid is"):
        Json(invalid="skip")
    with pytest.raises(ValueError, match="there is no format"):
        decoder_of("csv")


def avro(value: Any, head: bytes = b"") -> bytes:
    """Return Avro bytes."""
    data = BytesIO(head)
    data.seek(0, 2)
    fastavro.schemaless_writer(data, fastavro.parse_schema(json.loads(json.dumps(SCHEMA))), value)
    return data.getvalue()


def test_avro() -> None:
    """Records, unions with null, times, arrays, maps, enums and named types."""
    expected = ORDER | {"sizes": [("s", 3)], "other": None}
    assert decoded(Avro(SCHEMA), avro(ORDER), None) == [expected, None]
    assert decoded(Avro(json.dumps(SCHEMA), schema_id=7), avro(ORDER, b"\0\0\0\0\7")) == [expected]
    with pytest.raises(KafkaError, match="value at row 1 is not Avro of Order"):
        decoded(Avro(SCHEMA), avro(ORDER), b"\x02")
    with pytest.raises(ValueError, match="union of several"):
        Avro(["int", "string"])
    with pytest.raises(ValueError, match="is not defined"):
        Avro({"type": "array", "items": "Absent"})


def test_protobuf() -> None:
    """Messages become structs; one that contains itself has no type."""
    message = timestamp_pb2.Timestamp(seconds=5)
    decoder = Protobuf(timestamp_pb2.Timestamp)
    assert decoded(decoder, message.SerializeToString(), None) == [{"seconds": 5, "nanos": 0}, None]
    with pytest.raises(KafkaError, match=r"not Protobuf of google.protobuf.Timestamp"):
        decoded(decoder, b"\xff")
    with pytest.raises(ValueError, match="contains itself"):
        Protobuf(descriptor_pb2.DescriptorProto)


def test_fields_as_columns() -> None:
    """A field whose name is that of a column of records gets a prefix."""
    kind = pa.struct([("id", pa.int64()), ("offset", pa.int64())])
    table = pa.table({"offset": [1], "value": pa.array([{"id": 2, "offset": 3}], kind)})
    expected = {"id": [2], "value_offset": [3], "offset": [1]}
    assert flattened(table).to_pydict() == expected
    assert flattened(table.to_batches()[0]).to_pydict() == expected
    nulls = pa.record_batch({"value": pa.array([None, {"id": 2, "offset": 3}], kind)})
    assert flattened(nulls)["id"].to_pylist() == [None, 2]
    assert flattened(table.select(["offset"])).schema.names == ["offset"]
