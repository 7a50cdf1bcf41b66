"""Share groups (KIP-932): their records and their target, which has initialised partitions only.

Kafka: the share part of org.apache.kafka.coordinator.group.GroupMetadataManager,
GroupCoordinatorRecordHelpers.newShareGroup*, TargetAssignmentBuilder.ShareTargetAssignmentBuilder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from ottla.coordinator.group.config import ShareGroupConfig
from ottla.coordinator.group.group_kind import GroupEnvironment, GroupKind, RecordType
from ottla.coordinator.group.share import describe
from ottla.coordinator.group.share.assignor import assign_simple
from ottla.coordinator.group.share.group import (
    InProgress,
    ShareGroup,
    ShareGroupState,
    ShareMember,
    StatePartitions,
    TopicParts,
)
from ottla.coordinator.group.slices import SLICE
from ottla.coordinator.runtime import CoordinatorRecord
from ottla.coordinator.runtime.result import Result
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.records import share_group as schemas

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ottla.coordinator.group.group import Description
    from ottla.coordinator.group.slices import Steps
    from ottla.types import Uuid

Partitions: TypeAlias = "Mapping[Uuid, tuple[int, ...]]"


class ShareGroups(GroupKind[ShareGroup, ShareMember, Partitions, ShareGroupConfig]):
    """Adds the share partitions that have a state at a share coordinator."""

    name = ShareGroup.group_type
    undescribed = staticmethod(describe.undescribed)
    group_class = ShareGroup
    member_class = ShareMember
    states = ShareGroupState
    epoch_record = RecordType(11, schemas.ShareGroupMetadataKey, schemas.ShareGroupMetadataValue)
    member_record = RecordType(
        10, schemas.ShareGroupMemberMetadataKey, schemas.ShareGroupMemberMetadataValue
    )
    target_epoch_record = RecordType(
        12,
        schemas.ShareGroupTargetAssignmentMetadataKey,
        schemas.ShareGroupTargetAssignmentMetadataValue,
    )
    target_record = RecordType(
        13,
        schemas.ShareGroupTargetAssignmentMemberKey,
        schemas.ShareGroupTargetAssignmentMemberValue,
    )
    assignment_record = RecordType(
        14,
        schemas.ShareGroupCurrentMemberAssignmentKey,
        schemas.ShareGroupCurrentMemberAssignmentValue,
    )
    other_records = (
        RecordType(
            15,
            schemas.ShareGroupStatePartitionMetadataKey,
            schemas.ShareGroupStatePartitionMetadataValue,
        ),
    )
    assignment_fields = ("member_epoch", "previous_member_epoch", "assigned")

    def __init__(self, environment: GroupEnvironment) -> None:
        super().__init__(environment)
        self.settings = environment.dependencies.share_settings

    def describe(self, group: ShareGroup, epoch: int) -> Description[describe.DescribedGroup]:
        """Describe a group in the log's state of an epoch."""
        return describe.describe(group, epoch, self.topics)

    @classmethod
    def refused(cls, group_id: str, code: ErrorCode) -> Any:
        """Return the description of a group whose coordinator does not serve it."""
        return describe.undescribed(group_id, code, code.text if group_id else None)

    def check_deletion(self, group: ShareGroup) -> None:
        """Raise NON_EMPTY_GROUP also for a group with a state at a share coordinator.

        All were deleted before: it was begun for a member that has joined, and left, since then.
        """
        super().check_deletion(group)
        known = group.state_partitions or StatePartitions()
        for topic_id in (*known.initializing, *known.initialized):
            if self.topics.topic_name(topic_id) is not None:
                raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    # ---------------------------------------------------------------- replay

    def read_member(self, value: Any) -> dict[str, Any]:
        """Return the fields of a member by the record of its subscription."""
        return {
            "rack_id": value.rack_id,
            "client_id": value.client_id,
            "client_host": value.client_host,
            "subscribed_topics": tuple(value.subscribed_topic_names),
        }

    def read_target(self, value: Any) -> Partitions:
        """Return a target by its record."""
        return _partitions(value.topic_partitions)

    def read_assignment(self, value: Any) -> dict[str, Any]:
        """Return the fields of a member by the record of its assignment."""
        return {
            "member_epoch": value.member_epoch,
            "previous_member_epoch": value.previous_member_epoch,
            "assigned": _partitions(value.assigned_partitions),
        }

    def apply_other(self, group: ShareGroup, _key: Any, value: Any, offset: int) -> None:
        """Apply the share partitions, and since which record each is begun or deleted."""
        if value is None:
            group.set_state_partitions(None)
            return
        now_ms = self.clock.now_ms()
        known = group.state_partitions or StatePartitions()
        in_progress = [
            InProgress(topic.topic_id, index)
            for topic in value.initializing_topics
            for index in topic.partitions
        ]
        in_progress += (InProgress(topic.topic_id) for topic in value.deleting_topics)
        group.set_state_partitions(
            StatePartitions(
                _read_topics(value.initializing_topics, now_ms),
                _read_topics(value.initialized_topics, now_ms),
                frozenset(topic.topic_id for topic in value.deleting_topics),
                {key: known.since.get(key, offset) for key in in_progress},
            )
        )

    # ---------------------------------------------------------------- records

    def member_value(self, member: ShareMember) -> schemas.ShareGroupMemberMetadataValue:
        """Return the value of a member's subscription."""
        return schemas.ShareGroupMemberMetadataValue(
            rack_id=member.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=list(member.subscribed_topics),
        )

    def target_value(self, target: Partitions) -> schemas.ShareGroupTargetAssignmentMemberValue:
        """Return the value of a target."""
        value = schemas.ShareGroupTargetAssignmentMemberValue
        return value(
            topic_partitions=[
                value.TopicPartition(topic_id=topic_id, partitions=list(indexes))
                for topic_id, indexes in target.items()
            ]
        )

    def assignment_value(
        self, member: ShareMember
    ) -> schemas.ShareGroupCurrentMemberAssignmentValue:
        """Return the value of a member's epochs and partitions."""
        return schemas.ShareGroupCurrentMemberAssignmentValue(
            member_epoch=member.member_epoch,
            previous_member_epoch=member.previous_member_epoch,
            state=0,  # the only one that share groups have: Stable
            assigned_partitions=[
                schemas.TopicPartitions(topic_id=topic_id, partitions=list(indexes))
                for topic_id, indexes in member.assigned.items()
            ],
        )

    def state_partitions(
        self,
        group_id: str,
        initializing: Mapping[Uuid, TopicParts],
        initialized: Mapping[Uuid, TopicParts],
        deleting: Mapping[Uuid, str],
    ) -> CoordinatorRecord:
        """Return the record of the group's share partitions."""
        return CoordinatorRecord(
            schemas.ShareGroupStatePartitionMetadataKey(group_id=group_id),
            schemas.ShareGroupStatePartitionMetadataValue(
                initializing_topics=_written_topics(initializing),
                initialized_topics=_written_topics(initialized),
                deleting_topics=[
                    schemas.TopicInfo(topic_id=topic_id, topic_name=name)
                    for topic_id, name in deleting.items()
                ],
            ),
        )

    def group_tombstones(
        self, group: ShareGroup, _renamed: Mapping[str, str] | None = None
    ) -> list[CoordinatorRecord]:
        """Return the records that remove a group without members."""
        group_id = group.group_id
        return [
            CoordinatorRecord(schemas.ShareGroupStatePartitionMetadataKey(group_id=group_id)),
            CoordinatorRecord(schemas.ShareGroupTargetAssignmentMetadataKey(group_id=group_id)),
            *self.last_tombstones(group),
        ]

    # ---------------------------------------------------------------- target

    def target_order(self, target: Mapping[str, Partitions]) -> Iterable[str]:
        """Return the members of a target in the order of Kafka's records."""
        return sorted(target)

    def compute_target(
        self, group: ShareGroup, members: Mapping[str, ShareMember]
    ) -> Steps[Mapping[str, Partitions]]:
        """Compute the targets of a group's members."""
        known = group.state_partitions or StatePartitions()
        subscriptions = {}
        for position, (member_id, member) in enumerate(members.items()):
            if position % SLICE == SLICE - 1:
                yield
            topic_ids = (self.topics.topic_id(name) for name in member.subscribed_topics)
            subscriptions[member_id] = tuple(one for one in topic_ids if one is not None)
        partitions = {topic_id: topic.partitions for topic_id, topic in known.initialized.items()}
        return (yield from assign_simple(subscriptions, partitions, dict(group.target.items())))

    # ---------------------------------------------------------------- members' timers

    def remove(self, group: ShareGroup, member: ShareMember) -> Result[None]:
        """Remove a member whose time is over; the group epoch rises."""
        return Result(None, self.removal_records(group, member))

    def removal_records(self, group: ShareGroup, member: ShareMember) -> list[CoordinatorRecord]:
        """Return the records that remove a member and raise the group epoch; end its timers."""
        self.cancel_timers(group.group_id, member.member_id)
        new_hash = self.hashes.of(group.subscribed_topics(removed=member.subscribed_topics))
        return [
            *self.member_tombstones(group.group_id, member.member_id),
            self.group_epoch(group.group_id, group.epoch + 1, new_hash),
        ]


def _partitions(topics: Iterable[Any]) -> dict[Uuid, tuple[int, ...]]:
    return {topic.topic_id: tuple(sorted(topic.partitions)) for topic in topics}


def _read_topics(
    topics: Iterable[schemas.TopicPartitionsInfo], now_ms: int
) -> dict[Uuid, TopicParts]:
    return {
        topic.topic_id: TopicParts(topic.topic_name, frozenset(topic.partitions), now_ms)
        for topic in topics
    }


def _written_topics(topics: Mapping[Uuid, TopicParts]) -> list[schemas.TopicPartitionsInfo]:
    return [
        schemas.TopicPartitionsInfo(
            topic_id=topic_id, topic_name=topic.name, partitions=sorted(topic.partitions)
        )
        for topic_id, topic in topics.items()
    ]
