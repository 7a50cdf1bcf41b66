"""`ottla.tables.scan`: the records of a topic as Arrow record batches.

A scan fixes the offsets that it reads when it is made, so that each pass over it yields the same
rows; a pass reads segments or fetches while it is iterated, and keeps no rows.

Kafka: none. Hot path: benchmarks/tables.py.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from ottla.clients.range_fetcher import OffsetRange
from ottla.errors import CorruptMessage, ErrorCode, KafkaError
from ottla.tables.arrow import ARROW_TYPES, ColumnReader
from ottla.tables.newest_rows import newest_rows
from ottla.tables.partition_files import SkipRule
from ottla.tables.sources import Bounds, ClusterSource, DirectorySource
from ottla.tables.values import RAW, decoder_of, flattened
from ottla.types import TopicPartition, is_topic_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    import pandas as pd
    import polars as pl

    from ottla.tables.sources import TopicSource
    from ottla.tables.values import Decoder

COLUMNS: Final = (
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestamp_type",
    "key",
    "value",
    "headers",
)
SAMPLE_MAX_BYTES: Final = 256 * 1024 * 1024
"""Of the values whose types are inferred, in memory and at once; pyarrow takes less than 2 GiB."""
Time: TypeAlias = datetime | int
"""A moment; a number is ms since the epoch."""
Offsets: TypeAlias = "int | Mapping[int, int]"
"""One offset for all partitions, or by partition."""


@dataclass(frozen=True)
class _Options:
    """The checked arguments of `scan`."""

    topic: str
    columns: tuple[str, ...]
    read_committed: bool
    skip_rule: SkipRule
    end_time_ms: int | None
    latest_per_key: bool
    limit: int | None
    decoders: dict[str, Decoder] = field(repr=False)
    flatten: bool = False

    def needed(self) -> tuple[str, ...]:
        """Return the columns to read: those of the result, of filters and of keys."""
        names = set(self.columns)
        if self.skip_rule.min_timestamp_ms is not None or self.end_time_ms is not None:
            names.add("timestamp")
        if self.latest_per_key:
            names |= {"key", "value"}
        if set(self.columns) & set(self.decoders):
            names.add("offset")  # of a value that cannot be decoded
        # without any column the batches would have no number of rows
        return tuple(name for name in COLUMNS if name in names) or ("offset",)


class Scan:
    """The rows of a topic; iterate it for Arrow record batches, any number of times.

    It has the Arrow PyCapsule interface, so DuckDB finds it by its name in the program
    (`duckdb.sql("select * from orders")`), and Polars, pandas and pyarrow take it as a stream.
    """

    def __init__(
        self,
        source: TopicSource,
        options: _Options,
        ranges: list[OffsetRange],
        bounds: dict[int, Bounds],
    ) -> None:
        self._source = source
        self._options = options
        self.ranges = ranges
        """The offsets that it reads, by partition."""
        self.bounds = bounds
        """The offsets that each partition had when the scan was made."""
        types = ARROW_TYPES | {name: one.type for name, one in options.decoders.items()}
        self.topic_id = source.topic_id
        """Of the topic that it reads; None where it is unknown."""
        self._typed = pa.schema([pa.field(name, types[name]) for name in options.columns])
        self.schema: pa.Schema = (
            flattened(self._typed.empty_table()).schema if options.flatten else self._typed
        )

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        left = self._options.limit
        for offset_range in self.ranges:
            for batch in self._rows(offset_range):
                taken = batch if left is None else batch.slice(0, left)
                if taken.num_rows:
                    yield self._typed_rows(taken)
                if left is not None:
                    left -= taken.num_rows
                    if left <= 0:
                        return

    def __arrow_c_schema__(self) -> Any:
        """Return the schema, for Arrow's PyCapsule interface."""
        return self.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Return a new pass over the rows, for Arrow's PyCapsule interface."""
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def to_reader(self) -> pa.RecordBatchReader:
        """Return a new pass over the rows as an Arrow stream."""
        return pa.RecordBatchReader.from_batches(self.schema, iter(self))

    def to_arrow(self) -> pa.Table:
        """Return all rows."""
        return pa.Table.from_batches(iter(self), self.schema)

    def to_pandas(self) -> pd.DataFrame:
        """Return all rows as a pandas frame."""
        return self.to_arrow().to_pandas()

    def to_polars(self) -> pl.DataFrame:
        """Return all rows as a Polars frame."""
        import polars as pl

        return pl.DataFrame(self.to_arrow())

    def _rows(self, offset_range: OffsetRange) -> Iterator[pa.RecordBatch]:
        """Yield a partition's rows with undecoded values."""
        batches = self._filtered(offset_range)
        return newest_rows(batches) if self._options.latest_per_key else batches

    def _filtered(self, offset_range: OffsetRange) -> Iterator[pa.RecordBatch]:
        options = self._options
        reader = self._source.reader(
            offset_range, read_committed=options.read_committed, skip_rule=options.skip_rule
        )
        columns = ColumnReader(options.needed(), offset_range.partition, null_timestamps=True)
        first_ms, end_ms = options.skip_rule.min_timestamp_ms, options.end_time_ms
        try:
            for chunk in reader.chunks():
                for parsed in columns.parse(chunk, reader.position, offset_range.until):
                    reader.advance(parsed.next_offset)
                    batch = parsed.batch
                    if batch is not None and (first_ms is not None or end_ms is not None):
                        batch = batch.filter(_is_between(batch["timestamp"], first_ms, end_ms))
                    if batch is not None and batch.num_rows:
                        yield batch
        except CorruptMessage as error:
            raise CorruptMessage(
                f"{offset_range.partition} after offset {reader.position - 1}: {error.message}"
            ) from error

    def _typed_rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        options = self._options
        arrays = []
        for name in options.columns:
            decoder = options.decoders.get(name)
            array = batch[name]
            if decoder is not None:
                array = decoder.decode(array, lambda row: f"offset {batch['offset'][row]}")
            arrays.append(array)
        typed = pa.RecordBatch.from_arrays(arrays, schema=self._typed)
        return flattened(typed) if options.flatten else typed


