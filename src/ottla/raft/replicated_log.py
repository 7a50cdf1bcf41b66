"""The metadata log on this node's disk with its snapshots, and where it agrees with another log.

Kafka: org.apache.kafka.raft.internals.KafkaRaftLog;
org.apache.kafka.raft.RaftLog.{validateOffsetAndEpoch, truncateToEndOffset},
KafkaRaftLog.endOffsetForEpoch.
"""

from __future__ import annotations

from contextlib import closing, suppress
from typing import TYPE_CHECKING, Final

from ottla.errors import CorruptMessage, LocalDiskError
from ottla.protocol.records.raft import SnapshotHeaderRecord
from ottla.raft.log_check import (
    begin_truncation,
    check_log,
    end_truncation,
    finish_truncation,
    read_recovery_point,
    write_recovery_point,
)
from ottla.raft.snapshot import SNAPSHOT_MODE, SnapshotDownload, SnapshotReader, snapshot_name
from ottla.raft.voter_set import decode_control_message
from ottla.records.batches import iterate_batches
from ottla.storage.batches import leading_batches_size
from ottla.storage.layout import (
    DELETED_SUFFIX,
    METADATA_LOG,
    PART_SUFFIX,
    TEMPORARY_SUFFIX,
    Folder,
    file_names,
)
from ottla.storage.log.append_info import FetchIsolation
from ottla.storage.log.config import LogConfig
from ottla.storage.log.partition_log import PartitionLog
from ottla.types import METADATA_TOPIC_ID, FileSlice, OffsetAndEpoch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ottla.raft.voter_set import ControlMessage
    from ottla.records.batch import RecordBatch
    from ottla.storage.directory import Directory
    from ottla.storage.log.flush import FlushJob
    from ottla.types import Buffer


READ_BYTES: Final = 8 * 1024 * 1024
REPLAY_BYTES: Final = 1024 * 1024
"""What a replay reads at once: of a cold disk that takes milliseconds."""
_HEAD_BYTES: Final = 1 << 16
RECOVERY_POINT_INTERVAL_MS: Final = 60_000
RECOVERY_POINT_INTERVAL_RECORDS: Final = 10_000
_LEFTOVER: Final = file_names(Folder.METADATA_LOG, PART_SUFFIX, DELETED_SUFFIX, TEMPORARY_SUFFIX)


class MetadataFlush:
    """A flush of the metadata log; `run` is safe in a worker and raises OSError."""

    __slots__ = ("_directory", "job", "stores_recovery_point")

    def __init__(self, job: FlushJob, directory: Directory, *, stores_recovery_point: bool) -> None:
        self.job = job
        self.stores_recovery_point = stores_recovery_point
        self._directory = directory

    def run(self) -> None:
        """Flush, then store the recovery point when that is due."""
        self.job.run()
        if self.stores_recovery_point:
            write_recovery_point(self._directory, self.job.offset)


