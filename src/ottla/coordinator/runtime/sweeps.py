"""Changes to all entries of a shard in slices: removals of expired offsets, new snapshots.

A shard may have hundreds of thousands of entries, and a broker fifty shards whose sweeps fall due
together. A slice examines and writes a bounded number of entries as an operation of its own; the
next one follows when it is committed. All shards of a coordinator take their slices in turns.

Kafka: none; its coordinators have threads of their own.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, Generic, TypeAlias, TypeVar

from ottla.coordinator.runtime.result import CoordinatorRecord, Result, empty_result
from ottla.coordinator.runtime.shared_turns import SLICE_RECORDS

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

    from ottla.coordinator.runtime.shared_turns import SharedTurns
    from ottla.coordinator.runtime.timers import ShardTimers
    from ottla.errors import KafkaError

K = TypeVar("K")

RECORDS_PER_SLICE: Final = SLICE_RECORDS
"""Each takes about 20 µs to encode and to replay."""
EXAMINED_AS_A_RECORD: Final = 20
"""Entries that are examined in the time in which a record is written."""

Examine: TypeAlias = "Callable[[K], tuple[list[CoordinatorRecord], float]]"
"""Returns the records of a key, and what it cost to examine it, in records."""


class Sweep(Generic[K]):
    """One pass over keys of a shard; a new one with the same timer's key ends it."""

    def __init__(
        self,
        timers: ShardTimers,
        turns: SharedTurns,
        key: Hashable,
        keys: Iterable[K],
        examine: Examine[K],
    ) -> None:
        """Take the keys to examine; key is that of the timer of the slices."""
        self._timers = timers
        self._turns = turns
        self._key = key
        self._left = deque(keys)
        self._examine = examine
        self._cost = RECORDS_PER_SLICE
        """Of the last slice; that of the first one is not known before."""

    def begin(self) -> Result[None]:
        """Return the first slice, or an empty result where it has to wait for its turn."""
        if self._turns.is_free:
            result = self._write()
            self._turns.spent(self._cost)
            return result
        self._turns.add(self._take_turn)
        return empty_result()

    def _take_turn(self) -> bool:
        """Schedule a slice, which is assumed to cost what the last one did."""
        self._turns.spent(self._cost)
        self._timers.schedule(self._key, 0, self._write)
        return False

    def _write(self) -> Result[None]:
        """Return the records of a slice."""
        records: list[CoordinatorRecord] = []
        cost = 0.0
        while self._left and cost < RECORDS_PER_SLICE:
            found, examined = self._examine(self._left[0])
            records += found[:RECORDS_PER_SLICE]
            cost += min(len(found), RECORDS_PER_SLICE) + examined
            if len(found) < RECORDS_PER_SLICE:  # else the same key may have more
                self._left.popleft()
        self._cost = int(cost)
        return Result(None, records, on_append=self._continue, atomic=False)

    def _continue(self, error: KafkaError | None) -> None:
        if error is None and self._left:  # else the next sweep finds what is left
            self._turns.add(self._take_turn)
