"""The sticky assignor: balanced, with as few moved partitions as possible.

Kafka: org.apache.kafka.clients.consumer.{StickyAssignor, internals.AbstractStickyAssignor}.

Members keep the partitions they own as far as the balance allows; unassigned ones go to the member
with the fewest. Then partitions move from members with more to members with fewer while the
difference is two or more. Claims of an older generation lose against newer ones (KIP-341).
"""

from __future__ import annotations

from bisect import insort
from typing import TYPE_CHECKING

from ottla.clients.arguments import by_topic
from ottla.protocol import codec
from ottla.protocol.schema import Struct, field, int32
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ottla.clients.consumer.assignors.interface import Assignment, Member


class StickyUserData(Struct, versions="0-1", flexible="none"):
    """The user data of an eager sticky member: its last assignment."""

    previous_assignment: list[TopicPartitions]
    generation: int32 = field("1+", default=-1)

    class TopicPartitions(Struct):
        """Partitions of one topic."""

        topic: str
        partitions: list[int32]


def balance(partition_counts: Mapping[str, int], members: list[Member]) -> Assignment:
    """Return the sticky, balanced assignment."""
    ordered = sorted(members, key=lambda m: m.order)
    result: Assignment = {member.member_id: [] for member in ordered}
    topics = {member.member_id: frozenset(member.topics) for member in ordered}
    owners = _valid_claims(partition_counts, ordered)
    for partition in sorted(owners):
        result[owners[partition]].append(partition)
    unowned = [
        TopicPartition(topic, number)
        for topic in sorted(partition_counts)
        for number in range(partition_counts[topic])
        if TopicPartition(topic, number) not in owners
    ]
    _deliver(unowned, result, topics)
    _balance(result, topics)
    return result


def _valid_claims(
    partition_counts: Mapping[str, int], members: list[Member]
) -> dict[TopicPartition, str]:
    """Return the valid claims: those of the newest generation, none if two members tie."""
    claims: dict[TopicPartition, tuple[int, str]] = {}
    for member in members:
        for partition in member.owned:
            exists = 0 <= partition.partition < partition_counts.get(partition.topic, 0)
            if not exists or partition.topic not in member.topics:
                continue
            before = claims.get(partition)
            if before is None or member.generation > before[0]:
                claims[partition] = (member.generation, member.member_id)
            elif member.generation == before[0]:
                claims[partition] = (member.generation, "")
    return {partition: owner for partition, (_, owner) in claims.items() if owner}


def _deliver(
    unowned: list[TopicPartition], result: Assignment, topics: Mapping[str, frozenset[str]]
) -> None:
    """Assign each partition to the subscribed member with the fewest."""
    order = {member_id: index for index, member_id in enumerate(result)}
    by_load = sorted((len(parts), order[name], name) for name, parts in result.items())
    for partition in unowned:
        for index, (_, _, name) in enumerate(by_load):
            if partition.topic in topics[name]:
                del by_load[index]
                result[name].append(partition)
                insort(by_load, (len(result[name]), order[name], name))
                break


def _balance(result: Assignment, topics: Mapping[str, frozenset[str]]) -> None:
    """Move partitions from the member with the most to the one with the fewest."""
    while True:
        names = sorted(result, key=lambda name: len(result[name]))
        moved = False
        for taker in names:
            for giver in reversed(names):
                if len(result[giver]) - len(result[taker]) < 2:
                    break
                requested = [p for p in result[giver] if p.topic in topics[taker]]
                if requested:
                    result[giver].remove(requested[-1])
                    result[taker].append(requested[-1])
                    moved = True
                    break
            if moved:
                break
        if not moved:
            return


class StickyAssignor:
    """The eager variant: its user data report the last assignment to the leader."""

    name = "sticky"
    cooperative = False

    def assign(self, partition_counts: Mapping[str, int], members: list[Member]) -> Assignment:
        """Balance, starting from the assignments in the user data."""
        return balance(partition_counts, [_with_user_data(member) for member in members])

    def user_data(self, owned: Iterable[TopicPartition], generation: int) -> bytes | None:
        """Return the last assignment and its generation."""
        body = StickyUserData(
            previous_assignment=[
                StickyUserData.TopicPartitions(topic=topic, partitions=numbers)
                for topic, numbers in by_topic(owned).items()
            ],
            generation=generation,
        )
        return codec.to_bytes(body, 1)


def _with_user_data(member: Member) -> Member:
    if not member.user_data:
        return member
    for version in (1, 0):
        try:
            body = codec.decode(StickyUserData, version, member.user_data)
        except Exception:  # noqa: BLE001, S112 - foreign bytes: whatever is unreadable is ignored
            continue
        owned = tuple(
            TopicPartition(one.topic, number)
            for one in body.previous_assignment
            for number in one.partitions
        )
        return member._replace(owned=owned, generation=body.generation)
    return member
