"""The assignor `sticky` of streams groups against Kafka's own, for random groups."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.coordinator.group.streams.assignor import (
    MemberSpec,
    StreamsAssignorInput,
    SubtopologySpec,
    assign,
)
from ottla.coordinator.group.streams.group import Tasks, task_map
from ottla.purgatory.work import finish

if TYPE_CHECKING:
    from ottla.coordinator.group.streams.group import Task, TaskMap
    from tests.conformance.kafka import Kafka

pytestmark = pytest.mark.conformance
HERE = Path(__file__).parent
GROUPS = 1000


def _group(rng: random.Random) -> StreamsAssignorInput:
    """Return members of a few processes, with what is left of an earlier assignment."""
    subtopologies = {
        str(n): SubtopologySpec(rng.randrange(1, 7), rng.random() < 0.6)
        for n in range(rng.randrange(1, 5))
    }
    names = [f"member-{rng.randrange(10**9)}" for _ in range(rng.randrange(1, 30))]
    processes = [f"{rng.randrange(16**8):08x}" for _ in range(rng.randrange(1, len(names) + 1))]
    tasks = [(key, n) for key, one in subtopologies.items() for n in range(one.task_count)]
    active: dict[str, list[Task]] = {name: [] for name in names}
    standby: dict[str, list[Task]] = {name: [] for name in names}
    few = rng.sample(names, rng.randrange(1, len(names) + 1))
    for task in tasks:
        if rng.random() < 0.7:
            active[rng.choice(few)].append(task)
        if rng.random() < 0.4:
            standby[rng.choice(few)].append(task)
    members = {
        name: MemberSpec(rng.choice(processes), Tasks(_map(active[name]), _map(standby[name])))
        for name in names
    }
    return StreamsAssignorInput(members, subtopologies, rng.randrange(3))


def _map(tasks: list[Task]) -> TaskMap:
    found: dict[str, list[int]] = {}
    for key, number in tasks:
        found.setdefault(key, []).append(number)
    return task_map(found.items())


def _text(tasks: TaskMap) -> str:
    words = [f"{key}_{number}" for key, numbers in sorted(tasks.items()) for number in numbers]
    return ",".join(words) or "-"


def _line(given: StreamsAssignorInput) -> str:
    parts = [
        f"{key}:{one.task_count}:{int(one.is_stateful)}" for key, one in given.subtopologies.items()
    ]
    members = [
        f"{name};{one.process_id};{_text(one.tasks.active)};{_text(one.tasks.standby)}"
        for name, one in given.members.items()
    ]
    return " ".join([str(given.standby_replicas), ",".join(parts), *members])


def test_tasks_go_to_the_same_members(kafka: Kafka) -> None:
    """A group may be coordinated by either kind of broker: no task moves when it changes."""
    rng = random.Random(7)
    groups = [_group(rng) for _ in range(GROUPS)]
    classes = kafka.compile(HERE / "java" / "StreamsAssignments.java")
    lines = "\n".join(map(_line, groups))
    theirs = kafka.run("StreamsAssignments", classes=classes, stdin=lines).stdout.splitlines()
    for given, expected in zip(groups, theirs, strict=True):
        ours = finish(assign(given))
        found = [
            f"{name}={_text(ours[name].active)};{_text(ours[name].standby)}"
            for name in sorted(ours)
        ]
        assert " ".join(found) == expected, _line(given)
