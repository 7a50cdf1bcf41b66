"""The log of one partition: its state, its offsets and its active segment; pure over a Directory.

It never reads a clock and never waits for an fsync: time is an argument and `flushes.start` hands
out the work. One thread owns it. When a write fails the torn tail is cut; when that fails too, or
what lies on disk is no longer what memory holds, the log is fenced: it refuses appends until it is
opened again.

Kafka: org.apache.kafka.storage.internals.log.{UnifiedLog, LocalLog}.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from ottla.errors import ErrorCode, KafkaError, LocalDiskError
from ottla.records.crc32c import crc32c
from ottla.storage.directories.partition_metadata import encode_partition_metadata
from ottla.storage.directory import join
from ottla.storage.disk_errors import is_exhaustion
from ottla.storage.layout import DELETED_SUFFIX, FUTURE_SUFFIX, PARTITION_METADATA
from ottla.storage.log.config import validation_rules
from ottla.storage.log.events import STANDALONE
from ottla.storage.log.flushes import LogFlushes
from ottla.storage.log.leader_epochs import LeaderEpochs
from ottla.storage.log.reads import LogReads
from ottla.storage.log.recovery import LogLoader
from ottla.storage.log.swap_files import replace_segments
from ottla.storage.log.truncation import LogTruncation
from ottla.storage.log.writes import LogWrites
from ottla.storage.segments.segment import Segment
from ottla.types import TopicPartition, Uuid

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from ottla.storage.directory import Directory
    from ottla.storage.log.config import LogConfig
    from ottla.storage.log.events import LogEvents
    from ottla.storage.log.flush import FlushJob
    from ottla.storage.log.recovery import LoadedLog
    from ottla.storage.log.truncation import RemoteState
    from ottla.storage.segments.source import SegmentSource
    from ottla.types import OffsetAndEpoch

log = logging.getLogger("ottla.storage")
TRUNCATION: Final = "truncation"
DELETION: Final = "deletion"
MOVE: Final = "move"
"""Purposes of pauses."""
NO_OFFSET: Final = -1
"""The highest remote offset as long as it is not known: nothing leaves this disk then."""


class PartitionLog:
    """One partition's log; made by `open`. Offsets: start <= last stable <= high watermark <= end.

    Its parts work on it: `writes`, `reads`, `flushes` and `truncation`. They and others change its
    state by its methods alone: no other module assigns to its attributes.
    """

    def __init__(
        self,
        directory: Directory,
        name: str,
        *,
        topic_partition: TopicPartition,
        topic_id: Uuid | None,
        config: LogConfig,
        loaded: LoadedLog,
        events: LogEvents,
    ) -> None:
        self.directory = directory
        self.name = name
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.segments = loaded.segments
        self.readable: SegmentSource = self.segments
        """The segments that reads see."""
        self.producer_state = loaded.producer_state
        self.leader_epochs = loaded.leader_epochs
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = loaded.log_end_offset
        self.high_watermark, self.highest_remote_offset = self.local_log_start_offset, NO_OFFSET
        self.recovery_point = loaded.recovery_point
        self.size_bytes = sum(segment.size for segment in loaded.segments)
        self.truncated_bytes = loaded.truncated_bytes
        self.failure: OSError | None = None
        self.is_deleted = False
        self.is_ready = True
        """Whether appends need no `make_ready`."""
        self.held_back_count = 0
        """Expired segments that the last check kept because the clock jumped."""
        self._on_start_moved: Callable[[], None] | None = None
        self._pauses: set[str] = set()
        self.on_flush_requested = events.flush_requested
        self.on_flush_overdue = events.flush_overdue
        self.on_recovery_point_lowered = events.recovery_point_lowered
        self.on_segments_deleted = events.segments_deleted
        self.on_epoch_assigned = events.epoch_assigned
        self.first_unstable_offset = self.producer_state.first_unstable_offset
        self.active_is_prepared = False
        self.is_new = loaded.is_new
        """Whether no record was ever written: names need not be durable."""
        self.metadata_is_durable = topic_id is None or loaded.is_durable
        self.names_version = 1
        self.durable_names_version = int(loaded.is_durable)
        self.generation = 0
        self.is_cut_durable = True
        """False from a truncation until its flush. Appends are refused then: after a power cut
        bytes that were cut could stand below newer ones."""
        self.is_flushing = False
        self._removals: list[tuple[int, Segment]] = []
        self.last_flush_ms = 0
        self.writes = LogWrites(self)
        self.reads = LogReads(self)
        self.flushes = LogFlushes(self)
        self.truncation = LogTruncation(self)
        self.config = config
        self._apply_config()
        active = self.segments.active
        active.roll_jitter_ms = _jitter(name, active.base_offset, config)

    @classmethod
    def open(  # noqa: PLR0913 - each is a fact about the log that only the caller knows
        cls,
        directory: Directory,
        name: str,
        *,
        config: LogConfig,
        now_ms: int,
        topic_partition: TopicPartition | None = None,
        topic_id: Uuid | None = None,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        clean: bool = False,
        events: LogEvents = STANDALONE,
        on_remaining_segments: Callable[[int], object] | None = None,
    ) -> PartitionLog:
        """Open the directory `name`, made when missing; recover it unless it was closed cleanly.

        OSError when the disk fails. topic_id is written down when the directory is new.
        on_remaining_segments(count) is called with each segment that recovery reads, 0 at the end.
        """
        topic_partition = topic_partition or parse_partition_name(name)
        if not directory.exists(name):
            directory.make(name)
        loaded = LogLoader(
            directory,
            name,
            partition=str(topic_partition),
            config=config,
            now_ms=now_ms,
            on_remaining_segments=on_remaining_segments or (lambda _count: None),
        ).load(recovery_point=recovery_point, log_start_offset=log_start_offset, clean=clean)
        log = cls(
            directory,
            name,
            topic_partition=topic_partition,
            topic_id=topic_id,
            config=config,
            loaded=loaded,
            events=events,
        )
        log.last_flush_ms = now_ms
        log.write_partition_metadata()
        return log

    def __repr__(self) -> str:
        return (
            f"PartitionLog({self.name}, start={self.log_start_offset}, "
            f"hw={self.high_watermark}, end={self.log_end_offset})"
        )

    def reconfigure(self, config: LogConfig) -> None:
        """Apply new settings from the next append on.

        Derived values are computed then: thousands of logs may change in one turn of the loop.
        """
        self.config = config
        self.producer_state.producer_id_expiration_ms = config.producer_id_expiration_ms
        self.is_ready = False

    def _apply_config(self) -> None:
        config = self.config
        self.rules = validation_rules(config, str(self.topic_partition))
        self._applied_config = config
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
        self.write_partition_metadata()

    def write_partition_metadata(self) -> None:
        """Write `partition.metadata` when the topic id is known and the file is not there."""
        path = join(self.name, PARTITION_METADATA)
        if self.topic_id is None or self.directory.exists(path):
            return
        data = encode_partition_metadata(self.topic_id)
        self.directory.write_file_atomically(path, data, sync=False)
        self.metadata_is_durable = False
        if not self.is_new:
            self.on_flush_requested(self)

    # Offsets

    @property
    def last_stable_offset(self) -> int:
        """The first offset that read_committed consumers may not see."""
        unstable = self.first_unstable_offset
        if unstable is None or unstable >= self.high_watermark:
            return self.high_watermark
        return max(unstable, self.log_start_offset)

    @property
    def local_log_start_offset(self) -> int:
        """The first offset on this disk; those before it are in remote storage alone."""
        return max(self.log_start_offset, self.segments.base_offsets[0])

    def update_high_watermark(self, offset: int) -> int:
        """Move the high watermark, kept between the log's start and end; return where it is."""
        if offset < self.log_start_offset:  # noqa: PLR1730 - half the cost of max()
            offset = self.log_start_offset
        if offset > self.log_end_offset:  # noqa: PLR1730 - half the cost of min()
            offset = self.log_end_offset
        if offset != self.high_watermark:
            self.high_watermark = offset
            if self.first_unstable_offset is not None:
                producers = self.producer_state
                if producers.high_watermark_updated(offset):
                    self.first_unstable_offset = producers.first_unstable_offset
        return offset

    @property
    def latest_epoch(self) -> int:
        """The newest leader epoch in the log, -1 without any."""
        return self.leader_epochs.latest_epoch

    def assign_epoch(self, epoch: int, start_offset: int | None = None) -> None:
        """Record where a leader epoch begins: at the end when start_offset is None (KAFKA-7415)."""
        start = self.log_end_offset if start_offset is None else start_offset
        if self.leader_epochs.assign(epoch, start):
            self.on_epoch_assigned(self)

    def epoch_end_offset(self, epoch: int) -> OffsetAndEpoch:
        """Return where the largest epoch at or below this one ends; (-1, -1) when unknown."""
        return self.leader_epochs.end_offset_for(epoch, self.log_end_offset)

    def fail(self, error: OSError | None) -> None:
        """Fence the log: its disk failed."""
        self.failure = error
        self.is_ready = False

    def delete(self) -> None:
        """Refuse appends from now on and close the files; the caller removes them."""
        self.is_deleted = True
        self.is_ready = False
        self.pause(DELETION)
        self.release()

    def make_ready(self) -> None:
        """Apply new settings before an append; KafkaError for a log that takes none.

        It is deleted, it failed, or a truncation is not durable: NOT_LEADER_OR_FOLLOWER then, which
        clients retry.
        """
        if self.is_deleted:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{self.name} is being deleted")
        if self.failure is not None:
            raise self.storage_error("appending to", self.failure) from self.failure
        if not self.is_cut_durable:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"the truncation of {self.topic_partition} is not durable yet",
            )
        if self._applied_config is not self.config:
            self._apply_config()
        self.is_ready = True

    def storage_error(self, what: str, error: OSError) -> KafkaError:
        """Return KAFKA_STORAGE_ERROR, to be raised."""
        return LocalDiskError(f"Error while {what} {self.topic_partition}: {error}")

    def _undo_roll(self, old: Segment, base_offset: int) -> bool:
        """Remove the files of an incomplete new segment; return whether they are gone."""
        if old.base_offset == base_offset:
            return False
        self.active_is_prepared = False
        begun = Segment(
            self.directory, self.name, base_offset, config=self.config, now_ms=old.created_ms
        )
        try:
            begun.remove_names()
        except OSError:
            return False
        return True

    def roll(self, now_ms: int, *, base_offset: int | None = None) -> Segment:
        """Begin a new segment and return it; an active segment without data is recreated.

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
            if not (is_exhaustion(error) and self._undo_roll(old, base)):
                self.fail(error)
            raise self.storage_error("rolling", error) from error
        if old.base_offset == base:
            self.segments.remove([old])
        segment.roll_jitter_ms = _jitter(self.name, base, self.config)
        self.segments.add(segment)
        self.log_end_offset = max(self.log_end_offset, base)
        self.active_is_prepared = self.is_cut_durable
        self.names_changed()
        self.on_flush_requested(self)
        text = "segment rolled in %s at offset %d; the last one has %d bytes"
        log.info(text, self.name, base, old.size, extra={"event": "segment.rolled"})
        return segment

    @property
    def is_future(self) -> bool:
        """Whether it is a future log."""
        return self.name.endswith(FUTURE_SUFFIX)

    def release(self) -> None:
        """Close all files."""
        for segment in self.segments:
            segment.close_files()
        for _, segment in self._removals:
            segment.close_files()

    def release_idle(self) -> int:
        """Close the files of segments not used since the last call; return how many."""
        active = self.segments.active
        return sum(
            segment.release_if_idle(is_active=segment is active) for segment in self.segments
        )

    # Pauses

    @property
    def is_paused(self) -> bool:
        """Whether no segment may be deleted or replaced."""
        return bool(self._pauses)

    def pause(self, purpose: str) -> None:
        """Let no segment be deleted or replaced until `resume`."""
        self._pauses.add(purpose)

    def resume(self, purpose: str) -> None:
        """End a pause; those for other purposes remain."""
        self._pauses.discard(purpose)

    def replace_segments(
        self, old: Sequence[Segment], new: Sequence[Segment], *, generation: int, now_ms: int
    ) -> bool:
        """Put new segments in the place of consecutive closed ones, whose records they hold.

        False while the log is paused, or when it was truncated since it had this generation, or
        retention deleted an old one: the new files are removed then. KAFKA_STORAGE_ERROR when the
        disk fails.
        """
        is_changed = self.generation != generation or not {*self.segments}.issuperset(old)
        try:
            if self.is_paused or is_changed:
                if not self.is_deleted:
                    for segment in new:
                        segment.remove_files()
                return False
            replace_segments(self, old, new, now_ms)
        except OSError as error:
            self.fail(error)
            raise self.storage_error("replacing segments of", error) from error
        self.segments.insert(new)
        self.size_bytes += sum(segment.size for segment in new)
        self.names_changed()
        self.on_flush_requested(self)
        return True

    # Changes of the state, for the parts of the log alone

    def appended(self, end_offset: int, size_bytes: int) -> None:
        """Move the end after bytes were written."""
        self.log_end_offset = self.producer_state.end_offset = end_offset
        self.size_bytes += size_bytes

    def prepare_active(self) -> None:
        """Make the active segment ready for appends; the first one makes names durable."""
        self.segments.active.become_active()
        self.active_is_prepared = True
        if self.is_new:
            self.is_new = False
            self.on_flush_requested(self)

    def transactions_changed(self) -> None:
        """Take the first unstable offset from the producers."""
        self.first_unstable_offset = self.producer_state.first_unstable_offset

    def names_changed(self) -> None:
        """Require that the next flush makes the names of files durable."""
        self.names_version += 1

    def advance_start(self, offset: int) -> None:
        """Move the log's start up; nothing when it is there already."""
        if offset <= self.log_start_offset:
            return
        self.log_start_offset = offset
        self.leader_epochs.truncate_from_start(offset)
        self.producer_state.log_start_offset_advanced(offset)
        self.transactions_changed()
        self.high_watermark = max(self.high_watermark, offset)
        self.on_flush_requested(self)
        if self._on_start_moved is not None:
            self._on_start_moved()

    def copied_to_tier(self, highest_offset: int) -> None:
        """Record that remote storage has all records up to this offset."""
        self.highest_remote_offset = max(self.highest_remote_offset, highest_offset)

    def notify_start_moved(self, callback: Callable[[], None] | None) -> None:
        """Call callback() when the log's start has moved up; None ends that."""
        self._on_start_moved = callback

    def retention_checked(self, held_back_count: int) -> None:
        """Record how many segments retention left although they are due."""
        self.held_back_count = held_back_count

    def retire_segments(
        self, segments: Sequence[Segment], now_ms: int, kept_snapshots: Collection[int] = ()
    ) -> None:
        """Drop segments and rename their files, which are removed after file.delete.delay.ms."""
        if not segments:
            return
        self.segments.remove(segments)
        self.names_changed()
        for segment in segments:
            self.size_bytes -= segment.size
            offset = segment.base_offset
            if offset not in kept_snapshots:
                self.producer_state.retire_snapshot(offset, DELETED_SUFFIX)
            segment.change_suffix(DELETED_SUFFIX)
            self._removals.append((now_ms + self.config.file_delete_delay_ms, segment))
        self.on_segments_deleted(self)

    def take_removable(self, now_ms: int) -> list[Segment]:
        """Return the deleted segments whose delay is over; the caller removes their files."""
        count = 0
        while count < len(self._removals) and self._removals[count][0] <= now_ms:
            count += 1
        taken, self._removals = self._removals[:count], self._removals[count:]
        return [segment for _, segment in taken]

    def take_removal(self, now_ms: int) -> Callable[[], None] | None:
        """Return the job that removes the files of deleted segments whose delay is over, if any.

        For a worker: removing 1 GiB may take a tenth of a second. OSError when the disk fails.
        """
        removable = self.take_removable(now_ms)
        paths = [path for segment in removable for path in segment.close_for_removal()]

        def remove() -> None:
            for path in paths:
                with suppress(FileNotFoundError):  # removed with the partition's directory
                    self.directory.remove(path)

        return remove if paths else None

    @property
    def has_deleted_segments(self) -> bool:
        """Whether files of deleted segments still wait for their removal."""
        return bool(self._removals)

    def lower_recovery_point(self, offset: int) -> None:
        """Lower it before a truncation: a flush under way must not raise it again."""
        self.generation += 1
        self.recovery_point = min(self.recovery_point, offset)

    def cut_begins(self) -> None:
        """Pause the log and refuse appends until the next flush."""
        self.pause(TRUNCATION)
        self.is_cut_durable = self.active_is_prepared = self.is_ready = False

    def end_at(self, offset: int, cut_bytes: int = 0) -> None:
        """Move the end down to offset: the active segment loses so many bytes."""
        self.size_bytes -= cut_bytes
        self.log_end_offset = offset
        self.log_start_offset = min(self.log_start_offset, offset)
        self.recovery_point = min(self.recovery_point, offset)
        self.highest_remote_offset = min(self.highest_remote_offset, offset - 1)
        self.transactions_changed()
        self.high_watermark = min(self.high_watermark, offset)
        self.on_flush_requested(self)

    def restarted(self, segment: Segment, before: RemoteState | None) -> None:
        """Begin again with an empty segment, after all others were retired."""
        base_offset = segment.base_offset
        self.segments.add(segment)
        self.leader_epochs.clear()
        self.log_start_offset = self.high_watermark = base_offset
        self.active_is_prepared = self.is_cut_durable
        self.names_changed()
        self.end_at(base_offset)
        if before is not None:
            self.log_start_offset = before.log_start_offset
            self.leader_epochs.take_over(LeaderEpochs(list(before.epochs)))
            self.leader_epochs.truncate_from_start(before.log_start_offset)
            self.copied_to_tier(base_offset - 1)

    def flush_begins(self, now_ms: int | None = None) -> None:
        """Let no other flush begin; now_ms for one up to the end, from which flush.ms counts."""
        self.is_flushing = True
        if now_ms is not None:
            self.last_flush_ms = max(self.last_flush_ms, now_ms)

    def flush_ended(self) -> None:
        """Let flushes begin again."""
        self.is_flushing = False

    def flush_again(self) -> None:
        """Request the flush again that ran out of descriptors or space."""
        self.last_flush_ms = 0
        self.on_flush_requested(self)

    def flushed(self, job: FlushJob) -> None:
        """Record what a job made durable; nothing when the log was truncated since."""
        if job.generation == self.generation:
            self.recovery_point = max(self.recovery_point, job.offset)
            self.durable_names_version = job.names_version
            if job.rebuild is not None:
                self.producer_state.take_over(job.rebuild.state, self.high_watermark)
                self.transactions_changed()
            self.is_cut_durable = True
            self.resume(TRUNCATION)
        self.producer_state.snapshots_flushed(job.snapshots)
        if job.epochs is not None:
            self.leader_epochs.written(job.epochs_version)
        if job.partition_metadata is not None:
            self.metadata_is_durable = True

    def promoted(self, name: str) -> None:
        """Become the partition's log: its directory has the partition's name now."""
        self.renamed(name)
        self.metadata_is_durable = self.topic_id is None  # its flush makes the name durable
        self.is_new = False

    def renamed(self, name: str) -> None:
        """Follow the partition's directory, which was renamed."""
        self.name = name
        self.producer_state.moved(name)
        for segment in self.segments:
            segment.moved(name)
        for _, segment in self._removals:
            segment.moved(name)


def _jitter(name: str, base_offset: int, config: LogConfig) -> int:
    """Return a jitter that spreads the rolls of many partitions, the same for the same log.

    Less than segment.ms, as in Kafka: more would roll a segment with every append.
    """
    limit_ms = min(config.segment_jitter_ms, config.segment_ms)
    if limit_ms <= 0:
        return 0
    return crc32c(f"{name}/{base_offset}".encode()) % limit_ms


def parse_partition_name(name: str) -> TopicPartition:
    """Return the partition of a directory name such as `topic-0`; ValueError for others."""
    topic, _, partition = name.rpartition("-")
    if not topic or not partition.isdigit():
        raise ValueError(f"{name!r} does not name a partition")
    return TopicPartition(topic, int(partition))
