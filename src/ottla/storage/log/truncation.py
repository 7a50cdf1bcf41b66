"""Where a log is cut: old segments at the start, diverged batches at the end.

Kafka: UnifiedLog.{deleteOldSegments, maybeIncrementLogStartOffset, truncateTo}.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.errors import ErrorCode, KafkaError
from ottla.storage.log.durability import DurableLog
from ottla.storage.log.recovery import rebuild_producer_state
from ottla.storage.log.retention import segments_to_delete
from ottla.storage.segments.segment import Segment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.storage.log.retention import ClockStep


class TruncatableLog(DurableLog):
    """A log that loses segments by retention and batches by truncation."""

    def delete_old_segments(self, now_ms: int, step: ClockStep | None = None) -> int:
        """Take away what retention gives up and return how many segments.

        Their files are renamed now and go after file.delete.delay.ms. `held_back_count` says how
        many more a step of the clock makes due.
        """
        due, self.held_back_count = segments_to_delete(self, now_ms, step)
        if not due:
            return 0
        try:
            if due[-1] is self.segments.active:
                self.roll(now_ms)
            self._delete_segments(due, now_ms)
        except OSError as error:
            self.failure = error
            raise self._storage_error("deleting segments of", error) from error
        self._advance_start(self.segments[0].base_offset)
        return len(due)

    def _delete_segments(self, segments: Sequence[Segment], now_ms: int) -> None:
        self.segments.remove(segments)
        self._names_version += bool(segments)
        for segment in segments:
            self.size_bytes -= segment.size
            if segment.base_offset in self.producer_state.snapshots:
                self.producer_state.remove_snapshot(segment.base_offset)
            segment.mark_deleted()
            self._removals.append((now_ms + self.config.file_delete_delay_ms, segment))

    def take_removable(self, now_ms: int) -> list[Segment]:
        """Hand out the deleted segments whose delay is over; their files are the caller's."""
        count = 0
        while count < len(self._removals) and self._removals[count][0] <= now_ms:
            count += 1
        taken, self._removals = self._removals[:count], self._removals[count:]
        return [segment for _, segment in taken]

    @property
    def has_deleted_segments(self) -> bool:
        """Whether files of deleted segments still wait for their removal."""
        return bool(self._removals)

    def _advance_start(self, offset: int) -> None:
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.leader_epochs.truncate_from_start(offset)
            self.producer_state.log_start_offset_advanced(offset)
            self._first_unstable_offset = self.producer_state.first_unstable_offset
            self.high_watermark = max(self.high_watermark, offset)
            self.on_flush_requested(self)

    def delete_records_before(self, offset: int) -> int:
        """Move the log's start (DeleteRecords); -1 is the high watermark. Returns the start.

        OFFSET_OUT_OF_RANGE above the high watermark. Segments go with the next retention check.
        """
        target = self.high_watermark if offset == -1 else offset
        if target > self.high_watermark or target < 0:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Cannot increment the log start offset to {target} of partition "
                f"{self.topic_partition} since it is larger than the high watermark "
                f"{self.high_watermark}",
            )
        self._advance_start(target)
        return self.log_start_offset

    def follow_log_start(self, offset: int) -> None:
        """Move a follower's start to the leader's, as far as the log reaches."""
        self._advance_start(min(offset, self.log_end_offset))

    def truncate_to(self, offset: int, *, now_ms: int) -> bool:
        """Cut the log so that offset is the next to be written; return whether anything changed.

        `on_recovery_point_lowered` is called first, which may wait for the disk.
        """
        if offset < 0:
            raise ValueError(f"cannot truncate {self.topic_partition} to offset {offset}")
        if offset >= self.log_end_offset:
            self.leader_epochs.truncate_from_end(offset)
            return False
        if offset < self.segments[0].base_offset:
            self.truncate_fully_and_start_at(offset, now_ms=now_ms)
            return True
        try:
            self._cut(offset, now_ms)
        except OSError as error:
            self.failure = error
            raise self._storage_error("truncating", error) from error
        return True

    def _cut(self, offset: int, now_ms: int) -> None:
        number = self.segments.number_for(offset)
        behind = [self.segments[at] for at in range(number + 1, len(self.segments))]
        target = self.segments[number]
        self._lower_recovery_point(offset)
        self.leader_epochs.truncate_from_end(offset)
        self.log_start_offset = min(self.log_start_offset, offset)
        self._delete_segments(behind, now_ms)
        cut = self._truncate_segment(target, offset, now_ms)
        self.size_bytes -= cut
        rebuild_producer_state(
            self.producer_state, self.segments, self.log_start_offset, offset, now_ms=now_ms
        )
        self._set_end(offset)

    def _lower_recovery_point(self, offset: int) -> None:
        self._generation += 1  # a flush under way must not raise it again
        self.recovery_point = min(self.recovery_point, offset)
        self.on_recovery_point_lowered(self)
        if self.failure is not None:
            raise self.failure

    def _truncate_segment(self, segment: Segment, offset: int, now_ms: int) -> int:
        self._active_is_prepared = False
        return segment.truncate_to(offset, now_ms=now_ms)

    def _set_end(self, offset: int) -> None:
        self.log_end_offset = offset
        self.recovery_point = min(self.recovery_point, offset)
        self._first_unstable_offset = self.producer_state.first_unstable_offset
        self.high_watermark = min(self.high_watermark, offset)
        self.on_flush_requested(self)

    def truncate_fully_and_start_at(self, offset: int, *, now_ms: int) -> None:
        """Drop everything and begin at offset: the log is too far behind its leader's start."""
        try:
            self._lower_recovery_point(min(offset, self.log_start_offset))
            old = list(self.segments)
            for segment in old:
                segment.remove_files()
            self.segments.remove(old)
            self.segments.add(
                Segment.create(self.directory, self.name, offset, config=self.config, now_ms=now_ms)
            )
            self.producer_state.truncate_fully_and_start_at(offset)
        except OSError as error:
            self.failure = error
            raise self._storage_error("truncating", error) from error
        self.leader_epochs.clear()
        self.size_bytes = 0
        self.log_start_offset = self.high_watermark = offset
        self._active_is_prepared = True
        self._names_version += 1
        self._set_end(offset)
