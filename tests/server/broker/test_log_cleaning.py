"""Compaction on a node: the last value of each key is left, also after a restart."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ottla.testing.cluster import Cluster
from ottla.testing.kafka import Kafka

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CLEANER = {"log.cleaner.backoff.ms": "20", "log.cleaner.threads": "2"}
COMPACTED = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": "2000",
    "min.cleanable.dirty.ratio": "0.01",
    "file.delete.delay.ms": "0",
}


def _eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _size(cluster: Cluster, topic: str) -> int:
    return cluster.run(lambda node: node.broker.replicas.get(topic, 0).log.size_bytes)


def _last_values(kafka: Kafka, topic: str) -> dict[bytes | None, bytes | None]:
    return {one.key: one.value for one in kafka.topic(topic).records()}


def test_a_topic_is_compacted_while_it_is_used(tmp_path: Path) -> None:
    """Keyed records, rolled segments, a cleaning; a consumer reads the last value of each key."""
    with (
        Cluster(config=CLEANER, data_dir=str(tmp_path)) as cluster,
        Kafka(cluster) as kafka,
    ):
        topic = kafka.topic("t", config=COMPACTED, exact=True)
        keys = [f"k{number % 5}" for number in range(400)]
        for start in range(0, 400, 20):
            topic.produce([f"value {start + n}" for n in range(20)], keys=keys[start : start + 20])
        _eventually(lambda: _size(cluster, "t") < 4000)
        expected = {f"k{number % 5}".encode(): f"value {number}".encode() for number in range(400)}
        assert {one.key: one.value for one in topic.records()} == expected
        assert len(topic.records()) < 100
        cluster.restart()
        assert {one.key: one.value for one in topic.records()} == expected
