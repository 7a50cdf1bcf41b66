"""The classic groups of one shard: the replayed generations and the live groups.

Kafka: the classic part of org.apache.kafka.coordinator.group.GroupMetadataManager's state.

The table of all groups holds them as replayed, the last complete generation of each. `live` is the
shard's soft state: groups with their pending joins and syncs. A live group is created from the
replayed one on first access and is discarded with the shard; it is hidden while a group of another
kind has its name.
"""

from __future__ import annotations

from types import NoneType
from typing import TYPE_CHECKING

from ottla.coordinator.group.classic import group as records
from ottla.coordinator.group.classic.group import (
    ClassicGroup,
    ClassicMember,
    ClassicState,
    StoredGroup,
)
from ottla.coordinator.runtime.shard import empty_result
from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from ottla.coordinator.group.group_kind import GroupEnvironment
    from ottla.coordinator.group.member_group import Group
    from ottla.coordinator.runtime import CoordinatorRecord, Result
    from ottla.protocol.records.group import GroupMetadataValue


class ClassicGroups:
    """The state and dependencies of the modules of this package."""

    name = ClassicGroup.group_type
    states = ClassicState

    def __init__(self, environment: GroupEnvironment, new_uuid: Callable[[], str]) -> None:
        self.config = environment.config
        self.timers = environment.timers
        self.clock = environment.clock
        self.table = environment.table
        self.new_uuid = new_uuid
        self.live: dict[str, ClassicGroup] = {}
        self.rebalances = 0
        """Completed join phases since the shard was loaded."""

    @property
    def member_bytes(self) -> int:
        """The size of the metadata of all members."""
        return sum(group.member_bytes for group in self.live.values())

    def find(self, group_id: str) -> ClassicGroup | None:
        """Return the group; None if it does not exist."""
        stored = self.table.get(group_id)
        if stored is not None and type(stored) is not StoredGroup:
            return None
        return self.live.get(group_id) or self.revive(group_id, stored)

    def revive(self, group_id: str, stored: StoredGroup | None) -> ClassicGroup | None:
        """Return a live group of a replayed one; None without one."""
        if stored is None:
            return None
        if stored.generation is None:
            return self._create(group_id)
        group = self.live[group_id] = group_of(group_id, stored.generation)
        return group

    def shown(self) -> list[ClassicGroup]:
        """Return the live groups that no group of another kind hides."""
        return [
            group
            for group_id, group in self.live.items()
            if type(self.table.get(group_id)) in (StoredGroup, NoneType)
        ]

    def check_deletion(self, group: Group) -> None:
        """Raise NON_EMPTY_GROUP for a group with members."""
        if not group.is_empty:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def group_tombstones(self, group: Group) -> list[CoordinatorRecord]:
        """Return the record that removes a group."""
        return [records.group_tombstone(group.group_id)]

    def get(self, group_id: str) -> ClassicGroup:
        """Return the group; raises GROUP_ID_NOT_FOUND."""
        group = self.find(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return group

    def get_or_create(self, group_id: str) -> ClassicGroup:
        """Return the group; create an empty one if it does not exist."""
        group = self.find(group_id)
        if group is None:
            group = self._create(group_id)
        return group

    def _create(self, group_id: str) -> ClassicGroup:
        group = ClassicGroup(group_id, ClassicState.EMPTY, self.clock.now_ms())
        self.live[group_id] = group
        return group

    def replace(self, group: ClassicGroup) -> None:
        """Add a live group in the place of an older one."""
        self.timers.cancel(join_key(group.group_id))
        self.timers.cancel(sync_key(group.group_id))
        self.live[group.group_id] = group

    def discard(self, group: ClassicGroup) -> None:
        """Remove a live group, unless another one has its place, with its timers."""
        group_id = group.group_id
        if self.live.get(group_id) is not group:
            return
        del self.live[group_id]
        self.timers.cancel(join_key(group_id))
        self.timers.cancel(sync_key(group_id))
        for member_id in (*group.members, *group.pending_join):
            self.timers.cancel(heartbeat_key(group_id, member_id))

    def remove_empty(self, group_id: str) -> None:
        """Discard an empty live group with its pending members; their ids become unknown."""
        group = self.live.get(group_id)
        if group is None or not group.is_in(ClassicState.EMPTY):
            return
        del self.live[group_id]
        self.timers.cancel(join_key(group_id))
        for member_id in group.pending_join:
            self.timers.cancel(heartbeat_key(group_id, member_id))

    def schedule_heartbeat(
        self,
        group: ClassicGroup,
        member_id: str,
        delay_ms: int,
        expire: Callable[[ClassicGroups, str, str], Result[None]],
    ) -> None:
        """Expire the member after delay_ms, unless its session is restarted."""
        group_id = group.group_id
        self.timers.schedule(
            heartbeat_key(group_id, member_id),
            delay_ms,
            lambda: expire(self, group_id, member_id) if group_id in self.live else empty_result(),
        )


def heartbeat_key(group_id: str, member_id: str) -> Hashable:
    """Return the key of a member's session timer."""
    return "heartbeat", group_id, member_id


def join_key(group_id: str) -> Hashable:
    """Return the key of the timer that ends a group's join phase."""
    return "join", group_id


def sync_key(group_id: str) -> Hashable:
    """Return the key of the timer that ends a group's sync phase."""
    return "sync", group_id


def group_of(group_id: str, value: GroupMetadataValue) -> ClassicGroup:
    """Return the live group of a stored generation: Stable with members, else Empty."""
    timestamp_ms = value.current_state_timestamp
    group = ClassicGroup(
        group_id,
        ClassicState.STABLE if value.members else ClassicState.EMPTY,
        None if timestamp_ms == -1 else timestamp_ms,
    )
    group.generation_id = value.generation
    group.protocol_type = value.protocol_type or None
    group.protocol_name = value.protocol
    group.leader_id = value.leader
    for stored in value.members:
        timeout_ms = stored.rebalance_timeout
        group.add(
            ClassicMember(
                member_id=stored.member_id,
                group_instance_id=stored.group_instance_id,
                client_id=stored.client_id,
                client_host=stored.client_host,
                rebalance_timeout_ms=stored.session_timeout if timeout_ms == -1 else timeout_ms,
                session_timeout_ms=stored.session_timeout,
                protocol_type=value.protocol_type,
                protocols=((value.protocol or "", stored.subscription),),
                assignment=stored.assignment,
            ),
            None,
        )
    group.read_subscriptions()
    return group
