"""JoinGroup of a member that uses the classic protocol in a consumer group.

Kafka: GroupMetadataManager.classicGroupJoinToConsumerGroup.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ottla.coordinator.group.classic.join import NEEDS_MEMBER_ID_VERSION
from ottla.coordinator.group.consumer import patterns
from ottla.coordinator.group.consumer.change import GroupChange
from ottla.coordinator.group.consumer.member import ClassicMetadata, ConsumerMember
from ottla.coordinator.group.consumer.validation import check_size, static_member
from ottla.coordinator.group.group_kind import MemberTimer
from ottla.coordinator.group.migration import downgrade, embedded
from ottla.coordinator.runtime import Result
from ottla.errors import CorruptMessage, ErrorCode, KafkaError
from ottla.protocol.apis.join_group import JoinGroupResponse

if TYPE_CHECKING:
    from ottla.coordinator.group.classic.join_call import Join
    from ottla.coordinator.group.consumer.group import ConsumerGroup
    from ottla.coordinator.group.groups import Groups
    from ottla.protocol.records.consumer_protocol import ConsumerProtocolSubscription


def join(groups: Groups, group: ConsumerGroup, call: Join) -> Result[None]:
    """Add a member or let it rejoin; the response is completed when its records are committed."""
    request = call.request
    member_id = request.member_id or groups.consumer.new_member_id()
    check_size(group, member_id, groups.consumer.settings(group.group_id).max_size)
    if not group.supports(request.protocol_type, call.protocols):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    is_dynamic = request.group_instance_id is None
    needs_id = is_dynamic and call.context.api_version >= NEEDS_MEMBER_ID_VERSION
    if needs_id and not request.member_id:
        return call.refuse(ErrorCode.MEMBER_ID_REQUIRED, member_id)
    try:
        subscription = embedded.read_subscription(call.protocols[0][1])
    except CorruptMessage as error:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR) from error
    owned = embedded.by_topic_id(groups.consumer.topics, subscription.owned_partitions)
    change = GroupChange(groups.consumer, group, owned)
    member = _find_member(change, call, member_id)
    return _apply(groups, change, call, (member, _updated(member, call, subscription)))


def _find_member(change: GroupChange, call: Join, member_id: str) -> ConsumerMember:
    """Return the member that joins: known, new, or in the place of another static one."""
    instance_id = call.request.group_instance_id
    known: ConsumerMember | None = change.group.members.get(member_id)
    if instance_id is None:
        return known or ConsumerMember(member_id)
    if call.request.member_id:
        return static_member(change.group, member_id, instance_id)
    existing = change.group.static_member(instance_id)
    if existing is None:
        return known or ConsumerMember(member_id)
    return change.replace_static(existing, member_id)


def _updated(
    member: ConsumerMember, call: Join, subscription: ConsumerProtocolSubscription
) -> ConsumerMember:
    request = call.request
    timeout_ms = request.rebalance_timeout_ms
    return replace(
        member,
        instance_id=request.group_instance_id or member.instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        subscribed_topics=tuple(sorted(dict.fromkeys(subscription.topics))),
        subscribed_regex="",
        client_id=call.context.client_id,
        client_host=call.context.client_host,
        classic=ClassicMetadata(request.session_timeout_ms, call.protocols),
    )


def _apply(
    groups: Groups, change: GroupChange, call: Join, members: tuple[ConsumerMember, ConsumerMember]
) -> Result[None]:
    member, updated = members
    consumer, group = groups.consumer, change.group
    has_changed = change.write_subscription(member, updated)
    has_new_pattern, _ = patterns.update(
        consumer,
        group,
        member,
        updated,
        change.records,
        may_describe=call.context.may_describe_topic,
    )
    has_changed |= has_new_pattern
    replaced = change.replaced
    if replaced is not None and downgrade.is_allowed_with(groups, group, replaced):
        return _downgrade(groups, change, call, members, has_changed=has_changed)
    epoch = change.group_epoch(member, updated, has_changed=has_changed)
    target = consumer.update_target(group, epoch, updated, change.records)
    updated = change.reconcile(updated, target, has_changed=has_changed)

    def on_append(error: KafkaError | None) -> None:
        if error is not None:
            return
        group_id, request = group.group_id, call.request
        consumer.cancel(MemberTimer.JOIN, group_id, updated.member_id)
        consumer.start_session(group_id, updated.member_id, request.session_timeout_ms)
        consumer.await_sync(group_id, updated.member_id, request.rebalance_timeout_ms)
        call.answer.complete(_response(updated))

    return Result(None, change.records, on_append)


def _downgrade(
    groups: Groups,
    change: GroupChange,
    call: Join,
    members: tuple[ConsumerMember, ConsumerMember],
    *,
    has_changed: bool,
) -> Result[None]:
    """Let the member take the place of the last one of the consumer protocol."""
    member, updated = members
    group, replaced = change.group, change.replaced
    assert replaced is not None
    epoch = change.group_epoch(member, updated, has_changed=has_changed)
    is_stale = group.assignment_epoch < epoch
    if not is_stale:
        target = group.target_of(updated.member_id, updated.instance_id)
        updated = change.reconcile(
            updated, (group.assignment_epoch, target), has_changed=has_changed
        )
    staying = [one for one in group.members.values() if one.instance_id != updated.instance_id]
    downgraded = downgrade.convert(
        groups,
        group,
        [*staying, updated],
        replacement=downgrade.Replacement(replaced, updated),
        must_rebalance=is_stale,
    )

    def on_append(error: KafkaError | None) -> None:
        if downgraded.on_append is not None:
            downgraded.on_append(error)
        if error is None:
            call.answer.complete(_response(updated))

    written = [*change.records, *downgraded.records]
    return Result(None, written, on_append, on_commit=downgraded.on_commit)


def _response(member: ConsumerMember) -> JoinGroupResponse:
    assert member.classic is not None
    return JoinGroupResponse(
        member_id=member.member_id,
        generation_id=member.member_epoch,
        protocol_type="consumer",
        protocol_name=member.classic.protocol_name,
        leader="",
        members=[],
    )
