"""Where a follower cuts its log so that it agrees with its leader's.

Kafka: AbstractFetcherThread.getOffsetTruncationState (KIP-101, KIP-279, KIP-595).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.storage.log.partition_log import PartitionLog


def diverging_target(log: PartitionLog, epoch: int, end_offset: int) -> int:
    """Return where to cut: at the end of the largest epoch up to the leader's that the log has.

    When that is an older one the next fetch finds out how much of it the leader has.
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


def cut_without_epochs(log: PartitionLog, now_ms: int) -> bool:
    """Cut a log that holds no leader epoch to its high watermark; whether anything changed."""
    if log.latest_epoch >= 0 or log.log_end_offset <= log.high_watermark:
        return False
    return log.truncation.truncate_to(log.high_watermark, now_ms=now_ms)
