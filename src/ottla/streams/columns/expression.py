"""Expressions of columns in a topology, and the aggregates that read them.

Kafka: none; Spark: pyspark.sql.Column, pyspark.sql.functions.{expr, count, sum, min, max}.

An expression reads `key`, `value` and its fields, `timestamp` (ms), `topic`, `partition`, `offset`
and `headers`. A text needs no session where the topology is built.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ottla.streams.processors.aggregates import Fold

if TYPE_CHECKING:
    from collections.abc import Mapping

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


@dataclass(frozen=True)
class ColumnAggregate:
    """A function over the rows of a key, and the column that it reads."""

    function: str
    column: Any = None


def count_rows() -> ColumnAggregate:
    """Return the number of rows."""
    return ColumnAggregate("count")


def sum_of(column: Columns) -> ColumnAggregate:
    """Return the sum of a column; rows where it is NULL do not count."""
    return ColumnAggregate("sum", column)


def min_of(column: Columns) -> ColumnAggregate:
    """Return the least value of a column; rows where it is NULL do not count."""
    return ColumnAggregate("min", column)


def max_of(column: Columns) -> ColumnAggregate:
    """Return the largest value of a column; rows where it is NULL do not count."""
    return ColumnAggregate("max", column)


def operands_of(aggregates: Mapping[str, ColumnAggregate]) -> Operands | None:
    """Return the columns that aggregates read; None where they only count."""
    found = {name: one.column for name, one in aggregates.items() if one.function != "count"}
    return Operands(tuple(found.items())) if found else None


def fold_of(aggregates: Mapping[str, ColumnAggregate], *, is_single: bool, operator: Any) -> Fold:
    """Return the aggregator."""
    functions = {name: one.function for name, one in aggregates.items()}
    return Fold(functions, is_single=is_single, operator=operator)
