"""ConsumerGroupHeartbeat: join, stay, change the subscription; the response has the assignment.

Kafka: GroupMetadataManager.{consumerGroupHeartbeat, getOrMaybeSubscribeDynamicConsumerGroupMember,
getOrMaybeSubscribeStaticConsumerGroupMember, updateSubscriptionMetadata, replaceMember}.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ottla.coordinator.group.consumer import leave, patterns, records, timeouts
from ottla.coordinator.group.consumer.member import (
    JOIN_EPOCH,
    ConsumerMember,
    without_epochs,
)
from ottla.coordinator.group.consumer.reconcile import Reconciliation
from ottla.coordinator.group.consumer.subscription import metadata_hash, subscribed_topics
from ottla.coordinator.group.consumer.target import update_target
from ottla.coordinator.group.consumer.validation import (
    check_epoch,
    check_released,
    check_size,
    static_member,
)
from ottla.coordinator.runtime import CoordinatorRecord, Result
from ottla.protocol.apis.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

if TYPE_CHECKING:
    from ottla.coordinator.group.consumer import member as members
    from ottla.coordinator.group.consumer.group import ConsumerGroup
    from ottla.coordinator.group.consumer.groups import ConsumerGroups
    from ottla.coordinator.group.context import RequestContext


@dataclass(slots=True)
class _Call:
    """A heartbeat while it is processed, with the records it writes."""

    groups: ConsumerGroups
    group: ConsumerGroup
    request: ConsumerGroupHeartbeatRequest
    owned: members.TopicPartitions | None
    replaced: ConsumerMember | None = None
    records: list[CoordinatorRecord] = field(default_factory=list)


def heartbeat(
    groups: ConsumerGroups, request: ConsumerGroupHeartbeatRequest, context: RequestContext
) -> Result[ConsumerGroupHeartbeatResponse]:
    """Apply a heartbeat whose request is valid."""
    if request.member_epoch < JOIN_EPOCH:
        return leave.leave(groups, request)
    if request.member_epoch == JOIN_EPOCH:
        group = groups.find(request.group_id) or groups.new(request.group_id)
        limit = groups.settings(request.group_id).max_size
        check_size(group, request.member_id, limit)
    else:
        group = groups.get(request.group_id)
    call = _Call(groups, group, request, _owned(request))
    member = _find_member(call, request.member_id or groups.new_member_id())
    updated = _with_request(member, request, context)
    has_changed = _write_subscription(call, member, updated)
    has_new_pattern, is_resolved = patterns.update(groups, group, member, updated, call.records)
    has_raised = has_changed or is_resolved
    epoch = _group_epoch(call, member, updated, has_changed=has_raised)
    has_changed |= has_new_pattern
    target_epoch, target = update_target(groups, group, epoch, updated, call.records)
    reconciled = Reconciliation(
        groups, group, updated, target_epoch, target, call.owned, has_changed
    ).next_member()
    if reconciled != updated:
        call.records.append(records.current_assignment(group.group_id, reconciled))
    timeouts.follow(groups, group.group_id, reconciled, has_moved=reconciled != updated)
    response = _response(call, member, reconciled)
    return Result(response, call.records)


def _owned(request: ConsumerGroupHeartbeatRequest) -> members.TopicPartitions | None:
    if request.topic_partitions is None:
        return None
    return {one.topic_id: tuple(one.partitions) for one in request.topic_partitions}


def _find_member(call: _Call, member_id: str) -> ConsumerMember:
    """Return the member of a heartbeat; a new or a replacing one where it joins."""
    group, epoch = call.group, call.request.member_epoch
    instance_id = call.request.instance_id
    if instance_id is None:
        if epoch == JOIN_EPOCH and member_id not in group.members:
            return ConsumerMember(member_id)
        member = group.member(member_id)
        check_epoch(member, epoch, call.owned)
        return member
    if epoch != JOIN_EPOCH:
        member = static_member(group, member_id, instance_id)
        check_epoch(member, epoch, call.owned)
        return member
    existing = group.static_member(instance_id)
    if existing is None:
        known: ConsumerMember | None = group.members.get(member_id)
        return known or ConsumerMember(member_id)
    if existing.member_id == member_id:
        return existing
    check_released(existing, member_id)
    return _replace(call, existing, member_id)


def _replace(call: _Call, existing: ConsumerMember, member_id: str) -> ConsumerMember:
    """Give a static member's place, with its assignment, to one with a new id."""
    group = call.group
    call.replaced = existing
    new = replace(existing, member_id=member_id, member_epoch=0, previous_member_epoch=0)
    call.groups.cancel_timers(group.group_id, existing.member_id)
    target = group.target.get(existing.member_id, {})
    call.records += [
        *records.member_tombstones(group.group_id, existing.member_id),
        records.member_subscription(group.group_id, new),
        records.target_member(group.group_id, member_id, target),
        records.current_assignment(group.group_id, new),
    ]
    return new


