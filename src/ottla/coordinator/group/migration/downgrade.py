"""A consumer group whose last member of the consumer protocol is gone becomes a classic group.

The classic group is soft state, created before its records are replayed. Until then lookups prefer
the consumer group.

Kafka: GroupMetadataManager.{validateOnlineDowngradeWithFencedMembers,
validateOnlineDowngradeWithReplacedMember, convertToClassicGroup}, ClassicGroup.fromConsumerGroup.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from ottla.coordinator.group.classic import rebalance, records
from ottla.coordinator.group.classic.group import ClassicGroup, ClassicState
from ottla.coordinator.group.classic.member import ClassicMember
from ottla.coordinator.group.consumer.group import CONSUMER_PROTOCOL_TYPE
from ottla.coordinator.group.migration import embedded
from ottla.coordinator.runtime import Result
from ottla.errors import CorruptMessage, ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.coordinator.group.consumer.group import ConsumerGroup
    from ottla.coordinator.group.consumer.member import ConsumerMember
    from ottla.coordinator.group.groups import Groups

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
    assignments = {one.member_id: one.assignment for one in classic.members.values()}
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
    for one in classic.members.values():
        owner = one.member_id
        if replacement is not None and owner == replacement.new.member_id:
            owner = replacement.old.member_id
        metadata = one.metadata(classic.protocol_name)
        target = group.target.get(owner, {})
        try:
            one.assignment = embedded.write_assignment(groups.consumer.topics, target, metadata)
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
