"""Snapshots that are fetched from the leader: parts, check, and the place among the others.

Its methods run in a worker. Kafka: org.apache.kafka.snapshot.FileRawSnapshotWriter.
"""

from __future__ import annotations

from collections import deque
from contextlib import closing
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.errors import CorruptMessage
from ottla.raft.snapshot import SnapshotReader, snapshot_name
from ottla.storage.layout import METADATA_LOG, PART_SUFFIX

if TYPE_CHECKING:
    from ottla.raft.voter_set import VoterSet
    from ottla.storage.directory import Directory
    from ottla.types import Buffer, OffsetAndEpoch

PART_BYTES: Final = 1 << 20
"""Of one response."""


class QuorumOfSnapshot(NamedTuple):
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

    def finish(self, snapshot_id: OffsetAndEpoch) -> QuorumOfSnapshot:
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
        return QuorumOfSnapshot(reader.voters, reader.kraft_version)
