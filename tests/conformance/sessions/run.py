"""Runs seeds against one Kafka and one Ottla.

Kafka: none.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING

from tests.conformance.differential.run import SETTINGS, both_sides
from tests.conformance.differential.three_nodes import both_clusters
from tests.conformance.sessions.allowed import is_chance
from tests.conformance.sessions.generate import generate
from tests.conformance.sessions.play import Found, Player
from tests.conformance.sessions.shrink import shrink

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tests.conformance.differential.side import Side
    from tests.conformance.kafka import Kafka
    from tests.conformance.sessions.steps import Step

_TRIES = 7
_SETTINGS = SETTINGS | {
    "max.incremental.fetch.session.cache.slots": "100000",
    "controller.quorum.append.linger.ms": "0",  # each change of metadata waits that long
    "replica.fetch.wait.max.ms": "20",  # a follower may hear that late what is committed
}


class Runner:
    """Plays sessions, each run with names of its own."""

    def __init__(self, sides: tuple[Side, Side]) -> None:
        self._sides = sides
        self._runs = count()

    def run(self, steps: list[Step]) -> Found | None:
        """Play steps once under fresh names."""
        prefix = f"s{os.getpid()}r{next(self._runs)}"
        return Player(self._sides, prefix).play(steps)

    def check(self, seed: int, only: Sequence[int] = ()) -> str | None:
        """Play a seed; return what differs, after shrinking.

        A difference must show each time, and not by chance alone.
        """
        steps = generate(seed, nodes=len(self._sides[0].replicas))
        if only:
            steps = [step for step in steps if step.number in only]
        found = self.run(steps)
        if found is None:
            return None
        tries = [found]
        for _ in range(_TRIES):
            again = self.run(steps)
            if again is None:
                return None  # Kafka's hash maps and timers: equal at the next try
            tries.append(again)
        tries = [one for one in tries if not is_chance(one.difference)]
        if not tries:
            return None
        found = tries[-1]
        if not only:
            steps, found = shrink(steps, found, self.run)
        return describe(seed, steps, found, len(self._sides[0].replicas))


def describe(seed: int, steps: list[Step], found: Found, nodes: int) -> str:
    """Return the steps, the difference and the command that plays them."""
    numbers = ",".join(str(step.number) for step in steps)
    where = f"--nodes {nodes} --seeds {seed}-{seed} --steps {numbers}"
    command = f"scripts/random_sessions.py {where}"
    lines = [*(f"  {step}" for step in steps), f"  → {found.difference}", f"  replay: {command}"]
    return f"seed {seed}:\n" + "\n".join(lines)


@contextmanager
def runner(kafka: Kafka, directory: Path, nodes: int = 1) -> Iterator[Runner]:
    """Run both nodes, or a cluster of three of each kind, for as long as the block lasts."""
    if nodes == 1:
        with both_sides(kafka, directory, _SETTINGS) as sides:
            yield Runner(sides)
        return
    with both_clusters(kafka, directory, _SETTINGS) as clusters:
        for side in clusters:
            side.has_others = True
        yield Runner(clusters)
