"""Faults of the processes and links of a cluster, drawn from a seed.

Kafka: none.
"""

from __future__ import annotations

import signal
import time
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from tests.conformance.clusters.nodes import Cluster, Node


class Faults:
    """Draws faults from a seed and applies them, one after another."""

    def __init__(self, cluster: Cluster, rng: random.Random) -> None:
        self.count = Counter[str]()
        self._cluster = cluster
        self._rng = rng
        self._kinds: list[Callable[[], str]] = [
            self._kill_one,
            self._kill_one,
            self._kill_two,
            self._pause,
            self._pause,
            self._stop,
            self._pause_and_kill,
            self._isolate,
            self._cut_link,
            self._cut_one_way,
        ]

    @property
    def kills(self) -> int:
        """How many processes were killed."""
        count = self.count
        return count["kill_one"] + 2 * count["kill_two"] + count["pause_and_kill"]

    def apply_one(self) -> str:
        """Apply a fault and undo it; return what was done."""
        kind = self._rng.choice(self._kinds)
        name = kind.__name__.removeprefix("_")
        self.count[name] += 1
        return f"{name} {kind()}"

    def _draw(self, count: int) -> list[Node]:
        return self._rng.sample(self._cluster.nodes, count)

    def _sleep(self, least_s: float, most_s: float) -> float:
        seconds = self._rng.uniform(least_s, most_s)
        time.sleep(seconds)
        return seconds

    def _kill_one(self) -> str:
        (node,) = self._draw(1)
        node.kill()
        seconds = self._sleep(0, 6)
        node.start()
        return f"{node.node_id} {seconds:.1f} s"

    def _kill_two(self) -> str:
        first, second = self._draw(2)
        first.kill()
        if self._rng.random() < 0.5:
            self._sleep(0, 3)
        second.kill()
        self._sleep(0, 4)
        starting = [first, second]
        self._rng.shuffle(starting)
        for one in starting:
            one.start()
            self._sleep(0, 3)
        return f"{first.node_id} {second.node_id}"

    def _pause(self) -> str:
        (node,) = self._draw(1)
        node.send(signal.SIGSTOP)
        seconds = self._sleep(0.2, 12)
        node.send(signal.SIGCONT)
        return f"{node.node_id} {seconds:.1f} s"

    def _pause_and_kill(self) -> str:
        paused, killed = self._draw(2)
        paused.send(signal.SIGSTOP)
        self._sleep(0.2, 8)
        killed.kill()
        self._sleep(0, 2)
        paused.send(signal.SIGCONT)
        self._sleep(0, 3)
        killed.start()
        return f"{paused.node_id} {killed.node_id}"

    def _cut(self, pairs: list[tuple[int, int]]) -> str:
        self._cluster.links.cut(pairs)
        seconds = self._sleep(0.2, 15)
        self._cluster.links.heal()
        return f"{pairs} {seconds:.1f} s"

    def _isolate(self) -> str:
        one, *others = (node.node_id for node in self._draw(len(self._cluster.nodes)))
        return self._cut([pair for other in others for pair in ((one, other), (other, one))])

    def _cut_link(self) -> str:
        one, other = (node.node_id for node in self._draw(2))
        return self._cut([(one, other), (other, one)])

    def _cut_one_way(self) -> str:
        one, other = (node.node_id for node in self._draw(2))
        return self._cut([(one, other)])

    def _stop(self) -> str:
        (node,) = self._draw(1)
        if not node.is_ready:  # starting: stop it then, too
            self.count["stop while starting"] += 1
        node.stop()
        self._sleep(0, 4)
        node.start()
        return str(node.node_id)
