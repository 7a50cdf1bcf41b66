"""The `simple` assignor: every partition has readers, and members read about equally many.

Several members may read one partition. A member keeps what it has, as far as that stays even.

Kafka: org.apache.kafka.coordinator.group.assignor.SimpleAssignor.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from itertools import pairwise
from typing import TYPE_CHECKING

from ottla.coordinator.group.slices import SLICE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ottla.coordinator.group.slices import Steps
    from ottla.types import Uuid

    Partition = tuple[Uuid, int]


def assign_simple(
    subscriptions: Mapping[str, tuple[Uuid, ...]],
    partitions: Mapping[Uuid, Iterable[int]],
    owned: Mapping[str, Mapping[Uuid, tuple[int, ...]]],
) -> Steps[dict[str, dict[Uuid, tuple[int, ...]]]]:
    """Return the partitions of each member; subscriptions by member id, partitions assignable.

    Topics that the same members read are assigned together.
    """
    readers: dict[Uuid, list[str]] = {}
    for position, member_id in enumerate(sorted(subscriptions)):
        if position % SLICE == SLICE - 1:
            yield
        for topic_id in subscriptions[member_id]:
            readers.setdefault(topic_id, []).append(member_id)
    together: dict[tuple[str, ...], list[Partition]] = {}
    for topic_id, names in readers.items():
        indexes = sorted(partitions.get(topic_id, ()))
        together.setdefault(tuple(names), []).extend((topic_id, index) for index in indexes)
    found: dict[str, dict[Uuid, list[int]]] = {name: {} for name in subscriptions}
    for same, targets in together.items():
        assigned = yield from _assign(same, targets, owned)
        for position, (name, own) in enumerate(assigned.items()):
            for topic_id, index in sorted(own):
                found[name].setdefault(topic_id, []).append(index)
            if position % SLICE == SLICE - 1:
                yield
    return {
        name: {topic_id: tuple(indexes) for topic_id, indexes in own.items()}
        for name, own in found.items()
    }


def _assign(
    names: tuple[str, ...],
    targets: list[Partition],
    owned: Mapping[str, Mapping[Uuid, tuple[int, ...]]],
) -> Steps[dict[str, dict[Partition, None]]]:
    """Assign partitions to members that all subscribe to them."""
    own: dict[str, dict[Partition, None]] = {name: {} for name in names}
    if not targets:
        return own
    sharing = -(-len(names) // len(targets))
    readers = dict.fromkeys(targets, 0)
    limits = _even_parts(sharing * len(targets), len(names))
    for position, (name, limit) in enumerate(zip(names, limits, strict=True)):
        if position % SLICE == SLICE - 1:
            yield
        for topic_id, indexes in owned.get(name, {}).items():
            for index in indexes:
                key = (topic_id, index)
                if readers.get(key, sharing) < sharing and len(own[name]) < limit:
                    own[name][key] = None
                    readers[key] += 1
    yield from _fill(list(zip(own.values(), limits, strict=True)), targets, readers, sharing)
    return own


def _fill(
    members: Iterable[tuple[dict[Partition, None], int]],
    targets: list[Partition],
    readers: Mapping[Partition, int],
    sharing: int,
) -> Steps[None]:
    """Give each member up to its limit the partitions with the fewest readers, in their order."""
    left = [(readers[key], position) for position, key in enumerate(targets)]
    heapify(left)
    for number, (own, limit) in enumerate(members):
        if number % SLICE == SLICE - 1:
            yield
        passed: list[tuple[int, int]] = []  # come again for the next member only
        while left and len(own) < limit and left[0][0] < sharing:
            count, position = heappop(left)
            key = targets[position]
            is_taken = key not in own
            own[key] = None
            passed.append((count + is_taken, position))
        for entry in passed:
            heappush(left, entry)


def _even_parts(total: int, count: int) -> list[int]:
    """Return count numbers that differ by one at most and add up to total."""
    bounds = [-(-total * index // count) for index in range(count + 1)]
    return [end - begin for begin, end in pairwise(bounds)]
