"""A partition as clients of one listener see it: leader, reachable and offline replicas.

Kafka: org.apache.kafka.metadata.KRaftMetadataCache.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.errors import ErrorCode
from ottla.metadata.partition import NO_LEADER

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ottla.metadata.broker import BrokerRegistration
    from ottla.metadata.partition import PartitionRegistration


class PartitionView(NamedTuple):
    """The leader, or the error in its place, and the offline replicas."""

    code: ErrorCode
    """NONE, LEADER_NOT_AVAILABLE, or LISTENER_NOT_FOUND for a leader without an address."""
    leader_id: int
    offline_replicas: list[int]


def view_of(
    brokers: Mapping[int, BrokerRegistration], partition: PartitionRegistration, listener: str
) -> PartitionView:
    """Return the view of a listener's clients."""
    offline = [
        replica
        for replica, directory in zip(partition.replicas, partition.directories, strict=False)
        if (broker := brokers.get(replica)) is None
        or broker.fenced
        or listener not in broker.listeners
        or not broker.has_online_directory(directory)
    ]
    leader = brokers.get(partition.leader)
    if leader is None:
        return PartitionView(ErrorCode.LEADER_NOT_AVAILABLE, NO_LEADER, offline)
    if listener not in leader.listeners:
        return PartitionView(ErrorCode.LISTENER_NOT_FOUND, NO_LEADER, offline)
    return PartitionView(ErrorCode.NONE, partition.leader, offline)


def reachable(
    brokers: Mapping[int, BrokerRegistration], ids: Sequence[int], listener: str
) -> list[int]:
    """Return the brokers that have an address on a listener."""
    return [one for one in ids if one in brokers and listener in brokers[one].listeners]
