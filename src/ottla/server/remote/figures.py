"""What a broker counts and measures of its remote logs, for its metrics.

Kafka: org.apache.kafka.storage.log.metrics.BrokerTopicMetrics, its part of remote storage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.storage.remote.segment import SegmentState

if TYPE_CHECKING:
    from ottla.storage.log.partition_log import PartitionLog
    from ottla.storage.remote.partition_segments import PartitionSegments
    from ottla.storage.remote.retention import Expiry

_WITH_DATA: Final = (SegmentState.COPY_SEGMENT_FINISHED, SegmentState.DELETE_SEGMENT_STARTED)


class RemoteCounts:
    """What happened to one topic since the start."""

    __slots__ = (
        "build_count",
        "copied_bytes",
        "copy_count",
        "delete_count",
        "failed_build_count",
        "failed_copy_count",
        "failed_delete_count",
        "failed_read_count",
        "read_bytes",
        "read_count",
    )

    def __init__(self) -> None:
        self.copied_bytes = self.copy_count = self.failed_copy_count = 0
        self.delete_count = self.failed_delete_count = 0
        self.read_bytes = self.read_count = 0
        self.failed_read_count = 0
        """Searches by time included."""
        self.build_count = self.failed_build_count = 0
        """Followers' states that were built from the tier."""


class RemoteSizes:
    """The sizes of one partition that this broker leads, as of its last turn."""

    __slots__ = (
        "computation_ms",
        "copy_lag_bytes",
        "copy_lag_segments",
        "delete_lag_bytes",
        "delete_lag_segments",
        "local_retention_percent",
        "metadata_count",
        "partition",
        "retention_percent",
        "size_bytes",
        "topic",
    )

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.copy_lag_bytes = self.copy_lag_segments = 0
        """Of sealed segments that the tier does not have."""
        self.delete_lag_bytes = self.delete_lag_segments = 0
        """Of remote segments that have expired."""
        self.metadata_count = self.size_bytes = 0
        self.computation_ms = 0
        """How long the last expiry took to find what has expired."""
        self.retention_percent = self.local_retention_percent = 0

    def measure_copies(self, log: PartitionLog) -> None:
        """Take what is to be copied; nothing where copies are disabled."""
        self.copy_lag_bytes = self.copy_lag_segments = 0
        if log.config.is_copied_to_tier:
            local = [one for one in log.segments if one.base_offset > log.highest_remote_offset]
            self.copy_lag_bytes = sum(one.size for one in local) - log.segments.active.size
            self.copy_lag_segments = len(local) - 1

    def measure_expiry(self, log: PartitionLog, table: PartitionSegments, expiry: Expiry) -> None:
        """Take what an expiry found.

        The share of local.retention.bytes is known without retention.bytes, too, unlike Kafka's.
        """
        segments = table.segments()
        self.metadata_count = len(segments)
        self.size_bytes = sum(one.size_bytes for one in segments if one.state in _WITH_DATA)
        self.delete_lag_segments = len(expiry.segments)
        self.delete_lag_bytes = sum(one.size_bytes for one in expiry.segments)
        config = log.config
        self.retention_percent = _percent(expiry.total_bytes, config.retention_bytes)
        local_bytes = sum(segment.size for segment in log.segments)
        self.local_retention_percent = _percent(local_bytes, config.disk_retention_bytes)

    def segment_deleted(self, size_bytes: int) -> None:
        """Take the deletion of an expired segment."""
        self.delete_lag_segments -= 1
        self.delete_lag_bytes -= size_bytes


def _percent(size_bytes: int, limit_bytes: int) -> int:
    return size_bytes * 100 // limit_bytes if limit_bytes > 0 else 0
