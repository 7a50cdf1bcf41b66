"""Prints the batches of a log segment or snapshot for `ottla dump-log`.

Reads one batch at a time, so that memory use is bounded by the largest batch.
Kafka: the dumpLog half of org.apache.kafka.tools.DumpLogSegments.
"""

from __future__ import annotations

import re
from struct import Struct as Layout
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from ottla.cli.output.message_json import message_json
from ottla.errors import CorruptMessage, OttlaError
from ottla.protocol.codec import decode_at
from ottla.protocol.records.raft import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from ottla.records.batch import LOG_OVERHEAD_BYTES, RecordBatch, TimestampType, add_to_sequence
from ottla.records.batches import LegacyBatch, batch_at
from ottla.records.compression import Compression
from ottla.records.control import ControlRecordType, decode_control_type, decode_end_txn_marker
from ottla.records.scan import decode_records
from ottla.storage.layout import BOOTSTRAP_CHECKPOINT, METADATA_SNAPSHOT_SUFFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from ottla.cli.dump.decoders import Shown
    from ottla.protocol.schema import Struct
    from ottla.records.record import Record

NO_LIMIT = 0x7FFF_FFFF
_PREFIX_BYTES = 17
_MIN_RECORD_BYTES = 14
_PREFIX = Layout(">qi")
_CHECKPOINT_NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint.*")


class DumpOptions(NamedTuple):
    """Options of the output; `parse` decodes a record's key and value, None prints neither."""

    is_deep: bool
    skip_record_metadata: bool
    max_bytes: int
    parse: Callable[[Record], Shown] | None


def read_batches(file: BinaryIO, position: int, end: int, name: str) -> Iterator[RecordBatch]:
    """Yield the complete batches between position and end, as Kafka iterates over a file.

    A truncated tail ends the iteration; an invalid size raises CorruptMessage. Each batch has its
    own view, so `batch.position` is 0.
    """
    while position < end - _PREFIX_BYTES:
        file.seek(position)
        prefix = file.read(_PREFIX_BYTES)
        if len(prefix) < _PREFIX_BYTES:
            return
        size = _PREFIX.unpack_from(prefix)[1]
        if size < _MIN_RECORD_BYTES:
            raise CorruptMessage(
                f"Found record size {size} smaller than minimum record overhead "
                f"({_MIN_RECORD_BYTES}) in file {name}."
            )
        rest = size + LOG_OVERHEAD_BYTES - _PREFIX_BYTES
        if position > end - LOG_OVERHEAD_BYTES - size:
            return
        yield batch_at(memoryview(prefix + file.read(rest)), 0)
        position += size + LOG_OVERHEAD_BYTES


def title(path: Path) -> str:
    """Return the line above a log's batches; raises ValueError for an invalid file name."""
    if path.suffix != METADATA_SNAPSHOT_SUFFIX:
        return f"Log starting offset: {first_offset(path)}"
    if path.name == BOOTSTRAP_CHECKPOINT:
        return "KRaft bootstrap snapshot"
    found = _CHECKPOINT_NAME.fullmatch(path.name)
    if found is None:
        raise ValueError(f"{path.name} is not a snapshot name: <end offset>-<epoch>.checkpoint")
    return f"Snapshot end offset: {int(found[1])}, epoch: {int(found[2])}"


def first_offset(path: Path) -> int:
    """Return the offset in a segment file's name; raises ValueError."""
    text = path.name.partition(".")[0]
    try:
        return int(text)
    except ValueError:
        raise ValueError(f'For input string: "{text}"') from None


def dump_log(
    path: Path, options: DumpOptions, write: Callable[[str], object]
) -> list[tuple[int, int]]:
    """Print a log; return the pairs of offsets that are not consecutive.

    Raises OSError, CorruptMessage, ValueError.
    """
    write(title(path) + "\n")
    gaps: dict[int, int] = {}
    previous = -1
    valid_bytes = 0
    with path.open("rb") as file:
        size = file.seek(0, 2)
        end = min(size, options.max_bytes)
        for batch in read_batches(file, 0, end, str(path)):
            write(batch_line(batch, valid_bytes))
            if options.is_deep:
                previous = _dump_records(batch, previous, gaps, options, write)
            valid_bytes += batch.size
    if end > valid_bytes and options.max_bytes == NO_LIMIT:
        write(f"Found {end - valid_bytes} invalid bytes at the end of {path.name}\n")
    return sorted(gaps.items())


def batch_line(batch: RecordBatch, position: int) -> str:
    """Describe one batch."""
    if batch.magic < 2:
        head = f"offset: {batch.last_offset}"
    else:
        horizon = batch.delete_horizon_ms
        shown = "OptionalLong.empty" if horizon is None else f"OptionalLong[{horizon}]"
        head = (
            f"baseOffset: {batch.base_offset} lastOffset: {batch.last_offset} "
            f"count: {batch.record_count} baseSequence: {batch.base_sequence} "
            f"lastSequence: {batch.last_sequence} producerId: {batch.producer_id} "
            f"producerEpoch: {batch.producer_epoch} partitionLeaderEpoch: {batch.leader_epoch} "
            f"isTransactional: {_truth(batch.is_transactional)} "
            f"isControl: {_truth(batch.is_control)} deleteHorizonMs: {shown}"
        )
    return (
        f"{head} position: {position} {batch.timestamp_type.config_name}: {batch.max_timestamp} "
        f"size: {batch.size} magic: {batch.magic} "
        f"compresscodec: {batch.compression.name.lower()} crc: {batch.crc} "
        f"isvalid: {_truth(batch.computed_crc() == batch.crc)}\n"
    )


def _truth(value: bool) -> str:
    return "true" if value else "false"


