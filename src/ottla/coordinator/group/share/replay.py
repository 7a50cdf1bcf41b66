"""Replay of the records of share groups.

Kafka: GroupMetadataManager.replay of the ShareGroup* records.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from ottla.coordinator.group import replaying
from ottla.coordinator.group.share.group import InProgress, StatePartitions, TopicParts
from ottla.coordinator.group.share.member import ShareMember
from ottla.protocol.records import share_group as schemas

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.coordinator.group.replaying import Replays
    from ottla.coordinator.group.share.group import ShareGroup
    from ottla.coordinator.group.share.groups import ShareGroups
    from ottla.types import Uuid


def replay(groups: ShareGroups, key: Any, value: Any, offset: int) -> str | None:
    """Apply a record and return its group; None for the records of other kinds of groups."""
    if value is not None and isinstance(key, schemas.ShareGroupStatePartitionMetadataKey):
        _state_partitions(groups.restore(key.group_id), value, groups.clock.now_ms(), offset)
        return key.group_id
    return replaying.apply_record(groups, _REPLAYS, key, value)


def _state_partitions(group: ShareGroup, value: Any, now_ms: int, offset: int) -> None:
    known = group.state_partitions or StatePartitions()
    in_progress = [
        InProgress(topic.topic_id, index)
        for topic in value.initializing_topics
        for index in topic.partitions
    ]
    in_progress += (InProgress(topic.topic_id) for topic in value.deleting_topics)
    group.set_state_partitions(
        StatePartitions(
            _topics(value.initializing_topics, now_ms),
            _topics(value.initialized_topics, now_ms),
            frozenset(one.topic_id for one in value.deleting_topics),
            {one: known.since.get(one, offset) for one in in_progress},
        )
    )


def _without_state_partitions(group: ShareGroup, _key: Any, _value: None) -> None:
    group.set_state_partitions(None)


def _epoch(group: ShareGroup, _key: Any, value: Any) -> None:
    group.set_epoch(value.epoch, value.metadata_hash)


def _member(group: ShareGroup, key: Any, value: Any) -> None:
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


def _target_member(group: ShareGroup, key: Any, value: Any) -> None:
    target = None if value is None else _partitions(value.topic_partitions)
    group.set_target(key.member_id, target)


def _current(group: ShareGroup, key: Any, value: Any) -> None:
    """Apply a member's assignment; a tombstone resets the member, as one that has just joined."""
    members = group.members
    member = members.get(key.member_id)
    if value is None:
        if member is not None:
            fresh = ShareMember(key.member_id)
            members[key.member_id] = replace(
                member,
                member_epoch=fresh.member_epoch,
                previous_member_epoch=fresh.previous_member_epoch,
                assigned=fresh.assigned,
            )
        return
    members[key.member_id] = replace(
        member or ShareMember(key.member_id),
        member_epoch=value.member_epoch,
        previous_member_epoch=value.previous_member_epoch,
        assigned=_partitions(value.assigned_partitions),
    )


def _partitions(topics: Iterable[Any]) -> dict[Uuid, tuple[int, ...]]:
    return {one.topic_id: tuple(sorted(one.partitions)) for one in topics}


def _topics(topics: Iterable[schemas.TopicPartitionsInfo], now_ms: int) -> dict[Uuid, TopicParts]:
    return {
        one.topic_id: TopicParts(one.topic_name, frozenset(one.partitions), now_ms)
        for one in topics
    }


_REPLAYS: Final[Replays] = {
    schemas.ShareGroupMetadataKey: _epoch,
    schemas.ShareGroupMemberMetadataKey: _member,
    schemas.ShareGroupTargetAssignmentMetadataKey: replaying.target_epoch,
    schemas.ShareGroupTargetAssignmentMemberKey: _target_member,
    schemas.ShareGroupCurrentMemberAssignmentKey: _current,
    schemas.ShareGroupStatePartitionMetadataKey: _without_state_partitions,
}
