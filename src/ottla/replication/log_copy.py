"""Appends to a log that copies another one: a follower's, or the future log of a move.

Kafka: Partition.appendRecordsToFollowerOrFutureReplica.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.storage.log.append_info import UnexpectedAppendOffset

if TYPE_CHECKING:
    from ottla.storage.log.append_info import AppendInfo
    from ottla.storage.log.partition_log import PartitionLog
    from ottla.types import Buffer


def append_copied(
    log: PartitionLog, records: Buffer, *, leader_epoch: int, now_ms: int
) -> AppendInfo | None:
    """Append as `LogWrites.append_as_follower`; an empty log may begin within the first batch.

    The other log's start lies inside that batch then, which is sent as a whole.
    """
    try:
        return log.writes.append_as_follower(records, leader_epoch=leader_epoch, now_ms=now_ms)
    except UnexpectedAppendOffset as error:
        is_empty = log.log_end_offset == log.log_start_offset
        if not is_empty or error.last_offset < log.log_end_offset:
            raise
        log.truncation.truncate_fully_and_start_at(error.first_offset, now_ms=now_ms)
        return log.writes.append_as_follower(records, leader_epoch=leader_epoch, now_ms=now_ms)


def follow_offsets(log: PartitionLog, high_watermark: int, log_start_offset: int) -> None:
    """Adopt the other log's high watermark and start offset, which never decrease."""
    if high_watermark > log.high_watermark:
        log.update_high_watermark(high_watermark)
    if log_start_offset > log.log_start_offset:
        log.truncation.delete_records_before(min(log_start_offset, log.high_watermark))
