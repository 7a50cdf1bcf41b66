"""What a share partition measures: sizes of batches in flight, and how long fetches occupy it.

Kafka: org.apache.kafka.server.share.metrics.SharePartitionMetrics,
SharePartition.{maybeAcquireFetchLock, releaseFetchLock, recordFetchLockRatioMetric}.
"""

from __future__ import annotations

from ottla.metrics.samples import Recent


class ShareMeasures:
    """Distributions since the share partition was opened.

    In Kafka a fetch locks a share partition while it reads its log. Here it does not: the time from
    the read to the acquisition, or to the decision to wait, takes the lock's place.
    """

    __slots__ = ("_released_ms", "batch_sizes", "lock_ratios", "lock_times_ms")

    def __init__(self) -> None:
        self.batch_sizes = Recent()
        self.lock_times_ms = Recent()
        self.lock_ratios = Recent()
        """What percentage of the time since the last fetch this one took."""
        self._released_ms: int | None = None

    def fetched(self, begin_ms: int, end_ms: int) -> None:
        """Record that a fetch occupied the share partition."""
        held_ms = end_ms - begin_ms
        idle_ms = 0 if self._released_ms is None else begin_ms - self._released_ms
        self._released_ms = end_ms
        self.lock_times_ms.add(held_ms)
        if idle_ms >= 0:
            self.lock_ratios.add(_percentage(held_ms, idle_ms))


def _percentage(held_ms: int, idle_ms: int) -> int:
    """Return Kafka's figure; it counts less than a millisecond as one."""
    if not held_ms + idle_ms:
        return 100
    return int((held_ms / (held_ms + idle_ms) if held_ms else 1 / idle_ms) * 100)
