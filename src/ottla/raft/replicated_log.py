"""The metadata log on this node's disk with its snapshots.

Kafka: org.apache.kafka.raft.internals.KafkaRaftLog.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.errors import CorruptMessage
from ottla.protocol.records.raft import SnapshotHeaderRecord
from ottla.raft.control_records import decode_control_message
from ottla.raft.snapshot import (
    SNAPSHOT_MODE,
    SUFFIX,
    decode_snapshot,
    parse_snapshot_name,
    snapshot_name,
)
from ottla.records.batch import iterate_batches
from ottla.storage.log.append_info import FetchIsolation
from ottla.storage.log.config import LogConfig
from ottla.storage.log.partition_log import PartitionLog
from ottla.types import METADATA_TOPIC_ID, FileSlice, OffsetAndEpoch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ottla.raft.snapshot import SnapshotContent
    from ottla.records.batch import RecordBatch
    from ottla.storage.directory import Directory
    from ottla.storage.log.flush import FlushJob
    from ottla.types import Buffer

METADATA_LOG: Final = "__cluster_metadata-0"
READ_BYTES: Final = 8 * 1024 * 1024
_HEAD_BYTES: Final = 1 << 16
_LEFTOVERS: Final = (".part", ".deleted", ".tmp")


class ReplicatedLog:
    """Owns the directory `__cluster_metadata-0` but for quorum-state."""

    __slots__ = ("_directory", "log", "snapshots")

    def __init__(self, directory: Directory, log: PartitionLog) -> None:
        self._directory = directory
        self.log = log
        self.snapshots: list[OffsetAndEpoch] = []
        """Ids of the snapshots on disk, oldest first."""

    @classmethod
    def open(
        cls,
        directory: Directory,
        *,
        now_ms: int,
        segment_bytes: int = 1 << 30,
        segment_ms: int = 7 * 24 * 3_600_000,
    ) -> ReplicatedLog:
        """Recover the log from its disk; CorruptMessage when it contradicts its snapshots."""
        directory.make(METADATA_LOG)
        snapshots = sorted(_find_snapshots(directory))
        latest = snapshots[-1].offset if snapshots else 0
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
            recovery_point=latest,  # everything below was durable before the snapshot was made
        )
        self = cls(directory, log)
        self.snapshots = snapshots
        if log.log_end_offset < latest:
            log.truncate_fully_and_start_at(latest, now_ms=now_ms)
        return self

    @property
    def end_offset(self) -> int:
        """The offset of the next record."""
        return self.log.log_end_offset

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
        info = self.log.append_as_follower(data, leader_epoch=epoch, now_ms=now_ms)
        assert info is not None, "a batch of a newer epoch than its leader's"

    def start_flush(self, now_ms: int) -> FlushJob | None:
        """Hand out what makes the log durable, None when it is."""
        return self.log.start_flush(now_ms)

    def flush_completed(self, job: FlushJob, error: OSError | None = None) -> None:
        """Take note of a finished flush; raises when it failed, and then nothing may go on."""
        self.log.flush_completed(job, error)

    def close(self, *, is_to_be_flushed: bool) -> None:
        """Give every descriptor back; KAFKA_STORAGE_ERROR when the last flush fails."""
        try:
            if is_to_be_flushed:
                self.log.close_now()
        finally:
            self.log.release()

    def update_high_watermark(self, offset: int) -> None:
        """Take note of what is committed."""
        self.log.update_high_watermark(offset)

    def read(self, offset: int) -> Iterator[RecordBatch]:
        """Yield whole batches from offset to the end; CorruptMessage for a wrong checksum."""
        while offset < self.end_offset:
            found = self.log.read(
                offset, READ_BYTES, isolation=FetchIsolation.LOG_END, min_one_message=True
            ).records
            view = found.read() if isinstance(found, FileSlice) else found
            before = offset
            for batch in iterate_batches(view, partial_tail=True):
                if batch.last_offset < offset:
                    continue
                batch.check_crc()
                yield batch
                offset = batch.next_offset
            if offset == before:
                raise CorruptMessage(f"the metadata log cannot be read at offset {offset}")

    def read_snapshot(self, snapshot_id: OffsetAndEpoch) -> SnapshotContent:
        """Return a snapshot's content; CorruptMessage when it is damaged."""
        return decode_snapshot(self._directory.read_file(_path(snapshot_id)))

    def newest_readable_snapshot(self) -> tuple[OffsetAndEpoch, SnapshotContent] | None:
        """Return the newest snapshot that is whole; an older one serves while the log reaches it.

        CorruptMessage when one that is damaged or missing cannot be done without.
        """
        damage: CorruptMessage | None = None
        for snapshot_id in reversed(self.snapshots):
            if snapshot_id.offset < self.start_offset:
                break
            try:
                return snapshot_id, self.read_snapshot(snapshot_id)
            except CorruptMessage as error:
                damage = damage or error
        if self.start_offset > 0:
            raise damage or CorruptMessage(
                f"the metadata log begins at offset {self.start_offset}, and no snapshot holds "
                "what was before"
            )
        return None

    def snapshot_writer(
        self, snapshot_id: OffsetAndEpoch, parts: Sequence[Buffer]
    ) -> tuple[Callable[[], None], Callable[[], None]]:
        """Return (the job that writes the file durably, what to call when it has)."""
        directory, path = self._directory, _path(snapshot_id)

        def write() -> None:
            directory.write_file_atomically(path, b"".join(parts), mode=SNAPSHOT_MODE)

        def written() -> None:
            if snapshot_id not in self.snapshots:
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
            or 0 <= max_age_ms < now_ms - self._snapshot_timestamp(self.snapshots[0])
        ):
            oldest = self.snapshots.pop(0)
            self._directory.remove(_path(oldest))
            dropped += 1
        if dropped or (self.snapshots and 0 <= max_bytes < self._size()):
            self.delete_before(self.snapshots[0].offset, now_ms=now_ms)
        return dropped

    def _snapshot_timestamp(self, snapshot_id: OffsetAndEpoch) -> int:
        """Return when the last record in a snapshot was made, in ms."""
        file = self._directory.open(_path(snapshot_id))
        try:
            head = file.read(0, _HEAD_BYTES)
        finally:
            file.close()
        for batch in iterate_batches(head, partial_tail=True):
            message = decode_control_message(batch.records()[0])
            if isinstance(message, SnapshotHeaderRecord):
                return message.last_contained_log_timestamp
        return 0

    def delete_before(self, offset: int, *, now_ms: int) -> None:
        """Let go of the log below offset, which a snapshot holds."""
        if offset <= self.log.log_start_offset:
            return
        active = self.log.segments.active
        if active.base_offset < offset and active.base_offset < self.end_offset:
            self.log.roll(now_ms)
        self.log.delete_records_before(offset)
        self.log.delete_old_segments(now_ms)

    def remove_deleted(self, now_ms: int) -> None:
        """Remove the files of segments that were let go a while ago."""
        for segment in self.log.take_removable(now_ms):
            segment.remove_files()

    def _size(self) -> int:
        return self.log.size_bytes + sum(
            self._directory.size(_path(snapshot_id)) for snapshot_id in self.snapshots
        )


def _path(snapshot_id: OffsetAndEpoch) -> str:
    return f"{METADATA_LOG}/{snapshot_name(snapshot_id)}"


def _find_snapshots(directory: Directory) -> Iterator[OffsetAndEpoch]:
    """Yield the snapshots' ids, removing what a crash left half-written."""
    for name in directory.list(METADATA_LOG):
        snapshot_id = parse_snapshot_name(name)
        if snapshot_id is not None:
            yield snapshot_id
        elif any(name.endswith(SUFFIX + leftover) for leftover in _LEFTOVERS):
            directory.remove(f"{METADATA_LOG}/{name}")
