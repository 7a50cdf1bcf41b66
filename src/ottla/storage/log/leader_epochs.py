"""The start offset of each leader epoch, to find where two logs diverge (KIP-101, KIP-279).

Entries increase in epoch and in start offset. A worker writes the file when an epoch was assigned
and syncs it with the next flush; entries that a crash loses are rebuilt, because every batch after
the recovery point is read again.

Kafka: org.apache.kafka.storage.internals.epoch.LeaderEpochFileCache.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

from ottla.storage.directories.checkpoints import decode_lines, encode_lines, malformed
from ottla.types import OffsetAndEpoch

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


class EpochEntry(NamedTuple):
    """A leader's epoch and the first offset that may have been written in it."""

    epoch: int
    start_offset: int


class LeaderEpochs:
    """The epochs of one log; `version` grows with every change."""

    __slots__ = ("_removal_version", "_saved_version", "entries", "version", "written_version")

    def __init__(self, entries: list[EpochEntry] | None = None) -> None:
        self.entries: list[EpochEntry] = entries or []
        self.version = 0
        self.written_version = 0
        self._saved_version = 0
        self._removal_version = 0

    @property
    def latest_epoch(self) -> int:
        """The newest epoch, -1 when there is none."""
        return self.entries[-1].epoch if self.entries else UNDEFINED_EPOCH

    @property
    def is_dirty(self) -> bool:
        """Whether the file, as far as it is durable, differs from memory."""
        return self.version != self.written_version

    @property
    def is_saved(self) -> bool:
        """Whether the file is equal to memory, durable or not."""
        return self.version in (self._saved_version, self.written_version)

    def saved(self, version: int) -> None:
        """Record that the file has the content of a version, which may not be durable."""
        self._saved_version = version

    @property
    def must_be_written(self) -> bool:
        """Whether the durable file has entries that were removed: it must be synced.

        A new epoch can wait for the flush of its first records.
        """
        return self._removal_version > self.written_version

    def written(self, version: int) -> None:
        """Record that the file durably has the content of a version."""
        self.written_version = version

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Record that epoch begins at start_offset and remove entries that contradict it.

        False when that is known already.
        """
        entries = self.entries
        if entries and epoch == entries[-1].epoch and start_offset >= entries[-1].start_offset:
            return False
        if epoch < 0 or start_offset < 0:
            raise ValueError(f"epoch {epoch} cannot begin at {start_offset}")
        while entries and (entries[-1].epoch >= epoch or entries[-1].start_offset >= start_offset):
            entries.pop()
        entries.append(EpochEntry(epoch, start_offset))
        self.version += 1
        return True

    def end_offset_for(self, epoch: int, log_end_offset: int) -> OffsetAndEpoch:
        """Return the largest epoch known up to this one and where the next one begins.

        (-1, -1) when the epoch is unknown and newer than all.
        """
        entries = self.entries
        if epoch == UNDEFINED_EPOCH:
            return OffsetAndEpoch(UNDEFINED_OFFSET, UNDEFINED_EPOCH)
        if entries and entries[-1].epoch == epoch:
            return OffsetAndEpoch(log_end_offset, epoch)
        if not entries or epoch > entries[-1].epoch:
            return OffsetAndEpoch(UNDEFINED_OFFSET, UNDEFINED_EPOCH)
        higher = bisect_right(entries, epoch, key=lambda entry: entry.epoch)
        found = entries[higher - 1].epoch if higher else epoch
        return OffsetAndEpoch(entries[higher].start_offset, found)

    def epoch_for_offset(self, offset: int) -> int:
        """Return the epoch in which offset was written, -1 when that is before all entries."""
        entries = self.entries
        if entries and offset >= entries[-1].start_offset:
            return entries[-1].epoch
        number = bisect_right(entries, offset, key=lambda entry: entry.start_offset)
        return entries[number - 1].epoch if number else UNDEFINED_EPOCH

    def between(self, start_offset: int, end_offset: int) -> tuple[EpochEntry, ...]:
        """Return the epochs of the records from start_offset up to end_offset, which is excluded.

        The first begins at start_offset at the earliest.
        """
        ends = (*(entry.start_offset for entry in self.entries[1:]), end_offset)
        return tuple(
            EpochEntry(entry.epoch, max(entry.start_offset, start_offset))
            for entry, end in zip(self.entries, ends, strict=True)
            if entry.start_offset < end_offset and end > start_offset
        )

    def truncate_from_end(self, end_offset: int) -> None:
        """Drop the epochs that begin at or after the log's new end."""
        entries = self.entries
        if end_offset >= 0 and entries and entries[-1].start_offset >= end_offset:
            self.entries = [entry for entry in entries if entry.start_offset < end_offset]
            self.replaced()

    def truncate_from_start(self, start_offset: int) -> None:
        """Drop the epochs that end before the log's new start; the one covering it begins there."""
        number = bisect_right(self.entries, start_offset, key=lambda entry: entry.start_offset)
        if number and self.entries[number - 1].start_offset < start_offset:
            first = EpochEntry(self.entries[number - 1].epoch, start_offset)
            self.entries = [first, *self.entries[number:]]
            self.replaced()
        elif number > 1:
            self.entries = self.entries[number - 1 :]
            self.replaced()

    def clear(self) -> None:
        """Drop all epochs."""
        if self.entries:
            self.entries = []
            self.replaced()

    def take_over(self, other: LeaderEpochs) -> None:
        """Copy the epochs of a log with equal records: one without records may be missing here."""
        if self.entries != other.entries:
            self.entries = list(other.entries)
            self.replaced()

    def replaced(self) -> None:
        """Require that the file is written again, whether or not records follow."""
        self.version += 1
        self._removal_version = self.version

    def encode(self) -> bytes:
        """Return the file's text."""
        return encode_lines([f"{epoch} {start_offset}" for epoch, start_offset in self.entries])


def decode_leader_epochs(data: bytes) -> LeaderEpochs:
    """Parse the file's text; CorruptMessage when it is incomplete.

    A power cut may tear the last line of a file that was not synced: "1 131" must not become 1.
    """
    entries = decode_lines(data, _parse_entry)
    if not data.endswith(b"\n"):
        raise malformed(data)
    return LeaderEpochs(sorted(entries))


def _parse_entry(line: str) -> EpochEntry:
    epoch, start_offset = line.split(" ")
    return EpochEntry(int(epoch), int(start_offset))
