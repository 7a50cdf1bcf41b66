"""Opening a partition's directory after a clean stop or a crash.

After a crash every segment from the recovery point on is read: complete batches are kept, a torn
tail is cut off, and indexes, producer snapshot and leader epochs are rebuilt from the batches.

Kafka: org.apache.kafka.storage.internals.log.LogLoader.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from ottla.errors import CorruptMessage
from ottla.storage.batches import walk_file
from ottla.storage.directory import join
from ottla.storage.indexes.offset_index import MAX_RELATIVE_OFFSET
from ottla.storage.layout import (
    INDEX_SUFFIX,
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    base_offset_of,
)
from ottla.storage.log.leader_epochs import LeaderEpochs, decode_leader_epochs
from ottla.storage.log.swap_files import finish_swaps
from ottla.storage.producers.rebuild import replay
from ottla.storage.producers.state import PartitionProducers
from ottla.storage.segments.segment import Segment
from ottla.storage.segments.segment_list import SegmentList
from ottla.storage.segments.segment_recovery import rebuild_indexes, recover_segment, trim_tail

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.storage.directory import Directory
    from ottla.storage.log.config import LogConfig

log = logging.getLogger("ottla.storage")
_ALL = 1 << 63
_INDEX_SUFFIXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)


class LoadedLog(NamedTuple):
    """The consistent content of a partition's directory."""

    segments: SegmentList
    producer_state: PartitionProducers
    leader_epochs: LeaderEpochs
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    truncated_bytes: int
    is_new: bool
    """Whether no record was ever written, as far as the files tell after a clean stop."""
    is_durable: bool
    """Whether a clean stop flushed all files and names and nothing was changed since."""