def _is_between(times: pa.Array, first_ms: int | None, end_ms: int | None) -> pa.Array:
    """Return which times are in [first, end); a time that is none of Arrow's is not."""
    mask = None
    if first_ms is not None:
        mask = pc.greater_equal(times, pa.scalar(first_ms * 1000, times.type))
    if end_ms is not None:
        below = pc.less(times, pa.scalar(end_ms * 1000, times.type))
        mask = below if mask is None else pc.and_(mask, below)
    return mask


def scan(  # noqa: PLR0913 - keywords, most of them rarely given
    topic: str,
    *,
    data_dirs: str | Path | Sequence[str | Path] | None = None,
    tier: str | Path | Mapping[str, str] | None = None,
    bootstrap_servers: str | None = None,
    config: Mapping[str, Any] | None = None,
    partitions: Sequence[int] | None = None,
    columns: Sequence[str] | None = None,
    start_offset: Offsets | None = None,
    end_offset: Offsets | None = None,
    start_time: Time | None = None,
    end_time: Time | None = None,
    as_of: Time | None = None,
    isolation: str = "read_committed",
    latest_per_key: bool = False,
    key: Any = RAW,
    value: Any = RAW,
    flatten: bool = False,
    limit: int | None = None,
) -> Scan:
    """Return the records of a topic as a table.

    Parameters:
        data_dirs: log directories of nodes, which may run,
        tier: with their remote storage: a directory, or the URL or settings of an object store; or
        bootstrap_servers: brokers to fetch from, with client settings in `config`.
        partitions: the partitions to read; all without it.
        columns: of `COLUMNS`; a column that is not requested is not decoded.
        start_offset, end_offset: offsets from and before which to read.
        start_time, end_time: times from and before which records are read.
        as_of: the log as it was then: up to the first newer record of each partition.
        isolation: `read_committed` leaves out what is of aborted or open transactions;
            `read_uncommitted` does not.
        latest_per_key: only the newest record of each key, without deleted keys, as a compacted
            topic's table.
        key, value: how to decode them: a name ("string", "json", "long", …) or a decoder of
            `ottla.tables.values`.
        flatten: whether the fields of a decoded value are columns of their own.
        limit: the most rows to read.

    Raises KafkaError: INVALID_CONFIG for arguments, UNKNOWN_TOPIC_OR_PARTITION.
    """
    servers = bootstrap_servers or (config or {}).get("bootstrap.servers")
    source = _source(topic, data_dirs, tier, {**(config or {}), "bootstrap.servers": servers})
    chosen = _columns(columns)
    decoders = {
        name: decoder
        for name, given in (("key", key), ("value", value))
        if name in chosen and (decoder := _decoder(name, given)) is not None
    }
    first_ms = None if start_time is None else _ms(start_time)
    options = _Options(
        topic,
        chosen,
        _is_committed(isolation),
        SkipRule(first_ms),
        None if end_time is None else _ms(end_time),
        latest_per_key,
        limit,
        decoders,
        flatten,
    )
    if limit is not None and limit < 0:
        raise _invalid(f"limit is {limit}")
    bounds = source.bounds(partitions, read_committed=options.read_committed)
    ranges = []
    for number, found in bounds.items():
        start = max(_at(start_offset, number, found.start), found.start)
        end = min(_at(end_offset, number, found.end), found.end)
        if as_of is not None:
            end = min(end, source.offset_at(number, _ms(as_of) + 1, found))
        if first_ms is not None and start < end:
            start = max(start, source.offset_at(number, first_ms, Bounds(start, end)))
        if start < end:
            ranges.append(OffsetRange(TopicPartition(topic, number), start, end))
    for name, decoder in decoders.items():
        if decoder.needs_sample:
            whole = [OffsetRange(TopicPartition(topic, n), *at) for n, at in bounds.items()]
            raw = replace(
                options, columns=(name,), skip_rule=SkipRule(), end_time_ms=None,
                latest_per_key=False, limit=decoder.sample_rows, decoders={}, flatten=False,
            )  # fmt: skip
            # a scan without rows has the columns of the topic
            sample = Scan(source, raw, ranges or whole, bounds)
            decoder.infer(_sample_values(sample, name))
    return Scan(source, options, ranges, bounds)


