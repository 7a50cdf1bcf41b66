"""The consumer protocol inside JoinGroup and SyncGroup, read and written by the coordinator.

Kafka: org.apache.kafka.clients.consumer.internals.ConsumerProtocol,
org.apache.kafka.coordinator.group.Utils.{toConsumerProtocolAssignment, toTopicPartitionMap}.
"""

from __future__ import annotations

from struct import Struct as Layout
from typing import TYPE_CHECKING, Final, TypeVar

from ottla.errors import CorruptMessage
from ottla.protocol import codec
from ottla.protocol.records.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from ottla.protocol.schema import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.coordinator.group.consumer.member import TopicPartitions
    from ottla.coordinator.group.context import TopicNames
    from ottla.types import Uuid

    TopicPartition = (
        ConsumerProtocolSubscription.TopicPartition | ConsumerProtocolAssignment.TopicPartition
    )

_INT16 = Layout(">h")
_HIGHEST_VERSION: Final = 3
S = TypeVar("S", bound=Struct)


def read_subscription(data: bytes) -> ConsumerProtocolSubscription:
    """Return the subscription of a member's metadata. Raises CorruptMessage."""
    return _read(ConsumerProtocolSubscription, data)


def read_assignment(data: bytes) -> ConsumerProtocolAssignment:
    """Return a member's assignment. Raises CorruptMessage."""
    return _read(ConsumerProtocolAssignment, data)


def write_assignment(topics: TopicNames, partitions: TopicPartitions, metadata: bytes) -> bytes:
    """Return an assignment in the version of the member's metadata; unknown topics are left out."""
    version = _version(metadata)
    named = ((topics.topic_name(topic_id), indexes) for topic_id, indexes in partitions.items())
    assignment = ConsumerProtocolAssignment(
        assigned_partitions=[
            ConsumerProtocolAssignment.TopicPartition(topic=name, partitions=list(indexes))
            for name, indexes in named
            if name is not None
        ]
    )
    return _INT16.pack(version) + codec.to_bytes(assignment, version)


def by_topic_id(topics: TopicNames, partitions: Iterable[TopicPartition]) -> TopicPartitions:
    """Return partitions by topic id; topics that do not exist are left out."""
    found: dict[Uuid, tuple[int, ...]] = {}
    for one in partitions:
        topic_id = topics.topic_id(one.topic)
        if topic_id is not None:
            found[topic_id] = tuple(sorted({*found.get(topic_id, ()), *one.partitions}))
    return found


def _read(kind: type[S], data: bytes) -> S:
    return codec.decode(kind, _version(data), memoryview(data)[2:])


def _version(data: bytes) -> int:
    """Return the version with which data begins, the highest one for later ones."""
    if len(data) < 2:
        raise CorruptMessage("a message of the consumer protocol ends before its version")
    version: int = _INT16.unpack_from(data)[0]
    if version < 0:
        raise CorruptMessage(f"version {version} of the consumer protocol does not exist")
    return min(version, _HIGHEST_VERSION)
