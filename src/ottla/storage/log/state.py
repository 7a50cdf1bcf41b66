"""The state of one log, its offsets and its active segment; the base of `PartitionLog`.

Kafka: org.apache.kafka.storage.internals.log.{UnifiedLog, LocalLog}.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.errors import ErrorCode, KafkaError
from ottla.records.crc32c import crc32c
from ottla.storage.directories.partition_metadata import (
    PARTITION_METADATA,
    encode_partition_metadata,
)
from ottla.storage.directory import join
from ottla.storage.disk_errors import is_exhaustion
from ottla.storage.log.rules import validation_rules
from ottla.storage.segments.segment import Segment

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.storage.directory import Directory
    from ottla.storage.log.config import LogConfig
    from ottla.storage.log.recovery import LoadedLog
    from ottla.types import OffsetAndEpoch, TopicPartition, Uuid


class LogState:
    """Offsets: start <= last stable <= high watermark <= end."""

    def __init__(
        self,
        directory: Directory,
        name: str,
        *,
        topic_partition: TopicPartition,
        topic_id: Uuid | None,
        config: LogConfig,
        loaded: LoadedLog,
    ) -> None:
        self.directory = directory
        self.name = name
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.segments = loaded.segments
        self.producer_state = loaded.producer_state
        self.leader_epochs = loaded.leader_epochs
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = loaded.log_end_offset
        self.high_watermark = loaded.log_start_offset
        self.recovery_point = loaded.recovery_point
        self.size_bytes = sum(segment.size for segment in loaded.segments)
        self.truncated_bytes = loaded.truncated_bytes
        self.failure: OSError | None = None
        self.is_deleted = False
        self.held_back_count = 0
        """Segments that the last check left although retention.ms is over: the clock stepped."""
        self.on_flush_requested: Callable[[LogState], None] = _nobody
        """Called when something waits that `start_flush` should make durable soon."""
        self.on_flush_overdue: Callable[[LogState], None] = _nobody
        """Called when a leader's append leaves flush.messages records that are not durable: it is
        not to be answered before a flush."""
        self._first_unstable_offset = self.producer_state.first_unstable_offset
        self.on_recovery_point_lowered: Callable[[LogState], None] = _nobody
        """Called before a truncation below `recovery_point` touches a file: a durable checkpoint
        above it would, after a crash, take bytes written later for flushed ones."""
        self._active_is_prepared = False
        self._metadata_is_durable = topic_id is None
        self._names_version = 1
        self._durable_names_version = 0
        self._generation = 0
        self.is_flushing = False
        self._removals: list[tuple[int, Segment]] = []
        self._last_flush_ms = 0
        self.reconfigure(config)
        active = self.segments.active
        active.roll_jitter_ms = _jitter(name, active.base_offset, config)

    def reconfigure(self, config: LogConfig) -> None:
        """Take new settings; they hold from the next append on."""
        self.config = config
        self._rules = validation_rules(config, str(self.topic_partition))
        self.producer_state.producer_id_expiration_ms = config.producer_id_expiration_ms
        for segment in self.segments:
            segment.index_interval_bytes = config.index_interval_bytes

    def assign_topic_id(self, topic_id: Uuid) -> None:
        """Give a log its topic id; KafkaError INCONSISTENT_TOPIC_ID when it has another."""
        if self.topic_id is not None and self.topic_id != topic_id:
            raise KafkaError(
                ErrorCode.INCONSISTENT_TOPIC_ID,
                f"Tried to assign topic ID {topic_id} to log for topic partition "
                f"{self.topic_partition}, but log already contained topic ID {self.topic_id}",
            )
        self.topic_id = topic_id
        self._write_partition_metadata()

    def _write_partition_metadata(self) -> None:
        path = join(self.name, PARTITION_METADATA)
        if self.topic_id is None or self.directory.exists(path):
            return
        data = encode_partition_metadata(self.topic_id)
        self.directory.write_file_atomically(path, data, sync=False)
        self._metadata_is_durable = False
        self.on_flush_requested(self)

    # Offsets

    @property
    def last_stable_offset(self) -> int:
        """The first offset that read_committed consumers may not see."""
        unstable = self._first_unstable_offset
        if unstable is None or unstable >= self.high_watermark:
            return self.high_watermark
        return max(unstable, self.log_start_offset)

    def update_high_watermark(self, offset: int) -> int:
        """Move the high watermark, kept between the log's start and end; return where it is."""
        offset = min(max(offset, self.log_start_offset), self.log_end_offset)
        if offset != self.high_watermark:
            self.high_watermark = offset
            if self._first_unstable_offset is not None:
                self.producer_state.high_watermark_updated(offset)
                self._first_unstable_offset = self.producer_state.first_unstable_offset
        return offset

    @property
    def latest_epoch(self) -> int:
        """The newest leader epoch in the log, -1 without any."""
        return self.leader_epochs.latest_epoch

    def assign_epoch(self, epoch: int, start_offset: int | None = None) -> None:
        """Note that a new leader begins, here when start_offset is None (KAFKA-7415)."""
        start = self.log_end_offset if start_offset is None else start_offset
        if self.leader_epochs.assign(epoch, start):
            self.on_flush_requested(self)

    def epoch_end_offset(self, epoch: int) -> OffsetAndEpoch:
        """Return where the largest epoch at or below this one ends; (-1, -1) when unknown."""
        return self.leader_epochs.end_offset_for(epoch, self.log_end_offset)

    def _refuse(self) -> None:
        if self.is_deleted:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{self.name} is being deleted")
        assert self.failure is not None
        raise self._storage_error("appending to", self.failure) from self.failure

    def _storage_error(self, what: str, error: OSError) -> KafkaError:
        return KafkaError(
            ErrorCode.KAFKA_STORAGE_ERROR, f"Error while {what} {self.topic_partition}: {error}"
        )

    def _undo_roll(self, old: Segment, base_offset: int) -> bool:
        """Remove half a new segment, so that the old one can go on; whether that worked."""
        if old.base_offset == base_offset:
            return False
        self._active_is_prepared = False
        begun = Segment(
            self.directory, self.name, base_offset, config=self.config, now_ms=old.created_ms
        )
        try:
            begun.remove_names()
        except OSError:
            return False
        return True

    def roll(self, now_ms: int, *, base_offset: int | None = None) -> Segment:
        """Begin a new segment and return it; an active segment without data is made anew.

        KAFKA_STORAGE_ERROR when the disk fails, and then the log is fenced: half a new segment
        may lie there.
        """
        base = max(self.log_end_offset if base_offset is None else base_offset, self.log_end_offset)
        old = self.segments.active
        try:
            if old.base_offset == base:
                assert old.size == 0, f"{old} cannot be rolled to its own base"
                old.remove_files()
            else:
                old.become_inactive()
                self.producer_state.end_offset = base
                self.producer_state.take_snapshot()
            segment = Segment.create(
                self.directory, self.name, base, config=self.config, now_ms=now_ms
            )
        except OSError as error:
            self.failure = error
            if is_exhaustion(error) and self._undo_roll(old, base):
                self.failure = None
            raise self._storage_error("rolling", error) from error
        if old.base_offset == base:
            self.segments.remove([old])
        segment.roll_jitter_ms = _jitter(self.name, base, self.config)
        self.segments.add(segment)
        self.log_end_offset = max(self.log_end_offset, base)
        self._active_is_prepared = True
        self._names_version += 1
        self.on_flush_requested(self)
        return segment


def _nobody(_log: LogState) -> None:
    """Stand in for a caller who asks for no flush."""


def _jitter(name: str, base_offset: int, config: LogConfig) -> int:
    """Spread the rolls of many partitions; the same log gives the same jitter.

    Less than segment.ms, as in Kafka: more would roll a segment with every append.
    """
    limit_ms = min(config.segment_jitter_ms, config.segment_ms)
    if limit_ms <= 0:
        return 0
    return crc32c(f"{name}/{base_offset}".encode()) % limit_ms
