"""Removals over all groups of a shard in slices: of expired offsets, of a deleted topic's offsets.

A shard may have hundreds of thousands of offsets. A slice examines a bounded number of them and
writes a bounded number of tombstones; the next slice follows when those are committed.

Kafka: none; its coordinators have threads of their own.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, TypeAlias

from ottla.coordinator.runtime import CoordinatorRecord, Result

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

    from ottla.coordinator.runtime import ShardTimers
    from ottla.errors import KafkaError

    Examine: TypeAlias = Callable[[str], tuple[list[CoordinatorRecord], int]]
    """Returns the tombstones of a group, and how many offsets it has examined."""

OFFSETS_PER_SLICE: Final = 5_000
RECORDS_PER_SLICE: Final = 250
"""Each takes about 20 µs to encode and to replay."""


class Sweep:
    """One removal over a list of groups."""

    def __init__(
        self, timers: ShardTimers, key: Hashable, group_ids: Iterable[str], examine: Examine
    ) -> None:
        """Take the groups, and the key of the timer of the next slice."""
        self._timers = timers
        self._key = key
        self._left = deque(group_ids)
        self._examine = examine

    def step(self) -> Result[None]:
        """Return the tombstones of the next slice."""
        tombstones: list[CoordinatorRecord] = []
        examined = 0
        while self._left and examined < OFFSETS_PER_SLICE and len(tombstones) < RECORDS_PER_SLICE:
            found, count = self._examine(self._left[0])
            examined += count
            tombstones += found[:RECORDS_PER_SLICE]
            if len(found) < RECORDS_PER_SLICE:  # else the same group may have more
                self._left.popleft()
        result = Result(None, tombstones, atomic=False)
        if self._left:
            result.on_append = self._continue
        return result

    def _continue(self, error: KafkaError | None) -> None:
        if error is None:  # else the next removal of its kind finds what is left
            self._timers.schedule(self._key, 1, self.step)  # in another turn
