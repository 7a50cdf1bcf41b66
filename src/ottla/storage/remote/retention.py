"""Selects the remote segments to delete: by time, by size of both tiers, by the log's start.

Kafka: RemoteLogManager.RLMExpirationTask.cleanupExpiredRemoteLogSegments.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.storage.remote.partition_segments import is_in_lineage, with_records
from ottla.storage.remote.segment import SegmentState

if TYPE_CHECKING:
    from typing import Self

    from ottla.storage.log.config import LogConfig
    from ottla.storage.log.partition_log import PartitionLog
    from ottla.storage.log.retention import ClockStep
    from ottla.storage.remote.partition_segments import PartitionSegments
    from ottla.storage.remote.segment import RemoteSegment


class LogPosition(NamedTuple):
    """A leader's log as the expiry of its remote segments sees it."""

    start_offset: int
    end_offset: int
    local_bytes: int
    """Of segments that remote storage does not have."""
    lineage: list[tuple[int, int]]

    @classmethod
    def of(cls, log: PartitionLog, copied_offset: int) -> Self:
        """Return that of a log whose records up to copied_offset are in complete segments."""
        copied_offset = max(copied_offset, log.highest_remote_offset)
        local = (one for one in log.segments if one.base_offset > copied_offset)
        return cls(
            log.log_start_offset,
            log.log_end_offset,
            sum(segment.size for segment in local),
            with_records(log.leader_epochs.entries),
        )


class Expiry(NamedTuple):
    """What has expired of a remote log."""

    segments: list[RemoteSegment]
    """To be deleted, in this order."""
    start_offset: int
    """Where the log begins without them."""
    total_bytes: int
    """Of both tiers before, as retention.bytes counts."""


def expired_segments(
    table: PartitionSegments,
    log: LogPosition,
    config: LogConfig,
    now_ms: int,
    step: ClockStep | None = None,
) -> Expiry:
    """Return what has expired.

    Deletions that were not finished are among them, all below the start or the log's lineage,
    abandoned copies too, and what another leader copied as well. Segments outside of the lineage
    are kept, as long as their epochs could be another leader's. Of segments that are old only
    because the clock jumped, one is deleted: an operator can correct the clock before the next
    turn, as with local segments.
    """
    if not log.lineage:
        return Expiry([], log.start_offset, log.local_bytes)
    first_epoch = log.lineage[0][0]
    start_offset = log.start_offset
    segments = table.segments()
    complete = [one for one in segments if one.state is SegmentState.COPY_SEGMENT_FINISHED]
    replaced = {one.segment_id for one in complete if table.is_replaced(one)}
    counted = [
        one
        for one in complete
        if one.segment_id not in replaced and is_in_lineage(one, log.end_offset, log.lineage)
    ]
    total_bytes = log.local_bytes + sum(one.size_bytes for one in counted)
    excess = 0
    if "delete" in config.cleanup_policy and config.retention_bytes >= 0:
        excess = total_bytes - config.retention_bytes
    is_timed = "delete" in config.cleanup_policy and config.retention_ms >= 0
    expired = []
    is_held_back = False
    for segment in counted:
        newest_ms = segment.max_timestamp_ms
        is_old = is_timed and now_ms - newest_ms > config.retention_ms
        if is_old and step is not None and step.makes_old(newest_ms, now_ms, config.retention_ms):
            is_old, is_held_back = not is_held_back, True
        if segment.end_offset >= start_offset:
            if not is_old and excess < max(segment.size_bytes, 1):
                break
            start_offset = segment.end_offset + 1
        excess -= segment.size_bytes
        expired.append(segment)
    known = {one.segment_id for one in expired}
    expired += [
        one
        for one in segments
        if one.segment_id not in known
        and (
            one.state is SegmentState.DELETE_SEGMENT_STARTED
            or one.segment_id in replaced
            or one.end_offset < start_offset
            or one.leader_epochs[-1][0] < first_epoch
        )
    ]
    return Expiry(expired, start_offset, total_bytes)
