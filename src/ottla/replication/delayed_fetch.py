"""A fetch that waits for enough bytes, for a change of a partition, or for its timeout.

Kafka: kafka.server.DelayedFetch. Hot path: benchmarks/against_kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.purgatory.purgatory import DelayedOperation
from ottla.storage.log.append_info import FetchIsolation

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.replication.partition import Partition
    from ottla.storage.log.partition_log import PartitionLog


# constants of the module: access to the members of an enum is slow
_LOG_END: Final = FetchIsolation.LOG_END
_COMMITTED: Final = FetchIsolation.TXN_COMMITTED


class DelayedFetch(DelayedOperation):
    """Watches partitions, each from the offset at which it reads."""

    def __init__(
        self,
        deadline_ms: int,
        partitions: dict[Partition, int],
        missing_bytes: int,
        answer: Callable[[], None],
        *,
        isolation: FetchIsolation = FetchIsolation.HIGH_WATERMARK,
    ) -> None:
        """Watch the end that isolation selects: log end, high watermark or last stable offset."""
        super().__init__(deadline_ms)
        self.partitions = partitions
        self._missing_bytes = missing_bytes
        self._answer = answer
        self._isolation = isolation
        self._sizes = {partition: partition.log.size_bytes for partition in partitions}
        self._followed: dict[Partition, int] = {}
        """Leader epochs of the partitions that a consumer reads from this broker as a follower."""

    def add(self, partition: Partition, fetch_offset: int, size_bytes: int) -> None:
        """Watch another partition; size_bytes is the size of its log when it became idle."""
        self.partitions[partition] = fetch_offset
        self._sizes[partition] = size_bytes
        if not partition.is_leader:
            self._followed[partition] = partition.leader_epoch

    def try_complete(self) -> bool:
        """Complete when a partition has another leader or has failed, or the missing bytes came.

        Also when a fetch offset lies in a segment before the active one, which grows no further.
        """
        return self._is_ready() and self.force_complete()

    def _is_ready(self) -> bool:
        grown_bytes = 0
        for partition, fetch_offset in self.partitions.items():
            log = partition.log
            if log.failure is not None or (
                not partition.is_leader and self._has_changed(partition, fetch_offset)
            ):
                return True
            end_offset = self._end_offset(log)
            if end_offset > fetch_offset:
                segments = log.segments
                if fetch_offset < segments.active.base_offset and segments.number_for(
                    fetch_offset
                ) < segments.number_for(end_offset):
                    return True
                grown_bytes += max(1, log.size_bytes - self._sizes[partition])
                if grown_bytes >= self._missing_bytes:
                    return True
        return False

    def _end_offset(self, log: PartitionLog) -> int:
        """Return where reads end now."""
        isolation = self._isolation
        if isolation is _LOG_END:
            return log.log_end_offset
        return log.last_stable_offset if isolation is _COMMITTED else log.high_watermark

    def _has_changed(self, partition: Partition, fetch_offset: int) -> bool:
        """Whether a partition that is led elsewhere has another leader epoch than at the start.

        Also when its log was truncated below the offset, which the consumer has to learn.
        """
        if self._task is None:  # the first attempt, before the wait
            self._followed[partition] = partition.leader_epoch
        is_same = self._followed.get(partition) == partition.leader_epoch
        return not is_same or fetch_offset > partition.log.log_end_offset

    def on_complete(self) -> None:
        """Read again and respond with what is available."""
        self._answer()
