"""Aggregates of columns: what `aggregate` and `reduce` take instead of functions.

Kafka: none; Spark: pyspark.sql.functions.{count, sum, min, max}.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ottla.streams.columns.expression import Operands
from ottla.streams.processors.folds import Fold

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.streams.columns.expression import Columns


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
