"""ShareGroupDescribe.

Kafka: GroupMetadataManager.shareGroupDescribe, ShareGroup.asDescribedGroup.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.coordinator.group.group import Description
from ottla.protocol.apis import share_group_describe as api

if TYPE_CHECKING:
    from ottla.coordinator.group.context import TopicNames
    from ottla.coordinator.group.share.group import ShareGroup, ShareMember
    from ottla.errors import ErrorCode

DescribedGroup = api.ShareGroupDescribeResponse.DescribedGroup
_ASSIGNOR: Final = "simple"


def describe(group: ShareGroup, epoch: int, topics: TopicNames) -> Description[DescribedGroup]:
    """Describe a group in the log's state of an epoch."""
    group_epoch, assignment_epoch = group.epochs_at(epoch)
    members = list(group.members.at(epoch).values())
    described = DescribedGroup(
        group_id=group.group_id,
        group_state=group.state_at(epoch).value,
        group_epoch=group_epoch,
        assignment_epoch=assignment_epoch,
        assignor_name=_ASSIGNOR,
        members=[],
    )
    return Description(described, (_member(topics, one) for one in members))


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


def _member(topics: TopicNames, member: ShareMember) -> DescribedGroup.Member:
    named = ((topic_id, topics.topic_name(topic_id)) for topic_id in member.assigned)
    return DescribedGroup.Member(
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
