"""The data source "ottla".

Spark starts a Python process of its own for each question it asks a source: its name, its schema, a
plan, a write. Each imports only the reader or writer that it needs.

Kafka: org.apache.spark.sql.kafka010.KafkaSourceProvider.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from ottla.errors import ErrorCode, KafkaError
from ottla.spark.error_text import short_errors
from ottla.spark.options import COLUMN_TYPES, STREAM_LIMITS, read_options

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType


class OttlaDataSource(DataSource):
    """Topics of Ottla or Kafka as frames. Options: `ottla.spark.options`, docs/spark.md."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return "ottla"

    def schema(self) -> str:
        """Return the connector's columns, or those of option columns."""
        with short_errors():
            names = read_options(self._without_bounds(), streaming=True).columns
        return ", ".join(f"{name} {COLUMN_TYPES[name]}" for name in names)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the batch reader; KafkaError(INVALID_CONFIG) for invalid options."""
        with short_errors():
            from ottla.spark.batch_reader import BatchReader

            return BatchReader(read_options(self.options, streaming=False), columns_of(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's
        """Return the streaming reader; with invalid options its methods raise the error."""
        from ottla.spark.stream import StreamReader

        try:
            return StreamReader(read_options(self.options, streaming=True), columns_of(schema))
        except KafkaError as error:
            from ottla.spark.batch_reader import InvalidStream

            return InvalidStream(error)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001
        """Return the batch writer."""
        with short_errors():
            if overwrite:
                raise KafkaError(
                    ErrorCode.INVALID_CONFIG, "a topic cannot be overwritten: use mode('append')"
                )
            from ottla.spark.sink import BatchWriter

            return BatchWriter(self.options, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802, FBT001
        """Return the streaming writer."""
        with short_errors():
            if overwrite:
                raise KafkaError(
                    ErrorCode.INVALID_CONFIG,
                    "a topic cannot be written in complete mode: use append mode, or foreachBatch",
                )
            from ottla.spark.sink import StreamWriter

            return StreamWriter(self.options, schema)

    def _without_bounds(self) -> dict[str, str]:
        """Return the options less those whose rules differ between batch and streaming.

        Spark requests the schema without specifying which of the two it creates.
        """
        return {
            name: value for name, value in self.options.items() if name.lower() not in _BOUND_NAMES
        }


_BOUND_NAMES = frozenset(
    f"{side}{what}"
    for side in ("starting", "ending")
    for what in ("offsets", "timestamp", "offsetsbytimestamp")
) | {name.lower() for name in STREAM_LIMITS}


def columns_of(schema: StructType) -> tuple[str, ...]:
    """Return the requested columns; KafkaError(INVALID_CONFIG) for unknown ones.

    A schema given by the user may omit columns, which is faster.
    """
    for field in schema.fields:
        given = field.dataType.simpleString()
        if COLUMN_TYPES.get(field.name) != given:
            have = ", ".join(f"{name} {kind}" for name, kind in COLUMN_TYPES.items())
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"column {field.name!r} {given} is not available; the columns are {have}",
            )
    return tuple(field.name for field in schema.fields)
