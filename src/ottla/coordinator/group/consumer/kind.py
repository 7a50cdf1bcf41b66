"""Consumer groups (KIP-848): their records, their target, and the timers of classic members.

Kafka: the consumer part of org.apache.kafka.coordinator.group.GroupMetadataManager,
GroupCoordinatorRecordHelpers.newConsumerGroup*, modern.TargetAssignmentBuilder (KIP-1263);
GroupMetadataManager.consumerGroupDescribe, ConsumerGroup.asDescribedGroup.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from ottla.coordinator.group.consumer.assignors import ASSIGNORS
from ottla.coordinator.group.consumer.assignors.uniform import AssignorInput, MemberInput
from ottla.coordinator.group.consumer.group import (
    ClassicMetadata,
    ConsumerGroup,
    ConsumerMember,
    ConsumerState,
    EpochsByPartition,
    MemberState,
    ResolvedRegex,
    TopicPartitions,
    subscribed_topics,
    topics_of,
    without_epochs,
)
from ottla.coordinator.group.context import ConsumerGroupConfig
from ottla.coordinator.group.group_kind import (
    GroupEnvironment,
    GroupKind,
    MemberTimer,
    RecordType,
    with_epochs,
)
from ottla.coordinator.group.slices import SLICE
from ottla.coordinator.runtime import CoordinatorRecord
from ottla.coordinator.runtime.shard import Result, replace_response
from ottla.protocol.apis import consumer_group_describe as api
from ottla.protocol.records import consumer_group as schemas

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ottla.coordinator.group.context import TopicNames
    from ottla.coordinator.group.slices import Steps
    from ottla.types import Uuid


_DescribedGroup = api.ConsumerGroupDescribeResponse.DescribedGroup
_CLASSIC_MEMBER = 0
_CONSUMER_MEMBER = 1


def _owned(member: ConsumerMember) -> TopicPartitions:
    owned = without_epochs(member.assigned)
    for topic_id, partitions in without_epochs(member.pending_revocation).items():
        owned[topic_id] = (*owned.get(topic_id, ()), *partitions)
    return owned


def _assignment(topics: TopicNames, partitions: TopicPartitions) -> api.Assignment:
    named = ((topic_id, topics.topic_name(topic_id)) for topic_id in partitions)
    return api.Assignment(
        topic_partitions=[
            api.TopicPartitions(
                topic_id=topic_id, topic_name=name, partitions=list(partitions[topic_id])
            )
            for topic_id, name in named
            if name is not None
        ]
    )


R = TypeVar("R")
Downgrade: TypeAlias = "Callable[[ConsumerGroup, Sequence[ConsumerMember]], Result[None] | None]"


class ConsumerGroups(
    GroupKind[ConsumerGroup, ConsumerMember, TopicPartitions, ConsumerGroupConfig]
):
    """Adds resolved regular expressions, and members of the classic protocol."""

    name = ConsumerGroup.group_type
    described_class = _DescribedGroup
    group_class = ConsumerGroup
    member_class = ConsumerMember
    states = ConsumerState
    epoch_record = RecordType(
        3, schemas.ConsumerGroupMetadataKey, schemas.ConsumerGroupMetadataValue
    )
    member_record = RecordType(
        5, schemas.ConsumerGroupMemberMetadataKey, schemas.ConsumerGroupMemberMetadataValue
    )
    target_epoch_record = RecordType(
        6,
        schemas.ConsumerGroupTargetAssignmentMetadataKey,
        schemas.ConsumerGroupTargetAssignmentMetadataValue,
    )
    target_record = RecordType(
        7,
        schemas.ConsumerGroupTargetAssignmentMemberKey,
        schemas.ConsumerGroupTargetAssignmentMemberValue,
    )
    assignment_record = RecordType(
        8,
        schemas.ConsumerGroupCurrentMemberAssignmentKey,
        schemas.ConsumerGroupCurrentMemberAssignmentValue,
    )
    other_records = (
        RecordType(
            4,
            schemas.ConsumerGroupPartitionMetadataKey,
            schemas.ConsumerGroupPartitionMetadataValue,
        ),
        RecordType(
            16,
            schemas.ConsumerGroupRegularExpressionKey,
            schemas.ConsumerGroupRegularExpressionValue,
        ),
    )
    member_fields = (
        "instance_id",
        "rack_id",
        "client_id",
        "client_host",
        "rebalance_timeout_ms",
        "server_assignor",
    )
    assignment_fields = (
        "member_epoch",
        "previous_member_epoch",
        "state",
        "assigned",
        "pending_revocation",
    )
    revoking_state = MemberState.UNREVOKED_PARTITIONS

    def __init__(self, environment: GroupEnvironment) -> None:
        super().__init__(environment)
        self.settings = environment.dependencies.settings
        self.new_member_id = environment.dependencies.new_member_id
        self.downgrade: Downgrade = lambda _group, _leaving: None
        """Makes a group classic whose last member of the consumer protocol leaves.

        None where it stays a consumer group.
        """

    def described_fields(self, group: ConsumerGroup, epoch: int) -> dict[str, Any]:
        """Return the assignor that most members name, or the default one."""
        default = self.settings(group.group_id).assignors[0]
        return {"assignor_name": group.preferred_assignor_at(epoch) or default}

    def describe_member(
        self, member: ConsumerMember, target: TopicPartitions | None
    ) -> _DescribedGroup.Member:
        """Describe a member with its target."""
        return _DescribedGroup.Member(
            member_id=member.member_id,
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            member_epoch=member.member_epoch,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=list(member.subscribed_topics),
            subscribed_topic_regex=member.subscribed_regex or "",
            assignment=_assignment(self.topics, _owned(member)),
            target_assignment=_assignment(self.topics, target or {}),
            member_type=_CONSUMER_MEMBER if member.classic is None else _CLASSIC_MEMBER,
        )

    # ---------------------------------------------------------------- replay

    def read_member(self, value: Any) -> dict[str, Any]:
        """Return the fields of a member by the record of its subscription."""
        classic = value.classic_member_metadata
        return {
            **super().read_member(value),
            "subscribed_topics": tuple(value.subscribed_topic_names),
            "subscribed_regex": value.subscribed_topic_regex,
            "classic": None
            if classic is None
            else ClassicMetadata(
                classic.session_timeout_ms,
                tuple(
                    (protocol.name, protocol.metadata) for protocol in classic.supported_protocols
                ),
            ),
        }

    def read_target(self, value: Any) -> TopicPartitions:
        """Return a target by its record."""
        return {topic.topic_id: tuple(sorted(topic.partitions)) for topic in value.topic_partitions}

    def read_assignment(self, value: Any) -> dict[str, Any]:
        """Return the fields of a member by the record of its assignment."""
        epoch = value.member_epoch
        return {
            "member_epoch": epoch,
            "previous_member_epoch": value.previous_member_epoch,
            "state": MemberState(value.state),
            "assigned": _epochs(value.assigned_partitions, epoch),
            "pending_revocation": _epochs(value.partitions_pending_revocation, epoch),
        }

    def apply_other(self, group: ConsumerGroup, key: Any, value: Any, _offset: int) -> None:
        """Apply a resolved regular expression, or partition counts of an earlier release."""
        if type(key) is schemas.ConsumerGroupPartitionMetadataKey:
            group.has_partition_metadata.value = value is not None
        elif value is None:
            group.resolved.pop(key.regular_expression, None)
        else:
            group.resolved[key.regular_expression] = ResolvedRegex(
                tuple(value.topics), value.version, value.timestamp
            )

    # ---------------------------------------------------------------- records

    def written_fields(self, member: ConsumerMember) -> dict[str, Any]:
        """Return the subscription."""
        value = schemas.ConsumerGroupMemberMetadataValue
        classic = None
        if member.classic is not None:
            classic = value.ClassicMemberMetadata(
                session_timeout_ms=member.classic.session_timeout_ms,
                supported_protocols=[
                    value.ClassicMemberMetadata.ClassicProtocol(name=name, metadata=metadata)
                    for name, metadata in member.classic.protocols
                ],
            )
        return {
            "subscribed_topic_names": list(member.subscribed_topics),
            "subscribed_topic_regex": member.subscribed_regex,
            "classic_member_metadata": classic,
        }

    def target_value(
        self, target: TopicPartitions
    ) -> schemas.ConsumerGroupTargetAssignmentMemberValue:
        """Return the value of a target."""
        value = schemas.ConsumerGroupTargetAssignmentMemberValue
        return value(
            topic_partitions=[
                value.TopicPartition(topic_id=topic_id, partitions=list(indexes))
                for topic_id, indexes in target.items()
            ]
        )

    def assignment_value(
        self, member: ConsumerMember
    ) -> schemas.ConsumerGroupCurrentMemberAssignmentValue:
        """Return the value of a member's state, epochs and partitions."""
        return schemas.ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=member.member_epoch,
            previous_member_epoch=member.previous_member_epoch,
            state=int(member.state),
            assigned_partitions=_partitions(member.assigned),
            partitions_pending_revocation=_partitions(member.pending_revocation),
        )

    def regex(self, group_id: str, pattern: str, resolved: ResolvedRegex) -> CoordinatorRecord:
        """Return the record of a resolved regular expression."""
        return CoordinatorRecord(
            schemas.ConsumerGroupRegularExpressionKey(
                group_id=group_id, regular_expression=pattern
            ),
            schemas.ConsumerGroupRegularExpressionValue(
                topics=list(resolved.topics),
                version=resolved.version,
                timestamp=resolved.timestamp_ms,
            ),
        )

    def regex_tombstone(self, group_id: str, pattern: str) -> CoordinatorRecord:
        """Return the record that removes a resolved regular expression."""
        key = schemas.ConsumerGroupRegularExpressionKey
        return CoordinatorRecord(key(group_id=group_id, regular_expression=pattern))

    def partition_metadata_tombstone(self, group_id: str) -> CoordinatorRecord:
        """Return the record that removes partition counts, which earlier releases wrote."""
        return CoordinatorRecord(schemas.ConsumerGroupPartitionMetadataKey(group_id=group_id))

    def group_records(self, group: ConsumerGroup) -> list[CoordinatorRecord]:
        """Return the records of a whole group with its members, in Kafka's order."""
        group_id, members = group.group_id, tuple(group.members.values())
        return [
            *(self.member_metadata(group_id, member) for member in members),
            self.group_epoch(group_id, group.epoch, group.metadata_hash),
            *(
                self.target_member(
                    group_id, member.member_id, group.target.get(member.member_id, {})
                )
                for member in members
            ),
            self.target_epoch(group_id, group.assignment_epoch, group.assignment_timestamp_ms),
            *(self.current_assignment(group_id, member) for member in members),
        ]

    def last_tombstones(self, group: ConsumerGroup) -> list[CoordinatorRecord]:
        """Return the records that remove a group without members and target."""
        return [
            *(self.regex_tombstone(group.group_id, pattern) for pattern in group.resolved),
            self.partition_metadata_tombstone(group.group_id),
            *super().last_tombstones(group),
        ]

    # ---------------------------------------------------------------- target

    def members_with(self, group: ConsumerGroup, member: Any) -> dict[str, ConsumerMember]:
        """Return the members by id after a change of one; a static one takes another's place."""
        members = dict(group.members)
        if member.instance_id is not None:
            replaced = group.static_member_id(member.instance_id)
            if replaced is not None and replaced != member.member_id:
                members.pop(replaced, None)
        members[member.member_id] = member
        return members

    def last_target(self, group: ConsumerGroup, member: Any) -> TopicPartitions:
        """Return the target of a member, for a static one of its instance id."""
        return group.target_of(member.member_id, member.instance_id)

    def compute_target(
        self, group: ConsumerGroup, members: dict[str, ConsumerMember]
    ) -> Steps[dict[str, TopicPartitions]]:
        """Compute the targets of a group's members by the assignor that most of them name."""
        assignors = self.settings(group.group_id).assignors
        assignor = group.preferred_assignor_at(replaced=members)
        assign = ASSIGNORS[assignor if assignor in assignors else assignors[0]]
        ids: dict[str, Uuid | None] = {}
        inputs: list[MemberInput] = []
        for position, member_id in enumerate(sorted(members)):
            if position % SLICE == SLICE - 1:
                yield
            member = members[member_id]
            names = sorted(topics_of(group, member))
            for name in names:
                if name not in ids:
                    ids[name] = self.topics.topic_id(name)
            topic_ids = [topic_id for name in names if (topic_id := ids[name]) is not None]
            owned = dict(group.target_of(member_id, member.instance_id))
            inputs.append(MemberInput(member_id, member.instance_id, topic_ids, owned))
        counts = {
            topic_id: self.topics.partition_count(name) or 0
            for name, topic_id in sorted(ids.items())
            if topic_id is not None
        }
        return (yield from assign(AssignorInput(inputs, counts)))

    # ---------------------------------------------------------------- members' timers

    def remove(self, group: ConsumerGroup, member: ConsumerMember) -> Result[None]:
        """Remove a member whose time is over."""
        return self.fence(group, [member], None)

    def fence(
        self, group: ConsumerGroup, members: Sequence[ConsumerMember], response: R
    ) -> Result[R]:
        """Remove members; the group becomes a classic one if only classic members are left."""
        if not members:
            return Result(response)
        downgraded = self.downgrade(group, members)
        if downgraded is None:
            return Result(response, self._remove_members(group, members))
        return replace_response(downgraded, response)

    def _remove_members(
        self, group: ConsumerGroup, members: Sequence[ConsumerMember]
    ) -> list[CoordinatorRecord]:
        """Return the records that remove members and raise the group epoch; end their timers."""
        group_id = group.group_id
        output: list[CoordinatorRecord] = []
        for member in members:
            output += self.member_tombstones(group_id, member.member_id)
        counts = dict(group.regex_counts)
        for member in members:
            pattern = member.subscribed_regex
            if pattern:
                counts[pattern] = counts.get(pattern, 0) - 1
        output += [
            self.regex_tombstone(group_id, pattern)
            for pattern in group.resolved
            if counts.get(pattern, 0) <= 0
        ]
        new_hash = self.hashes.of(subscribed_topics(group, removed=members))
        output.append(self.group_epoch(group_id, group.epoch + 1, new_hash))
        for member in members:
            self.cancel_timers(group_id, member.member_id)
        return output

    def is_classic(self, member: ConsumerMember) -> bool:
        """Whether a member speaks the classic protocol."""
        return member.classic is not None

    def await_join(self, group_id: str, member: ConsumerMember) -> None:
        """Fence a member of the classic protocol unless it rejoins within its rebalance timeout."""
        if not self.expects(MemberTimer.JOIN, group_id, member.member_id):
            reason = "the classic member failed to join within the rebalance timeout."
            timeout_ms = member.rebalance_timeout_ms
            self.fence_after(MemberTimer.JOIN, group_id, member.member_id, timeout_ms, reason)

    def await_sync(self, group_id: str, member_id: str, timeout_ms: int) -> None:
        """Fence a member of the classic protocol unless it syncs within its rebalance timeout."""
        reason = "the member failed to sync within timeout."
        self.fence_after(MemberTimer.SYNC, group_id, member_id, timeout_ms, reason)


def _epochs(topics: list[schemas.TopicPartitions], member_epoch: int) -> EpochsByPartition:
    return {
        topic.topic_id: with_epochs(topic.partitions, topic.assignment_epochs, member_epoch)
        for topic in topics
    }


def _partitions(assignment: EpochsByPartition) -> list[schemas.TopicPartitions]:
    return [
        schemas.TopicPartitions(
            topic_id=topic_id,
            partitions=list(epochs),
            assignment_epochs=list(epochs.values()),
        )
        for topic_id, epochs in assignment.items()
    ]
