"""What applications of `ottla.streams` have written, for their tests on Spark."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

from ottla import Consumer, TopicPartition
from tests.waits import read_records


def latest(bootstrap: str, topic: str, count: int) -> dict[str, Any]:
    """Return the last value of each key among the committed records of a topic."""
    with Consumer(
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    ) as consumer:
        consumer.assign([TopicPartition(topic, 0), TopicPartition(topic, 1)])
        found = read_records(consumer, count)
        assert len(found) == count
    return {str(one.key, "utf-8"): one.value for one in found}


def written(bootstrap: str, topic: str) -> dict[str, list[Any]]:
    """Return the committed values, JSON, of each key in a topic of two partitions, in order."""
    places = [TopicPartition(topic, number) for number in (0, 1)]
    found: dict[str, list[Any]] = defaultdict(list)
    with Consumer(bootstrap_servers=bootstrap, isolation_level="read_committed") as consumer:
        consumer.assign(places)
        consumer.seek_to_beginning(*places)
        ends = consumer.end_offsets(places)
        while any(consumer.position(one) < ends[one] for one in places):
            for record in consumer.poll(0.5):
                value = None if record.value is None else json.loads(record.value)
                found["" if record.key is None else record.key.decode()].append(value)
    return dict(found)
