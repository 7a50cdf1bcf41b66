"""Serdes as Spark's columns: bytes to typed values and back, without Python.

Kafka: org.apache.kafka.common.serialization.Serdes; Spark: from_json, to_json, hex, unhex.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as f
from pyspark.sql import types as t

from ottla.streams.errors import TopologyException
from ottla.streams.serdes import Serde, Serdes

if TYPE_CHECKING:
    from pyspark.sql import Column

_CORRUPT: Final = "_corrupt_record"
_TIMES: Final = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}
_WIDTHS: Final = {"short": 2, "integer": 4, "long": 8}
_NUMBERS: Final = {"short": "smallint", "integer": "int", "long": "bigint"}


def internal_serde(kind: t.DataType) -> Serde:
    """Return the serde between columns and functions for values of a type."""
    known: dict[type, Any] = {
        t.StringType: Serdes.string,
        t.BinaryType: Serdes.bytes,
        t.BooleanType: Serdes.boolean,
        t.ShortType: Serdes.short,
        t.IntegerType: Serdes.integer,
        t.LongType: Serdes.long,
    }
    made = known.get(type(kind))
    found: Serde = Serdes.json(schema=kind) if made is None else made()
    return found


def decode(data: Column, serde: Serde) -> tuple[Column, Column]:
    """Return the values of bytes, and whether the bytes have another form."""
    if serde.name == "json":
        return _from_json(data, serde)
    if serde.name == "bytes":
        return data, f.lit(False)
    if serde.name == "string":
        text = data.cast("string")
        return text, f.coalesce(~f.is_valid_utf8(text), f.lit(False))
    if serde.name == "boolean":
        digits = f.hex(data)
        is_known = digits.isin("00", "01")
        return f.when(is_known, digits == "01"), f.coalesce(~is_known, f.lit(False))
    bits = 8 * _WIDTHS[serde.name]
    has_other_size = f.coalesce(f.length(data) != bits // 8, f.lit(False))
    unsigned = f.conv(f.hex(data), 16, -10).cast("bigint")
    number = unsigned
    if bits < 64:
        number = f.when(unsigned >= 1 << (bits - 1), unsigned - (1 << bits)).otherwise(unsigned)
    return f.when(~has_other_size, number).cast(_NUMBERS[serde.name]), has_other_size


def encode(value: Column, kind: t.DataType, serde: Serde, node: str) -> Column:
    """Return the bytes of values; TopologyException for values of a type the serde lacks."""
    if serde.name == "json":
        return _to_json(value, kind).cast("binary")
    if isinstance(kind, t.NullType):
        return f.lit(None).cast("binary")
    expected: dict[str, tuple[type, ...]] = {
        "string": (t.StringType,),
        "bytes": (t.BinaryType,),
        "boolean": (t.BooleanType,),
    }
    if not isinstance(kind, expected.get(serde.name, t.IntegralType)):
        raise TopologyException(
            f"{node}: the {serde.name} serde cannot write a column of type {kind.simpleString()}"
        )
    if serde.name in ("string", "bytes"):
        return value.cast("binary")
    if serde.name == "boolean":
        return f.when(value, f.unhex(f.lit("01"))).when(~value, f.unhex(f.lit("00")))
    width = _WIDTHS[serde.name]
    number = value.cast(_NUMBERS[serde.name]).cast("bigint")
    if width < _WIDTHS["long"]:
        number = number.bitwiseAND((1 << (8 * width)) - 1)
    return f.unhex(f.lpad(f.hex(number), 2 * width, "0"))


def _from_json(data: Column, serde: Serde) -> tuple[Column, Column]:
    """Parse JSON; what does not fit the schema is of another form, as a whole."""
    kind = schema_of(serde)
    text = data.cast("string")
    is_struct = isinstance(kind, t.StructType)
    fields = kind.fields if isinstance(kind, t.StructType) else [t.StructField("v", kind)]
    schema = t.StructType([*fields, t.StructField(_CORRUPT, t.StringType())])
    source = text if is_struct else f.concat(f.lit('{"v":'), text, f.lit("}"))
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    parsed = f.from_json(source, schema, {**options, **_TIMES})
    is_null = f.trim(text) == "null"
    is_other = parsed.isNull() | parsed[_CORRUPT].isNotNull()
    invalid = f.coalesce(is_other & ~is_null, f.lit(False)) & data.isNotNull()
    value = parsed.dropFields(_CORRUPT) if is_struct else parsed["v"]
    return f.when(~invalid & ~is_null, value), invalid


def schema_of(serde: Serde) -> t.DataType:
    """Return the type of a serde's values."""
    if isinstance(serde.schema, str):
        return t.DataType.fromDDL(serde.schema)
    kind: t.DataType = serde.schema
    return kind


def _to_json(value: Column, kind: t.DataType) -> Column:
    options = {"ignoreNullFields": "false", **_TIMES}
    if isinstance(kind, (t.StructType, t.VariantType)):
        return f.to_json(value, options)
    text = f.to_json(f.array(value), options)  # an array is taken by all types
    return f.when(value.isNotNull(), text.substr(f.lit(2), f.length(text) - 2))
