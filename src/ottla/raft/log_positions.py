"""How two metadata logs agree: where they diverge, where to cut, when a snapshot is needed.

Kafka: org.apache.kafka.raft.RaftLog.{validateOffsetAndEpoch, truncateToEndOffset},
KafkaRaftLog.endOffsetForEpoch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.storage.log.leader_epochs import LeaderEpochs
    from ottla.types import OffsetAndEpoch


class LogExtent(NamedTuple):
    """From where to where a log goes, and its epochs."""

    epochs: LeaderEpochs
    start_offset: int
    end: OffsetAndEpoch
    """The end offset and the epoch of the last record."""
    snapshots: Sequence[OffsetAndEpoch]
    """Oldest first."""


def end_of_epoch(log: LogExtent, epoch: int) -> OffsetAndEpoch:
    """Return the newest epoch up to this one that the log knows, and the offset of its end."""
    found = log.epochs.end_offset_for(epoch, log.end.offset)
    if found.leader_epoch < 0:
        return log.end
    if log.snapshots:
        oldest = log.snapshots[0]
        if found.offset == oldest.offset and found.leader_epoch == epoch:
            return oldest  # the records of the epoch are in the snapshot alone
    return found


def divergence(log: LogExtent, offset: int, epoch: int) -> OffsetAndEpoch | None:
    """Return where the log's records of an epoch end, if that is not at offset or later."""
    if offset == 0 and epoch == 0 and log.start_offset == 0:
        return None
    end = end_of_epoch(log, epoch)
    return end if end.leader_epoch != epoch or end.offset < offset else None


def needs_snapshot(log: LogExtent, offset: int, epoch: int) -> bool:
    """Whether a replica should begin with the newest snapshot.

    It must when the log no longer holds what it lacks; with an empty log it is quicker.
    """
    if not log.snapshots:
        return False
    if offset == 0:
        return log.snapshots[-1].offset > 0
    if log.start_offset == 0:
        return False
    oldest, start = log.snapshots[0], log.start_offset
    return (
        offset < start
        or (offset == start and epoch != oldest.leader_epoch)
        or epoch < oldest.leader_epoch
    )


def truncation_offset(log: LogExtent, diverging: OffsetAndEpoch) -> int:
    """Return where to cut the log so that it agrees with a leader's answer."""
    if diverging.leader_epoch == 0:
        return min(diverging.offset, log.end.offset)
    own = end_of_epoch(log, diverging.leader_epoch)
    if own.leader_epoch == diverging.leader_epoch:
        return min(own.offset, diverging.offset)
    return own.offset
