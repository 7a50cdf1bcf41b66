"""Throttles of reassignments: settings of brokers (rates) and topics (replicas), set and removed.

Kafka: org.apache.kafka.tools.reassign.ReassignPartitionsCommand, modifyReassignmentThrottle,
clearAllThrottles.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import click

from ottla.cli.reassign.plans import joined, plural
from ottla.clients.admin.configs import ConfigResource, ResourceType
from ottla.coordinator.runtime.java_hash import in_hash_map_order
from ottla.quota.replication import FOLLOWER_RATE, FOLLOWER_REPLICAS, LEADER_RATE, LEADER_REPLICAS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ottla.clients.admin.replicas import PartitionReassignment
    from ottla.clients.blocking import Admin
    from ottla.types import TopicPartition

DIRECTORY_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"


class Move(NamedTuple):
    """The brokers that a partition is copied from and to."""

    sources: frozenset[int]
    destinations: frozenset[int]


def planned_moves(
    active: Mapping[TopicPartition, PartitionReassignment],
    proposed: Mapping[TopicPartition, Sequence[int]],
    current: Mapping[TopicPartition, Sequence[int]],
) -> dict[TopicPartition, Move]:
    """Return the moves under way and proposed; a move under way keeps its sources."""
    moves = {}
    for partition, move in active.items():
        adding = frozenset(move.adding)
        moves[partition] = Move(frozenset(move.replicas) - adding, adding)
    for partition, replicas in proposed.items():
        known = moves.get(partition)
        sources = frozenset(current[partition]) if known is None else known.sources
        moves[partition] = Move(sources, frozenset(replicas) - sources)
    return moves


def throttled_replicas(moves: Mapping[TopicPartition, Move]) -> dict[str, dict[str, str]]:
    """Return both settings of each topic, as sorted lists of partition:broker."""
    leaders: dict[str, set[str]] = {}
    followers: dict[str, set[str]] = {}
    for (topic, partition), move in moves.items():
        leaders.setdefault(topic, set()).update(f"{partition}:{source}" for source in move.sources)
        followers.setdefault(topic, set()).update(
            f"{partition}:{destination}" for destination in move.destinations
        )
    return {
        topic: {
            LEADER_REPLICAS: joined(sorted(leaders[topic])),
            FOLLOWER_REPLICAS: joined(sorted(followers[topic])),
        }
        for topic in leaders
    }


def set_throttles(admin: Admin, moves: Mapping[TopicPartition, Move], rate: int) -> None:
    """Throttle the replicas that move, and the brokers that take part."""
    _change(admin, ResourceType.TOPIC, throttled_replicas(moves))
    brokers = {one for move in moves.values() for one in move.sources | move.destinations}
    rates = {LEADER_RATE: str(rate), FOLLOWER_RATE: str(rate)}
    _change(admin, ResourceType.BROKER, {str(broker): rates for broker in sorted(brokers)})
    click.echo(f"The inter-broker throttle limit was set to {rate} B/s")


def set_directory_throttle(admin: Admin, brokers: Iterable[int], rate: int) -> None:
    """Throttle the moves between log directories of brokers."""
    rates = {DIRECTORY_RATE: str(rate)}
    _change(admin, ResourceType.BROKER, {str(broker): rates for broker in sorted(brokers)})
    click.echo(f"The replica-alter-dir throttle limit was set to {rate} B/s")


def clear_throttles(admin: Admin, plan: Iterable[tuple[TopicPartition, Sequence[int]]]) -> None:
    """Remove the throttles of all brokers, and of the plan's brokers and topics."""
    brokers = {node.node_id for node in admin.describe_cluster().brokers}
    topics: dict[str, None] = {}
    for partition, replicas in plan:
        brokers.update(replicas)
        topics[partition.topic] = None
    rates = dict.fromkeys((LEADER_RATE, FOLLOWER_RATE, DIRECTORY_RATE))
    ids = [str(broker) for broker in sorted(brokers)]
    click.echo(f"Clearing broker-level throttles on broker{plural(ids)} {joined(ids)}")
    _change(admin, ResourceType.BROKER, dict.fromkeys(ids, rates))
    names = in_hash_map_order(topics)
    click.echo(f"Clearing topic-level throttles on topic{plural(names)} {joined(names)}")
    replicas_of = dict.fromkeys((LEADER_REPLICAS, FOLLOWER_REPLICAS))
    _change(admin, ResourceType.TOPIC, dict.fromkeys(names, replicas_of))


def _change(
    admin: Admin, kind: ResourceType, settings: Mapping[str, Mapping[str, str | None]]
) -> None:
    """Set settings of each resource, or remove those with None; raises the first error."""
    changes = {ConfigResource(kind, name): dict(values) for name, values in settings.items()}
    if not changes:
        return
    for outcome in admin.alter_configs(changes).values():
        if outcome is not None:
            raise outcome
