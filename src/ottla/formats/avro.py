"""Avro by a schema that the program has.

Kafka: none; Confluent: KafkaAvroSerializer. fastavro reads and writes.
"""

from __future__ import annotations

import json
from io import BytesIO
from typing import TYPE_CHECKING, Any

from ottla.formats.wire_format import known_ids, with_head, without_head

if TYPE_CHECKING:
    from collections.abc import Mapping


class AvroCodec:
    """Reads and writes values of a schema, as a document or its text.

    A value is read with the schema that wrote it, this or a former one by id, and resolved to this
    one. Parsed schemas are not pickled.
    """

    def __init__(self, schema: Any, schema_id: int | None, former: Mapping[int, Any]) -> None:
        """Take former schemas by id; ValueError for those without an id to write."""
        self.document = _document(schema)
        self._documents: dict[int | None, Any] = {
            former_id: _document(one) for former_id, one in former.items()
        }
        self._documents[schema_id] = self.document
        self._schema_id, self._known = schema_id, known_ids(schema_id, former)
        self._parsed: dict[int | None, Any] = {}

    @property
    def name(self) -> str:
        """The name of the schema's type."""
        document = self.document
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
        """Return a value's bytes, after the head if the schema has an id."""
        from fastavro import schemaless_writer

        data = BytesIO()
        schema = self._schema(self._schema_id)
        schemaless_writer(data, schema, value, strict_allow_default=True)
        return with_head(self._schema_id, data.getvalue())

    def read(self, data: bytes) -> Any:
        """Return a value; ValueError for bytes of another schema."""
        from fastavro import schemaless_reader

        found, rest = without_head(self._known, data)
        stream = BytesIO(rest)
        target = None if found == self._schema_id else self._schema(self._schema_id)
        value = schemaless_reader(stream, self._schema(found), target)
        if stream.read(1):
            raise ValueError("there are bytes after the value")
        return value


def _document(schema: Any) -> Any:
    return json.loads(schema) if isinstance(schema, str) else schema
