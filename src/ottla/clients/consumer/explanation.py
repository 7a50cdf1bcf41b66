"""Why a poll returned no records, in one sentence for the log.

Kafka: none; its users read DEBUG lines of several classes.
"""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.clients.client import Client
    from ottla.clients.consumer.membership import Membership
    from ottla.clients.consumer.subscription import PartitionState, Subscription

MAX_PARTITIONS = 10


def why_no_records(
    client: Client, subscription: Subscription, group: Membership | None, *, committed_only: bool
) -> str:
    """Return the causes: the cluster, the topics, the group, or each assigned partition."""
    if not client.is_reachable:
        return client.unreachable().message
    causes = _of_topics(client, subscription)
    if group is not None and subscription.uses_group:
        causes += _of_group(group)
    if not causes:
        causes = _of_partitions(client, subscription, committed_only=committed_only)
    return "; ".join(causes)


def _of_topics(client: Client, subscription: Subscription) -> list[str]:
    topics = client.metadata.topics
    causes = [
        f"topic {name!r}: {topics[name].problem or 'it is unknown'}"
        for name in subscription.topics
        if name not in topics or topics[name].problem
    ]
    if subscription.pattern is not None and not subscription.topics:
        causes.append(f"no topic matches {subscription.pattern.pattern!r}")
    return causes


def _of_group(group: Membership) -> list[str]:
    if not group.coordinator.known:
        return ["the coordinator of the group is not known"]
    waits_for = group.waits_for
    if waits_for is not None:
        return [waits_for]
    if not group.subscription.partitions:
        return ["the group has assigned all partitions to other members"]
    return []


def _of_partitions(
    client: Client, subscription: Subscription, *, committed_only: bool
) -> list[str]:
    states = list(subscription.partitions.values())[:MAX_PARTITIONS]
    found = sorted(
        (_of_partition(client, state, committed_only=committed_only), str(state.topic_partition))
        for state in states
    )
    causes = [
        f"{', '.join(name for _, name in members)}: {cause}"
        for cause, members in groupby(found, key=itemgetter(0))
    ]
    rest = len(subscription.partitions) - len(states)
    return [*causes, f"and {rest} more partitions"] if rest else causes


def _of_partition(client: Client, state: PartitionState, *, committed_only: bool) -> str:
    if state.paused:
        return "paused"
    if client.metadata.leader(state.topic_partition) < 0:
        return "no leader that can be reached"
    if state.position is None:
        return "its position is being looked up"
    if state.needs_validation:
        return "its position is being validated after an election"
    if state.buffered:
        return "its records have arrived, poll again"
    return _at_position(state, state.position, committed_only=committed_only)


def _at_position(state: PartitionState, position: int, *, committed_only: bool) -> str:
    end, stable = state.high_watermark, state.last_stable_offset
    if end is None or stable is None:
        return f"waits for the leader's response at offset {position}"
    if position >= end:
        return f"all records are read, up to offset {end}"
    if committed_only and position >= stable:
        return f"an open transaction holds back the records from offset {stable} on"
    return f"waits for records from offset {position} of {end}"
