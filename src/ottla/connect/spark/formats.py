"""Any format of Spark as source or sink: the connectors' settings, and the frames they name.

A format of files is followed as new files appear. Any other (jdbc) is read again for the rows whose
column that only grows is beyond the stored offset.

Kafka: none; spark.readStream, spark.read and writeStream by a connector's JSON.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from ottla.config.checks import NON_EMPTY, at_least, one_of
from ottla.config.definition import HIGH, MEDIUM, REQUIRED, ConfigDefinitions, ConfigValue, Type
from ottla.connect import PLUGIN_VERSION
from ottla.connect.connector import (
    ExactlyOnceSupport,
    SinkTask,
    SourceConnector,
    SourceTask,
    UniformSinkConnector,
)
from ottla.connect.errors import ConnectException
from ottla.connect.runtime.pipeline import below

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from ottla.connect.records import SinkRecord, SourceRecord
    from ottla.types import TopicPartition

FILES: Final = frozenset({"csv", "json", "orc", "parquet", "text"})
"""The formats whose files Spark follows, and writes with a log of its batches."""
OPTIONS: Final = "spark.option."
"""The prefix of what passes through to the format."""
GROWING: Final = "incrementing.column.name"
PARTITION: Final = {"source": "all"}
"""The partition of the offsets topic for a source that is read by a growing column."""
OFFSET: Final = "incrementing"
_FORMAT_DOC: Final = "A format of Spark: jdbc, parquet, csv, json, orc, text, or one of a package."
SOURCE_FORMAT: Final = (
    ConfigDefinitions()
    .define("format", Type.STRING, REQUIRED, _FORMAT_DOC, NON_EMPTY, importance=HIGH)
    .define("topic", Type.STRING, REQUIRED, "The topic to write to.", NON_EMPTY, importance=HIGH)
    .define(
        "schema",
        Type.STRING,
        None,
        "The columns as SQL names them (`id BIGINT, name STRING`); files without it are looked at "
        "when the query starts, in which case there must be some.",
        importance=MEDIUM,
    )
    .define(
        GROWING,
        Type.STRING,
        None,
        "A column that is unique and only grows; needed for all but files that are followed.",
        importance=HIGH,
    )
    .define(
        "poll.interval.ms",
        Type.LONG,
        5000,
        "Time between two reads by the growing column.",
        at_least(500),
    )
    .define(
        "batch.max.rows",
        Type.INT,
        100_000,
        "Rows of such a read, which are written in one transaction.",
        at_least(1),
    )
)
SINK_FORMAT: Final = (
    ConfigDefinitions()
    .define("format", Type.STRING, REQUIRED, _FORMAT_DOC, NON_EMPTY, importance=HIGH)
    .define(
        "schema",
        Type.STRING,
        REQUIRED,
        "The columns to write, as SQL names them; they are the fields of the records' values.",
        NON_EMPTY,
        importance=HIGH,
    )
    .define(
        "partition.by",
        Type.LIST,
        (),
        "Columns whose values become directories.",
    )
    .define(
        "write.mode",
        Type.STRING,
        "append",
        "What a format other than files does with the rows that it has.",
        one_of("append", "overwrite"),
    )
)


class _QueryTask:
    """What stands for the query in the list of tasks; a thread cannot run it."""

    def start(self, config: Mapping[str, str]) -> None:
        """Refuse another runtime."""
        raise ConnectException(
            f"{config.get('connector.class')} is a query of Spark: set ottla.runtime=spark, or "
            "leave it out"
        )


class FormatSourceTask(_QueryTask, SourceTask):
    """The query that reads a format."""

    def poll(self) -> Sequence[SourceRecord] | None:
        """Return nothing: `start` has failed."""
        return None


class FormatSinkTask(_QueryTask, SinkTask):
    """The query that writes a format."""

    def put(self, records: Sequence[SinkRecord]) -> None:
        """Take nothing: `start` has failed."""


class SparkFormatSourceConnector(SourceConnector):
    """Reads a format of Spark into a topic, exactly once."""

    version: ClassVar[str] = PLUGIN_VERSION
    definitions: ClassVar[ConfigDefinitions] = SOURCE_FORMAT
    task_class = FormatSourceTask
    runtime: ClassVar[str] = "spark"

    def start(self, config: Mapping[str, str]) -> None:
        """Take the settings."""
        self._config = config

    def task_configs(self, tasks_max: int) -> Sequence[Mapping[str, str]]:
        """Return the settings of the query."""
        del tasks_max
        return [self._config]

    def validate(self, config: Mapping[str, str]) -> list[ConfigValue]:
        """Also ask for a growing column where nothing else says what is new."""
        values = super().validate(config)
        by_name = {it.name: it for it in values}
        if config.get("format") not in (None, *FILES) and not config.get(GROWING):
            by_name[GROWING].errors.append(
                f"The format {config['format']} is read again and again: name a column that only "
                "grows, by which new rows are found"
            )
        return values

    def exactly_once_support(self, config: Mapping[str, str]) -> ExactlyOnceSupport:
        """Support it: offsets are written with the rows, or are those of the checkpoint."""
        del config
        return ExactlyOnceSupport.SUPPORTED

    def alter_offsets(
        self,
        config: Mapping[str, str],
        offsets: Mapping[frozenset[tuple[str, Any]], Mapping[str, Any] | None],
    ) -> bool:
        """Accept a value of the growing column; of followed files the checkpoint has the list."""
        if not config.get(GROWING):
            raise ConnectException(
                "The files that were read are in the checkpoint of the query "
                "(ottla.spark.checkpoint.dir): delete its directory to read all again"
            )
        for partition, offset in offsets.items():
            if dict(partition) != PARTITION or (offset is not None and set(offset) != {OFFSET}):
                raise ConnectException(f"Offsets are {{{OFFSET!r}: …}} of partition {PARTITION}")
        return True


class SparkFormatSinkConnector(UniformSinkConnector):
    """Writes topics to a format of Spark; files exactly once, for readers that are Spark."""

    version: ClassVar[str] = PLUGIN_VERSION
    definitions: ClassVar[ConfigDefinitions] = SINK_FORMAT
    task_class = FormatSinkTask
    runtime: ClassVar[str] = "spark"

    def alter_offsets(
        self, config: Mapping[str, str], offsets: Mapping[TopicPartition, int | None]
    ) -> bool:
        """Refuse: the offsets are those of the checkpoint, with which rows are written once."""
        del config, offsets
        raise ConnectException(
            "The offsets of this sink are in the checkpoint of its query "
            "(ottla.spark.checkpoint.dir): delete its directory to begin with the topics' first "
            "records"
        )


def followed(spark: SparkSession, config: Mapping[str, str]) -> DataFrame:
    """Return the stream of files that appear."""
    values = SOURCE_FORMAT.parse(config)
    reader = spark.readStream.format(values["format"]).options(**below(config, OPTIONS))
    schema = values["schema"]
    if schema is None:
        schema = spark.read.format(values["format"]).options(**below(config, OPTIONS)).load().schema
    return reader.schema(schema).load()


class GrowingTable:
    """The rows of a format by a column that only grows."""

    def __init__(self, spark: SparkSession, config: Mapping[str, str]) -> None:
        """Take the settings."""
        values = SOURCE_FORMAT.parse(config)
        reader = spark.read.format(values["format"]).options(**below(config, OPTIONS))
        if values["schema"] is not None:
            reader = reader.schema(values["schema"])
        self._reader = reader
        self._column: str = values[GROWING]
        self._limit: int = values["batch.max.rows"]

    def end_after(self, start: Any) -> Any:
        """Return the last value of the next rows, None if there are none."""
        from pyspark.sql import functions

        # again each time: a frame has the list of files, and the columns, of when it was loaded
        self._frame = self._reader.load()
        column = self._frame[self._column]
        # rows without a value are never read: they sort first, and would fill every first batch
        is_new = column.isNotNull() if start is None else column > functions.lit(start)
        new = self._frame.where(is_new)
        values = new.select(column.alias("end")).orderBy("end").limit(self._limit)
        row = values.agg(functions.max("end")).first()
        end = None if row is None else row[0]
        if end is not None and not isinstance(end, int | str):
            raise ConnectException(
                f"{GROWING}={self._column}: its values are of type {type(end).__name__}; offsets "
                "are whole numbers or texts, so cast it in the query"
            )
        return end

    def rows(self, start: Any, end: Any) -> DataFrame:
        """Return the rows after a value, up to the end that `end_after` has returned."""
        from pyspark.sql import functions

        column = self._frame[self._column]
        condition = column <= functions.lit(end)
        return self._frame.where(
            condition if start is None else (column > functions.lit(start)) & condition
        )
