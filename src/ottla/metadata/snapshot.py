"""Decides when a snapshot of the image is due, so that the metadata log can be truncated.

Kafka: org.apache.kafka.image.publisher.SnapshotGenerator.
"""

from __future__ import annotations


class SnapshotPolicy:
    """A snapshot is due after `max_bytes` of records, or when the last one is too old.

    max_bytes is metadata.log.max.record.bytes.between.snapshots, max_interval_ms is
    metadata.log.max.snapshot.interval.ms (0 ignores the age).
    """

    __slots__ = ("_bytes", "_last_ms", "max_bytes", "max_interval_ms")

    def __init__(self, *, max_bytes: int, max_interval_ms: int, now_ms: int) -> None:
        self.max_bytes = max_bytes
        self.max_interval_ms = max_interval_ms
        self._bytes = 0
        self._last_ms = now_ms

    def committed(self, size_bytes: int) -> None:
        """Count the bytes of a committed batch."""
        self._bytes += size_bytes

    def due(self, now_ms: int) -> str | None:
        """Return why a snapshot is due, None when it is not."""
        if self._bytes >= self.max_bytes:
            return f"we have replayed at least {self.max_bytes} bytes"
        if self.max_interval_ms and self._bytes and now_ms - self._last_ms >= self.max_interval_ms:
            return f"we have waited at least {self.max_interval_ms // 60_000} minute(s)"
        return None

    def written(self, now_ms: int) -> None:
        """Reset the byte count and the age."""
        self._bytes = 0
        self._last_ms = now_ms
