"""Partition assignors: interface and wire format, and range, round-robin and the sticky ones.

The sticky ones balance with as few moved partitions as possible. Members keep the partitions they
own as far as the balance allows; unassigned ones go to the member with the fewest. Then partitions
move from members with more to members with fewer while the difference is two or more. Claims of an
older generation lose against newer ones (KIP-341).

Kafka: org.apache.kafka.clients.consumer.{ConsumerPartitionAssignor, StickyAssignor, RangeAssignor,
CooperativeStickyAssignor, RoundRobinAssignor}, internals.AbstractStickyAssignor. KIP-429. Its range
assignor also prefers leaders in the member's rack (KIP-881), ours does not.
"""

from __future__ import annotations

from bisect import insort
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ottla.clients.arguments import by_topic
from ottla.errors import ConfigError, CorruptMessage
from ottla.protocol import codec
from ottla.protocol.records.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from ottla.protocol.schema import Struct, field, int32
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ottla.types import Buffer

PROTOCOL_TYPE = "consumer"
SUBSCRIPTION_VERSION = 3
ASSIGNMENT_VERSION = 0

Assignment = dict[str, list[TopicPartition]]


class Member(NamedTuple):
    """A group member with its subscription."""

    member_id: str
    topics: tuple[str, ...]
    instance_id: str | None = None
    owned: tuple[TopicPartition, ...] = ()
    generation: int = -1
    rack: str | None = None
    user_data: bytes | None = None

    @property
    def order(self) -> tuple[str, str]:
        """Sort key: static members first, by instance id, so that restarts keep the order."""
        return ("0" + self.instance_id if self.instance_id else "1", self.member_id)


class Assignor(Protocol):
    """Assigns partitions to members; deterministic on every client."""

    name: str
    cooperative: bool

    def assign(self, partition_counts: Mapping[str, int], members: list[Member]) -> Assignment:
        """Return each member's partitions; topics without a count do not exist."""

    def user_data(self, owned: Iterable[TopicPartition], generation: int) -> bytes | None:
        """Return the user data of a subscription."""


def encode_subscription(member: Member) -> bytes:
    """Return a member's subscription, prefixed by its version."""
    body = ConsumerProtocolSubscription(
        topics=list(member.topics),
        user_data=member.user_data,
        owned_partitions=[
            ConsumerProtocolSubscription.TopicPartition(topic=topic, partitions=partitions)
            for topic, partitions in by_topic(member.owned).items()
        ],
        generation_id=member.generation,
        rack_id=member.rack or None,
    )
    version = SUBSCRIPTION_VERSION
    return version.to_bytes(2, "big") + codec.to_bytes(body, version)


def decode_subscription(member_id: str, instance_id: str | None, data: Buffer) -> Member:
    """Decode a subscription of any version; newer ones as the newest known version."""
    version, view = _split(data)
    body = codec.decode(ConsumerProtocolSubscription, min(version, SUBSCRIPTION_VERSION), view)
    owned = tuple(
        TopicPartition(one.topic, partition)
        for one in body.owned_partitions
        for partition in one.partitions
    )
    return Member(
        member_id,
        tuple(body.topics),
        instance_id,
        owned,
        body.generation_id,
        body.rack_id,
        None if body.user_data is None else bytes(body.user_data),
    )


def encode_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    """Return an assignment, prefixed by its version."""
    body = ConsumerProtocolAssignment(
        assigned_partitions=[
            ConsumerProtocolAssignment.TopicPartition(topic=topic, partitions=numbers)
            for topic, numbers in by_topic(partitions).items()
        ]
    )
    version = ASSIGNMENT_VERSION
    return version.to_bytes(2, "big") + codec.to_bytes(body, version)


def decode_assignment(data: Buffer) -> list[TopicPartition]:
    """Decode an assignment; empty bytes mean no partitions."""
    if not len(data):
        return []
    version, view = _split(data)
    body = codec.decode(ConsumerProtocolAssignment, min(version, 3), view)
    return [
        TopicPartition(one.topic, partition)
        for one in body.assigned_partitions
        for partition in one.partitions
    ]


def _split(data: Buffer) -> tuple[int, memoryview]:
    view = memoryview(data)
    if len(view) < 2:
        raise CorruptMessage("a consumer protocol message starts with its version")
    version = int.from_bytes(view[:2], "big", signed=True)
    if version < 0:
        raise CorruptMessage(f"consumer protocol version {version}")
    return version, view[2:]


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


ASSIGNORS: dict[str, type[Assignor]] = {
    "range": RangeAssignor,
    "roundrobin": RoundRobinAssignor,
    "sticky": StickyAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}


def make_assignors(names: tuple[str, ...]) -> dict[str, Assignor]:
    """Return the assignors by name; ConfigError for unknown ones."""
    unknown = [name for name in names if name not in ASSIGNORS]
    if unknown or not names:
        raise ConfigError(
            f"partition.assignment.strategy: {', '.join(unknown) or 'empty'}; "
            f"known: {', '.join(ASSIGNORS)}",
        )
    return {name: ASSIGNORS[name]() for name in names}
