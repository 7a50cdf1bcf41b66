"""All partitions of all topics, dealt out in turn to members that want them.

Kafka: org.apache.kafka.clients.consumer.RoundRobinAssignor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ottla.clients.consumer.assignors.interface import Assignment, Member


class RoundRobinAssignor:
    """Even over topics, with no memory of what was."""

    name = "roundrobin"
    cooperative = False

    def assign(self, partition_counts: Mapping[str, int], members: list[Member]) -> Assignment:
        """Deal the sorted partitions out."""
        result: Assignment = {member.member_id: [] for member in members}
        circle = sorted(members, key=lambda m: m.order)
        wanted = {topic for member in members for topic in member.topics}
        turn = 0
        for topic in sorted(wanted & set(partition_counts)):
            for partition in range(partition_counts[topic]):
                while topic not in circle[turn % len(circle)].topics:
                    turn += 1
                result[circle[turn % len(circle)].member_id].append(
                    TopicPartition(topic, partition)
                )
                turn += 1
        return result

    def user_data(self, owned: Iterable[TopicPartition], generation: int) -> bytes | None:  # noqa: ARG002
        """Send nothing along."""
        return None
