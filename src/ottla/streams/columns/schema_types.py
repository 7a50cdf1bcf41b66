"""Spark's types of Avro's and Protobuf's schemas, as text.

Kafka: none; Spark: its rules for Avro and Protobuf.
"""

from __future__ import annotations

from typing import Any, Final

_AVRO: Final = {
    "string": "STRING",
    "enum": "STRING",
    "int": "INT",
    "long": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "boolean": "BOOLEAN",
}
_PROTOBUF: Final = {
    "CPPTYPE_INT32": "INT",
    "CPPTYPE_UINT32": "BIGINT",
    "CPPTYPE_FLOAT": "FLOAT",
    "CPPTYPE_DOUBLE": "DOUBLE",
    "CPPTYPE_BOOL": "BOOLEAN",
    "CPPTYPE_STRING": "STRING",
    "CPPTYPE_ENUM": "STRING",
    "CPPTYPE_INT64": "BIGINT",
}


def avro_type(schema: Any) -> str | None:
    """Return Spark's text of a schema's type; None for types that JSON does not carry."""
    if isinstance(schema, list):
        kinds = [one for one in schema if one != "null"]
        return avro_type(kinds[0]) if len(kinds) == 1 else None
    if isinstance(schema, str):
        return _AVRO.get(schema)
    return None if "logicalType" in schema else _avro_complex_type(schema)


def _avro_complex_type(schema: dict[str, Any]) -> str | None:
    kind = schema["type"]
    if kind == "record":
        fields = [(one["name"], avro_type(one["type"])) for one in schema["fields"]]
        text = ", ".join(f"`{name}`: {inner}" for name, inner in fields)
        return None if any(inner is None for _, inner in fields) else f"STRUCT<{text}>"
    if kind not in ("array", "map"):
        return avro_type(kind)
    inner = avro_type(schema["items" if kind == "array" else "values"])
    opening = "ARRAY<" if kind == "array" else "MAP<STRING, "
    return None if inner is None else f"{opening}{inner}>"


def protobuf_type(descriptor: Any, within: tuple[str, ...] = ()) -> str | None:
    """Return Spark's text of a message's type; None for types that JSON does not carry."""
    name = descriptor.full_name
    if name in within or descriptor.GetOptions().map_entry:
        return None
    fields = [(one.name, _protobuf_field_type(one, (*within, name))) for one in descriptor.fields]
    if not fields or any(text is None for _, text in fields):
        return None
    return f"STRUCT<{', '.join(f'`{name}`: {text}' for name, text in fields)}>"


def _protobuf_field_type(field: Any, within: tuple[str, ...]) -> str | None:
    if field.cpp_type == field.CPPTYPE_MESSAGE:
        text = protobuf_type(field.message_type, within)
    elif field.type == field.TYPE_BYTES:
        return None
    else:
        names = {getattr(field, name): name for name in _PROTOBUF}
        text = _PROTOBUF.get(names.get(field.cpp_type, ""))
    return f"ARRAY<{text}>" if field.is_repeated and text is not None else text
