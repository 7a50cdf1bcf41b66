"""The data source "ottla-table": topics as frames straight from the files of log directories.

A task reads a range of segments of one partition, so workers see the same directories as the
driver. Options are the arguments of `ottla.tables.scan` by Spark's spelling.

Kafka: none; the connector reads from brokers only, as the source "ottla" does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from ottla.errors import ErrorCode, KafkaError
from ottla.spark.error_text import short_errors

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from ottla.clients.range_fetcher import OffsetRange
    from ottla.tables import Scan

_COLUMNS: Final = {
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestamp_type": "int",
    "key": "binary",
    "value": "binary",
    "headers": "array<struct<key: string, value: binary>>",
}
_NUMBERS: Final = {
    "startoffset": "start_offset",
    "endoffset": "end_offset",
    "starttime": "start_time",
    "endtime": "end_time",
    "asof": "as_of",
}
_OTHERS: Final = (
    "topic",
    "path",
    "isolation",
    "latestperkey",
    "recordspertask",
    "kafka.bootstrap.servers",
)
RECORDS_PER_TASK: Final = 1_000_000


class TableDataSource(DataSource):
    """A topic in log directories. Options: docs/tables.md."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return "ottla-table"

    def schema(self) -> str:
        """Return the columns of a scan."""
        return ", ".join(f"`{name}` {kind}" for name, kind in _COLUMNS.items())

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the batch reader; KafkaError INVALID_CONFIG for invalid options."""
        with short_errors():
            names = [field.name for field in schema.fields]
            return TableReader({key.lower(): one for key, one in self.options.items()}, names)


class _Task(InputPartition):
    """The offsets of one task."""

    def __init__(self, offset_range: OffsetRange) -> None:
        super().__init__(None)
        self.offset_range = offset_range


class TableReader(DataSourceReader):
    """Plans ranges of segments, and reads them."""

    def __init__(self, options: dict[str, str], columns: list[str]) -> None:
        """Take options by lower-case names."""
        unknown = sorted(set(options) - {*_NUMBERS, *_OTHERS})
        if unknown:
            raise _invalid(f"unknown option {unknown[0]!r} of ottla-table")
        self._arguments: dict[str, Any] = {
            "topic": options.get("topic", ""),
            "columns": columns,
            "isolation": options.get("isolation", "read_committed"),
            "latest_per_key": options.get("latestperkey", "false").lower() == "true",
            "bootstrap_servers": options.get("kafka.bootstrap.servers"),
            "data_dirs": options["path"].split(",") if "path" in options else None,
        }
        if not self._arguments["topic"]:
            raise _invalid("option topic is missing")
        self._arguments |= {
            argument: _number(name, options[name])
            for name, argument in _NUMBERS.items()
            if name in options
        }
        self._records = _number(
            "recordspertask", options.get("recordspertask", str(RECORDS_PER_TASK))
        )
        if self._records < 1:
            raise _invalid("option recordsPerTask is below 1")

    def partitions(self) -> list[InputPartition]:
        """Return the tasks; KafkaError for a topic that is missing."""
        with short_errors():
            found = self._scan()
            tasks: list[InputPartition] = []
            for whole in found.ranges:
                # the newest of a key is known only from the whole partition
                step = whole.size if self._arguments["latest_per_key"] else self._records
                starts = range(whole.start, whole.until, step)
                tasks += [
                    _Task(whole._replace(start=one, until=min(one + step, whole.until)))
                    for one in starts
                ]
            return tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of one task."""
        if not isinstance(partition, _Task):  # Spark's placeholder for an empty plan
            return
        with short_errors():
            chosen = partition.offset_range
            number = chosen.partition.partition
            found = self._scan(
                partitions=[number], start_offset=chosen.start, end_offset=chosen.until
            )
            if found.bounds[number].end < chosen.until:
                raise KafkaError(
                    ErrorCode.OFFSET_OUT_OF_RANGE,
                    f"{chosen.partition} ends at offset {found.bounds[number].end} in the worker's "
                    f"directories, and at {chosen.until} or later in the driver's",
                )
            yield from found

    def _scan(self, **limits: Any) -> Scan:
        from ottla.tables import scan

        return scan(**{**self._arguments, **limits})


def _number(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise _invalid(f"option {name} is {text!r}, not a number (times are in ms)") from None


def _invalid(text: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, text)
