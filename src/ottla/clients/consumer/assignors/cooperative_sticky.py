"""The cooperative sticky assignor: partitions move to another member in two rebalances.

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
    """Withholds a moved partition until its owner has revoked it.

    The owner sees that the partition is no longer assigned, revokes it and rejoins; the next
    rebalance assigns it to its new owner.
    """

    name = "cooperative-sticky"
    cooperative = True

    def assign(self, partition_counts: Mapping[str, int], members: list[Member]) -> Assignment:
        """Balance, then remove the partitions that another member still owns."""
        members = [_with_generation(member) for member in members]
        result = balance(partition_counts, members)
        owned = {member.member_id: frozenset(member.owned) for member in members}
        # In any generation: the claiming member reads the partition until its next rebalance.
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