def _with_request(
    member: ConsumerMember, request: ConsumerGroupHeartbeatRequest, context: RequestContext
) -> ConsumerMember:
    """Return the member with the fields that the request sets."""
    timeout_ms = request.rebalance_timeout_ms
    names, pattern = request.subscribed_topic_names, request.subscribed_topic_regex
    return replace(
        member,
        instance_id=request.instance_id or member.instance_id,
        rack_id=request.rack_id or member.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        server_assignor=request.server_assignor or member.server_assignor,
        subscribed_topics=(
            member.subscribed_topics if names is None else tuple(sorted(dict.fromkeys(names)))
        ),
        subscribed_regex=member.subscribed_regex if pattern is None else pattern,
        client_id=context.client_id,
        client_host=context.client_host,
    )


def _write_subscription(call: _Call, member: ConsumerMember, updated: ConsumerMember) -> bool:
    """Write a changed or new member; whether the topics to which it subscribes have changed."""
    if updated == member:
        return False
    call.records.append(records.member_subscription(call.group.group_id, updated))
    return updated.subscribed_topics != member.subscribed_topics


def _group_epoch(
    call: _Call, member: ConsumerMember, updated: ConsumerMember, *, has_changed: bool
) -> int:
    """Return the group epoch, raised where the subscriptions or their metadata have changed."""
    groups, group = call.groups, call.group
    is_fresh = group.fresh_epoch is not None and group.epoch >= group.fresh_epoch
    if not has_changed and is_fresh:
        return group.epoch
    removed = call.replaced or group.members.get(member.member_id)
    topics = subscribed_topics(group, [updated], [] if removed is None else [removed])
    new_hash = metadata_hash(groups, topics)
    epoch = group.epoch
    if has_changed or new_hash != group.metadata_hash:
        epoch += 1
        call.records.append(records.group_epoch(group.group_id, epoch, new_hash))
    group.fresh_epoch = epoch
    if group.has_partition_metadata.value:
        call.records.append(records.partition_metadata_tombstone(group.group_id))
    return epoch


def _response(
    call: _Call, member: ConsumerMember, reconciled: ConsumerMember
) -> ConsumerGroupHeartbeatResponse:
    """Return the response; the assignment is in it where the client cannot know it."""
    request = call.request
    response = ConsumerGroupHeartbeatResponse(
        member_id=reconciled.member_id,
        member_epoch=reconciled.member_epoch,
        heartbeat_interval_ms=call.groups.settings(request.group_id).heartbeat_interval_ms,
    )
    is_full_request = (
        request.rebalance_timeout_ms != -1
        and (
            request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
        )
        and request.topic_partitions is not None
    )
    is_joining = request.member_epoch == JOIN_EPOCH
    if is_full_request or is_joining or reconciled.assigned != member.assigned:
        response.assignment = ConsumerGroupHeartbeatResponse.Assignment(
            topic_partitions=[
                TopicPartitions(topic_id=topic_id, partitions=list(indexes))
                for topic_id, indexes in without_epochs(reconciled.assigned).items()
            ]
        )
    return response
