"""A fetch that waits until enough bytes can be read, something changes, or its time is over.

Kafka: kafka.server.DelayedFetch. Hot path: benchmarks/against_kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.replication.partition import Partition


class FetchWaiters:
    """Waiting fetches by partition: an append looks only at those that read its partition."""

    def __init__(self) -> None:
        self._waiting: dict[Partition, set[DelayedFetch]] = {}

    def __len__(self) -> int:
        return len(set().union(*self._waiting.values())) if self._waiting else 0

    def watch(self, fetch: DelayedFetch) -> None:
        """Wait for each partition of the fetch."""
        for partition in fetch.partitions:
            self._waiting.setdefault(partition, set()).add(fetch)

    def forget(self, fetch: DelayedFetch) -> None:
        """Stop waiting."""
        for partition in fetch.partitions:
            waiting = self._waiting.get(partition)
            if waiting is not None:
                waiting.discard(fetch)
                if not waiting:
                    del self._waiting[partition]

    def partition_changed(self, partition: Partition) -> None:
        """Try the fetches that wait for a partition whose end, role or existence changed."""
        waiting = self._waiting.get(partition)
        if waiting:
            for fetch in sorted(waiting, key=_by_age):
                fetch.try_complete(partition)


def _by_age(fetch: DelayedFetch) -> int:
    return fetch.sequence


class DelayedFetch:
    """Counts the bytes that have become readable since the fetch found too few."""

    __slots__ = ("_complete", "_is_done", "_missing_bytes", "_sizes", "partitions", "sequence")

    def __init__(
        self,
        sequence: int,
        partitions: dict[Partition, int],
        missing_bytes: int,
        complete: Callable[[], None],
    ) -> None:
        self.sequence = sequence
        self.partitions = partitions
        self._missing_bytes = missing_bytes
        self._complete = complete
        self._is_done = False
        self._sizes = {partition: partition.log.size_bytes for partition in partitions}

    def try_complete(self, changed: Partition) -> None:
        """Answer when the partition is no longer led here or enough bytes came in all of them."""
        if not changed.is_leader:
            self.finish()
            return
        if self._missing_bytes <= 1:
            if changed.log.high_watermark > self.partitions[changed]:
                self.finish()
            return
        if sum(self._grown(partition) for partition in self.partitions) >= self._missing_bytes:
            self.finish()

    def _grown(self, partition: Partition) -> int:
        return max(0, partition.log.size_bytes - self._sizes[partition])

    def finish(self) -> None:
        """Answer with what is there; once."""
        if not self._is_done:
            self._is_done = True
            self._complete()
