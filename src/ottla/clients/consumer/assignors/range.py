"""The range assignor: per topic, consecutive partitions to members in order.

Kafka: org.apache.kafka.clients.consumer.RangeAssignor (without racks: KIP-881 is not implemented).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ottla.clients.consumer.assignors.interface import Assignment, Member


class RangeAssignor:
    """The default assignor."""

    name = "range"
    cooperative = False

    def assign(self, partition_counts: Mapping[str, int], members: list[Member]) -> Assignment:
        """Assign each topic separately; the first members get one partition more."""
        result: Assignment = {member.member_id: [] for member in members}
        for topic, count in sorted(partition_counts.items()):
            interested = sorted(
                (member for member in members if topic in member.topics), key=lambda m: m.order
            )
            if not interested:
                continue
            each, extra = divmod(count, len(interested))
            start = 0
            for index, member in enumerate(interested):
                size = each + (1 if index < extra else 0)
                result[member.member_id] += [
                    TopicPartition(topic, partition) for partition in range(start, start + size)
                ]
                start += size
        return result

    def user_data(self, owned: Iterable[TopicPartition], generation: int) -> bytes | None:  # noqa: ARG002
        """Return no user data."""
        return None
