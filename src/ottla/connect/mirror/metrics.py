"""What a mirror's tasks measure, under the names and tags of Kafka's beans (KIP-382).

A batch counts at once: ages and latencies are those of its oldest and of its newest record.

Kafka: org.apache.kafka.connect.mirror.{MirrorSourceMetrics, MirrorCheckpointMetrics}.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final

from ottla.connect.metrics import MBean
from ottla.connect.runtime.metrics import WINDOW, WindowedValue, monotonic_ms

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ottla.types import TopicPartition

_DOMAIN: Final = "kafka.connect.mirror"


class _Milliseconds(WindowedValue):
    """A time: its last value, and average and extremes of the window."""

    __slots__ = ("_last",)

    def __init__(self) -> None:
        super().__init__(WINDOW)
        self._last = 0.0

    def since(self, timestamps_ms: Sequence[int], wall_ms: int, now_ms: int) -> None:
        """Take the times from the oldest and from the newest timestamp until now."""
        for timestamp_ms in (min(timestamps_ms), max(timestamps_ms)):
            self._last = wall_ms - timestamp_ms
            self.record(self._last, now_ms)

    def attributes(self, name: str, now_ms: int) -> dict[str, float | str]:
        """Return the attributes of a name."""
        return {
            name: self._last,
            f"{name}-min": self.lowest(now_ms),
            f"{name}-max": self.highest(now_ms),
            f"{name}-avg": self.average(now_ms),
        }


class _Copies:
    """The records of one partition."""

    __slots__ = ("age", "count", "latency", "size_bytes")

    def __init__(self) -> None:
        self.count, self.size_bytes = WindowedValue(WINDOW), WindowedValue(WINDOW)
        self.age, self.latency = _Milliseconds(), _Milliseconds()


class MirrorMetrics:
    """The metrics of a mirror's task; `beans` may come from any thread."""

    def __init__(self, source: str, target: str) -> None:
        """Take the aliases of the clusters."""
        self._flow = {"source": source, "target": target}
        self._lock = threading.Lock()
        self._copies: dict[TopicPartition, _Copies] = {}
        self._checkpoints: dict[tuple[str, TopicPartition], _Milliseconds] = {}

    def _of(self, partition: TopicPartition) -> _Copies:
        copies = self._copies.get(partition)
        if copies is None:
            copies = self._copies[partition] = _Copies()
        return copies

    def read(
        self, partition: TopicPartition, timestamps_ms: Sequence[int], size_bytes: int
    ) -> None:
        """Take records of a partition of the target as they come from the source."""
        with self._lock:
            copies, now_ms = self._of(partition), monotonic_ms()
            copies.age.since(timestamps_ms, _wall_ms(), now_ms)
            copies.size_bytes.record(size_bytes, now_ms)

    def wrote(self, by_partition: Mapping[TopicPartition, Sequence[int]]) -> None:
        """Take the timestamps of records that the target has acknowledged."""
        with self._lock:
            now_ms, wall_ms = monotonic_ms(), _wall_ms()
            for partition, timestamps_ms in by_partition.items():
                copies = self._of(partition)
                copies.latency.since(timestamps_ms, wall_ms, now_ms)
                copies.count.record(len(timestamps_ms), now_ms)

    def checkpoint(self, group: str, partition: TopicPartition, timestamp_ms: int) -> None:
        """Take a checkpoint that the target has acknowledged."""
        with self._lock:
            latency = self._checkpoints.setdefault((group, partition), _Milliseconds())
            latency.since((timestamp_ms,), _wall_ms(), monotonic_ms())

    def beans(self) -> list[MBean]:
        """Return the beans of partitions and of groups."""
        with self._lock:
            now_ms = monotonic_ms()
            sources = [self._source_bean(*it, now_ms) for it in self._copies.items()]
            return sources + [
                MBean(
                    _DOMAIN,
                    "MirrorCheckpointConnector",
                    {**self._flow, "group": group, **_tags(partition)},
                    latency.attributes("checkpoint-latency-ms", now_ms),
                )
                for (group, partition), latency in self._checkpoints.items()
            ]

    def _source_bean(self, partition: TopicPartition, of: _Copies, now_ms: int) -> MBean:
        attributes: dict[str, float | str] = {
            "record-count": of.count.total,
            "record-rate": of.count.rate(now_ms),
            "byte-count": of.size_bytes.total,
            "byte-rate": of.size_bytes.rate(now_ms),
            **of.age.attributes("record-age-ms", now_ms),
            **of.latency.attributes("replication-latency-ms", now_ms),
        }
        tags = {**self._flow, **_tags(partition)}
        return MBean(_DOMAIN, "MirrorSourceConnector", tags, attributes)


def _tags(partition: TopicPartition) -> dict[str, str]:
    return {"topic": partition.topic, "partition": str(partition.partition)}


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000
