"""Truncation of a log: expired segments at the start, diverged batches at the end.

Kafka: UnifiedLog.{deleteOldSegments, maybeIncrementLogStartOffset, truncateTo}.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from ottla.errors import ErrorCode, KafkaError
from ottla.storage.layout import LEADER_EPOCH_CHECKPOINT, SNAPSHOT_SUFFIX, segment_file_name
from ottla.storage.log.flush import replace_file
from ottla.storage.log.retention import segments_to_delete
from ottla.storage.segments.segment import Segment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.storage.directory import OpenDirectory
    from ottla.storage.log.leader_epochs import EpochEntry, LeaderEpochs
    from ottla.storage.log.partition_log import PartitionLog
    from ottla.storage.log.retention import ClockStep
    from ottla.storage.producers.entry import ProducerEntry
    from ottla.types import Buffer

_log = logging.getLogger("ottla.storage")


class RemoteState(NamedTuple):
    """What is known of the records of a log that remote storage alone has (KIP-405)."""

    log_start_offset: int
    epochs: Sequence[EpochEntry]
    producers: Sequence[ProducerEntry]
    """Producers after the last of these records."""
    is_written: bool = False
    """Whether the epochs and the snapshot are durable already."""


def write_remote_state(
    held: OpenDirectory, offset: int, snapshot: Buffer, epochs: LeaderEpochs
) -> None:
    """Write what is known at offset durably, before the log begins there; in a worker."""
    replace_file(held, segment_file_name(offset, SNAPSHOT_SUFFIX), snapshot)
    replace_file(held, LEADER_EPOCH_CHECKPOINT, epochs.encode())
    held.sync()


class LogTruncation:
    """Removes old segments at the start and diverged batches at the end of one log."""

    __slots__ = ("_log",)

    def __init__(self, log: PartitionLog) -> None:
        self._log = log

    def delete_old_segments(
        self, now_ms: int, step: ClockStep | None = None, max_count: int | None = None
    ) -> int:
        """Delete expired segments, at most max_count, and return how many.

        None while the log is paused. Their files are renamed now and removed after
        file.delete.delay.ms. `held_back_count` is then the number of segments that are due only
        because of a clock jump; 0 while max_count leaves others for the next call.
        """
        log = self._log
        if log.is_paused:
            return 0
        due, held_back_count = segments_to_delete(log, now_ms, step, max_count)
        log.retention_checked(held_back_count)
        if not due:
            return 0
        try:
            if due[-1] is log.segments.active:
                log.roll(now_ms)
            log.retire_segments(due, now_ms)
        except OSError as error:
            log.fail(error)
            raise log.storage_error("deleting segments of", error) from error
        if log.config.is_copied_to_tier:
            log.on_flush_requested(log)
        else:
            log.advance_start(log.segments[0].base_offset)
        _log.info(
            "%d segments of %s deleted by retention, from offset %d on; the log starts at %d now",
            len(due),
            log.name,
            due[0].base_offset,
            log.local_log_start_offset,
            extra={"event": "segment.deleted"},
        )
        return len(due)

    def delete_records_before(self, offset: int) -> int:
        """Move the log's start (DeleteRecords); -1 is the high watermark. Returns the start.

        OFFSET_OUT_OF_RANGE above the high watermark. The next retention check deletes segments.
        """
        log = self._log
        target = log.high_watermark if offset == -1 else offset
        if target > log.high_watermark or target < 0:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Cannot increment the log start offset to {target} of partition "
                f"{log.topic_partition} since it is larger than the high watermark "
                f"{log.high_watermark}",
            )
        log.advance_start(target)
        return log.log_start_offset

    def truncate_to(self, offset: int, *, now_ms: int) -> bool:
        """Cut the log so that offset is the next to be written; return whether anything changed.

        A batch that holds offset is removed as a whole, and the log ends where it began.
        `on_recovery_point_lowered` is called first, which may wait for the disk. The log is paused
        and takes no appends until a flush, which also rebuilds the producer state.
        KAFKA_STORAGE_ERROR when the disk fails; CorruptMessage, and nothing is changed, when the
        segment cannot be read.
        """
        log = self._log
        if offset < 0:
            raise ValueError(f"cannot truncate {log.topic_partition} to offset {offset}")
        if offset >= log.log_end_offset:
            log.leader_epochs.truncate_from_end(offset)
            return False
        if offset < log.segments[0].base_offset:
            # where remote storage has the records before the segments, the log must not begin at
            # offset: as a leader it would delete them there
            self.truncate_fully_and_start_at(min(offset, log.log_start_offset), now_ms=now_ms)
            return True
        try:
            self._cut(offset, now_ms)
        except OSError as error:
            log.fail(error)
            raise log.storage_error("truncating", error) from error
        return True

    def _cut(self, offset: int, now_ms: int) -> None:
        log = self._log
        number = log.segments.number_for(offset)
        later = [log.segments[at] for at in range(number + 1, len(log.segments))]
        target = log.segments[number]
        batch = target.find_cut(offset)
        if batch is not None:
            offset = min(offset, batch.base_offset)
        kept_end = target.end_before(offset)
        self._lower_recovery_point(kept_end)
        log.cut_begins()
        log.leader_epochs.truncate_from_end(offset)
        start_offset = min(log.log_start_offset, offset)
        log.producer_state.truncate_to(start_offset, offset, log.high_watermark)
        log.end_at(offset, 0 if batch is None else target.size - batch.position)
        log.retire_segments(later, now_ms)
        target.truncate_to(offset, batch, now_ms=now_ms)
        if kept_end < offset:  # in a gap of a compacted log: an empty segment has the end
            log.roll(now_ms, base_offset=offset)

    def _lower_recovery_point(self, offset: int) -> None:
        log = self._log
        log.lower_recovery_point(offset)
        log.on_recovery_point_lowered(log)
        if log.failure is not None:
            raise log.failure

    def truncate_fully_and_start_at(
        self, offset: int, *, now_ms: int, before: RemoteState | None = None
    ) -> None:
        """Drop everything and begin at offset: the leader's log starts after this one's end.

        Or its local log does, and remote storage has what is `before`. For a follower a worker has
        written that durably: after a crash a log that begins at offset without it would not know
        its producers, and as a leader not find what is remote.
        Appends may follow at once: new files do not mix with what a power cut brings back.
        """
        log = self._log
        try:
            self._lower_recovery_point(0)  # nothing is durable until the new segment's name is
            log.retire_segments(list(log.segments), now_ms)
            log.producer_state.truncate_fully_and_start_at(offset)
            if before is not None:
                log.producer_state.adopt_snapshot(
                    offset, before.producers, now_ms, is_written=before.is_written
                )
            segment = Segment.create(
                log.directory, log.name, offset, config=log.config, now_ms=now_ms
            )
        except OSError as error:
            log.fail(error)
            raise log.storage_error("truncating", error) from error
        log.restarted(segment, before)
