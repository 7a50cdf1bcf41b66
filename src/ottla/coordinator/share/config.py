"""The settings of the share coordinator, with Kafka's defaults.

Kafka: org.apache.kafka.coordinator.share.ShareCoordinatorConfig.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ShareCoordinatorConfig:
    """Each field's comment is its name in the broker's configuration; times in milliseconds."""

    num_partitions: int = 50  # share.coordinator.state.topic.num.partitions
    updates_per_snapshot: int = 500  # share.coordinator.snapshot.update.records.per.snapshot
    write_timeout_ms: int = 5_000  # share.coordinator.write.timeout.ms
    cold_snapshot_interval_ms: int = 300_000  # share.coordinator.cold.partition.snapshot…
    load_buffer_bytes: int = 5_242_880  # share.coordinator.load.buffer.size
    prune_interval_ms: int = 300_000  # share.coordinator.state.topic.prune.interval.ms
