"""Lookups across all groups of a shard, whatever their type.

Kafka: org.apache.kafka.coordinator.group.Group and its lookups in GroupMetadataManager.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.coordinator.group import records
from ottla.coordinator.group.classic.group import ClassicGroup
from ottla.coordinator.group.consumer import records as consumer_records
from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.coordinator.group.classic.groups import ClassicGroups
    from ottla.coordinator.group.consumer.group import ConsumerGroup
    from ottla.coordinator.group.consumer.groups import ConsumerGroups
    from ottla.coordinator.group.offsets.committed import Offsets
    from ottla.coordinator.runtime import CoordinatorRecord


class Groups:
    """Groups with members, and simple groups that only have offsets."""

    def __init__(self, classic: ClassicGroups, consumer: ConsumerGroups, offsets: Offsets) -> None:
        self.classic = classic
        self.consumer = consumer
        self.offsets = offsets

    def find(self, group_id: str) -> ClassicGroup | ConsumerGroup | None:
        """Return the group; None if it does not exist."""
        return self.consumer.find(group_id) or self.classic.find(group_id)

    def get(self, group_id: str) -> ClassicGroup | ConsumerGroup:
        """Return the group; raises GROUP_ID_NOT_FOUND."""
        group = self.find(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return group

    def exists_at(self, group_id: str, epoch: int) -> bool:
        """Whether the group exists in the committed state."""
        return (
            group_id in self.classic.stored.at(epoch)
            or group_id in self.classic.simple.at(epoch)
            or group_id in self.consumer.by_id.at(epoch)
        )

    def ids_at(self, epoch: int) -> list[str]:
        """Return the ids of all groups in the committed state, in order of appearance."""
        known = dict.fromkeys(self.classic.stored.at(epoch))
        known.update(dict.fromkeys(self.classic.simple.at(epoch)))
        known.update(dict.fromkeys(self.consumer.by_id.at(epoch)))
        return list(known)

    def ids(self) -> list[str]:
        """Return the ids of all groups, including live ones that are not in the log yet."""
        known = dict.fromkeys(self.classic.stored)
        known.update(dict.fromkeys(self.classic.simple))
        known.update(dict.fromkeys(self.classic.live))
        known.update(dict.fromkeys(self.consumer.by_id))
        return list(known)

    def tombstones(self, group: ClassicGroup | ConsumerGroup) -> list[CoordinatorRecord]:
        """Return the records that remove a group, without its offsets."""
        if isinstance(group, ClassicGroup):
            return [records.group_tombstone(group.group_id)]
        return consumer_records.group_tombstones(group)
