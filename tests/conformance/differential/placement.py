"""Requests of random sessions as clusters get them: node 1 leads all that they create.

Kafka: none. The controllers of both kinds place replicas at random; here every sound request names
the same replicas, and one that a single node refuses is refused by three nodes, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_TOO_MANY_REPLICAS, _TOO_MANY_PARTITIONS = 9, 10_001
_MAX_PARTITIONS = 10


def placed_topic(topic: dict[str, Any], replicas: Sequence[int]) -> dict[str, Any]:
    """Return a topic of CreateTopics with these replicas."""
    count, factor = topic["num_partitions"], topic["replication_factor"]
    if topic.get("assignments"):
        return topic | {"assignments": [_moved(one, replicas) for one in topic["assignments"]]}
    if factor > 1:
        return topic | {"replication_factor": _TOO_MANY_REPLICAS}
    if factor not in (1, -1) or count < -1 or count == 0:
        return topic
    if count > _MAX_PARTITIONS:
        return topic | {"num_partitions": _TOO_MANY_PARTITIONS}
    assigned = [
        {"partition_index": index, "broker_ids": [*replicas]} for index in range(abs(count))
    ]
    return topic | {"num_partitions": -1, "replication_factor": -1, "assignments": assigned}


def placed_partitions(
    topic: dict[str, Any], replicas: Sequence[int], count_of: Callable[[str], int]
) -> dict[str, Any]:
    """Return a topic of CreatePartitions with these replicas for each new partition."""
    if topic["assignments"] is not None:
        return topic | {"assignments": [_moved(one, replicas) for one in topic["assignments"]]}
    known = count_of(topic["name"])
    added = topic["count"] - known
    if not known or added < 1:
        return topic
    return topic | {"assignments": [{"broker_ids": [*replicas]} for _ in range(added)]}


def _moved(assignment: dict[str, Any], replicas: Sequence[int]) -> dict[str, Any]:
    if assignment["broker_ids"] == [replicas[0]]:
        return assignment | {"broker_ids": [*replicas]}
    return assignment
