"""Keeps an Iceberg table equal to a topic: backfill, then what is new, each record once.

The offsets after the last record stand in the summary of the snapshot that added it, so data and
offsets are committed together. Each attempt reads them again from the ancestors of the current
snapshot. pyiceberg repeats a conflicting append by itself, which would add what another sync has
added, so its retries are off: the attempt is made again here.

Kafka: none; org.apache.iceberg.connect commits its offsets to a control topic.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from ottla.errors import ErrorCode, KafkaError
from ottla.tables.table_scan import scan
from ottla.tables.values import Json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ottla.tables.table_scan import Scan

SUMMARY: Final = "ottla.offsets"
"""Of a snapshot: JSON with the topic, its id if known, and the next offset of each partition."""
ROWS_PER_COMMIT: Final = 1_000_000
ATTEMPTS: Final = 20
RETRY_S: Final = 0.1
"""After a conflict, growing with each attempt; other writers commit in well under a second."""
_RETRIES: Final = "commit.retry.num-retries"
UNITS: Final = ("none", "hour", "day", "month", "year")
COMPACT_MAX_BYTES: Final = 256 * 1024 * 1024
"""The files of one partition of the table that are rewritten at once, in memory."""


@dataclass(frozen=True)
class SyncOptions:
    """Which topic goes to which table."""

    topic: str
    table: str
    """namespace.name"""
    arguments: dict[str, Any] = field(repr=False)
    """Where the topic is and how it is decoded, for `scan`."""
    make_value: Callable[[], Any] = field(default=lambda: "bytes", repr=False)
    """Returns the format of values; a new one for each commit, whose JSON may have new fields."""
    partition_by: str = "day"
    rows_per_commit: int = ROWS_PER_COMMIT
    skip_deleted: bool = False
    """Whether offsets that retention deleted before they were read are no error."""


class SyncCommit(NamedTuple):
    """One commit."""

    rows: int
    offsets: dict[int, int]
    snapshot_id: int


class TableSync:
    """Brings a table up to a topic's end; one object for each table."""

    def __init__(self, catalog: Any, options: SyncOptions) -> None:
        """Take a pyiceberg catalog."""
        self._catalog = catalog
        self._options = options
        if options.partition_by not in UNITS:
            raise _invalid(f"a table is partitioned by {', '.join(UNITS)}")

    def run(self) -> Iterator[SyncCommit]:
        """Yield a progress after each commit, until nothing new is there; raises KafkaError."""
        while (progress := self._commit_next()) is not None:
            yield progress

    def _commit_next(self) -> SyncCommit | None:
        from pyiceberg.exceptions import CommitFailedException

        for attempt in range(ATTEMPTS):
            try:
                return self._attempt()
            except CommitFailedException:
                time.sleep(RETRY_S * (attempt + 1))
        raise KafkaError(
            ErrorCode.REQUEST_TIMED_OUT,
            f"{self._options.table}: {ATTEMPTS} commits in sequence met those of other writers",
        )

    def _attempt(self) -> SyncCommit | None:
        from pyiceberg.exceptions import ValidationError

        options = self._options
        table = self._load()
        done = SyncProgress({}) if table is None else progress_of(table, options.topic)
        rows = self._next_scan(done)
        if rows is None:
            return None
        done = done._replace(topic_id=done.topic_id or _id_of(rows))
        data = rows.to_arrow()
        self._check(done, self._now(done))  # retention and a new topic of the name do not wait
        if table is None:
            table = self._create(rows.schema)
        data = _widened(data, table)
        try:
            with _without_retries(table).update_schema() as update:  # nothing without new columns
                update.union_by_name(data.schema)
        except ValidationError as error:
            raise _invalid(f"{options.table}: {error}; give the schema of values") from error
        if progress_of(table, options.topic).offsets != done.offsets:
            return self._attempt()  # another process has committed since
        until = {one.partition.partition: one.until for one in rows.ranges}
        offsets = {**done.offsets, **until}
        summary = {SUMMARY: _encode(options.topic, done._replace(offsets=offsets))}
        _without_retries(table).append(data, snapshot_properties=summary)
        snapshot = table.current_snapshot()
        return SyncCommit(data.num_rows, offsets, snapshot.snapshot_id)

    def _load(self) -> Any:
        from pyiceberg.exceptions import NoSuchTableError

        try:
            return self._catalog.load_table(self._options.table)
        except NoSuchTableError:
            return None

    def _next_scan(self, done: SyncProgress) -> Scan | None:
        """Return the records of the next commit; None without new ones."""
        options = self._options
        found = self._now(done)
        self._check(done, found)
        if not found.ranges:
            return None
        share = max(options.rows_per_commit // len(found.ranges), 1)
        ends = {one.partition.partition: min(one.until, one.start + share) for one in found.ranges}
        value = options.make_value()
        if isinstance(value, Json):
            value.sample_rows = options.rows_per_commit  # a new field may be in any of them
        arguments = {**options.arguments, "value": value, "flatten": True}
        arguments |= {"start_offset": done.offsets, "end_offset": ends, "partitions": list(ends)}
        return scan(options.topic, **arguments)

    def _now(self, done: SyncProgress) -> Scan:
        """Return the offsets after those of the table."""
        names = ("data_dirs", "tier", "bootstrap_servers", "config", "isolation")
        given = self._options.arguments
        where = {name: given[name] for name in names if name in given}
        return scan(self._options.topic, start_offset=done.offsets, columns=["offset"], **where)

    def _check(self, done: SyncProgress, found: Scan) -> None:
        """Raise KafkaError for a log that lost records (OFFSET_OUT_OF_RANGE), or is another one."""
        topic_id = _id_of(found)
        if done.topic_id and topic_id and done.topic_id != topic_id:
            raise KafkaError(
                ErrorCode.INCONSISTENT_TOPIC_ID,
                f"topic {self._options.topic!r} was created again: its id is {topic_id}, and the "
                f"table has the records of {done.topic_id}. Sync it to a new table",
            )
        for number, next_offset in done.offsets.items():
            bounds = found.bounds.get(number)
            if bounds is None or bounds.end < next_offset:
                end = "is not there" if bounds is None else f"ends at offset {bounds.end}"
                raise KafkaError(
                    ErrorCode.OFFSET_OUT_OF_RANGE,
                    f"{self._options.topic}-{number} {end}, before offset {next_offset} up to "
                    "which the table has it: was the topic created again? Sync it to a new table",
                )
            if bounds.start > next_offset and not self._options.skip_deleted:
                raise KafkaError(
                    ErrorCode.OFFSET_OUT_OF_RANGE,
                    f"{self._options.topic}-{number}: offsets {next_offset} to {bounds.start - 1} "
                    "were deleted by retention before the table had them; --skip-deleted continues",
                )

    def _create(self, schema: Any) -> Any:
        """Create the table with its partitions in one commit, or load that of another process."""
        from pyiceberg import transforms
        from pyiceberg.exceptions import TableAlreadyExistsError

        options = self._options
        namespace = options.table.rpartition(".")[0]
        self._catalog.create_namespace_if_not_exists(namespace)
        units = {
            "hour": transforms.HourTransform,
            "day": transforms.DayTransform,
            "month": transforms.MonthTransform,
            "year": transforms.YearTransform,
        }
        transform = units.get(options.partition_by)
        try:
            with self._catalog.create_table_transaction(options.table, schema=schema) as created:
                if transform is not None:
                    with created.update_spec() as update:
                        name = f"timestamp_{options.partition_by}"
                        update.add_field("timestamp", transform(), name)
        except TableAlreadyExistsError:
            pass
        return self._catalog.load_table(options.table)


class SyncProgress(NamedTuple):
    """What the table has of a topic."""

    offsets: dict[int, int]
    """The next offset of each partition."""
    topic_id: str = ""
    """Empty where it is unknown: in a directory without partition.metadata."""


def progress_of(table: Any, topic: str) -> SyncProgress:
    """Return the progress by the newest snapshot that has one.

    KafkaError INVALID_CONFIG for a table of another topic, or with records of none.
    """
    snapshot = table.current_snapshot()
    has_records = snapshot is not None
    while snapshot is not None:
        text = snapshot.summary.additional_properties.get(SUMMARY) if snapshot.summary else None
        if text is not None:
            return _decode(text, topic)
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else table.snapshot_by_id(parent)
    if has_records:
        raise _invalid(
            f"table {'.'.join(table.name())} has snapshots, but none with the offsets of a topic: "
            "sync to a new table"
        )
    return SyncProgress({})


def compact(table: Any, topic: str, *, min_files: int = 4) -> int:
    """Rewrite the small files of each partition of a table as one; return how many files went.

    A partition with more than COMPACT_MAX_BYTES stays. A commit of another writer meanwhile is an
    error of pyiceberg, after which nothing has changed.
    """
    progress_of(table, topic)  # an error for a table of another topic
    groups: dict[Any, list[int]] = {}
    for entry in table.inspect.files().to_pylist():
        partition = next(iter((entry.get("partition") or {}).values()), None)
        groups.setdefault(partition, []).append(entry["file_size_in_bytes"])
    is_partitioned = bool(table.spec().fields)
    removed = 0
    for partition, sizes in groups.items():
        if len(sizes) < min_files or sum(sizes) > COMPACT_MAX_BYTES:
            continue
        if is_partitioned and partition is None:
            continue  # of records without a time
        chosen = _in_partition(table, partition) if is_partitioned else "true"
        data = table.scan(row_filter=chosen).to_arrow()
        # of the snapshot that is rewritten, which a sync may have added since the last overwrite
        progress = progress_of(table, topic)
        _without_retries(table).overwrite(
            data,
            overwrite_filter=chosen,
            snapshot_properties={SUMMARY: _encode(topic, progress)},
        )
        table.refresh()
        removed += len(sizes) - 1
    return removed


def _in_partition(table: Any, partition: Any) -> str:
    """Return the condition of the times in a partition of the table."""
    start, end = _interval(str(table.spec().fields[0].transform), partition)
    return f"timestamp >= '{start}' and timestamp < '{end}'"


def _interval(unit: str, partition: Any) -> tuple[str, str]:
    """Return the first moment of a partition and of the next one, in ISO 8601."""
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    if unit == "day":
        day = partition if not isinstance(partition, int) else epoch + timedelta(days=partition)
        start = datetime(day.year, day.month, day.day, tzinfo=UTC)
        end = start + timedelta(days=1)
    elif unit == "hour":
        start = epoch + timedelta(hours=partition)
        end = start + timedelta(hours=1)
    elif unit == "month":
        start = datetime(1970 + partition // 12, partition % 12 + 1, 1, tzinfo=UTC)
        end = datetime(1970 + (partition + 1) // 12, (partition + 1) % 12 + 1, 1, tzinfo=UTC)
    else:
        start = datetime(1970 + partition, 1, 1, tzinfo=UTC)
        end = datetime(1971 + partition, 1, 1, tzinfo=UTC)
    return start.isoformat(), end.isoformat()


def _widened(data: pa.Table, table: Any) -> pa.Table:
    """Return numbers with the types of the table's columns, which earlier commits made wider."""
    kinds = {one.name: str(one.field_type) for one in table.schema().fields}
    for index, column in enumerate(data.schema):
        wider = {"long": pa.int64(), "double": pa.float64()}.get(kinds.get(column.name, ""))
        if wider is not None and column.type != wider and _is_number(column.type):
            data = data.set_column(index, column.name, data.column(index).cast(wider))
    return data


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _without_retries(table: Any) -> Any:
    """Return the table with an object's own setting that its commits are tried once."""
    properties = {**table.metadata.properties, _RETRIES: "0"}
    table.metadata = table.metadata.model_copy(update={"properties": properties})
    return table


def _id_of(found: Scan) -> str:
    return "" if found.topic_id is None else str(found.topic_id)


def _encode(topic: str, progress: SyncProgress) -> str:
    partitions = {str(number): offset for number, offset in sorted(progress.offsets.items())}
    topic_id = {"id": progress.topic_id} if progress.topic_id else {}
    return json.dumps({"topic": topic, **topic_id, "partitions": partitions}, separators=(",", ":"))


def _decode(text: str, topic: str) -> SyncProgress:
    try:
        found = json.loads(text)
        name, topic_id = found["topic"], str(found.get("id", ""))
        offsets = {int(number): int(offset) for number, offset in found["partitions"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _invalid(f"a snapshot has malformed offsets: {text[:80]!r}") from error
    if name != topic:
        raise _invalid(f"the table has the records of topic {name!r}, not of {topic!r}")
    return SyncProgress(offsets, topic_id)


def _invalid(text: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, text)
