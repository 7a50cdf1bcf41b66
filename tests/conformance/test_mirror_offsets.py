"""Translation of offsets and emission of syncs against Kafka's classes, for random histories."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.connect.mirror.offset_syncs import OffsetSyncStore, SyncDecision
from ottla.connect.mirror.records import OffsetSync
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from tests.conformance.kafka import Kafka

pytestmark = pytest.mark.conformance
T = TopicPartition("t", 0)
STEPS = ((1,), (1, 2, 3), (101, 101, 101, 7, 50), (1, 100, 10_000), (1, 1 << 20, 1 << 40, 1 << 55))
"""Distances between the syncs of a history, from dense to all of the range."""
HISTORIES = 400


def _history(rng: random.Random) -> list[tuple[str, int, int]]:
    """Return syncs and queries of a store, in order; sometimes the source goes back."""
    steps = rng.choice(STEPS)
    only_last, reads = rng.random() < 0.3, rng.randrange(40)
    history = [("begin", int(only_last), 0)]
    known: list[int] = []
    upstream = downstream = rng.randrange(3)
    for number in range(rng.randrange(1, 200)):
        if number == reads:
            history.append(("end", 0, 0))
        history.append(("add", upstream, downstream))
        known.append(upstream)
        for _ in range(rng.randrange(4)):
            near = rng.choice(known) + rng.randrange(-2, 3)
            history.append(("translate", max(0, near), 0))
        if rng.random() < 0.01:
            upstream = rng.randrange(upstream + 1)
        elif rng.random() < 0.95:  # else the same sync again
            upstream = min(upstream + rng.choice(steps), (1 << 63) - 1)
            downstream += rng.randrange(1, 200)
    history.append(("end", 0, 0))
    history += [("translate", max(0, it + rng.randrange(-2, 3)), 0) for it in known]
    return history


def _translations(history: list[tuple[str, int, int]]) -> list[object]:
    store = OffsetSyncStore()
    answers: list[object] = []
    for kind, first, second in history:
        if kind == "begin":
            store = OffsetSyncStore(only_last=first == 1)
        elif kind == "end":
            store.read_to_end()
        elif kind == "add":
            store.add(OffsetSync(T, first, second))
        else:
            answers.append(store.translate(T, first))
    return answers


def _copies(rng: random.Random) -> list[tuple[str, int, int]]:
    """Return offsets of copied records: with gaps, markers of transactions, and a truncation."""
    copies = [("lag", rng.choice((0, 1, 10, 100)), 0)]
    upstream = downstream = 0
    for _ in range(rng.randrange(300)):
        copies.append(("copy", upstream, downstream))
        upstream += 1 if rng.random() < 0.98 else rng.randrange(-20, 20)
        downstream += 1 if rng.random() < 0.95 else rng.randrange(-20, 200)
        upstream, downstream = max(0, upstream), max(0, downstream)
    return copies


def _decisions(copies: list[tuple[str, int, int]]) -> list[object]:
    decision = SyncDecision(copies[0][1])
    return [decision.is_due(upstream, downstream) for _, upstream, downstream in copies[1:]]


def test_syncs_are_written_and_translate_as_by_kafka(kafka: Kafka) -> None:
    """Else a mirror that takes over from the other kind would skip records, or go back."""
    rng = random.Random(11)
    histories = [_history(rng) for _ in range(HISTORIES)]
    copies = [_copies(rng) for _ in range(HISTORIES)]
    classes = kafka.compile(Path(__file__).parent / "java" / "OffsetTranslations.java")
    lines = [" ".join(f"{k}:{a}:{b}" for k, a, b in it) for it in histories + copies]
    theirs = kafka.run(
        "org.apache.kafka.connect.mirror.OffsetTranslations",
        classes=classes,
        stdin="\n".join(lines),
    ).stdout.splitlines()
    ours = [*map(_translations, histories), *map(_decisions, copies)]
    for line, found, expected in zip(lines, ours, theirs, strict=True):
        assert [str(it).lower() for it in found] == expected.split(), line
