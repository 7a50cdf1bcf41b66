"""Lookups across all groups of a shard, whatever their type.

Kafka: org.apache.kafka.coordinator.group.Group and its lookups in GroupMetadataManager.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from ottla.coordinator.group import records
from ottla.coordinator.group.classic.group import ClassicGroup
from ottla.coordinator.group.consumer import records as consumer_records
from ottla.coordinator.group.share import records as share_records
from ottla.coordinator.group.share.group import ShareGroup
from ottla.coordinator.group.streams import records as streams_records
from ottla.coordinator.group.streams.group import StreamsGroup
from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.coordinator.group.classic.groups import ClassicGroups
    from ottla.coordinator.group.consumer.group import ConsumerGroup
    from ottla.coordinator.group.consumer.groups import ConsumerGroups
    from ottla.coordinator.group.offsets.committed import Offsets
    from ottla.coordinator.group.share.groups import ShareGroups
    from ottla.coordinator.group.streams.groups import StreamsGroups
    from ottla.coordinator.runtime import CoordinatorRecord

    AnyGroup: TypeAlias = ClassicGroup | ConsumerGroup | StreamsGroup | ShareGroup


class Groups:
    """Groups with members, and simple groups that only have offsets."""

    def __init__(
        self,
        classic: ClassicGroups,
        consumer: ConsumerGroups,
        streams: StreamsGroups,
        share: ShareGroups,
        offsets: Offsets,
    ) -> None:
        self.classic = classic
        self.consumer = consumer
        self.streams = streams
        self.share = share
        self.offsets = offsets

    def find(self, group_id: str) -> AnyGroup | None:
        """Return the group; None if it does not exist."""
        found = self.consumer.find(group_id) or self.streams.find(group_id)
        return found or self.share.find(group_id) or self.classic.find(group_id)

    def get(self, group_id: str) -> AnyGroup:
        """Return the group; raises GROUP_ID_NOT_FOUND."""
        group = self.find(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return group

    def committer(self, group_id: str) -> ClassicGroup | ConsumerGroup | StreamsGroup | None:
        """Return the group that commits offsets; None if it does not exist.

        GROUP_ID_NOT_FOUND for a share group, which has none.
        """
        if self.share.find(group_id) is not None:
            text = f"Group {group_id} is not a consumer group."
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, text)
        found = self.consumer.find(group_id) or self.streams.find(group_id)
        return found or self.classic.find(group_id)

    def exists_at(self, group_id: str, epoch: int) -> bool:
        """Whether the group exists in the committed state."""
        tables = (self.classic.stored, self.consumer.by_id, self.streams.by_id, self.share.by_id)
        is_stored = any(table.get_at(group_id, epoch) is not None for table in tables)
        return is_stored or group_id in self.classic.simple.at(epoch)

    def ids_at(self, epoch: int) -> list[str]:
        """Return the ids of all groups in the committed state, in order of appearance."""
        known = dict.fromkeys(self.classic.stored.at(epoch))
        known.update(dict.fromkeys(self.classic.simple.at(epoch)))
        known.update(dict.fromkeys(self.consumer.by_id.at(epoch)))
        known.update(dict.fromkeys(self.streams.by_id.at(epoch)))
        known.update(dict.fromkeys(self.share.by_id.at(epoch)))
        return list(known)

    def ids(self) -> list[str]:
        """Return the ids of all groups, including live ones that are not in the log yet."""
        known = dict.fromkeys(self.classic.stored)
        known.update(dict.fromkeys(self.classic.simple))
        known.update(dict.fromkeys(self.classic.live))
        known.update(dict.fromkeys(self.consumer.by_id))
        known.update(dict.fromkeys(self.streams.by_id))
        known.update(dict.fromkeys(self.share.by_id))
        return list(known)

    def tombstones(self, group: AnyGroup) -> list[CoordinatorRecord]:
        """Return the records that remove a group, without its offsets."""
        if isinstance(group, ClassicGroup):
            return [records.group_tombstone(group.group_id)]
        if isinstance(group, StreamsGroup):
            return streams_records.group_tombstones(group)
        if isinstance(group, ShareGroup):
            return share_records.group_tombstones(group)
        return consumer_records.group_tombstones(group)
