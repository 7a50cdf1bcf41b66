"""What applications of `ottla.streams` have written, for their tests on Spark."""

from __future__ import annotations

from typing import Any

from ottla import Consumer, TopicPartition


def latest(bootstrap: str, topic: str, count: int) -> dict[str, Any]:
    """Return the last value of each key among the committed records of a topic."""
    with Consumer(
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    ) as consumer:
        consumer.assign([TopicPartition(topic, 0), TopicPartition(topic, 1)])
        found: list[Any] = []
        while len(found) < count:
            found += consumer.poll(1.0)
        assert len(found) == count
    return {str(one.key, "utf-8"): one.value for one in found}
