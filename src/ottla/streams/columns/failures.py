"""Records that an operator with columns cannot process: they go to the processing handler.

Kafka: org.apache.kafka.streams.errors.ProcessingExceptionHandler.

Where the handler is not the one that fails, Spark computes an operator's columns under TryEval,
which turns an error into NULL; a Python step calls the handler for the rows where that happened.
Spark Connect has no such expression: there an error fails the application.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as f

from ottla.streams.columns.expression import spark_column
from ottla.streams.config import handled
from ottla.streams.data.records import RawRecord
from ottla.streams.errors import StreamsException

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql import Column

    from ottla.streams.columns.operators import Step
    from ottla.streams.config import StreamsConfig

FAILED: Final = -10
"""The address of a row that the operator of the first node could not process; others are below."""
LEAVING: Final = -1
"""The address of rows that leave the query, as `stages.OUTPUT`."""


def attempt(step: Step) -> Column | None:
    """Return a struct of what a step computes, NULL after an error; None under Spark Connect."""
    from pyspark import SparkContext
    from pyspark.sql.classic.column import Column as ClassicColumn

    columns = {name: spark_column(one) for name, one in _columns(step).items()}
    context = SparkContext._active_spark_context  # noqa: SLF001 - none is started here
    if context is None or not all(isinstance(column, ClassicColumn) for column in columns.values()):
        return None
    both: Any = f.struct(*(one.alias(name) for name, one in columns.items()))
    jvm: Any = context._jvm  # noqa: SLF001 - PySpark has no function for it
    known = jvm.org.apache.spark.sql.classic.ExpressionUtils
    kinds = jvm.org.apache.spark.sql.catalyst.expressions
    tried = kinds.TryEval(known.expression(both._jc))  # noqa: SLF001 - as above
    found: Column = ClassicColumn(known.column(tried))
    return found


def after_attempt(step: Step, name: str) -> Step:
    """Return a step that takes what was computed from a column of structs."""
    found = {field: f.col(name).getField(field) for field in _columns(step)}
    conditions = tuple(
        (found[f"condition{number}"], is_negated)
        for number, (_, is_negated) in enumerate(step.conditions)
    )
    names = ("key", "value", "values", "pairs")
    return replace(step, conditions=conditions, **{one: found.get(one) for one in names})


def _columns(step: Step) -> dict[str, Any]:
    found = {f"condition{number}": one for number, (one, _) in enumerate(step.conditions)}
    others = {"key": step.key, "value": step.value, "values": step.values, "pairs": step.pairs}
    return found | {name: one for name, one in others.items() if one is not None}


class FailedRows:
    """Calls the handler for the rows that could not be processed; all others pass."""

    def __init__(self, config: StreamsConfig, nodes: list[str]) -> None:
        self._config, self._nodes = config, nodes

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows that pass, and the dead letters of the others."""
        for batch in batches:
            stages = np.asarray(batch.column("stage"))
            mine = stages <= FAILED
            if not mine.any():
                yield batch
                continue
            yield batch.filter(pa.array(~mine))
            letters = [self._letter(batch, int(row)) for row in np.flatnonzero(mine)]
            yield rows_of_letters(
                [letter for letter in letters if letter is not None], batch.schema
            )

    def _letter(self, batch: pa.RecordBatch, row: int) -> RawRecord | None:
        node = self._nodes[FAILED - batch.column("stage")[row].as_py()]
        error = StreamsException(f"a column of {node} cannot be computed for this record")
        handler = self._config.processing_exception_handler
        return handled(self._config, handler, node, raw_record(batch, row), error)


def raw_record(rows: pa.RecordBatch, row: int) -> RawRecord:
    """Return a row's record."""
    (found,) = rows.slice(row, 1).to_pylist()
    headers = tuple((one["key"], one["value"]) for one in found["headers"] or ())
    data = (found["key"], found["value"], found["timestamp"])
    return RawRecord(found["topic"], *data, headers, found["partition"], found["offset"])


def rows_of_letters(letters: list[RawRecord], schema: pa.Schema) -> pa.RecordBatch:
    """Return dead letters as rows that leave the query."""
    rows = [
        {
            "stage": LEAVING,
            "task": 0,
            "origin": 0,
            "topic": one.topic,
            "partition": -1,
            "offset": number,
            "key": one.key,
            "value": one.value,
            "timestamp": one.timestamp,
            "headers": [{"key": name, "value": data} for name, data in one.headers],
        }
        for number, one in enumerate(letters)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=schema)
