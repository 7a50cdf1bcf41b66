"""One step of a member towards its target: give up first, then take what others have given up.

Kafka: org.apache.kafka.coordinator.group.modern.consumer.CurrentAssignmentBuilder,
GroupMetadataManager.{hasMemberSubscriptionChanged, updateSubscriptionMetadata, maybeReconcile,
replaceMember}.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ottla.coordinator.group.consumer.group import MemberState, subscribed_topics, topics_of
from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.coordinator.group.consumer.group import (
        ConsumerGroup,
        ConsumerMember,
        EpochsByPartition,
        TopicPartitions,
    )
    from ottla.coordinator.group.consumer.kind import ConsumerGroups
    from ottla.coordinator.group.group_kind import Target
    from ottla.coordinator.runtime import CoordinatorRecord
    from ottla.types import Uuid


_UNKNOWN_STATE = (
    "The consumer group member is in a unknown state. "
    "The member must abandon all its partitions and rejoin."
)


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """A step of a member of a group.

    owned are the partitions that the member reports as its own, None where it reports none.
    """

    groups: ConsumerGroups
    group: ConsumerGroup
    member: ConsumerMember
    target_epoch: int
    target: TopicPartitions
    owned: TopicPartitions | None
    has_subscription_changed: bool = False

    def next_member(self) -> ConsumerMember:
        """Return the member after the step: itself if there is nothing to do."""
        member = self.member
        if not self.has_subscription_changed and member.is_reconciled_to(self.target_epoch):
            return member
        if member.state is MemberState.UNKNOWN:
            if self.owned is None or self.owned:
                raise KafkaError(ErrorCode.FENCED_MEMBER_EPOCH, _UNKNOWN_STATE)
            return self._towards_target(self.target_epoch)
        if member.state is MemberState.STABLE and member.member_epoch == self.target_epoch:
            return self._without_unsubscribed()
        is_revoking = member.state is MemberState.UNREVOKED_PARTITIONS
        if is_revoking and self._owns(member.pending_revocation):
            return self._without_unsubscribed()
        return self._towards_target(member.member_epoch)

    def _subscribed(self) -> set[Uuid]:
        ids = map(self.groups.topics.topic_id, topics_of(self.group, self.member))
        return {topic_id for topic_id in ids if topic_id is not None}

    def _owns(self, partitions: EpochsByPartition) -> bool:
        """Whether the member still owns one of these: assumed as long as it reports nothing."""
        if self.owned is None:
            return True
        return any(
            index in partitions.get(topic_id, {})
            for topic_id, indexes in self.owned.items()
            for index in indexes
        )

    def _without_unsubscribed(self) -> ConsumerMember:
        """Revoke the topics to which the member no longer subscribes, within its epoch."""
        member = self.member
        if not self.has_subscription_changed:
            return member
        subscribed = self._subscribed()
        kept = {key: value for key, value in member.assigned.items() if key in subscribed}
        if len(kept) == len(member.assigned):
            return member
        pending = {key: dict(value) for key, value in member.pending_revocation.items()}
        for topic_id, epochs in member.assigned.items():
            if topic_id not in subscribed:
                pending.setdefault(topic_id, {}).update(epochs)
        if self._owns(pending):
            state = MemberState.UNREVOKED_PARTITIONS
            return member.moved(state, member.member_epoch, kept, pending)
        return member.moved(member.state, member.member_epoch, kept, member.pending_revocation)

    def _towards_target(self, epoch: int) -> ConsumerMember:
        member = self.member
        subscribed = self._subscribed()
        assigned: dict[Uuid, dict[int, int]] = {}
        revoked: dict[Uuid, dict[int, int]] = {}
        is_waiting = False
        new: list[tuple[Uuid, int]] = []
        for topic_id in dict.fromkeys((*self.target, *member.assigned)):
            targeted = self.target.get(topic_id, ()) if topic_id in subscribed else ()
            current = member.assigned.get(topic_id, {})
            target = frozenset(targeted)
            for index, assigned_epoch in current.items():
                side = assigned if index in target else revoked
                side.setdefault(topic_id, {})[index] = assigned_epoch
            for index in targeted:
                if index in current:
                    continue
                if self._is_held_by_another(topic_id, index):
                    is_waiting = True
                else:
                    new.append((topic_id, index))
        if revoked and self._owns(revoked):
            return member.moved(MemberState.UNREVOKED_PARTITIONS, epoch, assigned, revoked)
        for topic_id, index in new:
            assigned.setdefault(topic_id, {})[index] = self.target_epoch
        state = MemberState.UNRELEASED_PARTITIONS if is_waiting else MemberState.STABLE
        ordered = {topic_id: dict(sorted(one.items())) for topic_id, one in assigned.items()}
        return member.moved(state, self.target_epoch, ordered, {})

    def _is_held_by_another(self, topic_id: Uuid, index: int) -> bool:
        is_owned = (topic_id, index) in self.group.partition_owners
        return is_owned and index not in self.member.pending_revocation.get(topic_id, {})


@dataclass(slots=True)
class GroupChange:
    """A change while it is processed: the records it writes, the static member it replaces.

    owned are the partitions that the member reports as its own, None where it reports none.
    """

    groups: ConsumerGroups
    group: ConsumerGroup
    owned: TopicPartitions | None
    replaced: ConsumerMember | None = None
    records: list[CoordinatorRecord] = field(default_factory=list)

    def replace_static(self, existing: ConsumerMember, member_id: str) -> ConsumerMember:
        """Give a static member's place, with its assignment, to one with a new id."""
        group_id = self.group.group_id
        self.replaced = existing
        new = replace(existing, member_id=member_id, member_epoch=0, previous_member_epoch=0)
        self.groups.cancel_timers(group_id, existing.member_id)
        target = self.group.target.get(existing.member_id, {})
        self.records += [
            *self.groups.member_tombstones(group_id, existing.member_id),
            self.groups.member_metadata(group_id, new),
            self.groups.target_member(group_id, member_id, target),
            self.groups.current_assignment(group_id, new),
        ]
        return new

    def write_subscription(self, member: ConsumerMember, updated: ConsumerMember) -> bool:
        """Write a changed or new member; whether it subscribes to other topics."""
        if updated is member or updated == member:
            return False
        self.records.append(self.groups.member_metadata(self.group.group_id, updated))
        return updated.subscribed_topics != member.subscribed_topics

    def group_epoch(
        self, member: ConsumerMember, updated: ConsumerMember, *, has_changed: bool
    ) -> int:
        """Return the group epoch, raised where the subscriptions or their metadata have changed."""
        groups, group = self.groups, self.group
        if not has_changed and group.is_fresh:
            return group.epoch
        removed = self.replaced or group.members.get(member.member_id)
        topics = subscribed_topics(group, [updated], [] if removed is None else [removed])
        new_hash = groups.hashes.of(topics)
        epoch = group.epoch
        if has_changed or new_hash != group.metadata_hash:
            epoch += 1
            groups.rebalances += 1
            self.records.append(self.groups.group_epoch(group.group_id, epoch, new_hash))
        group.fresh_epoch = epoch
        if group.has_partition_metadata.value:
            self.records.append(self.groups.partition_metadata_tombstone(group.group_id))
        return epoch

    def reconcile(
        self,
        member: ConsumerMember,
        target: Target,
        *,
        has_changed: bool,
    ) -> ConsumerMember:
        """Return the member one step closer to its target."""
        reconciled = Reconciliation(
            self.groups,
            self.group,
            member,
            target.epoch,
            target.assignment,
            self.owned,
            has_changed,
        ).next_member()
        if reconciled is not member and reconciled != member:
            self.records.append(self.groups.current_assignment(self.group.group_id, reconciled))
        return reconciled
