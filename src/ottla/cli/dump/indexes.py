"""Prints and checks indexes and producer snapshots for `ottla dump-log`.

Kafka: dumpIndex, dumpTimeIndex, dumpTxnIndex and dumpProducerIdSnapshot of
org.apache.kafka.tools.DumpLogSegments.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from struct import Struct as Layout
from typing import TYPE_CHECKING, NamedTuple

from ottla.cli.dump.batches import NO_LIMIT, first_offset, read_batches
from ottla.errors import CorruptMessage
from ottla.records.batch import NO_TIMESTAMP
from ottla.records.crc32c import crc32c
from ottla.storage.indexes.offset_index import OffsetIndex
from ottla.storage.indexes.time_index import TimeIndex
from ottla.storage.indexes.transaction_index import ENTRY as TRANSACTION_ENTRY
from ottla.storage.layout import INDEX_SUFFIX, LOG_SUFFIX
from ottla.storage.producers.snapshot import decode_snapshot

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ottla.storage.producers.entry import ProducerEntry

_SNAPSHOT_HEAD = Layout(">hI")


class IndexOptions(NamedTuple):
    """Which checks to make: only the sanity check, only the comparison with the log, or all."""

    sanity_only: bool
    verify_only: bool
    max_message_bytes: int


class TimeIndexErrors:
    """Differences between time indexes and their logs, as pairs by file name."""

    def __init__(self) -> None:
        self.mismatches: dict[str, list[tuple[int, int]]] = {}
        self.out_of_order: dict[str, list[tuple[int, int]]] = {}
        self.not_found: dict[str, list[tuple[int, int]]] = {}

    def lines(self) -> list[str]:
        """Return the report that Kafka prints after the dumps."""
        lines = []
        for name, pairs in self.mismatches.items():
            lines.append(f"Found timestamp mismatch in :{name}")
            lines += [f"  Index timestamp: {one}, log timestamp: {two}" for one, two in pairs]
        for name, pairs in self.out_of_order.items():
            lines.append(f"Found out of order timestamp in :{name}")
            lines += [
                f"  Index timestamp: {one}, Previously indexed timestamp: {two}"
                for one, two in pairs
            ]
        for pairs in self.not_found.values():
            lines.append("The following indexed offsets are not found in the log.")
            lines += [f"Indexed offset: {one}, found log offset: {two}" for one, two in pairs]
        return lines


def dump_index(
    path: Path, options: IndexOptions, write: Callable[[str], object]
) -> list[tuple[int, int]]:
    """Print an offset index; return the pairs of differing index and log offsets."""
    base = first_offset(path)
    mismatches: dict[int, int] = {}
    log_path = path.with_name(path.name.partition(".")[0] + LOG_SUFFIX)
    with log_path.open("rb") as log:
        data = path.read_bytes()
        entries = _whole(data, OffsetIndex.entry)
        if not entries:
            write(f"{path} is empty.\n")
            return []
        if options.sanity_only:
            last, _ = OffsetIndex.entry.unpack(entries[-OffsetIndex.entry.size :])
            _check_offsets(path, base, base + last)
            _check_size(path, "Index", data, OffsetIndex.entry)
            write(f"{path} passed sanity check.\n")
            return []
        log_end = log.seek(0, 2)
        for number, (relative, position) in enumerate(OffsetIndex.entry.iter_unpack(entries)):
            offset = base + relative
            if number and offset == base:  # the file of an active segment ends in zeros
                break
            if not 0 <= position <= log_end:
                raise CorruptMessage(
                    f"Slice from position {position} exceeds end position of FileRecords("
                    f"size={log_end}, file={log_path.absolute()}, start=0, end={NO_LIMIT})"
                )
            end = min(log_end, position + options.max_message_bytes)
            first = next(read_batches(log, position, end, str(log_path)), None)
            if first is None:
                raise CorruptMessage(f"{log_path} has no batch at position {position}")
            if first.last_offset != offset:
                mismatches[offset] = first.last_offset
            if not options.verify_only:
                write(f"offset: {offset} position: {position}\n")
    return list(mismatches.items())


def _whole(data: bytes, layout: Layout) -> memoryview:
    """Return the data up to the last complete entry."""
    return memoryview(data)[: len(data) // layout.size * layout.size]


def _check_offsets(path: Path, base: int, last: int) -> None:
    if last < base:
        raise CorruptMessage(
            f"Corrupt index found, index file {path.absolute()} has non-zero size but the last "
            f"offset is {last} which is less than the base offset {base}"
        )


def _check_size(path: Path, kind: str, data: bytes, layout: Layout) -> None:
    if len(data) % layout.size:
        raise CorruptMessage(
            f"{kind} file {path.absolute()} is corrupt, found {len(data)} bytes which is neither "
            f"positive nor a multiple of {layout.size}"
        )


def dump_time_index(
    path: Path, options: IndexOptions, errors: TimeIndexErrors, write: Callable[[str], object]
) -> None:
    """Print a time index and compare it with the log."""
    base = first_offset(path)
    stem = path.name.partition(".")[0]
    log_path = path.with_name(stem + LOG_SUFFIX)
    offsets = _Positions(path.with_name(stem + INDEX_SUFFIX).read_bytes())
    data = path.read_bytes()
    entries = _whole(data, TimeIndex.entry)
    with log_path.open("rb") as log:
        if options.sanity_only:
            _check_times(path, base, entries)
            _check_size(path, "Time index", data, TimeIndex.entry)
            write(f"{path} passed sanity check.\n")
            return
        log_end = log.seek(0, 2)
        previous = NO_TIMESTAMP
        for number, (timestamp, relative) in enumerate(TimeIndex.entry.iter_unpack(entries)):
            offset = base + relative
            if number and offset == base:
                return
            start = offsets.at_or_below(relative)
            batches = read_batches(log, start, log_end, str(log_path))
            found = next((batch for batch in batches if batch.last_offset >= offset), None)
            name = str(path.absolute())
            if found is None or found.last_offset != offset:
                last = -1 if found is None else found.last_offset
                errors.not_found.setdefault(name, []).append((offset, last))
            else:
                newest = max((record.timestamp for record in found.records()), default=NO_TIMESTAMP)
                if max(newest, NO_TIMESTAMP) != timestamp:
                    errors.mismatches.setdefault(name, []).append((timestamp, newest))
                if previous >= timestamp:
                    errors.out_of_order.setdefault(name, []).append((timestamp, previous))
            if not options.verify_only:
                write(f"timestamp: {timestamp} offset: {offset}\n")
            previous = timestamp


class _Positions:
    """An offset index for look-ups; zeros after its entries are ignored."""

    def __init__(self, data: bytes) -> None:
        self._offsets = array("i")
        self._positions = array("i")
        for offset, position in OffsetIndex.entry.iter_unpack(_whole(data, OffsetIndex.entry)):
            if self._offsets and not offset:
                break
            self._offsets.append(offset)
            self._positions.append(position)

    def at_or_below(self, relative: int) -> int:
        """Return the position of the last entry at or below a relative offset, else 0."""
        number = bisect_right(self._offsets, relative)
        return self._positions[number - 1] if number else 0


def _check_times(path: Path, base: int, entries: memoryview) -> None:
    if not entries:
        return
    layout = TimeIndex.entry
    first, _ = layout.unpack(entries[: layout.size])
    last, last_relative = layout.unpack(entries[-layout.size :])
    last_offset = base + last_relative
    shown = f"Corrupt time index found, time index file ({path.absolute()}) has non-zero size but"
    if last < first:
        raise CorruptMessage(
            f"{shown} the last timestamp is {last} which is less than the first timestamp {first}"
        )
    if last_offset < base:
        raise CorruptMessage(
            f"{shown} the last offset is {last_offset} which is less than the first offset {base}"
        )


def dump_transaction_index(path: Path, write: Callable[[str], object]) -> None:
    """Print the aborted transactions of a segment."""
    data = path.read_bytes()
    for version, *fields in TRANSACTION_ENTRY.iter_unpack(
        data[: len(data) // TRANSACTION_ENTRY.size * TRANSACTION_ENTRY.size]
    ):
        if version > 0:
            raise CorruptMessage(
                f"Unexpected aborted transaction version {version} in transaction index "
                f"{path.absolute()}, current version is 0"
            )
        producer_id, first, last, stable = fields
        write(
            f"version: {version} producerId: {producer_id} firstOffset: {first} "
            f"lastOffset: {last} lastStableOffset: {stable}\n"
        )
    if len(data) % TRANSACTION_ENTRY.size:
        raise CorruptMessage(
            f"{path.absolute()} has {len(data)} bytes: its last entry is truncated"
        )


def dump_producer_snapshot(path: Path, write: Callable[[str], object]) -> str | None:
    """Print a producer snapshot; return the error of a corrupt one."""
    data = path.read_bytes()
    try:
        entries = decode_snapshot(data)
    except CorruptMessage as error:
        return _snapshot_problem(data, str(error))
    for entry in entries:
        write(_producer_line(entry))
    return None


def _snapshot_problem(data: bytes, reason: str) -> str:
    if len(data) >= _SNAPSHOT_HEAD.size:
        version, stored = _SNAPSHOT_HEAD.unpack_from(data)
        if version != 1:
            reason = f"Snapshot contained an unknown file version {version}"
            return f"Snapshot failed schema validation: {reason}"
        computed = crc32c(data[_SNAPSHOT_HEAD.size :])
        if computed != stored:
            return (
                f"Snapshot is corrupt (CRC is no longer valid). Stored crc: {stored}. "
                f"Computed crc: {computed}"
            )
    return f"Snapshot failed schema validation: {reason}"


def _producer_line(entry: ProducerEntry) -> str:
    first = entry.transaction_first_offset
    shown = "OptionalLong.empty" if first < 0 else f"OptionalLong[{first}]"
    line = (
        f"producerId: {entry.producer_id} producerEpoch: {entry.producer_epoch} "
        f"coordinatorEpoch: {entry.coordinator_epoch} currentTxnFirstOffset: {shown} "
        f"lastTimestamp: {entry.last_timestamp}"
    )
    if entry.batches:
        batch = entry.batches[0]
        line += (
            f" firstSequence: {batch.base_sequence} lastSequence: {batch.last_sequence} "
            f"lastOffset: {batch.last_offset} offsetDelta: {batch.offset_delta} "
            f"timestamp: {batch.timestamp}"
        )
    return line + "\n"
