"""Steps over frames: many records of a micro-batch, or one of the pipeline driver.

Kafka: none; Spark: DataFrame.

Rows that are not a path's pass: the condition `mine` is false for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as f

from ottla.streams.columns.codecs import decode, encode, internal_serde
from ottla.streams.columns.expression import spark_column
from ottla.streams.columns.operators import TypedInput
from ottla.streams.errors import SerializationException

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from ottla.streams.columns.operators import Step
    from ottla.streams.records import RawRecord
    from ottla.streams.serdes import Serde

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
