"""Assignors with queues assign as the plain rules that they speed up."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from ottla.coordinator.group.consumer.assignors import uniform
from ottla.coordinator.group.consumer.assignors.uniform import AssignorInput, MemberInput
from ottla.coordinator.group.share import kind
from ottla.purgatory.work import finish
from ottla.types import Uuid

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ottla.coordinator.group.slices import Steps

TOPICS = [Uuid(bytes([number + 1]) * 16) for number in range(6)]


def plain_fill(
    members: Iterable[tuple[dict[kind._Partition, None], int]],
    targets: list[kind._Partition],
    readers: Mapping[kind._Partition, int],
    sharing: int,
) -> Steps[None]:
    """Sort all partitions for each member."""
    counts = dict(readers)
    for own, limit in members:
        for key in sorted(targets, key=counts.__getitem__):
            if len(own) < limit and counts[key] < sharing and key not in own:
                own[key] = None
                counts[key] += 1
        yield


def plain_spread(
    topic_id: Uuid,
    indexes: list[int],
    names: list[str],
    target: dict[str, dict[Uuid, set[int]]],
    counts: dict[str, int],
) -> None:
    """Look at all members for each partition."""
    for index in indexes:
        name = min(names, key=counts.__getitem__)
        target[name].setdefault(topic_id, set()).add(index)
        counts[name] += 1


def plain_level(
    topic_id: Uuid,
    names: list[str],
    target: dict[str, dict[Uuid, set[int]]],
    counts: dict[str, int],
) -> Steps[bool]:
    """Look at all members for each move."""
    has_moved = False
    while givers := [name for name in names if target[name].get(topic_id)]:
        giver = max(givers, key=counts.__getitem__)
        taker = min(names, key=counts.__getitem__)
        if counts[giver] - counts[taker] < 2:
            break
        index = max(target[giver][topic_id])
        target[giver][topic_id].remove(index)
        target[taker].setdefault(topic_id, set()).add(index)
        counts[giver] -= 1
        counts[taker] += 1
        has_moved = True
        yield
    return has_moved


@pytest.mark.parametrize("seed", range(60))
def test_queues_change_no_assignment(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random subscriptions and previous assignments, with many ties."""
    rng = Random(seed)
    topics = TOPICS[: rng.randint(1, 5)]
    counts = {topic_id: rng.randint(0, 12) for topic_id in topics}
    names = [f"member-{number}" for number in range(rng.randint(1, 12))]
    owned = {
        name: {one: tuple(sorted(rng.sample(range(14), 3))) for one in rng.sample(TOPICS, 2)}
        for name in names[::2]
    }
    read = {name: tuple(rng.sample(topics, rng.randint(0, len(topics)))) for name in names}
    members = [
        MemberInput(name, None, list(read[name]), owned.get(name, {})) for name in sorted(names)
    ]
    given = AssignorInput(members, counts)
    partitions = {topic_id: range(count) for topic_id, count in counts.items()}
    found = (
        finish(uniform._assign_heterogeneous(given)),
        finish(kind._assign_simple(read, partitions, owned)),
    )
    monkeypatch.setattr(uniform, "_spread", plain_spread)
    monkeypatch.setattr(uniform, "_level", plain_level)
    monkeypatch.setattr(kind, "_fill", plain_fill)
    assert found == (
        finish(uniform._assign_heterogeneous(given)),
        finish(kind._assign_simple(read, partitions, owned)),
    )
