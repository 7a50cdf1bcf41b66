"""Comparison of offset index, time index and leader epochs with the batches of a log.

An entry counts as right by the rule of reads: an offset's position is the start of a batch that has
not passed the offset (Kafka before 4.0 wrote one entry for several batches), and a timestamp is the
largest up to its offset.

Kafka: none; org.apache.kafka.storage.internals.log.{OffsetIndex, TimeIndex}.sanityCheck looks at
the last entry.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

from ottla.storage.directory import join
from ottla.storage.indexes.offset_index import OffsetIndex
from ottla.storage.indexes.time_index import TimeIndex
from ottla.storage.layout import INDEX_SUFFIX, TIME_INDEX_SUFFIX, segment_file_name
from ottla.verification.findings import repairable

if TYPE_CHECKING:
    from ottla.storage.batches import BatchHeader
    from ottla.storage.directory import Directory
    from ottla.storage.log.leader_epochs import LeaderEpochs
    from ottla.verification.findings import Finding

_END: Final = 1 << 63
_REBUILD: Final = "ottla log-repair --rebuild-indexes makes it again from the batches"


class IndexCheck:
    """Compares the indexes of each segment while its batches are read."""

    def __init__(self, directory: Directory, subdirectory: str, recovered_from: int) -> None:
        """Segments from base offset recovered_from on are left out: a start rebuilds theirs."""
        self._directory = directory
        self._subdirectory = subdirectory
        self._recovered_from = recovered_from
        self.findings: list[Finding] = []
        self._base_offset = -1
        self._positions: list[tuple[int, int]] = []
        self._position_number = 0
        self._next_position = _END
        self._timestamps: list[tuple[int, int]] = []
        self._timestamp_number = 0
        self._next_offset = _END
        self._max_timestamp = -1
        self._max_offsets = (-1, -1)
        """Of the first batch with that timestamp: there a search for it must begin."""
        self._last_offset = -1
        self._end = 0

    def begin_segment(self, base_offset: int, size: int) -> None:
        """Finish the segment before and read the indexes of this one."""
        self.finish()
        self._base_offset, self._end = base_offset, size
        self._last_offset, self._max_timestamp = base_offset - 1, -1
        self._positions = self._timestamps = []
        if base_offset < self._recovered_from:
            self._positions = self._read(INDEX_SUFFIX, OffsetIndex)
            self._timestamps = self._read(TIME_INDEX_SUFFIX, TimeIndex)
        self._position_number = self._timestamp_number = 0
        self._next_position = self._positions[0][1] if self._positions else _END
        self._next_offset = self._timestamps[0][1] + base_offset if self._timestamps else _END

    def _read(self, suffix: str, kind: type[OffsetIndex | TimeIndex]) -> list[tuple[int, int]]:
        path = self._path(suffix)
        if not self._directory.exists(path):
            self._add(suffix, "is missing")
            return []
        data, size = self._directory.read_file(path), kind.entry.size
        if len(data) % size:
            self._add(suffix, f"has {len(data)} bytes, not a multiple of {size}")
            return []
        entries = list(kind.entry.iter_unpack(data))
        if any(
            later[0] < earlier[0] or later[1] < earlier[1] for earlier, later in pairwise(entries)
        ):
            self._add(suffix, "has entries that decrease")
            return []
        return entries

    def batch(self, header: BatchHeader, _data: memoryview) -> None:
        """Check the entries that belong to a batch."""
        if header.position >= self._next_position:
            self._check_position(header)
        if header.base_offset > self._next_offset:
            self._check_timestamps(header.base_offset)
        if header.max_timestamp > self._max_timestamp:
            self._max_timestamp = header.max_timestamp
            self._max_offsets = (header.base_offset, header.last_offset)
        self._last_offset = header.last_offset

    def _check_position(self, header: BatchHeader) -> None:
        offset, position = self._positions[self._position_number]
        offset += self._base_offset
        if position != header.position or not header.base_offset <= offset:
            self._add(INDEX_SUFFIX, f"sends offset {offset} to byte {position}, not to its batch")
            self._next_position = _END
            return
        self._position_number += 1
        is_over = self._position_number == len(self._positions)
        self._next_position = _END if is_over else self._positions[self._position_number][1]

    def _check_timestamps(self, end_offset: int) -> None:
        """Check the entries below end_offset: they have the largest timestamp so far."""
        while self._next_offset < end_offset:
            timestamp, relative = self._timestamps[self._timestamp_number]
            first, last = self._max_offsets
            offset = relative + self._base_offset
            if timestamp != self._max_timestamp or not first <= offset <= last:
                self._add(
                    TIME_INDEX_SUFFIX,
                    f"has timestamp {timestamp} at offset {offset}; the largest up to there is "
                    f"{self._max_timestamp}, at offsets {first} to {last}",
                )
                self._next_offset = _END
                return
            self._timestamp_number += 1
            is_over = self._timestamp_number == len(self._timestamps)
            self._next_offset = (
                _END if is_over else self._timestamps[self._timestamp_number][1] + self._base_offset
            )

    def finish(self, *, is_damaged: bool = False) -> None:
        """Check what lies after the last batch; a damaged segment has no known end."""
        if self._base_offset < 0 or is_damaged:
            return
        self._check_timestamps(self._last_offset + 1)
        if self._next_position < _END:
            text = f"has positions up to {self._positions[-1][1]} of {self._end} bytes"
            self._add(INDEX_SUFFIX, text)
        if self._next_offset < _END:
            self._add(TIME_INDEX_SUFFIX, f"has offset {self._next_offset}, after the last batch")

    def _path(self, suffix: str) -> str:
        return join(self._subdirectory, segment_file_name(self._base_offset, suffix))

    def _add(self, suffix: str, problem: str) -> None:
        meaning = "no record is lost, but reads may begin too late"
        self.findings.append(repairable(self._path(suffix), problem, meaning, _REBUILD))


class EpochCheck:
    """Compares the leader epochs of the checkpoint with those of the batches."""

    def __init__(self, epochs: LeaderEpochs, recovered_from: int, log_start_offset: int) -> None:
        """Batches before log_start_offset are deleted records: epochs begin there."""
        self._epochs = epochs
        self._recovered_from = recovered_from
        self._log_start_offset = log_start_offset
        self._is_recovered = False
        self.problem = ""
        self.has_batches_without = False
        """Whether a batch has no epoch, as before Kafka 0.11."""

    def begin_segment(self, base_offset: int, _size: int) -> None:
        """Leave out segments that a start reads: it takes their epochs from the batches."""
        self._is_recovered = base_offset >= self._recovered_from

    def batch(self, header: BatchHeader, _data: memoryview) -> None:
        """Compare one batch; only the first contradiction is kept."""
        if header.leader_epoch < 0:
            self.has_batches_without = True
            return
        if self._is_recovered or self.problem:
            return
        if header.base_offset < self._log_start_offset:
            return
        known = self._epochs.epoch_for_offset(header.base_offset)
        if known != header.leader_epoch:
            self.problem = (
                f"says epoch {known} for offset {header.base_offset}, whose batch has epoch "
                f"{header.leader_epoch}"
            )


class OffsetGaps:
    """Gaps between offsets above what compaction has read: records are missing there."""

    def __init__(self, cleaned_offset: int) -> None:
        self._cleaned_offset = cleaned_offset
        self._next_offset = -1
        self._is_sparse = False
        self._gap = (-1, -1)

    def begin_segment(self, base_offset: int, _size: int) -> None:
        """Let the log begin at any offset, that of its first segment."""
        if self._next_offset < 0:
            self._next_offset = base_offset

    def batch(self, header: BatchHeader, _data: memoryview) -> None:
        """Note a gap before a batch, and batches that lost records to compaction."""
        base_offset, last_offset = header.base_offset, header.last_offset
        if base_offset >= self._cleaned_offset and header.magic == 2:
            if base_offset > self._next_offset and self._gap[0] < 0:
                self._gap = (self._next_offset, base_offset - 1)
            if header.record_count <= last_offset - base_offset:
                self._is_sparse = True
        self._next_offset = last_offset + 1

    @property
    def gap(self) -> tuple[int, int] | None:
        """The first gap, unless a compaction above the checkpoint explains it."""
        return None if self._gap[0] < 0 or self._is_sparse else self._gap
