"""Replay of the records of consumer groups.

Kafka: GroupMetadataManager.replay of the ConsumerGroup* records.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ottla.coordinator.group.consumer.group import ResolvedRegex
from ottla.coordinator.group.consumer.member import ClassicMetadata, ConsumerMember, MemberState
from ottla.protocol.records import consumer_group as schemas

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.coordinator.group.consumer.groups import ConsumerGroups
    from ottla.coordinator.group.consumer.member import EpochsByPartition


def replay(groups: ConsumerGroups, key: Any, value: Any) -> str | None:
    """Apply a record and return its group; None for the records of other kinds of groups."""
    apply = _REPLAYS.get(type(key))
    if apply is None:
        return None
    apply(groups, key, value)
    group_id: str = key.group_id
    return group_id


def _group(groups: ConsumerGroups, key: Any, value: Any) -> None:
    if value is None:
        groups.by_id.pop(key.group_id, None)
    else:
        groups.restore(key.group_id).set_epoch(value.epoch, value.metadata_hash)


def _partition_metadata(groups: ConsumerGroups, key: Any, value: Any) -> None:
    group = groups.find(key.group_id) if value is None else groups.restore(key.group_id)
    if group is not None:
        group.has_partition_metadata.value = value is not None


def _member(groups: ConsumerGroups, key: Any, value: Any) -> None:
    if value is None:
        group = groups.find(key.group_id)
        if group is not None:
            group.remove(key.member_id)
        return
    group = groups.restore(key.group_id)
    old = group.members.get(key.member_id) or ConsumerMember(key.member_id)
    group.put(
        replace(
            old,
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            subscribed_topics=tuple(value.subscribed_topic_names),
            subscribed_regex=value.subscribed_topic_regex,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            server_assignor=value.server_assignor,
            classic=_classic(value.classic_member_metadata),
        )
    )


def _classic(value: Any) -> ClassicMetadata | None:
    if value is None:
        return None
    protocols = tuple((one.name, one.metadata) for one in value.supported_protocols)
    return ClassicMetadata(value.session_timeout_ms, protocols)


def _target_epoch(groups: ConsumerGroups, key: Any, value: Any) -> None:
    if value is not None:
        group = groups.restore(key.group_id)
        group.set_assignment_epoch(value.assignment_epoch, value.assignment_timestamp)
        return
    group_or_none = groups.find(key.group_id)
    if group_or_none is not None:
        group_or_none.set_assignment_epoch(-1, 0)


def _target_member(groups: ConsumerGroups, key: Any, value: Any) -> None:
    if value is None:
        group = groups.find(key.group_id)
        if group is not None:
            group.set_target(key.member_id, None)
        return
    groups.restore(key.group_id).set_target(
        key.member_id,
        {one.topic_id: tuple(sorted(one.partitions)) for one in value.topic_partitions},
    )


def _current(groups: ConsumerGroups, key: Any, value: Any) -> None:
    """Apply a member's assignment; a tombstone resets the member, as one that has just joined."""
    group = groups.find(key.group_id) if value is None else groups.restore(key.group_id)
    if group is None:
        return
    old = group.members.get(key.member_id)
    if value is None:
        if old is not None:
            group.put(
                replace(
                    old,
                    member_epoch=-1,
                    previous_member_epoch=-1,
                    state=MemberState.STABLE,
                    assigned={},
                    pending_revocation={},
                )
            )
        return
    group.put(
        replace(
            old or ConsumerMember(key.member_id),
            member_epoch=value.member_epoch,
            previous_member_epoch=value.previous_member_epoch,
            state=_state(value.state),
            assigned=_epochs(value.assigned_partitions, value.member_epoch),
            pending_revocation=_epochs(value.partitions_pending_revocation, value.member_epoch),
        )
    )


def _state(number: int) -> MemberState:
    known = {int(state) for state in MemberState}
    return MemberState(number) if number in known else MemberState.UNKNOWN


def _epochs(partitions: list[schemas.TopicPartitions], member_epoch: int) -> EpochsByPartition:
    """Return partitions with assignment epochs; records of earlier releases have none."""
    found = {}
    for one in partitions:
        epochs = one.assignment_epochs or []
        if len(epochs) != len(one.partitions):
            epochs = [member_epoch] * len(one.partitions)
        found[one.topic_id] = dict(sorted(zip(one.partitions, epochs, strict=True)))
    return found


def _regex(groups: ConsumerGroups, key: Any, value: Any) -> None:
    group = groups.find(key.group_id) if value is None else groups.restore(key.group_id)
    if group is None:
        return
    if value is None:
        group.resolved.pop(key.regular_expression, None)
    else:
        group.resolved[key.regular_expression] = ResolvedRegex(
            tuple(value.topics), value.version, value.timestamp
        )


_REPLAYS: dict[type, Callable[[ConsumerGroups, Any, Any], None]] = {
    schemas.ConsumerGroupMetadataKey: _group,
    schemas.ConsumerGroupPartitionMetadataKey: _partition_metadata,
    schemas.ConsumerGroupMemberMetadataKey: _member,
    schemas.ConsumerGroupTargetAssignmentMetadataKey: _target_epoch,
    schemas.ConsumerGroupTargetAssignmentMemberKey: _target_member,
    schemas.ConsumerGroupCurrentMemberAssignmentKey: _current,
    schemas.ConsumerGroupRegularExpressionKey: _regex,
}
