"""Numbers of partitions of topics that a function names: found in the workers, by the record.

Kafka: org.apache.kafka.streams.processor.internals.StreamsProducer.partitionsFor.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Final

from ottla.spark.cluster import open_cluster
from ottla.spark.options import Options

if TYPE_CHECKING:
    from collections.abc import Mapping

KNOWN_S: Final = 300.0
"""For how long a number is taken as it was found: `metadata.max.age.ms`."""
_known: dict[tuple[str, str], tuple[int, float]] = {}
"""Numbers by the brokers' addresses and the topic, and when they were found: a worker lasts over
many micro-batches."""


class TopicCounts:
    """Finds the number of partitions of a topic; it goes to the workers with the work of stages."""

    def __init__(self, options: Mapping[str, str]) -> None:
        """Take the options of the source and the sink."""
        self._config = Options(options).connection_config()

    def __call__(self, topic: str) -> int:
        """Return the number; KafkaError where there is no such topic, or no answer."""
        place = (self._config["bootstrap.servers"], topic)
        count, found_s = _known.get(place, (0, -math.inf))
        if time.monotonic() - found_s > KNOWN_S:
            count = self._asked(topic)
            _known[place] = count, time.monotonic()
        return count

    def _asked(self, topic: str) -> int:
        with open_cluster(self._config) as cluster:
            return len(cluster.named_topics([topic])[topic].leaders)
