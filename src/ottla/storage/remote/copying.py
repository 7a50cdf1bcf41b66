"""The segments of a log that are to be copied to remote storage, and their files.

Kafka: RemoteLogManager.RLMCopyTask.{candidateLogSegments, copyLogSegment}.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.storage.directory import join
from ottla.storage.layout import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    base_offset_of,
    segment_file_name,
)
from ottla.storage.log.flush import replace_file
from ottla.storage.log.leader_epochs import LeaderEpochs
from ottla.storage.producers.rebuild import SegmentFile, replay
from ottla.storage.producers.snapshot import encode_snapshot
from ottla.storage.producers.state import PartitionProducers
from ottla.storage.remote.segment import RemoteSegment, SegmentState
from ottla.storage.remote.storage_manager import LocalFile, SegmentFiles

if TYPE_CHECKING:
    from ottla.storage.log.partition_log import PartitionLog
    from ottla.storage.segments.segment import Segment
    from ottla.types import Uuid


NEVER_MS: Final = 1 << 62
"""Whoever loads a snapshot drops producers that have expired by then."""


class SegmentToCopy(NamedTuple):
    """A local segment to be copied; `read` is for a worker, all else was taken on the loop."""

    segment: Segment
    """An object of its own over the files."""
    end_offset: int
    """The offset after its last one."""
    leader_epochs: tuple[tuple[int, int], ...]
    snapshot_path: str
    lineage: bytes
    partition_dir: str

    def read(self) -> tuple[int, SegmentFiles]:
        """Return the largest timestamp and the files; OSError when one cannot be read."""
        segment = self.segment
        with segment.opened():
            max_timestamp_ms = segment.max_timestamp
        if not segment.directory.exists(self.snapshot_path):
            self._rebuild_snapshot()
        aborts = segment.path(TRANSACTION_INDEX_SUFFIX)
        has_aborts = segment.directory.exists(aborts) and segment.directory.size(aborts) > 0
        return max_timestamp_ms, SegmentFiles(
            log=self._file(segment.path(LOG_SUFFIX)),
            offset_index=self._file(segment.path(INDEX_SUFFIX)),
            time_index=self._file(segment.path(TIME_INDEX_SUFFIX)),
            transaction_index=self._file(aborts) if has_aborts else None,
            producer_snapshot=self._file(self.snapshot_path),
            leader_epochs=self.lineage,
        )

    def _rebuild_snapshot(self) -> None:
        """Write the snapshot at the segment's end, which is missing, from what lies before it."""
        directory, end_offset = self.segment.directory, self.end_offset
        state = PartitionProducers(
            directory,
            self.partition_dir,
            partition=self.partition_dir,
            producer_id_expiration_ms=NEVER_MS,
        )
        names = directory.list(self.partition_dir)
        state.find_snapshots(names)
        state.snapshots = [offset for offset in state.snapshots if offset < end_offset]
        bases = (base_offset_of(name, LOG_SUFFIX) for name in names)
        segments = []
        for base in sorted(base for base in bases if base is not None and base < end_offset):
            path = join(self.partition_dir, segment_file_name(base, LOG_SUFFIX))
            segments.append(SegmentFile(base, path, directory.size(path)))
        state.load(segments[0].base_offset, 0)
        replay(directory, state, segments, segments[0].base_offset, end_offset)
        with closing(directory.open_directory(self.partition_dir)) as held:
            name = segment_file_name(end_offset, SNAPSHOT_SUFFIX)
            replace_file(held, name, encode_snapshot(state.producers.values()))
            held.sync()

    def _file(self, path: str) -> LocalFile:
        directory = self.segment.directory
        return LocalFile(directory, path, directory.size(path))


def next_candidate(log: PartitionLog, copied_offset: int) -> SegmentToCopy | None:
    """Return the next segment to copy after this offset; None where there is none yet.

    All its records are below the last stable offset, so none of them can be truncated or belongs to
    an open transaction; and they are flushed, and with them the producer snapshot at its end.
    """
    first_offset = max(copied_offset + 1, log.log_start_offset)
    bases = log.segments.base_offsets
    for number in range(len(bases) - 1):
        end_offset = bases[number + 1]
        if end_offset <= first_offset:
            continue
        if end_offset > min(log.last_stable_offset, log.recovery_point):
            return None
        segment = log.segments[number]
        lineage = LeaderEpochs(list(log.leader_epochs.between(-1, end_offset)))
        return SegmentToCopy(
            segment.reopened(log.config),
            end_offset,
            tuple(log.leader_epochs.between(segment.base_offset, end_offset)),
            log.producer_state.snapshot_path(end_offset),
            lineage.encode(),
            log.name,
        )
    return None


def described(
    log: PartitionLog,
    candidate: SegmentToCopy,
    files: SegmentFiles,
    *,
    segment_id: Uuid,
    max_timestamp_ms: int,
    broker_id: int,
    now_ms: int,
) -> RemoteSegment:
    """Return the metadata of a segment whose copy starts."""
    assert log.topic_id is not None, "a tiered topic has an id"
    return RemoteSegment(
        topic_id=log.topic_id,
        topic=log.topic_partition.topic,
        partition=log.topic_partition.partition,
        segment_id=segment_id,
        start_offset=candidate.segment.base_offset,
        end_offset=candidate.end_offset - 1,
        leader_epochs=candidate.leader_epochs,
        size_bytes=files.log.size,
        max_timestamp_ms=max_timestamp_ms,
        broker_id=broker_id,
        event_timestamp_ms=now_ms,
        state=SegmentState.COPY_SEGMENT_STARTED,
        is_transaction_index_empty=files.transaction_index is None,
    )