class _Inner(NamedTuple):
    """A record, and the checksum that each record has in old formats."""

    record: Record
    suffix: str


def _records(batch: RecordBatch) -> Iterable[_Inner]:
    if not isinstance(batch, LegacyBatch):
        try:
            return [_Inner(record, "") for record in batch.records()]
        except CorruptMessage as error:
            return _up_to_the_damage(batch, error)
    records = batch.records()
    if batch.compression == Compression.NONE:
        return [_Inner(records[0], _checksum(batch))]
    plain = memoryview(batch.decompressed_payload())
    suffixes = []
    position = 0
    for _ in records:
        message = LegacyBatch(plain, position)
        suffixes.append(_checksum(message))
        position += message.size
    return [_Inner(*pair) for pair in zip(records, suffixes, strict=True)]


def _up_to_the_damage(batch: RecordBatch, error: CorruptMessage) -> Iterator[_Inner]:
    """Yield the records before the first corrupt one, then raise the error."""
    plain = bytes(batch.decompressed_payload())
    is_appended = batch.timestamp_type is TimestampType.LOG_APPEND_TIME
    append_time = batch.max_timestamp if is_appended else None
    position = 0
    for _ in range(batch.record_count):
        end = _record_end(plain, position)
        if not position < end <= len(plain):
            break
        piece = plain[position:end]
        times = (batch.base_timestamp, append_time)
        try:
            (record,) = decode_records(piece, 1, batch.base_offset, *times)
        except CorruptMessage:
            break
        yield _Inner(record, "")
        position = end
    raise error


def _record_end(plain: bytes, position: int) -> int:
    """Return the end of a record from the size that precedes it; -1 for an invalid size."""
    size = 0
    for shift in range(0, 35, 7):
        if position >= len(plain):
            return -1
        size |= (plain[position] & 0x7F) << shift
        position += 1
        if plain[position - 1] < 0x80:
            return position + (size >> 1) if not size & 1 else -1
    return -1


def _checksum(message: LegacyBatch) -> str:
    return f" isValid: {_truth(message.computed_crc() == message.crc)} crc: {message.crc}"


def _dump_records(
    batch: RecordBatch,
    previous: int,
    gaps: dict[int, int],
    options: DumpOptions,
    write: Callable[[str], object],
) -> int:
    """Print the records of a batch, collect gaps, and return the last offset."""
    out: list[str] = []
    stamp = batch.timestamp_type.config_name
    is_control = batch.is_control
    parse = None if is_control else options.parse
    prefix = "| " if options.skip_record_metadata else " "
    try:
        for record, suffix in _records(batch):
            if record.offset != previous + 1:
                gaps[previous] = record.offset
            previous = record.offset
            if not options.skip_record_metadata:
                out.append(_metadata(batch, record, stamp) + suffix)
                if is_control:
                    out.append(control_text(record))
            if parse is not None:
                out.append(_contents(parse(record), prefix))
            out.append("\n")
    finally:  # records before a corrupt one are printed
        write("".join(out))
    return previous


def _metadata(batch: RecordBatch, record: Record, stamp: str) -> str:
    key_bytes = -1 if record.key is None else len(record.key)
    value_bytes = -1 if record.value is None else len(record.value)
    line = (
        f"| offset: {record.offset} {stamp}: {record.timestamp} "
        f"keySize: {key_bytes} valueSize: {value_bytes}"
    )
    if batch.magic < 2:
        return line
    sequence = batch.base_sequence
    if sequence >= 0:
        sequence = add_to_sequence(sequence, record.offset - batch.base_offset)
    names = ",".join(name for name, _ in record.headers)
    return f"{line} sequence: {sequence} headerKeys: [{names}]"


def _contents(shown: Shown, prefix: str) -> str:
    line = ""
    if shown.key is not None:
        line = f"{prefix}key: {shown.key}"
        prefix = " "
    if shown.value is not None:
        line += f"{prefix}payload: {shown.value}"
    return line


_MESSAGES: dict[ControlRecordType, tuple[str, type[Struct]]] = {
    ControlRecordType.LEADER_CHANGE: ("LeaderChange:", LeaderChangeMessage),
    ControlRecordType.SNAPSHOT_HEADER: ("SnapshotHeader", SnapshotHeaderRecord),
    ControlRecordType.SNAPSHOT_FOOTER: ("SnapshotFooter", SnapshotFooterRecord),
    ControlRecordType.KRAFT_VERSION: ("KRaftVersion", KRaftVersionRecord),
    ControlRecordType.KRAFT_VOTERS: ("KRaftVoters", VotersRecord),
}


def control_text(record: Record) -> str:
    """Describe a control record."""
    kind = decode_control_type(record.key)
    if kind in {ControlRecordType.ABORT, ControlRecordType.COMMIT}:
        _, epoch = decode_end_txn_marker(record)
        return f" endTxnMarker: {kind.name} coordinatorEpoch: {epoch}"
    found = _MESSAGES.get(kind)
    if found is None:
        number = int.from_bytes((record.key or b"")[2:4], "big", signed=True)
        return f" controlType: {kind.name}({number})"
    name, cls = found
    try:
        # Kafka 4.3 decodes all of them as version 0 and prints the version in the message
        message, _ = decode_at(cls, 0, memoryview(record.value or b""))
    except (OttlaError, IndexError) as error:
        raise CorruptMessage(f"{kind.name} at offset {record.offset}: {error}") from error
    version: int = message.version  # type: ignore[attr-defined]  # each of the five has one
    if version not in cls.versions:
        raise CorruptMessage(f"{kind.name} at offset {record.offset} has version {version}")
    return f" {name} {message_json(message, version)}"
