"""Serdes as Spark's columns, and steps over frames: of a micro-batch, or of one record.

Kafka: org.apache.kafka.common.serialization.Serdes; Spark: from_json, to_json, hex, unhex.

Bytes become typed values and back without Python. Rows that are not a path's pass: the condition
`mine` is false for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import functions as f
from pyspark.sql import types as t

from ottla.streams.columns.expression import spark_column
from ottla.streams.columns.operators import TypedInput
from ottla.streams.data.serdes import Serde, Serdes
from ottla.streams.errors import SerializationException, TopologyException

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from ottla.streams.columns.operators import Step
    from ottla.streams.data.records import RawRecord


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


INVALID = "_invalid"
_ONE = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("timestamp", pa.int64()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)


def typed(key: Column, value: Column, serdes: TypedInput) -> dict[str, Column]:
    """Return the columns of typed keys and values, and whether their bytes are invalid."""
    typed_key, is_bad_key = decode(key, serdes.key)
    typed_value, is_bad_value = decode(value, serdes.value)
    return {"key": typed_key, "value": typed_value, INVALID: is_bad_key | is_bad_value}


def run_step(frame: DataFrame, step: Step, mine: Column) -> DataFrame:
    """Return the frame after a step."""
    for column, is_negated in step.conditions:
        holds = f.coalesce(spark_column(column).cast("boolean"), f.lit(False))
        frame = frame.where(~mine | (~holds if is_negated else holds))
    changed = {"key": step.key, "value": step.value}
    made = {name: spark_column(one) for name, one in changed.items() if one is not None}
    if made:
        frame = frame.withColumns({name: f.when(mine, one) for name, one in made.items()})
    if step.values is not None:
        return frame.withColumn("value", _exploded(step.values, mine))
    if step.pairs is not None:
        frame = frame.withColumn("_pair", _exploded(step.pairs, mine))
        return frame.withColumns({"key": f.col("_pair.key"), "value": f.col("_pair.value")})
    return frame


def _exploded(array: Any, mine: Column) -> Column:
    return f.explode(f.when(mine, spark_column(array)).otherwise(f.array(f.lit(None))))


def serdes_of(frame: DataFrame) -> TypedInput:
    """Return the serdes of a frame's keys and values between columns and functions."""
    types = {field.name: field.dataType for field in frame.schema.fields}
    return TypedInput(internal_serde(types["key"]), internal_serde(types["value"]))


def encoded(frame: DataFrame, key: Serde, value: Serde, node: str) -> dict[str, Column]:
    """Return the columns of the bytes."""
    types = {field.name: field.dataType for field in frame.schema.fields}
    return {
        "key": encode(f.col("key"), types["key"], key, node),
        "value": encode(f.col("value"), types["value"], value, node),
    }


# ---------------------------------------------------------------- one record, for the driver


def _session() -> SparkSession:
    from pyspark.sql import SparkSession

    from ottla.spark.jvm.local_session import session

    return SparkSession.getActiveSession() or session("ottla pipeline driver", fast_start=True)


def _frame(raws: list[RawRecord]) -> DataFrame:
    rows = [
        {
            **raw._asdict(),
            "headers": [{"key": name, "value": value} for name, value in raw.headers],
        }
        for raw in raws
    ]
    return _session().createDataFrame(pa.Table.from_pylist(rows, schema=_ONE))


def _after(step: Step, serdes: TypedInput, raws: list[RawRecord]) -> DataFrame:
    mine = f.lit(True)
    frame = _frame(raws).withColumns(typed(f.col("key"), f.col("value"), serdes))
    return run_step(frame, step, mine)


def output_serdes(step: Step, serdes: TypedInput) -> TypedInput:
    """Return the serdes of what a step makes."""
    return serdes_of(_after(step, serdes, []))


def run_one(
    step: Step, serdes: TypedInput, raw: RawRecord
) -> list[tuple[bytes | None, bytes | None]]:
    """Return the keys and values that a step makes of a record."""
    found = _after(step, serdes, [raw])
    made = encoded(found, *serdes_of(found), "the driver")
    rows = found.select(INVALID, *(column.alias(name) for name, column in made.items())).collect()
    if any(row[INVALID] for row in rows):
        raise SerializationException(f"a value does not have the schema {serdes.value.schema}")
    return [(_bytes(row["key"]), _bytes(row["value"])) for row in rows]


def _bytes(value: Any) -> bytes | None:
    return None if value is None else bytes(value)
