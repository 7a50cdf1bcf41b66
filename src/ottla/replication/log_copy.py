"""Appends to and truncations of a log that copies another one.

Kafka: Partition.appendRecordsToFollowerOrFutureReplica;
AbstractFetcherThread.getOffsetTruncationState (KIP-101, KIP-279, KIP-595).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.storage.log.append_info import UnexpectedAppendOffset

if TYPE_CHECKING:
    from ottla.storage.log.append_info import AppendInfo
    from ottla.storage.log.partition_log import PartitionLog
    from ottla.storage.log.truncation import RemoteState
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


class Cut(NamedTuple):
    """A truncation that a follower has to apply before it continues to fetch."""

    end_offset: int
    epoch: int | None = None
    """The leader's epoch that ends there; None: truncate there whatever the log's epochs are."""
    is_restart: bool = False
    """Whether the log is emptied and begins there."""
    before: RemoteState | None = None
    """What the records before have left, where remote storage has them."""

    def target(self, log: PartitionLog) -> int:
        """Return an offset below which everything stays."""
        if self.is_restart:
            return 0
        if self.epoch is None:
            return self.end_offset
        return diverging_target(log, self.epoch, self.end_offset)

    def apply(self, log: PartitionLog, now_ms: int) -> None:
        """Truncate the log."""
        if self.is_restart:
            log.truncation.truncate_fully_and_start_at(
                self.end_offset, now_ms=now_ms, before=self.before
            )
        elif self.epoch is None:
            log.truncation.truncate_to(self.end_offset, now_ms=now_ms)
        else:
            cut_to_diverging(log, self.epoch, self.end_offset, now_ms)


def diverging_target(log: PartitionLog, epoch: int, end_offset: int) -> int:
    """Return where to cut: at the end of the largest epoch up to the leader's that the log has.

    Where that is an older epoch the next fetch finds how much of it the leader has.
    """
    own_end, own_epoch = log.epoch_end_offset(epoch)
    if own_epoch < 0:
        own_end = log.log_end_offset
    target = min(own_end, log.log_end_offset)
    if own_epoch in (epoch, -1):
        target = min(target, end_offset)
    return target


def cut_to_diverging(log: PartitionLog, epoch: int, end_offset: int, now_ms: int) -> None:
    """Cut the log to its `diverging_target`."""
    target = diverging_target(log, epoch, end_offset)
    log.truncation.truncate_to(target, now_ms=now_ms)


def cut_without_epochs(log: PartitionLog) -> Cut | None:
    """Return the cut of a log that holds no leader epoch to its high watermark; None for others."""
    if log.latest_epoch >= 0 or log.log_end_offset <= log.high_watermark:
        return None
    return Cut(log.high_watermark)