def _sample_values(rows: Scan, name: str) -> pa.Array:
    """Return a column of a scan up to a size."""
    arrays: list[pa.Array] = []
    size = 0
    for batch in rows:
        arrays.append(batch[name])
        size += arrays[-1].nbytes
        if size > SAMPLE_MAX_BYTES:
            break
    return pa.chunked_array(arrays, rows.schema.field(name).type).combine_chunks()


def _source(
    topic: str,
    data_dirs: str | Path | Sequence[str | Path] | None,
    tier: str | Path | Mapping[str, str] | None,
    config: Mapping[str, Any],
) -> TopicSource:
    if not is_topic_name(topic):
        raise _invalid(f"{topic!r} is no name of a topic: letters, digits, '.', '_' and '-'")
    is_of_brokers = config["bootstrap.servers"] is not None
    if (data_dirs is None) != is_of_brokers:
        raise _invalid("give either data_dirs or bootstrap_servers")
    if is_of_brokers:
        if tier is not None:
            raise _invalid("brokers read their remote storage themselves: tier is for data_dirs")
        return ClusterSource(topic, config)
    paths = [data_dirs] if isinstance(data_dirs, (str, os.PathLike)) else data_dirs or ()
    return DirectorySource(topic, paths, tier)


def _columns(columns: Sequence[str] | None) -> tuple[str, ...]:
    chosen = COLUMNS if columns is None else tuple(columns)
    unknown = [name for name in chosen if name not in COLUMNS]
    if unknown or not chosen:
        raise _invalid(f"there is no column {unknown[:1]}; the columns are {', '.join(COLUMNS)}")
    return chosen


def _decoder(name: str, given: Any) -> Decoder | None:
    try:
        return decoder_of(given)
    except (ValueError, TypeError) as error:
        raise _invalid(f"{name}: {error}") from error


def _is_committed(isolation: str) -> bool:
    if isolation not in ("read_committed", "read_uncommitted"):
        raise _invalid(f"isolation is read_committed or read_uncommitted, not {isolation!r}")
    return isolation == "read_committed"


def _at(offsets: Offsets | None, partition: int, otherwise: int) -> int:
    if offsets is None:
        return otherwise
    return offsets if isinstance(offsets, int) else offsets.get(partition, otherwise)


def _ms(moment: Time) -> int:
    """Return ms since the epoch; a time without a zone is in UTC."""
    if isinstance(moment, int):
        return moment
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return int(aware.timestamp() * 1000)


def _invalid(text: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, text)
