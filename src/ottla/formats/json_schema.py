"""JSON by a JSON Schema that the program has: the documents, and their type for columns.

Kafka: none; Confluent: KafkaJsonSchemaSerializer. As there, documents are validated on request only
(its json.fail.invalid.schema is false): any validator will do. Schemas that refer to others of a
registry have no type for columns.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from ottla.formats.wire_format import known_ids, with_head, without_head

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

_TYPES: Final = {
    "string": "STRING",
    "integer": "BIGINT",
    "number": "DOUBLE",
    "boolean": "BOOLEAN",
}
_ALTERNATIVES: Final = ("oneOf", "anyOf")


class JsonSchemaCodec:
    """Reads and writes documents of a schema, given as a document or its text."""

    def __init__(
        self,
        schema: Any,
        schema_id: int | None,
        former_ids: Collection[int],
        validate: Callable[[Any], object] | None = None,
    ) -> None:
        """Take ids of former schemas; ValueError for those without an id to write."""
        self.document = json.loads(schema) if isinstance(schema, str) else schema
        self._schema_id, self._known = schema_id, known_ids(schema_id, former_ids)
        self._validate = validate

    @property
    def name(self) -> str:
        """The title of the schema."""
        document = self.document
        return str(document.get("title", "value")) if isinstance(document, dict) else "value"

    def write(self, value: Any) -> bytes:
        """Return a document's bytes, after the head if the schema has an id; ValueError if invalid.

        NaN and the infinities are invalid, as JSON has no number for them.
        """
        self._check(value)
        text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        return with_head(self._schema_id, text.encode())

    def read(self, data: bytes) -> Any:
        """Return a document; ValueError for bytes of another schema, and for an invalid one."""
        value = json.loads(without_head(self._known, data)[1])
        self._check(value)
        return value

    def _check(self, value: Any) -> None:
        if self._validate is not None:
            try:
                self._validate(value)
            except Exception as error:  # each library has its own
                raise ValueError(f"the document does not fit its schema: {error}") from error


def json_schema_type(schema: Any) -> str | None:
    """Return Spark's text of a schema's type; None for types without one.

    These are: alternatives of several types, tuples, schemas that refer to themselves or to another
    document, and anything (`true`, `{}`).
    """
    return _type(schema, schema, ())


def _type(schema: Any, root: Any, within: tuple[str, ...]) -> str | None:
    if not isinstance(schema, dict):
        return None
    reference = schema.get("$ref")
    if reference is not None:
        target = None if reference in within else _target(reference, root)
        return _type(target, root, (*within, reference))
    for word in _ALTERNATIVES:  # Confluent's way to say that a value may be null
        if word in schema:
            kinds = [kind for kind in schema[word] if kind != {"type": "null"}]
            return _type(kinds[0], root, within) if len(kinds) == 1 else None
    kind = schema.get("type")
    if isinstance(kind, list):
        kinds = [name for name in kind if name != "null"]
        kind = kinds[0] if len(kinds) == 1 else None
    if kind == "array":
        inner = _type(schema.get("items"), root, within)
        return None if inner is None else f"ARRAY<{inner}>"
    if kind == "object":
        return _object_type(schema, root, within)
    return _TYPES.get(str(kind))


def _object_type(schema: dict[str, Any], root: Any, within: tuple[str, ...]) -> str | None:
    """Return a struct of the properties; without any, a map of the additional ones."""
    properties = schema.get("properties")
    if not properties:
        inner = _type(schema.get("additionalProperties"), root, within)
        return None if inner is None else f"MAP<STRING, {inner}>"
    fields = [(name, _type(inner, root, within)) for name, inner in properties.items()]
    if any(inner is None or "`" in name for name, inner in fields):
        return None
    return f"STRUCT<{', '.join(f'`{name}`: {inner}' for name, inner in fields)}>"


def _target(reference: str, root: Any) -> Any:
    """Return the part of the document that a JSON Pointer (RFC 6901) names; None for none."""
    if not reference.startswith("#"):
        return None
    target = root
    for step in reference[1:].split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        target = target.get(name) if isinstance(target, dict) else None
    return target
