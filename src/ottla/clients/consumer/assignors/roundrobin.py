"""The round-robin assignor: all partitions in turn to the subscribed members.

Kafka: org.apache.kafka.clients.consumer.RoundRobinAssignor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ottla.clients.consumer.assignors.interface import Assignment, Member


class RoundRobinAssignor:
    """Balanced over all topics, without regard to the previous assignment."""

    name = "roundrobin"
    cooperative = False

    def assign(self, partition_counts: Mapping[str, int], members: list[Member]) -> Assignment:
        """Assign the sorted partitions in turn."""
        result: Assignment = {member.member_id: [] for member in members}
        circle = sorted(members, key=lambda m: m.order)
        requested = {topic for member in members for topic in member.topics}
        turn = 0
        for topic in sorted(requested & set(partition_counts)):
            for partition in range(partition_counts[topic]):
                while topic not in circle[turn % len(circle)].topics:
                    turn += 1
                result[circle[turn % len(circle)].member_id].append(
                    TopicPartition(topic, partition)
                )
                turn += 1
        return result

    def user_data(self, owned: Iterable[TopicPartition], generation: int) -> bytes | None:  # noqa: ARG002
        """Return no user data."""
        return None
