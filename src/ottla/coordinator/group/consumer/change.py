"""The change of a member, and of its group, by one request: subscription, epochs, assignment.

Kafka: GroupMetadataManager.{hasMemberSubscriptionChanged, updateSubscriptionMetadata,
maybeReconcile, replaceMember}.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ottla.coordinator.group.consumer.reconcile import Reconciliation
from ottla.coordinator.group.consumer.subscription import subscribed_topics

if TYPE_CHECKING:
    from ottla.coordinator.group.consumer.group import ConsumerGroup
    from ottla.coordinator.group.consumer.kind import ConsumerGroups
    from ottla.coordinator.group.consumer.member import ConsumerMember, TopicPartitions
    from ottla.coordinator.runtime import CoordinatorRecord


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
        target: tuple[int, TopicPartitions],
        *,
        has_changed: bool,
    ) -> ConsumerMember:
        """Return the member one step closer to a target: an epoch and its partitions."""
        reconciled = Reconciliation(
            self.groups, self.group, member, target[0], target[1], self.owned, has_changed
        ).next_member()
        if reconciled is not member and reconciled != member:
            self.records.append(self.groups.current_assignment(self.group.group_id, reconciled))
        return reconciled
