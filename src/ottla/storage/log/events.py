"""Events of a partition log for the log set that it belongs to.

Kafka: the calls of UnifiedLog to LogManager and the scheduler.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.storage.log.partition_log import PartitionLog


class LogEvents(NamedTuple):
    """Callbacks of one set of logs; each gets the log."""

    flush_requested: Callable[[PartitionLog], object]
    """The log has changes that are to be flushed soon."""
    flush_overdue: Callable[[PartitionLog], object]
    """flush.messages records are not durable: the append is answered after a flush."""
    recovery_point_lowered: Callable[[PartitionLog], object]
    """A truncation below `recovery_point` begins, no file is touched yet: a durable checkpoint
    above it would, after a crash, take bytes written later for flushed ones."""
    segments_deleted: Callable[[PartitionLog], object]
    """Files of deleted segments are to be removed after file.delete.delay.ms."""
    epoch_assigned: Callable[[PartitionLog], object]
    """The leader epochs have a new entry, which is to be written soon."""


def _ignore(_log: PartitionLog) -> None:
    """Do nothing: a log that is opened alone has no queue of flushes and checkpoints."""


STANDALONE: Final = LogEvents(_ignore, _ignore, _ignore, _ignore, _ignore)
"""For a log that belongs to no set: its owner flushes it and removes deleted segments."""
