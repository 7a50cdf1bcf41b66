"""ConsumerGroupDescribe.

Kafka: GroupMetadataManager.consumerGroupDescribe, ConsumerGroup.asDescribedGroup.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.coordinator.group.consumer.member import ConsumerMember, without_epochs
from ottla.coordinator.group.group import Description
from ottla.protocol.apis import consumer_group_describe as api

if TYPE_CHECKING:
    from ottla.coordinator.group.consumer.group import ConsumerGroup
    from ottla.coordinator.group.consumer.member import TopicPartitions
    from ottla.coordinator.group.context import TopicNames
    from ottla.errors import ErrorCode

DescribedGroup = api.ConsumerGroupDescribeResponse.DescribedGroup
_CLASSIC_MEMBER = 0
_CONSUMER_MEMBER = 1


def describe(
    group: ConsumerGroup, epoch: int, topics: TopicNames, *, default_assignor: str
) -> Description[DescribedGroup]:
    """Describe a group in the log's state of an epoch."""
    group_epoch, assignment_epoch = group.epochs_at(epoch)
    assignor = group.preferred_assignor_at(epoch)
    members, target = list(group.members.at(epoch).values()), dict(group.target.at(epoch))
    described = DescribedGroup(
        group_id=group.group_id,
        group_state=group.state_at(epoch).value,
        group_epoch=group_epoch,
        assignment_epoch=assignment_epoch,
        assignor_name=assignor or default_assignor,
        members=[],
    )
    return Description(
        described, (_member(topics, one, target.get(one.member_id, {})) for one in members)
    )


def undescribed(group_id: str, code: ErrorCode, text: str | None = None) -> DescribedGroup:
    """Return the description of a group that cannot be described."""
    return DescribedGroup(
        error_code=code,
        error_message=text,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=[],
    )


def _member(
    topics: TopicNames, member: ConsumerMember, target: TopicPartitions
) -> DescribedGroup.Member:
    return DescribedGroup.Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.subscribed_topics),
        subscribed_topic_regex=member.subscribed_regex or "",
        assignment=_assignment(topics, _owned(member)),
        target_assignment=_assignment(topics, target),
        member_type=_CONSUMER_MEMBER if member.classic is None else _CLASSIC_MEMBER,
    )


def _owned(member: ConsumerMember) -> TopicPartitions:
    """Return the partitions of a member, with those that it has to give up."""
    owned = without_epochs(member.assigned)
    for topic_id, partitions in without_epochs(member.pending_revocation).items():
        owned[topic_id] = (*owned.get(topic_id, ()), *partitions)
    return owned


def _assignment(topics: TopicNames, partitions: TopicPartitions) -> api.Assignment:
    """Return an assignment, without deleted topics."""
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
