"""The interface of partition assignors, and their wire format.

Kafka: org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from ottla.clients.arguments import by_topic
from ottla.errors import CorruptMessage
from ottla.protocol import codec
from ottla.protocol.records.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
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
