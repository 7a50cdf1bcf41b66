"""The target assignment of a large group, computed and written in slices.

A slice is an operation of its own in a turn of the loop of its own, so that other requests are
answered in between. Until the last one is written the group keeps its assignment epoch, and its
members what they have: as long as an assignment interval (KIP-1263) that has not passed.

The assignors are generators that yield after a bounded part of their work.

Kafka: none; its coordinators have threads of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final, Generic, TypeAlias, TypeVar

from ottla.coordinator.runtime.result import Result, empty_result

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Hashable, Mapping

    from ottla.coordinator.runtime import CoordinatorRecord, ShardTimers
    from ottla.errors import KafkaError

P = TypeVar("P")
T = TypeVar("T")
Steps: TypeAlias = "Generator[None, None, T]"
"""A computation that yields now and again, and returns its result."""
Slices: TypeAlias = "Generator[list[CoordinatorRecord], None, T]"
"""Records to write one list after the other."""

SLICE: Final = 100
"""Members, partitions or tasks whose assignment is computed or written in one slice."""
LARGE: Final = 2 * SLICE
"""Members from which on a group's assignment is computed in slices."""
_NEXT_TURN_MS: Final = 1


def is_due(timestamp_ms: int, interval_ms: int, now_ms: int) -> bool:
    """Whether the assignment interval has passed since the last assignment; 0 stands for none.

    An assignment of the future is one of a clock that was ahead, most often another broker's: in
    Kafka its group waits until the clock of its coordinator is there.
    """
    return not timestamp_ms or not timestamp_ms <= now_ms < timestamp_ms + interval_ms


def finish(steps: Steps[T]) -> T:
    """Run a computation to its end at once."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            result: T = done.value
            return result


def without_records(steps: Steps[T]) -> Slices[T]:
    """Return the slices of a computation, which write nothing."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            result: T = done.value
            return result
        yield []


def run(timers: ShardTimers, key: Hashable, slices: Slices[None]) -> None:
    """Run slices one by one; the rest is dropped when records of one cannot be written."""

    def give_up(error: KafkaError | None) -> None:
        if error is not None:
            timers.cancel(key)

    def step() -> Result[None]:
        records = next(slices, None)
        if records is None:
            return empty_result()
        timers.schedule(key, _NEXT_TURN_MS, step)
        return Result(None, records, on_append=give_up)

    timers.schedule(key, _NEXT_TURN_MS, step)


@dataclass(frozen=True, slots=True)
class Written(Generic[P]):
    """How a computed target is written: the group's state at that time, and the records.

    is_current says whether the group is still there.
    """

    members: Mapping[str, object]
    target: Mapping[str, P]
    is_current: Callable[[], bool]
    record: Callable[[str, P], CoordinatorRecord]

    def changes(self, target: Mapping[str, P]) -> Slices[bool]:
        """Write what has changed; False where a member of the target has left since."""
        names = iter(target)
        is_complete = True
        while part := list(islice(names, SLICE)):
            if not self.is_current():
                return False
            found = []
            for name in part:
                is_complete &= name in self.members
                if name in self.members and self.target.get(name) != target[name]:
                    found.append(self.record(name, target[name]))
            yield found
        return is_complete and self.is_current()
