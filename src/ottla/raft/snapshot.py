"""Snapshots of the metadata log: `<end offset>-<epoch>.checkpoint`, batches as in the log.

A control batch with the header (and, from kraft.version 1 on, the voters), batches of records, a
control batch with the footer. A file without its footer is not a snapshot.

Kafka: org.apache.kafka.snapshot.{RecordsSnapshotWriter, RecordsSnapshotReader, Snapshots}.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.errors import CorruptMessage
from ottla.protocol.records.raft import (
    KRaftVersionRecord,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from ottla.raft.batch_accumulator import BatchAccumulator
from ottla.raft.control_records import decode_control_message, encode_control_messages
from ottla.raft.voter_set import voter_set_of
from ottla.records.batch import iterate_batches
from ottla.types import OffsetAndEpoch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.raft.control_records import ControlMessage
    from ottla.raft.voter_set import VoterSet
    from ottla.types import Buffer

SNAPSHOT_MODE: Final = 0o400
SUFFIX: Final = ".checkpoint"
_NAME: Final = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_RECORDS_PER_GROUP: Final = 1024
_BATCH_BYTES: Final = 1 << 20


class SnapshotContent(NamedTuple):
    """What a snapshot says."""

    last_contained_log_timestamp: int
    kraft_version: int
    voters: VoterSet | None
    values: list[bytes]
    """Encoded metadata records."""


def snapshot_name(snapshot_id: OffsetAndEpoch) -> str:
    """Return the file's name; the id is (end offset, epoch of the last record)."""
    return f"{snapshot_id.offset:020d}-{snapshot_id.leader_epoch:010d}{SUFFIX}"


def parse_snapshot_name(name: str) -> OffsetAndEpoch | None:
    """Read a name; None for one that is no snapshot's."""
    match = _NAME.fullmatch(name)
    return OffsetAndEpoch(int(match[1]), int(match[2])) if match else None


def encode_snapshot(
    values: Iterable[bytes],
    *,
    now_ms: int,
    leader_epoch: int = 0,
    last_contained_log_timestamp: int = 0,
    kraft_version: int = 0,
    voters: VoterSet | None = None,
) -> bytes:
    """Return a snapshot of encoded metadata records; times in ms."""
    first: list[ControlMessage] = [
        SnapshotHeaderRecord(version=0, last_contained_log_timestamp=last_contained_log_timestamp)
    ]
    if kraft_version > 0:
        first.append(KRaftVersionRecord(version=0, kraft_version=kraft_version))
        if voters is not None:
            first.append(voters.to_record())
    parts: list[Buffer] = [
        encode_control_messages(first, base_offset=0, leader_epoch=leader_epoch, timestamp=now_ms)
    ]
    accumulator = BatchAccumulator(
        epoch=leader_epoch, next_offset=len(first), max_batch_bytes=_BATCH_BYTES
    )
    for value in values:
        accumulator.append([value], now_ms)
    parts += [batch.data for batch in accumulator.drain()]
    parts.append(
        encode_control_messages(
            [SnapshotFooterRecord(version=0)],
            base_offset=accumulator.next_offset,
            leader_epoch=leader_epoch,
            timestamp=now_ms,
        )
    )
    return b"".join(parts)


def decode_snapshot(data: Buffer) -> SnapshotContent:
    """Read a snapshot; CorruptMessage when a checksum is wrong or the footer is missing."""
    timestamp, kraft_version = 0, 0
    voters: VoterSet | None = None
    values: list[bytes] = []
    has_header = has_footer = False
    for batch in iterate_batches(data):
        if has_footer:
            raise CorruptMessage("a snapshot goes on behind its footer")
        batch.check_crc()
        if not batch.is_control:
            values += [
                bytes(record.value) for record in batch.records() if record.value is not None
            ]
            continue
        for record in batch.records():
            message = decode_control_message(record)
            if isinstance(message, SnapshotHeaderRecord):
                has_header, timestamp = True, message.last_contained_log_timestamp
            elif isinstance(message, KRaftVersionRecord):
                kraft_version = message.kraft_version
            elif isinstance(message, VotersRecord):
                voters = voter_set_of(message)
            elif isinstance(message, SnapshotFooterRecord):
                has_footer = True
    if not has_header or not has_footer:
        raise CorruptMessage("a snapshot without its header or its footer")
    return SnapshotContent(timestamp, kraft_version, voters, values)
