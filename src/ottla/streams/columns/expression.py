"""Expressions of columns in a topology: Spark's own columns, or their text.

Kafka: none; Spark: pyspark.sql.Column, pyspark.sql.functions.expr.

An expression reads `key`, `value` and its fields, `timestamp` (ms), `topic`, `partition`, `offset`
and `headers`. A text needs no session where the topology is built.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import Column


@dataclass(frozen=True)
class Expression:
    """The text of a column in Spark's SQL."""

    text: str


@dataclass(frozen=True)
class Operands:
    """What aggregates read of a row: a struct of columns, NULL where the value is."""

    columns: tuple[tuple[str, Any], ...]


if TYPE_CHECKING:
    Columns = Expression | Operands | Column


def expr(text: str) -> Expression:
    """Return a column by its text, such as `value.price * 2`."""
    return Expression(text)


def is_column(value: Any) -> bool:
    """Whether a value is an expression, not a function."""
    if isinstance(value, (Expression, Operands)):
        return True
    columns = sys.modules.get("pyspark.sql.column")
    return columns is not None and isinstance(value, columns.Column)


def spark_column(value: Any) -> Column:
    """Return an expression as Spark's column."""
    if not isinstance(value, (Expression, Operands)):
        column: Column = value
        return column
    from pyspark.sql import functions as f

    if isinstance(value, Expression):
        return f.expr(value.text)
    fields = [spark_column(one).alias(name) for name, one in value.columns]
    return f.when(f.col("value").isNotNull(), f.struct(*fields))
