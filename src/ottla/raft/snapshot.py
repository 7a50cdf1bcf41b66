"""Snapshots of the metadata log: files `<end offset>-<epoch>.checkpoint` of batches.

A control batch with the header (and, from kraft.version 1 on, the voters), batches of records, a
control batch with the footer. A file without its footer is not a snapshot.

Its methods run in a worker.

Kafka: org.apache.kafka.snapshot.{RecordsSnapshotWriter, RecordsSnapshotReader, Snapshots};
org.apache.kafka.snapshot.FileRawSnapshotWriter.
"""

from __future__ import annotations

import re
from collections import deque
from contextlib import closing
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.errors import CorruptMessage
from ottla.protocol.records.raft import (
    KRaftVersionRecord,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from ottla.purgatory.work import finish
from ottla.raft.batch_accumulator import BatchAccumulator
from ottla.raft.voter_set import decode_control_message, encode_control_messages, voter_set_of
from ottla.records.batches import iterate_batches
from ottla.storage.layout import METADATA_LOG, METADATA_SNAPSHOT_SUFFIX, PART_SUFFIX
from ottla.types import OffsetAndEpoch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ottla.purgatory.work import Work
    from ottla.raft.voter_set import ControlMessage, VoterSet
    from ottla.records.batch import RecordBatch
    from ottla.storage.directory import Directory
    from ottla.types import Buffer


SNAPSHOT_MODE: Final = 0o400
_NAME: Final = re.compile(rf"(\d{{20}})-(\d{{10}}){re.escape(METADATA_SNAPSHOT_SUFFIX)}")
_BATCH_BYTES: Final = 1 << 20
_RECORDS_IN_A_BATCH: Final = 250
"""A batch is encoded, and by a reader decoded, in one turn of the loop: half a millisecond."""


class SnapshotContent(NamedTuple):
    """The content of a snapshot."""

    last_contained_log_timestamp: int
    kraft_version: int
    voters: VoterSet | None
    values: list[bytes]
    """Encoded metadata records."""


def snapshot_name(snapshot_id: OffsetAndEpoch) -> str:
    """Return the file's name; the id is (end offset, epoch of the last record)."""
    return f"{snapshot_id.offset:020d}-{snapshot_id.leader_epoch:010d}{METADATA_SNAPSHOT_SUFFIX}"


def parse_snapshot_name(name: str) -> OffsetAndEpoch | None:
    """Parse a file name; None when it does not name a snapshot."""
    match = _NAME.fullmatch(name)
    return OffsetAndEpoch(int(match[1]), int(match[2])) if match else None


class SnapshotEncoder:
    """Encodes a snapshot record by record."""

    __slots__ = ("_accumulator", "_leader_epoch", "_now_ms", "_parts", "_values")

    def __init__(
        self,
        values: Iterable[bytes],
        *,
        now_ms: int,
        leader_epoch: int = 0,
        last_contained_log_timestamp: int = 0,
        kraft_version: int = 0,
        voters: VoterSet | None = None,
    ) -> None:
        """Take encoded metadata records, which `step` consumes lazily; times in ms."""
        first: list[ControlMessage] = [
            SnapshotHeaderRecord(
                version=0, last_contained_log_timestamp=last_contained_log_timestamp
            )
        ]
        if kraft_version > 0:
            first.append(KRaftVersionRecord(version=0, kraft_version=kraft_version))
            if voters is not None:
                first.append(voters.to_record())
        self._values = iter(values)
        self._now_ms = now_ms
        self._leader_epoch = leader_epoch
        self._accumulator = BatchAccumulator(
            epoch=leader_epoch, next_offset=0, max_batch_bytes=_BATCH_BYTES
        )
        self._parts: list[Buffer] = []
        self._add_control(first)

    def _add_control(self, messages: list[ControlMessage]) -> None:
        offset = self._accumulator.next_offset
        self._accumulator.next_offset += len(messages)
        self._parts.append(
            encode_control_messages(
                messages,
                base_offset=offset,
                leader_epoch=self._leader_epoch,
                timestamp=self._now_ms,
            )
        )

    def encode(self) -> Work[None]:
        """Encode all records."""
        remaining = _RECORDS_IN_A_BATCH
        for value in self._values:
            self._accumulator.append([value], self._now_ms)
            remaining -= 1
            if not remaining:
                self._parts += [batch.data for batch in self._accumulator.drain()]
                remaining = _RECORDS_IN_A_BATCH
            yield
        self._parts += [batch.data for batch in self._accumulator.drain()]

    def finish(self) -> list[Buffer]:
        """Add the footer and return the snapshot's parts."""
        self._add_control([SnapshotFooterRecord(version=0)])
        return self._parts


def encode_snapshot(
    values: Iterable[bytes],
    *,
    now_ms: int,
    leader_epoch: int = 0,
    last_contained_log_timestamp: int = 0,
    kraft_version: int = 0,
    voters: VoterSet | None = None,
) -> bytes:
    """Return a complete snapshot of encoded metadata records; times in ms."""
    encoder = SnapshotEncoder(
        values,
        now_ms=now_ms,
        leader_epoch=leader_epoch,
        last_contained_log_timestamp=last_contained_log_timestamp,
        kraft_version=kraft_version,
        voters=voters,
    )
    finish(encoder.encode())
    return b"".join(encoder.finish())


class SnapshotReader:
    """Reads a snapshot batch by batch; its other fields are known when all values are read."""

    __slots__ = (
        "_data",
        "_has_footer",
        "_has_header",
        "_snapshot_id",
        "kraft_version",
        "last_contained_log_timestamp",
        "voters",
    )

    def __init__(self, data: Buffer, snapshot_id: OffsetAndEpoch | None = None) -> None:
        """Take the file's bytes, and the id in its name where its batches have to agree with it."""
        self._data = data
        self._snapshot_id = snapshot_id
        self._has_header = self._has_footer = False
        self.last_contained_log_timestamp = 0
        self.kraft_version = 0
        self.voters: VoterSet | None = None

    def values(self) -> Iterator[bytes]:
        """Yield the metadata records.

        CorruptMessage when a checksum is wrong, a batch or the header is missing, batches are of
        another epoch than the file's name, at the end when the footer is missing.
        """
        for batch in self._batches():
            for record in batch.records():
                if record.value is not None:
                    yield bytes(record.value)

    def content(self) -> SnapshotContent:
        """Return all of it; CorruptMessage as for `values`."""
        values = list(self.values())
        timestamp = self.last_contained_log_timestamp
        return SnapshotContent(timestamp, self.kraft_version, self.voters, values)

    def check(self) -> None:
        """Read through without decoding the metadata records; CorruptMessage as for `values`."""
        for _ in self._batches():
            pass

    def _batches(self) -> Iterator[RecordBatch]:
        """Yield the batches of metadata records; the other ones are read."""
        self._has_header = self._has_footer = False
        next_offset = 0
        for batch in iterate_batches(self._data):
            batch.check_crc()
            if self._has_footer:
                raise CorruptMessage("a snapshot continues after its footer")
            if self._snapshot_id is not None:
                _check_place(batch, next_offset, self._snapshot_id.leader_epoch)
            next_offset = batch.next_offset
            if batch.is_control:
                self._read_control(batch)
            if not self._has_header:
                raise CorruptMessage("a snapshot without a header")
            if not batch.is_control:
                yield batch
        if not self._has_footer:
            raise CorruptMessage("a snapshot without a footer")

    def _read_control(self, batch: RecordBatch) -> None:
        for record in batch.records():
            message = decode_control_message(record)
            if isinstance(message, SnapshotHeaderRecord):
                self._has_header = True
                self.last_contained_log_timestamp = message.last_contained_log_timestamp
            elif isinstance(message, KRaftVersionRecord):
                self.kraft_version = message.kraft_version
            elif isinstance(message, VotersRecord):
                self.voters = voter_set_of(message)
            elif isinstance(message, SnapshotFooterRecord):
                self._has_footer = True


def _check_place(batch: RecordBatch, next_offset: int, leader_epoch: int) -> None:
    if batch.base_offset != next_offset:
        raise CorruptMessage(f"offset {batch.base_offset} instead of {next_offset}")
    if batch.leader_epoch != leader_epoch:
        raise CorruptMessage(
            f"a batch of epoch {batch.leader_epoch} in a snapshot of epoch {leader_epoch}"
        )


def decode_snapshot(data: Buffer) -> SnapshotContent:
    """Read a snapshot; CorruptMessage when a checksum is wrong or the footer is missing."""
    return SnapshotReader(data).content()


PART_BYTES: Final = 1 << 20
"""Of one response."""


class _QuorumOfSnapshot(NamedTuple):
    """What a snapshot says of the quorum."""

    voters: VoterSet | None
    kraft_version: int


class SnapshotDownload:
    """The file of one snapshot until it is whole."""

    __slots__ = ("_directory", "_path")

    def __init__(self, directory: Directory, snapshot_id: OffsetAndEpoch) -> None:
        self._directory = directory
        self._path = f"{METADATA_LOG}/{snapshot_name(snapshot_id)}"

    def store(self, position: int, data: Buffer) -> None:
        """Write a part; the first one replaces what is there."""
        path = self._path + PART_SUFFIX
        if position == 0 and self._directory.exists(path):
            self._directory.remove(path)
        with closing(self._directory.open(path, create=True)) as file:
            if file.size() != position:
                raise CorruptMessage(f"a part of a snapshot at {position}, after {file.size()}")
            file.append([data])

    def finish(self, snapshot_id: OffsetAndEpoch) -> _QuorumOfSnapshot:
        """Make the file durable under its own name; CorruptMessage when it is damaged."""
        path = self._path + PART_SUFFIX
        reader = SnapshotReader(self._directory.read_file(path), snapshot_id)
        try:
            deque(reader.values(), maxlen=0)  # decodes all records and keeps none
        except CorruptMessage:
            self._directory.remove(path)
            raise
        with closing(self._directory.open(path)) as file:
            file.sync()
        self._directory.rename(path, self._path)
        self._directory.sync(METADATA_LOG)
        return _QuorumOfSnapshot(reader.voters, reader.kraft_version)
