"""The sticky assignment, reached without stopping anyone: partitions change hands in two steps.

Kafka: org.apache.kafka.clients.consumer.CooperativeStickyAssignor. KIP-429.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.clients.consumer.assignors.sticky import balance

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ottla.clients.consumer.assignors.interface import Assignment, Member
    from ottla.types import TopicPartition


class CooperativeStickyAssignor:
    """Withholds a partition that must move until its owner has given it up.

    The owner sees that it lost the partition, revokes it and joins again; in that next round the
    partition is free and goes to its new owner.
    """

    name = "cooperative-sticky"
    cooperative = True

    def assign(self, partition_counts: Mapping[str, int], members: list[Member]) -> Assignment:
        """Balance, then take out what still has another owner."""
        members = [_with_generation(member) for member in members]
        result = balance(partition_counts, members)
        owned = {member.member_id: frozenset(member.owned) for member in members}
        # Whatever generation the claim is of: who makes it reads the partition until it hears more.
        leaving = {
            partition
            for name, partitions in owned.items()
            for partition in partitions.difference(result[name])
        }
        return {
            name: [p for p in partitions if p in owned[name] or p not in leaving]
            for name, partitions in result.items()
        }

    def user_data(self, owned: Iterable[TopicPartition], generation: int) -> bytes | None:  # noqa: ARG002
        """Return the generation, for members whose subscription version lacks it."""
        return generation.to_bytes(4, "big", signed=True)


def _with_generation(member: Member) -> Member:
    if member.generation < 0 and member.user_data and len(member.user_data) >= 4:
        return member._replace(generation=int.from_bytes(member.user_data[:4], "big", signed=True))
    return member
