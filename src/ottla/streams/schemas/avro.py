"""Avro by a schema that the program has.

Kafka: none; fastavro reads and writes. Spark's types follow its own rules for Avro.
"""

from __future__ import annotations

import json
from io import BytesIO
from typing import Any, Final

from ottla.streams.schemas.wire_format import with_head, without_head
from ottla.streams.serdes import Serde, Serdes

_SIMPLE: Final = {
    "string": "STRING",
    "enum": "STRING",
    "int": "INT",
    "long": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "boolean": "BOOLEAN",
}


def avro_serde(schema: Any, schema_id: int | None) -> Serde:
    """Return the serde; a record is read with the schema that wrote it, which is this one."""
    document = json.loads(schema) if isinstance(schema, str) else schema
    codec = _Codec(document, schema_id)
    text = spark_type(document)
    for_columns = None if text is None else Serdes.json(schema=text)
    return Serde(f"avro {codec.name}", codec.write, codec.read, text, for_columns)


class _Codec:
    """Reads and writes values; the parsed schema is not pickled."""

    def __init__(self, document: Any, schema_id: int | None) -> None:
        self._document, self._schema_id = document, schema_id
        self._parsed: Any = None

    @property
    def name(self) -> str:
        """The name of the schema's type."""
        document = self._document
        return (
            str(document.get("name", document["type"])) if isinstance(document, dict) else "value"
        )

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_parsed": None}

    def _schema(self) -> Any:
        if self._parsed is None:
            from fastavro import parse_schema

            self._parsed = parse_schema(self._document)
        return self._parsed

    def write(self, value: Any) -> bytes:
        from fastavro import schemaless_writer

        data = BytesIO()
        schemaless_writer(data, self._schema(), value, strict_allow_default=True)
        return with_head(self._schema_id, data.getvalue())

    def read(self, data: bytes) -> Any:
        from fastavro import schemaless_reader

        stream = BytesIO(without_head(self._schema_id, data))
        value = schemaless_reader(stream, self._schema(), None)
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
