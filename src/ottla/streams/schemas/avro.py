"""Avro by a schema that the program has.

Kafka: none; fastavro reads and writes. Spark's types follow its own rules for Avro.
"""

from __future__ import annotations

import json
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final

from ottla.streams.schemas.wire_format import known_ids, with_head, without_head
from ottla.streams.serdes import Serde, Serdes

if TYPE_CHECKING:
    from collections.abc import Mapping

_SIMPLE: Final = {
    "string": "STRING",
    "enum": "STRING",
    "int": "INT",
    "long": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "boolean": "BOOLEAN",
}


def avro_serde(schema: Any, schema_id: int | None, former: Mapping[int, Any]) -> Serde:
    """Return the serde; a record is read with the schema that wrote it: this, or a former one."""
    document = _document(schema)
    documents: dict[int | None, Any] = {id_: _document(one) for id_, one in former.items()}
    documents[schema_id] = document
    codec = _Codec(documents, schema_id, known_ids(schema_id, former))
    text = spark_type(document)
    for_columns = None if text is None else Serdes.json(schema=text)
    return Serde(f"avro {codec.name}", codec.write, codec.read, text, for_columns)


def _document(schema: Any) -> Any:
    return json.loads(schema) if isinstance(schema, str) else schema


class _Codec:
    """Reads and writes values; parsed schemas are not pickled."""

    def __init__(
        self, documents: dict[int | None, Any], schema_id: int | None, known: list[int]
    ) -> None:
        self._documents, self._schema_id, self._known = documents, schema_id, known
        self._parsed: dict[int | None, Any] = {}

    @property
    def name(self) -> str:
        """The name of the schema's type."""
        document = self._documents[self._schema_id]
        return (
            str(document.get("name", document["type"])) if isinstance(document, dict) else "value"
        )

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_parsed": {}}

    def _schema(self, schema_id: int | None) -> Any:
        """Return the parsed schema of an id."""
        if schema_id not in self._parsed:
            from fastavro import parse_schema

            self._parsed[schema_id] = parse_schema(self._documents[schema_id])
        return self._parsed[schema_id]

    def write(self, value: Any) -> bytes:
        from fastavro import schemaless_writer

        data = BytesIO()
        schema = self._schema(self._schema_id)
        schemaless_writer(data, schema, value, strict_allow_default=True)
        return with_head(self._schema_id, data.getvalue())

    def read(self, data: bytes) -> Any:
        from fastavro import schemaless_reader

        found, rest = without_head(self._known, data)
        stream = BytesIO(rest)
        target = None if found == self._schema_id else self._schema(self._schema_id)
        value = schemaless_reader(stream, self._schema(found), target)
        if stream.read(1):
            raise ValueError("there are bytes after the value")
        return value


def spark_type(schema: Any) -> str | None:
    """Return Spark's text of a schema's type; None for types that JSON does not carry."""
    if isinstance(schema, list):
        kinds = [one for one in schema if one != "null"]
        return spark_type(kinds[0]) if len(kinds) == 1 else None
    if isinstance(schema, str):
        return _SIMPLE.get(schema)
    return None if "logicalType" in schema else _complex_type(schema)


def _complex_type(schema: dict[str, Any]) -> str | None:
    kind = schema["type"]
    if kind == "record":
        fields = [(one["name"], spark_type(one["type"])) for one in schema["fields"]]
        text = ", ".join(f"`{name}`: {inner}" for name, inner in fields)
        return None if any(inner is None for _, inner in fields) else f"STRUCT<{text}>"
    if kind not in ("array", "map"):
        return spark_type(kind)
    inner = spark_type(schema["items" if kind == "array" else "values"])
    opening = "ARRAY<" if kind == "array" else "MAP<STRING, "
    return None if inner is None else f"{opening}{inner}>"
