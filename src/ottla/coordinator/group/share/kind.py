"""Share groups (KIP-932): their records and their target, which has initialised partitions only.

Several members may read one partition. A member keeps what it has, as far as that stays even.

Kafka: the share part of org.apache.kafka.coordinator.group.GroupMetadataManager,
GroupCoordinatorRecordHelpers.newShareGroup*,
TargetAssignmentBuilder.ShareTargetAssignmentBuilder; GroupMetadataManager.shareGroupDescribe,
ShareGroup.asDescribedGroup; org.apache.kafka.coordinator.group.assignor.SimpleAssignor.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ottla.coordinator.group.context import ShareGroupConfig
from ottla.coordinator.group.group_kind import GroupEnvironment, GroupKind, RecordType
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
from ottla.coordinator.runtime.shard import Result
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis import share_group_describe as api
from ottla.protocol.records import share_group as schemas

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ottla.coordinator.group.slices import Steps
    from ottla.types import Uuid

    _Partition = tuple[Uuid, int]


def _assign_simple(
    subscriptions: Mapping[str, tuple[Uuid, ...]],
    partitions: Mapping[Uuid, Iterable[int]],
    owned: Mapping[str, Mapping[Uuid, tuple[int, ...]]],
) -> Steps[dict[str, dict[Uuid, tuple[int, ...]]]]:
    """Return the partitions of each member; subscriptions by member id, partitions assignable.

    Topics that the same members read are assigned together.
    """
    readers: dict[Uuid, list[str]] = {}
    for position, member_id in enumerate(sorted(subscriptions)):
        if position % SLICE == SLICE - 1:
            yield
        for topic_id in subscriptions[member_id]:
            readers.setdefault(topic_id, []).append(member_id)
    together: dict[tuple[str, ...], list[_Partition]] = {}
    for topic_id, names in readers.items():
        indexes = sorted(partitions.get(topic_id, ()))
        together.setdefault(tuple(names), []).extend((topic_id, index) for index in indexes)
    target: dict[str, dict[Uuid, list[int]]] = {name: {} for name in subscriptions}
    for same, targets in together.items():
        assigned = yield from _assign(same, targets, owned)
        for position, (name, own) in enumerate(assigned.items()):
            for topic_id, index in sorted(own):
                target[name].setdefault(topic_id, []).append(index)
            if position % SLICE == SLICE - 1:
                yield
    return {
        name: {topic_id: tuple(indexes) for topic_id, indexes in own.items()}
        for name, own in target.items()
    }


def _assign(
    names: tuple[str, ...],
    targets: list[_Partition],
    owned: Mapping[str, Mapping[Uuid, tuple[int, ...]]],
) -> Steps[dict[str, dict[_Partition, None]]]:
    """Assign partitions to members that all subscribe to them."""
    own: dict[str, dict[_Partition, None]] = {name: {} for name in names}
    if not targets:
        return own
    sharing = -(-len(names) // len(targets))
    readers = dict.fromkeys(targets, 0)
    limits = _even_parts(sharing * len(targets), len(names))
    for position, (name, limit) in enumerate(zip(names, limits, strict=True)):
        if position % SLICE == SLICE - 1:
            yield
        for topic_id, indexes in owned.get(name, {}).items():
            for index in indexes:
                key = (topic_id, index)
                if readers.get(key, sharing) < sharing and len(own[name]) < limit:
                    own[name][key] = None
                    readers[key] += 1
    yield from _fill(list(zip(own.values(), limits, strict=True)), targets, readers, sharing)
    return own


def _fill(
    members: Iterable[tuple[dict[_Partition, None], int]],
    targets: list[_Partition],
    readers: Mapping[_Partition, int],
    sharing: int,
) -> Steps[None]:
    heap = [(readers[key], position) for position, key in enumerate(targets)]
    heapify(heap)
    for number, (own, limit) in enumerate(members):
        if number % SLICE == SLICE - 1:
            yield
        passed: list[tuple[int, int]] = []  # come again for the next member only
        while heap and len(own) < limit and heap[0][0] < sharing:
            count, position = heappop(heap)
            key = targets[position]
            is_taken = key not in own
            own[key] = None
            passed.append((count + is_taken, position))
        for entry in passed:
            heappush(heap, entry)


def _even_parts(total: int, count: int) -> list[int]:
    """Return count numbers that differ by one at most and add up to total."""
    bounds = [-(-total * index // count) for index in range(count + 1)]
    return [end - begin for begin, end in pairwise(bounds)]


_DescribedGroup = api.ShareGroupDescribeResponse.DescribedGroup
_ASSIGNOR: Final = "simple"


Partitions: TypeAlias = "Mapping[Uuid, tuple[int, ...]]"


class ShareGroups(GroupKind[ShareGroup, ShareMember, Partitions, ShareGroupConfig]):
    """Adds the share partitions that have a state at a share coordinator."""

    name = ShareGroup.group_type
    described_class = _DescribedGroup
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
    member_fields = ("rack_id", "client_id", "client_host")
    assignment_fields = ("member_epoch", "previous_member_epoch", "assigned")

    def __init__(self, environment: GroupEnvironment) -> None:
        super().__init__(environment)
        self.settings = environment.dependencies.share_settings

    def described_fields(self, _group: ShareGroup, _epoch: int) -> dict[str, Any]:
        """Return the only assignor."""
        return {"assignor_name": _ASSIGNOR}

    def describe_member(
        self, member: ShareMember, _target: Partitions | None
    ) -> _DescribedGroup.Member:
        """Describe a member, whose target is not shown: partitions of share groups move at once."""
        topics = self.topics
        named = ((topic_id, topics.topic_name(topic_id)) for topic_id in member.assigned)
        return _DescribedGroup.Member(
            member_id=member.member_id,
            rack_id=member.rack_id,
            member_epoch=member.member_epoch,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=list(member.subscribed_topics),
            assignment=api.Assignment(
                topic_partitions=[
                    api.TopicPartitions(
                        topic_id=topic_id,
                        topic_name=name,
                        partitions=list(member.assigned[topic_id]),
                    )
                    for topic_id, name in named
                    if name is not None
                ]
            ),
        )

    @classmethod
    def refused(cls, group_id: str, code: ErrorCode) -> Any:
        """Return the description of a group whose coordinator does not serve it."""
        return cls.undescribed(group_id, code, code.text if group_id else None)

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
            **super().read_member(value),
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

    def written_fields(self, member: ShareMember) -> dict[str, Any]:
        """Return the subscription."""
        return {"subscribed_topic_names": list(member.subscribed_topics)}

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
            subscriptions[member_id] = tuple(
                topic_id for topic_id in topic_ids if topic_id is not None
            )
        partitions = {topic_id: topic.partitions for topic_id, topic in known.initialized.items()}
        return (yield from _assign_simple(subscriptions, partitions, dict(group.target.items())))

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
