"""A classic group with members becomes a consumer group: its members keep their partitions.

Kafka: GroupMetadataManager.{validateOnlineUpgrade, convertToConsumerGroup},
ConsumerGroup.fromClassicGroup.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NoReturn

from ottla.coordinator.group.classic import records
from ottla.coordinator.group.consumer.member import ClassicMetadata, ConsumerMember
from ottla.coordinator.group.migration import embedded
from ottla.coordinator.group.responses import join_error, sync_error
from ottla.errors import CorruptMessage, ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.coordinator.group.classic.group import ClassicGroup
    from ottla.coordinator.group.classic.member import ClassicMember
    from ottla.coordinator.group.consumer.group import ConsumerGroup
    from ottla.coordinator.group.consumer.member import TopicPartitions
    from ottla.coordinator.group.groups import Groups
    from ottla.coordinator.runtime import CoordinatorRecord

log = logging.getLogger("ottla.groups")


def upgrade(groups: Groups, classic: ClassicGroup) -> tuple[ConsumerGroup, list[CoordinatorRecord]]:
    """Return the consumer group and its records; GROUP_ID_NOT_FOUND where it must stay classic.

    Members that wait for the end of a rebalance get REBALANCE_IN_PROGRESS, and join again.
    """
    _validate(groups, classic)
    for member in tuple(classic.members.values()):
        error = ErrorCode.REBALANCE_IN_PROGRESS
        classic.complete_join(member, join_error(error, member.member_id))
        classic.complete_sync(member, sync_error(error))
    group = _converted(groups, classic)
    group_id = group.group_id
    for member in classic.members.values():
        groups.consumer.start_session(group_id, member.member_id, member.session_timeout_ms)
    extra = {"event": "group.upgraded"}
    log.info("classic group %s becomes a consumer group", group_id, extra=extra)
    return group, [records.group_tombstone(group_id), *groups.consumer.group_records(group)]


def _validate(groups: Groups, classic: ClassicGroup) -> None:
    group_id = classic.group_id
    if not groups.classic.config.is_upgrade_enabled:
        _refuse(group_id, "online upgrade is disabled")
    if not classic.uses_consumer_protocol:
        _refuse(group_id, "the group does not use the consumer embedded protocol")
    if len(classic.members) > groups.consumer.settings(group_id).max_size:
        _refuse(group_id, "the group size exceeds the consumer group maximum size")


def _refuse(group_id: str, reason: str) -> NoReturn:
    text = f"Cannot upgrade classic group {group_id} to consumer group because {reason}."
    log.info("%s", text, extra={"event": "group.upgrade-refused"})
    raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, text)


def _converted(groups: Groups, classic: ClassicGroup) -> ConsumerGroup:
    group = groups.consumer.new(classic.group_id)
    generation = classic.generation_id
    group.set_assignment_epoch(generation, 0)
    for member in classic.members.values():
        if member.metadata_or_none(classic.protocol_name) is None:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)  # before its first generation
        try:
            partitions = _partitions(groups, classic.group_id, member)
            converted = _member(member, classic, partitions)
        except CorruptMessage:
            _refuse(classic.group_id, "the embedded consumer protocol is malformed")
        group.set_target(member.member_id, partitions)
        group.put(converted)
    group.set_epoch(generation, groups.hashes.of(list(group.topic_counts)))
    return group


def _partitions(groups: Groups, group_id: str, member: ClassicMember) -> TopicPartitions:
    if not member.assignment:
        return {}
    assignment = embedded.read_assignment(member.assignment)
    if assignment.user_data:
        _refuse(
            group_id,
            "an unsupported custom assignor is in use. Please refer to the documentation or "
            "switch to a default assignor before re-attempting the upgrade",
        )
    return embedded.by_topic_id(groups.consumer.topics, assignment.assigned_partitions)


def _member(
    member: ClassicMember, classic: ClassicGroup, partitions: TopicPartitions
) -> ConsumerMember:
    subscription = embedded.read_subscription(member.metadata(classic.protocol_name))
    generation = classic.generation_id
    return ConsumerMember(
        member.member_id,
        member_epoch=generation,
        previous_member_epoch=generation,
        instance_id=member.group_instance_id,
        rack_id=subscription.rack_id or None,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topics=tuple(sorted(dict.fromkeys(subscription.topics))),
        assigned={key: dict.fromkeys(indexes, generation) for key, indexes in partitions.items()},
        classic=ClassicMetadata(member.session_timeout_ms, member.protocols),
    )
