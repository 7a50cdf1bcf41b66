"""Lookups across all groups of a shard, whatever their type.

Kafka: org.apache.kafka.coordinator.group.Group and its lookups in GroupMetadataManager.

Only classic groups are implemented.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.coordinator.group import records
from ottla.coordinator.group.classic.group import ClassicGroup, ClassicState
from ottla.coordinator.group.classic.groups import join_key
from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.coordinator.group.classic.groups import ClassicGroups
    from ottla.coordinator.group.offsets.committed import Offsets
    from ottla.coordinator.runtime import CoordinatorRecord


class Groups:
    """Groups with members, and simple groups that only have offsets."""

    def __init__(self, classic: ClassicGroups, offsets: Offsets) -> None:
        self.classic = classic
        self.offsets = offsets

    def find(self, group_id: str) -> ClassicGroup | None:
        """Return the group; a group with offsets only is a simple classic group without members."""
        group = self.classic.find(group_id)
        if group is None and (group_id in self.offsets.by_group or self._has_staged(group_id)):
            group = self.classic.get_or_create(group_id)
        return group

    def get(self, group_id: str) -> ClassicGroup:
        """Return the group; raises GROUP_ID_NOT_FOUND."""
        group = self.find(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return group

    def exists_at(self, group_id: str, epoch: int) -> bool:
        """Whether the group exists in the committed state."""
        return (
            group_id in self.classic.stored.at(epoch)
            or group_id in self.offsets.by_group.at(epoch)
            or bool(self.offsets.staged_of_group(group_id, epoch))
        )

    def ids_at(self, epoch: int) -> list[str]:
        """Return the ids of all groups in the committed state, in order of appearance."""
        known = dict.fromkeys(self.classic.stored.at(epoch))
        known.update(dict.fromkeys(self.offsets.by_group.at(epoch)))
        return list(known)

    def ids(self) -> list[str]:
        """Return the ids of all groups, including live ones that are not in the log yet."""
        known = dict.fromkeys(self.classic.stored)
        known.update(dict.fromkeys(self.offsets.by_group))
        known.update(dict.fromkeys(self.classic.live))
        return list(known)

    def tombstones(self, group: ClassicGroup) -> list[CoordinatorRecord]:
        """Return the records that delete an empty group, and cancel its timers."""
        assert group.is_in(ClassicState.EMPTY)
        self.classic.timers.cancel(join_key(group.group_id))
        if group.group_id not in self.classic.stored and not group.pending_join:
            self.classic.live.pop(group.group_id, None)
        return [records.group_tombstone(group.group_id)]

    def _has_staged(self, group_id: str) -> bool:
        return self.offsets.has_staged(group_id)
