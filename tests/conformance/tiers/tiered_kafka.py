"""Real Kafka 4.3.0 with a tier: its test storage, which keeps segments in a directory."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conformance.kafka import Kafka

STORAGE_CLASS = "org.apache.kafka.server.log.remote.storage.LocalTieredStorage"


def tier_properties(kafka: Kafka, tier: Path) -> dict[str, str]:
    """Return the settings of a single node with a tier that looks for work every half second."""
    return {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": STORAGE_CLASS,
        "remote.log.storage.manager.class.path": str(kafka.tiers_jar),
        "remote.log.metadata.manager.listener.name": "PLAINTEXT",
        "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
        "rlmm.config.remote.log.metadata.topic.num.partitions": "2",
        "rsm.config.dir": str(tier),
        "remote.log.manager.task.interval.ms": "500",
        "log.retention.check.interval.ms": "500",
        "log.initial.task.delay.ms": "500",
    }
