"""Replay of the records of share groups.

Kafka: GroupMetadataManager.replay of the ShareGroup* records.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ottla.coordinator.group.share.group import StatePartitions, TopicParts
from ottla.coordinator.group.share.member import LEAVE_EPOCH, ShareMember
from ottla.protocol.records import share_group as schemas

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ottla.coordinator.group.share.groups import ShareGroups
    from ottla.types import Uuid


def replay(groups: ShareGroups, key: Any, value: Any) -> bool:
    """Apply a record; False for the records of other kinds of groups."""
    apply = _REPLAYS.get(type(key))
    if apply is None:
        return False
    if value is not None:
        groups.restore(key.group_id)
    if groups.find(key.group_id) is not None:
        apply(groups, key, value)
    return True


def _group(groups: ShareGroups, key: Any, value: Any) -> None:
    if value is None:
        del groups.by_id[key.group_id]
    else:
        groups.get(key.group_id).set_epoch(value.epoch, value.metadata_hash)


def _member(groups: ShareGroups, key: Any, value: Any) -> None:
    group = groups.get(key.group_id)
    if value is None:
        group.remove(key.member_id)
        return
    known: ShareMember | None = group.members.get(key.member_id)
    group.put(
        replace(
            known or ShareMember(key.member_id),
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            subscribed_topics=tuple(value.subscribed_topic_names),
        )
    )


def _target_epoch(groups: ShareGroups, key: Any, value: Any) -> None:
    epoch, timestamp_ms = -1, 0
    if value is not None:
        epoch, timestamp_ms = value.assignment_epoch, value.assignment_timestamp
    groups.get(key.group_id).set_assignment_epoch(epoch, timestamp_ms)


def _target_member(groups: ShareGroups, key: Any, value: Any) -> None:
    target = groups.get(key.group_id).target
    if value is None:
        target.pop(key.member_id, None)
    else:
        target[key.member_id] = _partitions(value.topic_partitions)


def _current(groups: ShareGroups, key: Any, value: Any) -> None:
    """Apply a member's assignment; a tombstone resets the member, as one that has left."""
    members = groups.get(key.group_id).members
    member = members.get(key.member_id)
    if value is None:
        if member is not None:
            members[key.member_id] = replace(
                member, member_epoch=LEAVE_EPOCH, previous_member_epoch=LEAVE_EPOCH, assigned={}
            )
        return
    members[key.member_id] = replace(
        member or ShareMember(key.member_id),
        member_epoch=value.member_epoch,
        previous_member_epoch=value.previous_member_epoch,
        assigned=_partitions(value.assigned_partitions),
    )


def _state_partitions(groups: ShareGroups, key: Any, value: Any) -> None:
    group = groups.get(key.group_id)
    if value is None:
        group.set_state_partitions(None)
        return
    now_ms = groups.clock.now_ms()
    group.set_state_partitions(
        StatePartitions(
            _topics(value.initializing_topics, now_ms),
            _topics(value.initialized_topics, now_ms),
            frozenset(one.topic_id for one in value.deleting_topics),
        )
    )


def _partitions(topics: Iterable[Any]) -> dict[Uuid, tuple[int, ...]]:
    return {one.topic_id: tuple(sorted(one.partitions)) for one in topics}


def _topics(topics: Iterable[schemas.TopicPartitionsInfo], now_ms: int) -> dict[Uuid, TopicParts]:
    return {
        one.topic_id: TopicParts(one.topic_name, frozenset(one.partitions), now_ms)
        for one in topics
    }


_REPLAYS: dict[type, Callable[[ShareGroups, Any, Any], None]] = {
    schemas.ShareGroupMetadataKey: _group,
    schemas.ShareGroupMemberMetadataKey: _member,
    schemas.ShareGroupTargetAssignmentMetadataKey: _target_epoch,
    schemas.ShareGroupTargetAssignmentMemberKey: _target_member,
    schemas.ShareGroupCurrentMemberAssignmentKey: _current,
    schemas.ShareGroupStatePartitionMetadataKey: _state_partitions,
}
