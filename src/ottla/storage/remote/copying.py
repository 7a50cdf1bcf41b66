"""The segments of a log that are to be copied to remote storage, and their files.

Kafka: RemoteLogManager.RLMCopyTask.{candidateLogSegments, copyLogSegment}.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.storage.layout import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
)
from ottla.storage.log.leader_epochs import LeaderEpochs
from ottla.storage.remote.segment import RemoteSegment, SegmentState
from ottla.storage.remote.storage_manager import LocalFile, SegmentFiles

if TYPE_CHECKING:
    from ottla.storage.log.partition_log import PartitionLog
    from ottla.storage.segments.segment import Segment
    from ottla.types import Uuid


class SegmentToCopy(NamedTuple):
    """A local segment to be copied; `read` is for a worker, all else was taken on the loop."""

    segment: Segment
    """An object of its own over the files."""
    end_offset: int
    """The offset after its last one."""
    leader_epochs: tuple[tuple[int, int], ...]
    snapshot_path: str
    lineage: bytes

    def read(self) -> tuple[int, SegmentFiles]:
        """Return the largest timestamp and the files; OSError when one cannot be read."""
        segment = self.segment
        with segment.opened():
            max_timestamp_ms = segment.max_timestamp
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
