"""Conversions of whole groups: a classic group becomes a consumer group, and the reverse.

The classic group is soft state, created before its records are replayed. Until then lookups prefer
the consumer group.

Kafka: GroupMetadataManager.{validateOnlineDowngradeWithFencedMembers,
validateOnlineDowngradeWithReplacedMember, convertToClassicGroup},
ClassicGroup.fromConsumerGroup; org.apache.kafka.clients.consumer.internals.ConsumerProtocol,
org.apache.kafka.coordinator.group.Utils.{toConsumerProtocolAssignment, toTopicPartitionMap};
GroupMetadataManager.{validateOnlineUpgrade, convertToConsumerGroup},
ConsumerGroup.fromClassicGroup.
"""

from __future__ import annotations

import logging
from struct import Struct as Layout
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn, TypeVar

from ottla.coordinator.group.classic import group as records
from ottla.coordinator.group.classic import rebalance
from ottla.coordinator.group.classic.group import ClassicGroup, ClassicMember, ClassicState
from ottla.coordinator.group.consumer.group import (
    CONSUMER_PROTOCOL_TYPE,
    ClassicMetadata,
    ConsumerMember,
)
from ottla.coordinator.group.responses import join_error, sync_error
from ottla.coordinator.runtime import Result
from ottla.errors import CorruptMessage, ErrorCode, KafkaError
from ottla.protocol import codec
from ottla.protocol.records.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from ottla.protocol.schema import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ottla.coordinator.group.consumer.group import ConsumerGroup, TopicPartitions
    from ottla.coordinator.group.context import TopicNames
    from ottla.coordinator.group.groups import Groups
    from ottla.coordinator.runtime import CoordinatorRecord
    from ottla.types import Uuid

    _TopicPartition = (
        ConsumerProtocolSubscription.TopicPartition | ConsumerProtocolAssignment.TopicPartition
    )

_INT16 = Layout(">h")
_HIGHEST_VERSION: Final = 3
S = TypeVar("S", bound=Struct)


def read_subscription(data: bytes) -> ConsumerProtocolSubscription:
    """Return the subscription of a member's metadata. Raises CorruptMessage."""
    return _read(ConsumerProtocolSubscription, data)


def read_assignment(data: bytes) -> ConsumerProtocolAssignment:
    """Return a member's assignment. Raises CorruptMessage."""
    return _read(ConsumerProtocolAssignment, data)


def write_assignment(topics: TopicNames, partitions: TopicPartitions, metadata: bytes) -> bytes:
    """Return an assignment in the version of the member's metadata; unknown topics are left out."""
    version = _version(metadata)
    named = ((topics.topic_name(topic_id), indexes) for topic_id, indexes in partitions.items())
    assignment = ConsumerProtocolAssignment(
        assigned_partitions=[
            ConsumerProtocolAssignment.TopicPartition(topic=name, partitions=list(indexes))
            for name, indexes in named
            if name is not None
        ]
    )
    return _INT16.pack(version) + codec.to_bytes(assignment, version)


def by_topic_id(topics: TopicNames, partitions: Iterable[_TopicPartition]) -> TopicPartitions:
    """Return partitions by topic id; topics that do not exist are left out."""
    found: dict[Uuid, tuple[int, ...]] = {}
    for partition in partitions:
        topic_id = topics.topic_id(partition.topic)
        if topic_id is not None:
            found[topic_id] = tuple(sorted({*found.get(topic_id, ()), *partition.partitions}))
    return found


def _read(kind: type[S], data: bytes) -> S:
    return codec.decode(kind, _version(data), memoryview(data)[2:])


def _version(data: bytes) -> int:
    """Return the version with which data begins, the highest one for later ones."""
    if len(data) < 2:
        raise CorruptMessage("a message of the consumer protocol ends before its version")
    version: int = _INT16.unpack_from(data)[0]
    if version < 0:
        raise CorruptMessage(f"version {version} of the consumer protocol does not exist")
    return min(version, _HIGHEST_VERSION)


log = logging.getLogger("ottla.groups")


class Replacement(NamedTuple):
    """A static member of the consumer protocol, and the classic one that takes its place."""

    old: ConsumerMember
    new: ConsumerMember


def after_leave(
    groups: Groups, group: ConsumerGroup, leaving: Sequence[ConsumerMember]
) -> Result[None] | None:
    """Convert the group if only classic members stay; they rebalance."""
    size = len(group.members) - len(leaving)
    if size <= 0 or not _is_allowed(groups, group, leaving, size):
        return None
    names = {member.member_id for member in leaving}
    staying = [member for key, member in group.members.items() if key not in names]
    return convert(groups, group, staying, must_rebalance=True)


def is_allowed_with(groups: Groups, group: ConsumerGroup, replaced: ConsumerMember) -> bool:
    """Whether the group becomes a classic one when a classic member replaces this static one."""
    is_consumer = replaced.classic is None
    return is_consumer and _is_allowed(groups, group, [replaced], len(group.members))


