"""Replay of the records of consumer groups.

Kafka: GroupMetadataManager.replay of the ConsumerGroup* records.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from ottla.coordinator.group import replaying
from ottla.coordinator.group.consumer.group import ConsumerGroup, ResolvedRegex
from ottla.coordinator.group.consumer.member import ClassicMetadata, ConsumerMember, MemberState
from ottla.protocol.records import consumer_group as schemas

if TYPE_CHECKING:
    from ottla.coordinator.group.consumer.groups import ConsumerGroups
    from ottla.coordinator.group.consumer.member import EpochsByPartition
    from ottla.coordinator.group.replaying import Replays


def replay(groups: ConsumerGroups, key: Any, value: Any) -> str | None:
    """Apply a record and return its group; None for the records of other kinds of groups."""
    return replaying.apply_record(groups, _REPLAYS, key, value)


def _epoch(group: ConsumerGroup, _key: Any, value: Any) -> None:
    group.set_epoch(value.epoch, value.metadata_hash)


def _partition_metadata(group: ConsumerGroup, _key: Any, value: Any) -> None:
    group.has_partition_metadata.value = value is not None


def _member(group: ConsumerGroup, key: Any, value: Any) -> None:
    if value is None:
        group.remove(key.member_id)
        return
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


def _target_member(group: ConsumerGroup, key: Any, value: Any) -> None:
    target = None
    if value is not None:
        target = {one.topic_id: tuple(sorted(one.partitions)) for one in value.topic_partitions}
    group.set_target(key.member_id, target)


def _current(group: ConsumerGroup, key: Any, value: Any) -> None:
    """Apply a member's assignment; a tombstone resets the member, as one that has just joined."""
    old = group.members.get(key.member_id)
    if value is not None:
        group.put(
            replace(
                old or ConsumerMember(key.member_id),
                member_epoch=value.member_epoch,
                previous_member_epoch=value.previous_member_epoch,
                state=MemberState(value.state),
                assigned=_epochs(value.assigned_partitions, value.member_epoch),
                pending_revocation=_epochs(value.partitions_pending_revocation, value.member_epoch),
            )
        )
    elif old is not None:
        fresh = ConsumerMember(key.member_id)
        group.put(
            replace(
                old,
                member_epoch=fresh.member_epoch,
                previous_member_epoch=fresh.previous_member_epoch,
                state=fresh.state,
                assigned=fresh.assigned,
                pending_revocation=fresh.pending_revocation,
            )
        )


def _epochs(partitions: list[schemas.TopicPartitions], member_epoch: int) -> EpochsByPartition:
    return {
        one.topic_id: replaying.with_epochs(one.partitions, one.assignment_epochs, member_epoch)
        for one in partitions
    }


def _regex(group: ConsumerGroup, key: Any, value: Any) -> None:
    if value is None:
        group.resolved.pop(key.regular_expression, None)
    else:
        group.resolved[key.regular_expression] = ResolvedRegex(
            tuple(value.topics), value.version, value.timestamp
        )


_REPLAYS: Final[Replays] = {
    schemas.ConsumerGroupMetadataKey: _epoch,
    schemas.ConsumerGroupPartitionMetadataKey: _partition_metadata,
    schemas.ConsumerGroupMemberMetadataKey: _member,
    schemas.ConsumerGroupTargetAssignmentMetadataKey: replaying.target_epoch,
    schemas.ConsumerGroupTargetAssignmentMemberKey: _target_member,
    schemas.ConsumerGroupCurrentMemberAssignmentKey: _current,
    schemas.ConsumerGroupRegularExpressionKey: _regex,
}
