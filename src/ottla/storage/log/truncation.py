"""Where a log is cut: old segments at the start, diverged batches at the end.

Kafka: UnifiedLog.{deleteOldSegments, maybeIncrementLogStartOffset, truncateTo}.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ottla.errors import ErrorCode, KafkaError
from ottla.storage.log.retention import segments_to_delete
from ottla.storage.segments.segment import Segment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.storage.log.partition_log import PartitionLog
    from ottla.storage.log.retention import ClockStep

_log = logging.getLogger("ottla.storage")


class LogTruncation:
    """Removes old segments at the start and diverged batches at the end of one log."""

    __slots__ = ("_log",)

    def __init__(self, log: PartitionLog) -> None:
        self._log = log

    def delete_old_segments(self, now_ms: int, step: ClockStep | None = None) -> int:
        """Delete expired segments and return how many; none while the log is paused.

        Their files are renamed now and go after file.delete.delay.ms. `held_back_count` says how
        many more a step of the clock makes due.
        """
        log = self._log
        if log.is_paused:
            return 0
        due, log.held_back_count = segments_to_delete(log, now_ms, step)
        if not due:
            return 0
        try:
            if due[-1] is log.segments.active:
                log.roll(now_ms)
            self._delete_segments(due, now_ms)
        except OSError as error:
            log.fail(error)
            raise log.storage_error("deleting segments of", error) from error
        self._advance_start(log.segments[0].base_offset)
        _log.info(
            "%d segments of %s deleted by retention, from offset %d on; the log starts at %d now",
            len(due),
            log.name,
            due[0].base_offset,
            log.log_start_offset,
            extra={"event": "segment.deleted"},
        )
        return len(due)

    def _delete_segments(self, segments: Sequence[Segment], now_ms: int) -> None:
        log = self._log
        log.segments.remove(segments)
        log.names_version += bool(segments)
        for segment in segments:
            log.size_bytes -= segment.size
            if segment.base_offset in log.producer_state.snapshots:
                log.producer_state.remove_snapshot(segment.base_offset)
            segment.mark_deleted()
            log.removals.append((now_ms + log.config.file_delete_delay_ms, segment))
        if segments:
            log.on_segments_deleted(log)

    def take_removable(self, now_ms: int) -> list[Segment]:
        """Hand out the deleted segments whose delay is over; their files are the caller's."""
        log = self._log
        count = 0
        while count < len(log.removals) and log.removals[count][0] <= now_ms:
            count += 1
        taken, log.removals = log.removals[:count], log.removals[count:]
        return [segment for _, segment in taken]

    @property
    def has_deleted_segments(self) -> bool:
        """Whether files of deleted segments still wait for their removal."""
        return bool(self._log.removals)

    def _advance_start(self, offset: int) -> None:
        log = self._log
        if offset > log.log_start_offset:
            log.log_start_offset = offset
            log.leader_epochs.truncate_from_start(offset)
            log.producer_state.log_start_offset_advanced(offset)
            log.first_unstable_offset = log.producer_state.first_unstable_offset
            log.high_watermark = max(log.high_watermark, offset)
            log.on_flush_requested(log)
            if log.on_start_moved is not None:
                log.on_start_moved()

    def delete_records_before(self, offset: int) -> int:
        """Move the log's start (DeleteRecords); -1 is the high watermark. Returns the start.

        OFFSET_OUT_OF_RANGE above the high watermark. Segments go with the next retention check.
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
        self._advance_start(target)
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
            self.truncate_fully_and_start_at(offset, now_ms=now_ms)
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
        self._lower_recovery_point(offset)
        log.cut_begins()
        log.leader_epochs.truncate_from_end(offset)
        log.log_start_offset = min(log.log_start_offset, offset)
        log.producer_state.truncate_to(log.log_start_offset, offset, log.high_watermark)
        self._set_end(offset)
        self._delete_segments(later, now_ms)
        log.size_bytes -= target.truncate_to(offset, batch, now_ms=now_ms)

    def lower_recovery_point(self, offset: int) -> None:
        """Lower it before a truncation; a flush under way must not raise it again."""
        log = self._log
        log.generation += 1
        log.recovery_point = min(log.recovery_point, offset)

    def _lower_recovery_point(self, offset: int) -> None:
        log = self._log
        self.lower_recovery_point(offset)
        log.on_recovery_point_lowered(log)
        if log.failure is not None:
            raise log.failure

    def _set_end(self, offset: int) -> None:
        log = self._log
        log.log_end_offset = offset
        log.recovery_point = min(log.recovery_point, offset)
        log.first_unstable_offset = log.producer_state.first_unstable_offset
        log.high_watermark = min(log.high_watermark, offset)
        log.on_flush_requested(log)

    def truncate_fully_and_start_at(self, offset: int, *, now_ms: int) -> None:
        """Drop everything and begin at offset: the log is too far behind its leader's start.

        Appends may follow at once: new files do not mix with what a power cut brings back.
        """
        log = self._log
        try:
            self._lower_recovery_point(0)  # nothing is durable until the new segment's name is
            log.producer_state.truncate_fully_and_start_at(offset)
            self._delete_segments(list(log.segments), now_ms)
            log.segments.add(
                Segment.create(log.directory, log.name, offset, config=log.config, now_ms=now_ms)
            )
        except OSError as error:
            log.fail(error)
            raise log.storage_error("truncating", error) from error
        log.leader_epochs.clear()
        log.log_start_offset = log.high_watermark = offset
        log.active_is_prepared = log.is_cut_durable
        log.names_version += 1
        self._set_end(offset)