def _is_allowed(
    groups: Groups, group: ConsumerGroup, leaving: Sequence[ConsumerMember], size: int
) -> bool:
    config = groups.classic.config
    if not group.is_classic_without(leaving):
        return False
    if not config.is_downgrade_enabled:
        return _refuse(group, "online downgrade is disabled")
    if size > config.group_max_size:
        return _refuse(group, "it has more members than group.max.size")
    return True


def _refuse(group: ConsumerGroup, reason: str) -> bool:
    text = "consumer group %s stays one with classic members only: %s"
    log.info(text, group.group_id, reason, extra={"event": "group.downgrade-refused"})
    return False


def convert(
    groups: Groups,
    group: ConsumerGroup,
    members: Sequence[ConsumerMember],
    *,
    replacement: Replacement | None = None,
    must_rebalance: bool,
) -> Result[None]:
    """Return the records of the classic group with these members, which must be classic ones."""
    classic = _classic_group(groups, group, members, replacement)
    assignments = {member.member_id: member.assignment for member in classic.members.values()}
    renamed = {replacement.old.member_id: replacement.new.member_id} if replacement else None
    written = [
        *groups.consumer.group_tombstones(group, renamed),
        records.group_metadata(classic, assignments),
    ]
    groups.classic.replace(classic)
    for member in classic.members.values():
        rebalance.reschedule(groups.classic, classic, member)
    if must_rebalance:
        rebalance.prepare_rebalance(groups.classic, classic)
    extra = {"event": "group.downgraded"}
    log.info("consumer group %s becomes a classic group", group.group_id, extra=extra)

    def on_append(error: KafkaError | None) -> None:
        if error is not None and groups.consumer.find(group.group_id) is not None:
            groups.classic.discard(classic)

    def on_commit(_offset: int) -> None:
        if groups.consumer.find(group.group_id) is None:
            for member_id in group.members:
                groups.consumer.cancel_timers(group.group_id, member_id)

    return Result(None, written, on_append, on_commit=on_commit)


def _classic_group(
    groups: Groups,
    group: ConsumerGroup,
    members: Sequence[ConsumerMember],
    replacement: Replacement | None,
) -> ClassicGroup:
    now_ms = groups.classic.clock.now_ms()
    classic = ClassicGroup(group.group_id, ClassicState.STABLE, now_ms)
    classic.generation_id = group.epoch
    classic.protocol_type = CONSUMER_PROTOCOL_TYPE
    for member in members:
        classic.add(_member(member), None)
    classic.protocol_name = classic.select_protocol()
    classic.read_subscriptions()
    for classic_member in classic.members.values():
        owner = classic_member.member_id
        if replacement is not None and owner == replacement.new.member_id:
            owner = replacement.old.member_id
        metadata = classic_member.metadata(classic.protocol_name)
        target = group.target.get(owner, {})
        try:
            classic_member.assignment = write_assignment(groups.consumer.topics, target, metadata)
        except CorruptMessage as error:
            text = f"Cannot downgrade the classic group {group.group_id}: {error}."
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, text) from error
    return classic


def _member(member: ConsumerMember) -> ClassicMember:
    assert member.classic is not None
    return ClassicMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=member.classic.session_timeout_ms,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocols=member.classic.protocols,
    )


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
        _refuse_upgrade(group_id, "online upgrade is disabled")
    if not classic.uses_consumer_protocol:
        _refuse_upgrade(group_id, "the group does not use the consumer embedded protocol")
    if len(classic.members) > groups.consumer.settings(group_id).max_size:
        _refuse_upgrade(group_id, "the group size exceeds the consumer group maximum size")


def _refuse_upgrade(group_id: str, reason: str) -> NoReturn:
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
            converted = _upgraded_member(member, classic, partitions)
        except CorruptMessage:
            _refuse_upgrade(classic.group_id, "the embedded consumer protocol is malformed")
        group.set_target(member.member_id, partitions)
        group.put(converted)
    group.set_epoch(generation, groups.hashes.of(list(group.topic_counts)))
    return group


def _partitions(groups: Groups, group_id: str, member: ClassicMember) -> TopicPartitions:
    if not member.assignment:
        return {}
    assignment = read_assignment(member.assignment)
    if assignment.user_data:
        _refuse_upgrade(
            group_id,
            "an unsupported custom assignor is in use. Please refer to the documentation or "
            "switch to a default assignor before re-attempting the upgrade",
        )
    return by_topic_id(groups.consumer.topics, assignment.assigned_partitions)


def _upgraded_member(
    member: ClassicMember, classic: ClassicGroup, partitions: TopicPartitions
) -> ConsumerMember:
    subscription = read_subscription(member.metadata(classic.protocol_name))
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