class LogLoader:
    """Loads one partition; `load` is called once."""

    def __init__(
        self,
        directory: Directory,
        subdirectory: str,
        *,
        partition: str,
        config: LogConfig,
        now_ms: int,
        on_remaining_segments: Callable[[int], object] = lambda _count: None,
    ) -> None:
        """on_remaining_segments(count) is called with each segment that is read, 0 at the end."""
        self._directory = directory
        self._subdirectory = subdirectory
        self._config = config
        self._now_ms = now_ms
        self._on_remaining_segments = on_remaining_segments
        self._state = PartitionProducers(
            directory,
            subdirectory,
            partition=partition,
            producer_id_expiration_ms=config.producer_id_expiration_ms,
        )
        self._epochs = LeaderEpochs()
        self._epochs_lost = False
        self._segments: list[Segment] = []
        self._torn_transactions: list[Segment] = []
        self._has_aborts = False
        self._unreadable: list[Segment] = []
        self._flushed_offset = 0
        self._is_changed = False
        """Whether files or names are not what the last process left."""

    def load(self, *, recovery_point: int, log_start_offset: int, clean: bool) -> LoadedLog:
        """Open everything; with `clean` false recover from recovery_point on.

        CorruptMessage when records below recovery_point are damaged or missing: they were flushed,
        so they are not cut off as a torn tail is. No descriptor stays open, whatever happens.
        """
        try:
            return self._load(
                recovery_point=recovery_point, log_start_offset=log_start_offset, clean=clean
            )
        finally:
            self._on_remaining_segments(0)
            for segment in self._segments:
                segment.close_files()

    def _load(self, *, recovery_point: int, log_start_offset: int, clean: bool) -> LoadedLog:
        self._flushed_offset = _ALL if clean else recovery_point
        found = self._directory.list(self._subdirectory)
        names = finish_swaps(self._directory, self._subdirectory, found)
        self._is_changed = names != found
        self._epochs = self._read_epochs(names)
        self._state.find_snapshots(names)
        self._open_segments(names)
        truncated = self._recover(log_start_offset, recovery_point, clean=clean)
        log_end_offset = self._find_end()
        if max(log_end_offset, log_start_offset) < recovery_point:
            raise CorruptMessage(
                f"{self._subdirectory} ends at offset {log_end_offset}, but everything below "
                f"offset {recovery_point} was flushed"
            )
        if truncated:
            log.warning(
                "%d bytes of unfinished writes are removed from the end of %s, which has offset %d "
                "now; check the disk unless the machine lost power",
                truncated,
                self._subdirectory,
                log_end_offset,
                extra={"event": "log.truncated"},
            )
        if self._segments and log_end_offset < log_start_offset:
            self._start_over(log_start_offset)
        if not self._segments:
            self._segments = [self._create_segment(log_start_offset)]
            self._is_changed = True
            log_end_offset = log_start_offset
        segments = SegmentList(self._segments)
        local_start = max(log_start_offset, segments[0].base_offset)
        start = log_start_offset if self._config.is_tiered else local_start
        # an epoch that begins right at the end has no batch yet and is no less true (KAFKA-7415)
        self._epochs.truncate_from_end(log_end_offset + 1)
        self._epochs.truncate_from_start(start)
        self._state.remove_stray_snapshots(segments.base_offsets)
        _rebuild_producers(self._state, segments.ordered, local_start, log_end_offset, self._now_ms)
        self._limit_last_stable_offsets()
        segments.active.needs_sync |= not clean  # a killed process may not have synced it
        return LoadedLog(
            segments,
            self._state,
            self._epochs,
            start,
            log_end_offset,
            log_end_offset if clean else min(recovery_point, log_end_offset),
            truncated,
            is_new=clean and log_end_offset == 0,
            is_durable=clean and log_end_offset > 0 and not self._is_changed,
        )

    def _read_epochs(self, names: list[str]) -> LeaderEpochs:
        if LEADER_EPOCH_CHECKPOINT in names:
            path = join(self._subdirectory, LEADER_EPOCH_CHECKPOINT)
            try:
                return decode_leader_epochs(self._directory.read_file(path))
            except CorruptMessage:
                pass
        self._epochs_lost = True
        return LeaderEpochs()

    def _find_epochs(self, segments: list[Segment]) -> None:
        """Rebuild the epochs from the batches when the file is missing or corrupt."""
        for segment in segments:
            with suppress(CorruptMessage):
                for header in walk_file(segment.file, 0, segment.size):
                    if header.leader_epoch > self._epochs.latest_epoch:
                        self._epochs.assign(header.leader_epoch, header.base_offset)
                        self._epochs.replaced()
            segment.close_files()

    def _create_segment(self, base_offset: int) -> Segment:
        return Segment.create(
            self._directory,
            self._subdirectory,
            base_offset,
            config=self._config,
            now_ms=self._now_ms,
        )

    def _open_segments(self, names: list[str]) -> None:
        present = set(names)
        for name in names:
            stem, dot, suffix = name.rpartition(".")
            base_offset = base_offset_of(name, dot + suffix)
            if base_offset is None:
                continue
            if dot + suffix in _INDEX_SUFFIXES and stem + LOG_SUFFIX not in present:
                self._directory.remove(join(self._subdirectory, name))
                self._is_changed = True
            elif dot + suffix == LOG_SUFFIX:
                segment = Segment.open(
                    self._directory,
                    self._subdirectory,
                    base_offset,
                    config=self._config,
                    now_ms=self._now_ms,
                )
                self._segments.append(segment)
                if stem + TRANSACTION_INDEX_SUFFIX in present:
                    self._has_aborts = True
                    if not segment.transaction_index.is_consistent(base_offset):
                        self._torn_transactions.append(segment)
                if stem + INDEX_SUFFIX not in present or stem + TIME_INDEX_SUFFIX not in present:
                    self._unreadable.append(segment)
        self._segments.sort(key=lambda segment: segment.base_offset)

    def _recover(self, log_start_offset: int, recovery_point: int, *, clean: bool) -> int:
        """Recover torn segments and rebuild missing indexes; return the bytes cut off."""
        if not self._segments:
            return 0
        if clean:
            self._is_changed |= bool(self._unreadable or self._torn_transactions)
            for segment in self._unreadable:
                _rebuild_indexes(segment)
            if self._epochs_lost:
                self._find_epochs(self._segments)
            return self._recover_transactions(log_start_offset, len(self._segments))
        self._drop_before_gap()
        first = len(self._segments) - 1
        while first > 0 and self._segments[first].base_offset > recovery_point:
            first -= 1
        for segment in self._unreadable:
            if segment.base_offset < self._segments[first].base_offset:
                _rebuild_indexes(segment)
        if self._epochs_lost:
            self._find_epochs(self._segments[:first])
        self._recover_transactions(log_start_offset, first)
        if first:
            trim_tail(self._segments[first - 1], self._segments[first].base_offset)
        return self._recover_from(first, log_start_offset)

    def _recover_transactions(self, log_start_offset: int, end: int) -> int:
        """Recover those of the first `end` segments whose transaction index is corrupt."""
        for number, segment in enumerate(self._segments[:end]):
            if segment in self._torn_transactions:
                cut = self._recover_from(number, log_start_offset, last=number)
                if cut:
                    return cut
        return 0

    def _recover_from(self, first: int, log_start_offset: int, *, last: int | None = None) -> int:
        base_offset = self._segments[first].base_offset
        start = max(log_start_offset, self._segments[0].base_offset)
        if first:
            before = self._segments[:first]
            _rebuild_producers(self._state, before, start, base_offset, self._now_ms)
        else:
            self._state.truncate_and_reload(start, base_offset, self._now_ms)
        for number, segment in enumerate(list(self._segments)):
            if number < first or segment not in self._segments:
                continue
            if last is not None and number > last:
                break
            end = len(self._segments) if last is None else last + 1
            self._on_remaining_segments(end - number)
            self._state.end_offset = segment.base_offset
            self._state.take_snapshot()
            self._state.write_snapshots()
            cut = recover_segment(
                segment, self._state, self._epochs, flushed_offset=self._flushed_offset
            )
            segment.close_files()
            if cut or not self._is_followed(segment):
                following = self._segments.index(segment) + 1
                self._check_not_flushed(self._segments[following:])
                self._drop(self._segments[following:])
                return cut
        return 0

    def _limit_last_stable_offsets(self) -> None:
        """Repair transaction indexes whose last stable offsets are too high.

        Followers, those of Kafka too, wrote such when they got several transactions at once. A
        reader that stops there gets records of transactions that were aborted. The indexes show it
        without a look at the records: a transaction that ends later began before.
        """
        if self._has_aborts:
            opened, lowered_count = self._state.transactions.open, 0
            first_later = opened[0][0] if opened else _ALL
            for segment in reversed(self._segments):
                index = segment.transaction_index
                count, first_later = index.limit_last_stable_offsets(first_later)
                lowered_count += count
                index.release()
            if lowered_count:
                self._is_changed = True
                log.warning(
                    "%d aborted transactions of %s had a last stable offset that was too high: "
                    "consumers with read_committed may have got their records from this replica; "
                    "corrected",
                    lowered_count,
                    self._subdirectory,
                    extra={"event": "aborts.corrected"},
                )

    def _is_followed(self, segment: Segment) -> bool:
        """Whether the next segment begins where this one ends.

        A tail lost at a batch boundary shows only as a gap; Kafka keeps what follows it. Compaction
        makes gaps too, and those are kept, in what was flushed: above it the gap is of lost
        records, and a replica with it would claim to be in sync; unless it is wider than a segment.
        Segments that begin before the end are left from an earlier state: empty ones from an
        interrupted roll, others from before a truncation.
        """
        end = self._state.end_offset
        for following in self._segments[self._segments.index(segment) + 1 :]:
            if following.base_offset < end and following.size == 0:
                self._drop([following])
                continue
            is_kept = (
                end < self._flushed_offset
                or following.base_offset - segment.base_offset > MAX_RELATIVE_OFFSET
            )
            return following.base_offset == end or (
                following.base_offset > end and self._config.is_compacted and is_kept
            )
        return True

    def _check_not_flushed(self, following: list[Segment]) -> None:
        """Raise CorruptMessage when a gap before these segments is below the flushed offset."""
        end = self._state.end_offset
        if following and end < self._flushed_offset:
            raise CorruptMessage(
                f"{self._subdirectory} has no records from offset {end} to "
                f"{following[0].base_offset - 1}, although they were flushed"
            )

    def _drop_before_gap(self) -> None:
        """Delete what a crash brought back of segments that only remote storage should have.

        Names of deleted segments may return one by one, and reads would skip the others.
        """
        numbers = range(len(self._segments) - 1, 0, -1) if self._config.is_tiered else ()
        for number in numbers:
            before = self._segments[number - 1]
            if before.next_offset() < self._segments[number].base_offset:
                self._drop(self._segments[:number])
                self._is_changed = True
                return

    def _drop(self, segments: list[Segment]) -> None:
        """Delete the segments after a torn one."""
        for segment in segments:
            segment.remove_files()
        dropped = {segment.base_offset for segment in segments}
        self._segments = [
            segment for segment in self._segments if segment.base_offset not in dropped
        ]

    def _find_end(self) -> int:
        if not self._segments:
            return 0
        active = self._segments[-1]
        return active.next_offset() if active.size else active.base_offset

    def _start_over(self, log_start_offset: int) -> None:
        """Begin at the log's start, empty: no remaining batch lies above it."""
        self._drop(self._segments[:])
        self._epochs.clear()
        self._state.truncate_fully_and_start_at(log_start_offset)


def _rebuild_producers(
    state: PartitionProducers, segments: list[Segment], start: int, end_offset: int, now_ms: int
) -> None:
    """Replay up to end_offset; without a snapshot from the log's start, which Kafka skips."""
    state.truncate_and_reload(start, end_offset, now_ms)
    files = [segment.readable() for segment in segments]
    replay(segments[0].directory, state, files, start, end_offset)
    state.remove_damaged_snapshots()
    state.write_snapshots()


def _rebuild_indexes(segment: Segment) -> None:
    rebuild_indexes(segment)
    segment.close_files()
