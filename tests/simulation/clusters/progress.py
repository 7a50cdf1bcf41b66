"""Nothing outstanding means it can move, for the machines of a whole cluster.

Whatever waits in a broker waits for something that comes: an answer, a timer, a commit. Every so
many turns of the loop the `stalls` of its purgatories, share partitions, persister, coordinators
(with the node's worker; of groups the joins, syncs, sessions and revocations), marker writer, moves
between directories, directory reports, quorum and fetchers are examined; that the cluster serves
again after its faults, and within what time, is checked in the end.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ottla.server.node.node import Node

TURNS_IN_BETWEEN: Final = 20
"""Turns between two examinations: what cannot move stays so, and need not be seen at once."""
LATER_TURNS_S: Final = 1.0
"""A fetcher whose logs were truncated goes on in one of the next turns of the loop, and the timers
of a process that was stopped fire once it runs again."""


class Progress:
    """Examines all brokers after so many turns."""

    def __init__(self) -> None:
        self._turns = 0
        self._idle_since_s: dict[tuple[Node, str], float] = {}
        """When fetchers that send nothing were first seen so."""
        self.examined = 0

    def check(self, now_s: float, nodes: Iterable[Node]) -> None:
        """Check that everything that waits waits for something that is to come."""
        self._turns += 1
        if self._turns % TURNS_IN_BETWEEN:
            return
        idle: dict[tuple[Node, str], float] = {}
        for node in nodes:
            self.examined += 1
            found = list(stalls(node))
            for stall in chain(node.broker.replication.stalls(), node.controller.driver.stalls()):
                since_s = idle[node, stall] = self._idle_since_s.get((node, stall), now_s)
                if now_s - since_s > LATER_TURNS_S:
                    found.append(stall)
            assert not found, f"node {node.broker.node_id} can stop for ever: {found[:3]}"
        self._idle_since_s = idle


def stalls(node: Node) -> Iterator[str]:
    """Yield what waits in a broker although nothing that is to come ends it."""
    broker = node.broker
    yield from broker.delayed_fetches.stalls()
    yield from broker.share.stalls()
    yield from broker.share._environment.store.stalls()  # type: ignore[attr-defined] # the persister
    for runtime in (
        broker.groups.runtime,
        broker.transactions.runtime,
        broker.share.coordinator.runtime,
    ):
        yield from runtime.stalls()
    yield from broker.transactions.markers.stalls()
    yield from broker.moves.stalls()
    yield from node._replication.directories.stalls()
