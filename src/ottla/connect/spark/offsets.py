"""The offsets topic as queries read it, and the transactions that a killed driver left.

A query writes the offsets of its source as records of the topic, in the transactions of its rows:
both are there, or neither.

Kafka: none; org.apache.kafka.connect.storage.ConnectorOffsetBackingStore reads the same records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.clients.blocking import Consumer
from ottla.connect.runtime.offsets import OffsetStore
from ottla.spark.checkpoint import Checkpoint
from ottla.spark.cluster import open_cluster
from ottla.spark.exactly_once import ExactlyOnce
from ottla.spark.options import write_options
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class OffsetLog:
    """The committed records of the offsets topic; an `OffsetStorage` that is read alone."""

    def __init__(
        self, topic: str, config: Mapping[str, str], is_stopping: Callable[[], bool] = lambda: False
    ) -> None:
        """Take settings of a connection by Kafka's names, and what ends the wait of `read`."""
        self._is_stopping = is_stopping
        self.entries: dict[bytes | None, bytes | None] = {}
        plain = {**config, "enable.auto.commit": "false", "auto.offset.reset": "earliest"}
        self._all = Consumer(config=plain)
        self._committed = Consumer(config={**plain, "isolation.level": "read_committed"})
        count = len(self._all.partitions_for(topic))
        self._partitions = [TopicPartition(topic, it) for it in range(count)]
        self._committed.assign(self._partitions)

    def read(self) -> None:
        """Read to the end, and wait for transactions that are open there.

        One of them may be this query's own, decided and on its way to be committed.
        """
        ends = self._all.end_offsets(self._partitions)
        while not self._is_stopping() and any(
            self._committed.position(it) < ends[it] for it in self._partitions
        ):
            self.entries.update((it.key, it.value) for it in self._committed.poll(0.2))

    def put(self, entries: Mapping[bytes, bytes | None]) -> None:
        """Refuse: the sink writes them, in the transactions of the rows."""
        raise NotImplementedError

    def store(self) -> OffsetStore:
        """Return the offsets by their meaning, as they are now."""
        self.read()
        return OffsetStore(self)

    def close(self) -> None:
        """Close the connections."""
        self._all.close()
        self._committed.close()


def settle(options: Mapping[str, str], location: str) -> None:
    """Complete the batch that a driver has decided before it died, and abort what it had begun.

    Only then the offsets are those after its rows. The query itself does it later: when it has read
    the offsets already.
    """
    parsed = write_options({**options, "checkpointLocation": location})
    if Checkpoint(location, parsed.hadoop).read_text("metadata") is None:
        return  # a new query
    with open_cluster(parsed.config, api_timeout_ms=parsed.api_timeout_ms) as cluster:
        ExactlyOnce(parsed, location, cluster).begin()
