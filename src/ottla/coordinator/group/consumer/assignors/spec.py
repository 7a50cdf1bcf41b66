"""What an assignor gets: the members with their topics and previous targets, and the topics.

Kafka: org.apache.kafka.coordinator.group.api.assignor.{GroupSpec, SubscribedTopicDescriber}.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ottla.coordinator.group.consumer.member import TopicPartitions
    from ottla.types import Uuid


class MemberInput(NamedTuple):
    """A member; owned is its previous target assignment."""

    member_id: str
    instance_id: str | None
    topic_ids: list[Uuid]
    owned: TopicPartitions


class AssignorInput(NamedTuple):
    """The members in the order of their ids, and the number of partitions of each topic."""

    members: list[MemberInput]
    partition_counts: dict[Uuid, int]

    @property
    def is_homogeneous(self) -> bool:
        """Whether all members subscribe to the same topics."""
        return all(one.topic_ids == self.members[0].topic_ids for one in self.members)


def sorted_partitions(assignment: dict[Uuid, set[int]]) -> TopicPartitions:
    """Return an assignment with rising partitions, without topics that have none."""
    return {
        topic_id: tuple(sorted(partitions))
        for topic_id, partitions in assignment.items()
        if partitions
    }