class ReplicatedLog:
    """Owns the directory `__cluster_metadata-0` but for quorum-state."""

    __slots__ = (
        "_checked",
        "_directory",
        "_is_storing",
        "_is_truncating",
        "_stored_ms",
        "_stored_recovery_point",
        "log",
        "snapshots",
    )

    def __init__(self, directory: Directory, log: PartitionLog) -> None:
        self._directory = directory
        self.log = log
        self.snapshots: list[OffsetAndEpoch] = []
        """Ids of the snapshots that can be used, oldest first."""
        self._stored_recovery_point = 0
        self._stored_ms = 0
        self._is_storing = False
        self._is_truncating = False
        """Whether the offset of a truncation is stored."""
        self._checked: tuple[OffsetAndEpoch, SnapshotReader] | None = None

    @classmethod
    def open(
        cls,
        directory: Directory,
        *,
        now_ms: int,
        path: str = "",
        segment_bytes: int = 1 << 30,
        segment_ms: int = 7 * 24 * 3_600_000,
    ) -> ReplicatedLog:
        """Recover the log; all of it is durable on return.

        KAFKA_STORAGE_ERROR, before any file is changed, when flushed records are missing or
        damaged; path is the directory's name in its text.
        """
        directory.make(METADATA_LOG)
        finish_truncation(directory)
        checked = check_log(directory, path)
        # Remove what a crash left of snapshots being written or deleted.
        for name in directory.list(METADATA_LOG):
            if _LEFTOVER.fullmatch(name):
                directory.remove(f"{METADATA_LOG}/{name}")
        log = PartitionLog.open(
            directory,
            METADATA_LOG,
            config=LogConfig(
                segment_bytes=segment_bytes,
                segment_ms=segment_ms,
                max_message_bytes=READ_BYTES * 2,
                retention_ms=-1,
            ),
            now_ms=now_ms,
            topic_id=METADATA_TOPIC_ID,
            recovery_point=checked.snapshot_offset,  # a snapshot holds only flushed records
        )
        self = cls(directory, log)
        self.snapshots = checked.snapshots
        if checked.newest is not None:
            self._checked = checked.snapshots[-1], checked.newest
        if checked.begins_at_snapshot:
            log.truncation.truncate_fully_and_start_at(checked.snapshots[-1].offset, now_ms=now_ms)
        elif log.log_end_offset > checked.end_offset:
            log.truncation.truncate_to(checked.end_offset, now_ms=now_ms)
        # Finish a `delete_before` that a crash ended after the epochs, before the segments.
        entries, latest = self.log.leader_epochs.entries, self.latest_snapshot
        if entries and latest is not None and entries[0].start_offset <= latest.offset:
            self.log.update_high_watermark(entries[0].start_offset)
            self.delete_before(entries[0].start_offset, now_ms=now_ms)
        self._make_durable(now_ms)
        # The oldest one has the epoch before the log's start: `needs_snapshot`.
        self._keep_snapshots(
            [snapshot for snapshot in checked.snapshots if snapshot.offset >= log.log_start_offset]
        )
        return self

    def _make_durable(self, now_ms: int) -> None:
        """Flush what recovery left: a batch appended later proves that this is flushed."""
        job = self.log.flushes.start(now_ms)
        if job is None and not self.log.flushes.is_durable:
            raise LocalDiskError(
                "no descriptor was left to flush the metadata log; raise the limit on open files "
                "(ulimit -n), then start again",
            )
        if job is not None:
            error = None
            try:
                job.run()
            except OSError as failure:
                error = failure
            self.log.flushes.completed(job, error)
        self._stored_ms = now_ms
        self._store_recovery_point()

    def _store_recovery_point(self) -> None:
        """Store that all of the log is flushed; waits for the disk."""
        if self.end_offset != read_recovery_point(self._directory):
            write_recovery_point(self._directory, self.end_offset)
        self._stored_recovery_point = self.end_offset

    @property
    def end_offset(self) -> int:
        """The offset of the next record."""
        return self.log.log_end_offset

    @property
    def is_durable(self) -> bool:
        """Whether nothing is left to flush."""
        return self.log.flushes.is_durable

    @property
    def start_offset(self) -> int:
        """The offset of the first record that is still here."""
        return self.log.log_start_offset

    @property
    def latest_snapshot(self) -> OffsetAndEpoch | None:
        """The id of the newest snapshot."""
        return self.snapshots[-1] if self.snapshots else None

    def epoch_at_end(self) -> int:
        """Return the epoch of the last record, 0 in an empty log without snapshots."""
        if self.log.log_end_offset > self.log.log_start_offset:
            return self.log.latest_epoch
        latest = self.latest_snapshot
        return latest.leader_epoch if latest else 0

    def append(self, data: Buffer, *, epoch: int, now_ms: int) -> None:
        """Write a batch that carries its offsets and epoch already."""
        info = self.log.writes.append_as_follower(data, leader_epoch=epoch, now_ms=now_ms)
        assert info is not None, "a batch of a newer epoch than its leader's"

    def append_replicated(
        self, data: Buffer, *, epoch: int, now_ms: int
    ) -> list[tuple[int, ControlMessage]]:
        """Write batches of the leader of an epoch; return their control records with offsets.

        CorruptMessage or UnexpectedAppendOffset, before anything is written, for batches that are
        damaged or do not begin at the end of the log.
        """
        view = memoryview(data)
        batches = list(iterate_batches(view, partial_tail=True))
        if batches and batches[0].base_offset != self.end_offset:
            raise CorruptMessage(
                f"records of the leader begin at offset {batches[0].base_offset}, the metadata log "
                f"ends at {self.end_offset}"
            )
        self.log.writes.append_as_follower(view, leader_epoch=epoch, now_ms=now_ms)
        return [
            (record.offset, decode_control_message(record))
            for batch in batches
            if batch.is_control and batch.last_offset < self.end_offset
            for record in batch.records()
        ]

    def truncate_to(self, offset: int, *, now_ms: int) -> None:
        """Cut the log; committed records are never removed (KAFKA-12460).

        KAFKA_STORAGE_ERROR below the high watermark, or when the disk fails.
        """
        if offset < self.log.high_watermark:
            raise LocalDiskError(
                f"Attempt to truncate to offset {offset}, which is below the current high "
                f"watermark {self.log.high_watermark}",
            )
        if offset < self._stored_recovery_point:
            write_recovery_point(self._directory, offset)
            self._stored_recovery_point = offset
        if offset < self.log.segments.active.base_offset:
            begin_truncation(self._directory, offset)
            self._is_truncating = True
        self.log.truncation.truncate_to(offset, now_ms=now_ms)

    def restart_at(self, snapshot_id: OffsetAndEpoch, *, now_ms: int) -> None:
        """Empty the log: a snapshot that was fetched holds everything below its end."""
        write_recovery_point(self._directory, 0)
        self._stored_recovery_point = 0
        self.log.truncation.truncate_fully_and_start_at(snapshot_id.offset, now_ms=now_ms)
        self.log.update_high_watermark(snapshot_id.offset)
        self._keep_snapshots([snapshot_id])

    def _keep_snapshots(self, kept: list[OffsetAndEpoch]) -> None:
        """Remove the others, when the log is durable.

        After a power cut the log before may be back, which needs the older snapshots.
        """
        others, self.snapshots = self.snapshots, kept
        for other in others:
            if other not in kept:
                self._directory.remove(_path(other))

    def divergence(self, offset: int, epoch: int) -> OffsetAndEpoch | None:
        """Return where this log leaves another one, None when it does not before offset."""
        if offset == 0 and epoch == 0 and self.start_offset == 0:
            return None
        end = self._end_of_epoch(epoch)
        return end if end.leader_epoch != epoch or end.offset < offset else None

    def needs_snapshot(self, offset: int, epoch: int) -> bool:
        """Whether a replica at this position should begin with the newest snapshot.

        It must when the log no longer holds what it lacks; with an empty log it is quicker.
        """
        if not self.snapshots:
            return False
        if offset == 0:
            return self.snapshots[-1].offset > 0
        oldest, start = self.snapshots[0], self.start_offset
        if start == 0:
            return False
        return (
            offset < start
            or (offset == start and epoch != oldest.leader_epoch)
            or epoch < oldest.leader_epoch
        )

    def truncation_offset(self, diverging: OffsetAndEpoch) -> int:
        """Return where to cut this log so that it agrees with the leader's."""
        if diverging.leader_epoch == 0:
            return min(diverging.offset, self.end_offset)
        own = self._end_of_epoch(diverging.leader_epoch)
        if own.leader_epoch == diverging.leader_epoch:
            return min(own.offset, diverging.offset)
        return own.offset

    def _end_of_epoch(self, epoch: int) -> OffsetAndEpoch:
        """Return the newest epoch up to this one that the log knows, and the offset of its end."""
        end = self.log.leader_epochs.end_offset_for(epoch, self.end_offset)
        if end.leader_epoch < 0:
            return OffsetAndEpoch(self.end_offset, self.epoch_at_end())
        if self.snapshots:
            oldest = self.snapshots[0]
            if end.offset == oldest.offset and end.leader_epoch == epoch:
                return oldest  # the records of the epoch are in the snapshot alone
        return end

    def snapshot_size(self, snapshot_id: OffsetAndEpoch) -> int | None:
        """Return the size of a snapshot in bytes, None when there is none."""
        if snapshot_id not in self.snapshots:
            return None
        return self._directory.size(_path(snapshot_id))

    def read_snapshot_part(self, snapshot_id: OffsetAndEpoch, position: int, size: int) -> bytes:
        """Return a part of a snapshot's file."""
        with closing(self._directory.open(_path(snapshot_id))) as file:
            return file.read(position, size)

    def find_bytes(self, offset: int, size: int) -> Buffer | FileSlice:
        """Return whole batches from offset on, at least one; a file slice when it is not cached.

        A worker reads that slice of the pinned file; `whole_batches` cuts the result.
        """
        read = self.log.reads.read(
            offset, size, isolation=FetchIsolation.LOG_END, min_one_message=True
        ).records
        if not isinstance(read, FileSlice):
            return whole_batches(read)
        file, position, size = read
        is_cached: bool = file.is_cached(position, size)  # type: ignore[attr-defined] # a log's own file
        return whole_batches(read.read()) if is_cached else read

    def download(self, snapshot_id: OffsetAndEpoch) -> SnapshotDownload:
        """Return the file of a snapshot that is fetched from the leader."""
        return SnapshotDownload(self._directory, snapshot_id)

    def start_flush(self, now_ms: int) -> MetadataFlush | None:
        """Return the job that makes the log durable, None when it is.

        It also stores the recovery point when that is due. Run it in a worker, then call
        `flush_completed`.
        """
        job = self.log.flushes.start(now_ms)
        if job is None:
            return None
        is_due = (
            now_ms - self._stored_ms >= RECOVERY_POINT_INTERVAL_MS
            or job.offset - self._stored_recovery_point >= RECOVERY_POINT_INTERVAL_RECORDS
        )
        self._is_storing = is_due
        if is_due:
            self._stored_ms = now_ms
        return MetadataFlush(job, self._directory, stores_recovery_point=is_due)

    def flush_completed(self, flush: MetadataFlush, error: OSError | None = None) -> None:
        """Apply a finished flush; KAFKA_STORAGE_ERROR when it failed: the log is fenced then."""
        self._is_storing = False
        self.log.flushes.completed(flush.job, error)
        if error is None and self._is_truncating and self.log.is_cut_durable:
            self._is_truncating = False
            end_truncation(self._directory)
            self.log.names_changed()  # the next flush makes the removal durable
        if error is None and flush.stores_recovery_point:
            self._stored_recovery_point = flush.job.offset

    def close(self, *, is_to_be_flushed: bool) -> None:
        """Close the log; KAFKA_STORAGE_ERROR when the last flush fails."""
        try:
            if is_to_be_flushed:
                self.log.flushes.close_now()
                if self.log.flushes.is_durable and not self._is_storing:
                    self._store_recovery_point()
        except OSError as error:
            raise LocalDiskError(f"Error while closing the metadata log: {error}") from error
        finally:
            self.log.release()

    def update_high_watermark(self, offset: int) -> None:
        """Record what is committed."""
        self.log.update_high_watermark(offset)

    def read(self, offset: int) -> Iterator[RecordBatch]:
        """Yield whole batches from offset to the end; CorruptMessage for a wrong checksum."""
        while offset < self.end_offset:
            read = self.log.reads.read(
                offset, REPLAY_BYTES, isolation=FetchIsolation.LOG_END, min_one_message=True
            ).records
            view = read.read() if isinstance(read, FileSlice) else read
            before = offset
            for batch in iterate_batches(view, partial_tail=True):
                if batch.last_offset < offset:
                    continue
                batch.check_crc()
                yield batch
                offset = batch.next_offset
            if offset == before:
                raise CorruptMessage(f"the metadata log cannot be read at offset {offset}")

    def snapshot_reader(self, snapshot_id: OffsetAndEpoch) -> SnapshotReader:
        """Read a snapshot's file; in a worker, unless it is the one that the start has read."""
        checked, self._checked = self._checked, None
        if checked is not None and checked[0] == snapshot_id:
            return checked[1]
        return SnapshotReader(self._directory.read_file(_path(snapshot_id)), snapshot_id)

    def has_read(self, snapshot_id: OffsetAndEpoch) -> bool:
        """Whether the start has read this snapshot, so that nothing waits for the disk."""
        return self._checked is not None and self._checked[0] == snapshot_id

    @property
    def checked_snapshot(self) -> tuple[OffsetAndEpoch, SnapshotReader] | None:
        """The newest snapshot, which the start has read and found whole, until it is loaded."""
        return self._checked

    def snapshot_writer(
        self, snapshot_id: OffsetAndEpoch, parts: Sequence[Buffer]
    ) -> tuple[Callable[[], None], Callable[[], None]]:
        """Return (the job that writes the file durably, what to call when it has)."""
        directory, path = self._directory, _path(snapshot_id)

        def write() -> None:
            directory.write_file_atomically(path, b"".join(parts), mode=SNAPSHOT_MODE)

        def written() -> None:
            if snapshot_id in self.snapshots:
                return
            if snapshot_id.offset < self.start_offset:  # a newer one was loaded since
                directory.remove(path)
                return
            self.snapshots.append(snapshot_id)
            self.snapshots.sort()

        return write, written

    def clean(self, *, now_ms: int, max_bytes: int, max_age_ms: int) -> int:
        """Drop the oldest snapshots with the log before the next one; return how many.

        As Kafka does it: while log and snapshots hold more than max_bytes (-1: no limit), or the
        oldest snapshot's records are older than max_age_ms; the newest snapshot always stays.
        """
        dropped = 0
        while len(self.snapshots) > 1 and (
            0 <= max_bytes < self._size()
            or 0 <= max_age_ms < now_ms - self._oldest_timestamp(now_ms)
        ):
            oldest = self.snapshots.pop(0)
            self._directory.remove(_path(oldest))
            dropped += 1
        if dropped or (self.snapshots and 0 <= max_bytes < self._size()):
            self.delete_before(self.snapshots[0].offset, now_ms=now_ms)
        return dropped

    def _oldest_timestamp(self, now_ms: int) -> int:
        """Return when the last record in the oldest snapshot was made, at the latest.

        A damaged snapshot, which only a start finds, is older than the one after it.
        """
        for snapshot_id in self.snapshots:
            with suppress(CorruptMessage):
                for batch in iterate_batches(
                    self.read_snapshot_part(snapshot_id, 0, _HEAD_BYTES), partial_tail=True
                ):
                    batch.check_crc()
                    message = decode_control_message(batch.records()[0])
                    if isinstance(message, SnapshotHeaderRecord):
                        return message.last_contained_log_timestamp
                raise CorruptMessage("a snapshot without a header")
        return now_ms

    def delete_before(self, offset: int, *, now_ms: int) -> None:
        """Delete the log below offset, which a snapshot contains."""
        if offset <= self.log.log_start_offset:
            return
        active = self.log.segments.active
        if active.base_offset < offset and active.base_offset < self.end_offset:
            self.log.roll(now_ms)
        self.log.truncation.delete_records_before(offset)
        self.log.truncation.delete_old_segments(now_ms)

    def _size(self) -> int:
        return self.log.size_bytes + sum(
            self._directory.size(_path(snapshot_id)) for snapshot_id in self.snapshots
        )


def _path(snapshot_id: OffsetAndEpoch) -> str:
    return f"{METADATA_LOG}/{snapshot_name(snapshot_id)}"


def whole_batches(data: Buffer) -> Buffer:
    """Return bytes without a batch at their end that is cut off."""
    view = memoryview(data)
    return view[: leading_batches_size(view)]
