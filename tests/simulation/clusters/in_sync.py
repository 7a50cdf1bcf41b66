"""Who is in sync, by the newest metadata that are committed, has all that is committed.

The next leader may be any of them, also one that its leader no longer waits for. Looked at when the
metadata change the ISR, and when a leader commits with another ISR than that of the metadata.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.types import Uuid

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.metadata.delta import MetadataDelta
    from ottla.metadata.image.image import MetadataImage
    from ottla.replication.partition import Partition
    from ottla.server.node.node import Node
    from tests.simulation.clusters.committed_logs import CommittedLog
    from tests.simulation.clusters.joins import Joins


class InSync:
    """Takes note of what the newest metadata changes, and checks it when the turn is over."""

    def __init__(self, logs: dict[tuple[bytes, int], CommittedLog], joins: Joins) -> None:
        """Take what is committed, by topic id and partition, and who hears of changed ISRs."""
        self._logs = logs
        self._joins = joins
        self._offset = -1
        """Of the newest metadata."""
        self._image: MetadataImage | None = None
        self._changed: set[tuple[bytes, int]] = set()

    def image_changed(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Take note of a change; those that other nodes had before are known."""
        if image.offset_and_epoch.offset <= self._offset:
            return
        self._offset, self._image = image.offset_and_epoch.offset, image
        for topic_id, partitions in delta.partitions_changed.items():
            topic = image.topics.by_id.get(topic_id)
            for index, before in partitions.items():
                self._changed.add((topic_id, index))
                if topic is not None and before is not None:
                    self._joins.changed((topic_id, index), before, topic.partitions[index])

    def committed(self, partition: Partition) -> None:
        """Take note that a leader has committed records."""
        key = partition.topic_id, partition.topic_partition.partition
        topic = self._image and self._image.topics.by_id.get(key[0])
        found = topic and topic.partitions.get(key[1])
        if (
            found
            and found.leader_epoch == partition.leader_epoch
            and found.isr != partition.isr
            and not set(found.isr) <= set(partition.isr)
        ):
            self._changed.add(key)

    def check(self, nodes: Iterable[Node]) -> None:
        """Check the partitions of which the metadata have changed in this turn."""
        if not self._changed or self._image is None:
            return
        changed, self._changed = self._changed, set()
        registered = self._image.cluster.brokers
        running = {
            node.config.node_id: node
            for node in nodes
            if node.config.node_id in registered
            and node._lifecycle.broker_epoch == registered[node.config.node_id].broker_epoch
        }
        for topic_id, index in sorted(changed):
            committed = self._logs.get((topic_id, index))
            topic = self._image.topics.by_id.get(Uuid(topic_id))
            if committed is None or topic is None or index not in topic.partitions:
                continue
            found = topic.partitions[index]
            for member in found.isr:
                node = running.get(member)
                held = node and node.broker.replicas.by_topic_id.get(topic_id, {}).get(index)
                if not held or held.log.failure is not None:
                    continue
                assert held.log.log_end_offset >= committed.end_offset, (
                    f"node {member} is in sync in {committed.name} and ends at "
                    f"{held.log.log_end_offset}; {committed.end_offset} is committed: {found}"
                )
