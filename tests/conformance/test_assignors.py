"""Assignors against Kafka's own, for random groups.

Range and round robin give the same to everyone; the sticky ones divide as evenly, and move as
little, but not always the same partitions.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.clients.consumer.assignors import ASSIGNORS, Member, _with_user_data
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from ottla.clients.consumer.assignors import Assignment
    from tests.conformance.kafka import Kafka

pytestmark = pytest.mark.conformance
HERE = Path(__file__).parent
GROUPS = 300
Group = tuple[dict[str, int], list[Member]]


def _group(rng: random.Random, assignor: str) -> Group:
    counts = {f"t{n}": rng.randrange(1, 9) for n in range(rng.randrange(1, 5))}
    alike = rng.random() < 0.5
    partitions = [TopicPartition(t, n) for t, count in counts.items() for n in range(count)]
    names = [f"m{n}" for n in range(rng.randrange(1, 7))]
    owners = {partition: rng.choice(names) for partition in partitions if rng.random() < 0.7}
    members = []
    for name in names:
        topics = tuple(t for t in counts if alike or rng.random() < 0.7) or ("t0",)
        owned = tuple(p for p, owner in owners.items() if owner == name and p.topic in topics)
        generation = rng.choice((4, 5, 5)) if owned else 5
        data = ASSIGNORS[assignor]().user_data(owned, generation)
        sent = () if assignor != "cooperative-sticky" else owned
        instance = f"i{rng.randrange(100)}-{name}" if rng.random() < 0.3 else None
        members.append(Member(name, topics, instance, sent, generation, None, data))
    return counts, members


def _line(assignor: str, group: Group) -> str:
    counts, members = group
    words = [assignor, ",".join(f"{topic}:{count}" for topic, count in counts.items())]
    for one in members:
        owned = ",".join(f"{topic}:{number}" for topic, number in one.owned) or "-"
        data = "-" if one.user_data is None else one.user_data.hex()
        topics = ",".join(one.topics) or "-"
        instance = one.instance_id or "-"
        words.append(f"{one.member_id};{instance};{one.generation};{topics};{owned};{data}")
    return " ".join(words)


def _read(line: str) -> Assignment:
    found: Assignment = {}
    for word in line.split(" "):
        name, _, places = word.partition("=")
        pairs = [place.split(":") for place in places.split(",") if place]
        found[name] = [TopicPartition(topic, int(number)) for topic, number in pairs]
    return found


def _both(kafka: Kafka, assignor: str) -> list[tuple[Group, Assignment, Assignment]]:
    rng = random.Random(4)
    groups = [_group(rng, assignor) for _ in range(GROUPS)]
    classes = kafka.compile(HERE / "java" / "Assignments.java")
    lines = "\n".join(_line(assignor, group) for group in groups)
    theirs = kafka.run("Assignments", classes=classes, stdin=lines).stdout.splitlines()
    return [
        (group, ASSIGNORS[assignor]().assign(*group), _read(line))
        for group, line in zip(groups, theirs, strict=True)
    ]


def _sorted(given: Assignment) -> Assignment:
    return {name: sorted(places) for name, places in given.items()}


def _unevenness(given: Assignment) -> int:
    loads = [len(places) for places in given.values()]
    return sum(abs(one - other) for one in loads for other in loads)


def _kept(given: Assignment, members: list[Member]) -> int:
    owned = {one.member_id: _with_user_data(one).owned for one in members}
    return sum(place in owned[name] for name, places in given.items() for place in places)


@pytest.mark.parametrize("assignor", ["range", "roundrobin"])
def test_the_plain_ones_give_the_same(kafka: Kafka, assignor: str) -> None:
    """A group may be led by either client."""
    for _, ours, theirs in _both(kafka, assignor):
        assert _sorted(ours) == _sorted(theirs)


def test_the_sticky_one_is_as_even_and_keeps_as_much(kafka: Kafka) -> None:
    """No group is divided less evenly, and all in all no more partitions move."""
    compared = _both(kafka, "sticky")
    for _, ours, theirs in compared:
        assert _unevenness(ours) <= _unevenness(theirs)
    ours_kept = sum(_kept(ours, members) for (_, members), ours, _ in compared)
    assert ours_kept >= sum(_kept(theirs, members) for (_, members), _, theirs in compared)


def test_the_cooperative_one_gives_nothing_that_another_reads(kafka: Kafka) -> None:
    """Claims of any generation: a member keeps reading a partition until it is revoked."""
    withheld = [0, 0]
    for (counts, members), *both in _both(kafka, "cooperative-sticky"):
        owner = {place: one.member_id for one in members for place in one.owned}
        for index, given in enumerate(both):
            for name, places in given.items():
                assert all(owner.get(place, name) == name for place in places)
            withheld[index] += sum(counts.values()) - sum(map(len, given.values()))
    assert min(withheld) > 0
