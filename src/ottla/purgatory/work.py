"""Long work on the event loop, in turns: the one scheduler of a node.

Rule: no turn of the loop takes more than 10 ms, else all other clients wait. Whoever loops over
partitions, groups, members, segments or records keeps it so: the loop is a generator that yields
after each element, and a `Worker` runs it. Between two yields no more than about a millisecond may
pass; an element of a microsecond may be followed by a yield all the same, which costs a tenth of
that. A step of some milliseconds that cannot be divided yields NEXT_TURN; what takes longer (a
file, a decompression) goes to a worker thread.

    def _describe(self, names: list[str]) -> Work[list[Description]]:
        descriptions = []
        for name in names:
            descriptions.append(self._description(name))
            yield  # the loop may go on
        return descriptions

    pending = worker.run(self._describe(names))

At a `yield` other requests are served: what the generator has read before it may have changed after
it. `yield pending` also waits until that is complete, gives its value, or raises its error.

Kafka: none; its requests, coordinators and controller have threads of their own.
"""

from __future__ import annotations

from collections import deque
from inspect import GEN_RUNNING, getgeneratorstate
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar

from ottla.purgatory.pending import Pending

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Hashable, Iterator

T = TypeVar("T")
Work: TypeAlias = "Generator[Any, Any, T]"
"""Yields None where the loop may go on, or a Pending to wait for; returns the result."""

NEXT_TURN: Final[Pending[Any]] = Pending()
"""Yielded after or before a long step: no other work that waited has one in the same turn."""
TURN_S: Final = 0.002
"""Time budget of all works in one turn: a step that begins just within it may take as long as the
rule leaves."""
MAX_STEPS: Final = 100
"""Steps of all works in one turn where work takes no time: the same in each run of a simulation."""
LONG_STEP_S: Final = 0.001
"""Steps of this duration are reported, so that a slow turn has the name of its work."""


class _Running(Generic[T]):
    """A work that has begun."""

    __slots__ = ("awaited", "key", "pending", "work")

    def __init__(self, work: Work[T], key: Hashable) -> None:
        self.work = work
        self.key = key
        self.pending: Pending[T] = Pending()
        self.awaited: Pending[Any] | None = None
        """The operation that the last step waits for."""


class Worker:
    """Runs works on one event loop, each a step at a time, within the budget of a turn."""

    def __init__(
        self,
        call_soon: Callable[[Callable[[], None]], object],
        elapsed_s: Callable[[], float] | None = None,
        *,
        max_steps: float = MAX_STEPS,
        on_long_step: Callable[[str, float], None] | None = None,
    ) -> None:
        """call_soon(callback) calls back in the next turn; elapsed_s() reads a stopwatch.

        max_steps also bounds a turn; with infinity only time does. on_long_step(name, seconds) is
        called after a step of more than LONG_STEP_S.
        """
        self._call_soon = call_soon
        self._elapsed_s = elapsed_s or _no_time
        self.max_steps = max_steps
        self._on_long_step = on_long_step
        self._ready: deque[_Running[Any]] = deque()
        """Works that are due for a step, in turn."""
        self._by_key: dict[Hashable, _Running[Any]] = {}
        self._is_scheduled = False
        """Whether a turn is to come; the first work of the present one has begun its budget."""
        self._now_s = self._end_s = 0.0
        self._steps = 0

    def run(self, work: Work[T], key: Hashable = None, *, at_once_s: float = 0.0) -> Pending[T]:
        """Begin now if this turn's budget allows, and go on in later turns; return the result.

        A short work that others rely on may take at_once_s of this turn, whatever the budget.

        Where a work of the same key is running, its result is returned and this one dropped. The
        result has the error that the work raises.
        """
        running = self._join(work, key)
        if running.work is not work:
            return running.pending
        if self._is_scheduled:
            self._now_s = self._elapsed_s()
        else:
            self._begin_turn()
        is_due, at_once_end_s = True, self._now_s + at_once_s
        while is_due and running.awaited is not NEXT_TURN:
            if not self._has_budget() and self._now_s >= at_once_end_s:
                break
            is_due = self._step(running)
        if is_due:
            self._ready.append(running)
        return running.pending

    def begin(self, work: Work[T], key: Hashable = None) -> Pending[T]:
        """Begin in a later turn: not within the operation of a shard that requests it.

        Where a work of the same key is running, this one is dropped as in `run`. A work does not
        begin its own successor, which would be dropped: it goes on, or asks `key in worker`.
        """
        running = self._join(work, key)
        is_own = getgeneratorstate(running.work) == GEN_RUNNING
        assert not is_own, f"the work of {key} begins its own successor"
        if running.work is work:
            self._resume(running)
        return running.pending

    def _join(self, work: Work[T], key: Hashable) -> _Running[T]:
        """Return the running work of this key, and drop this one; else this one."""
        running = self._by_key.get(key)  # never of None
        if running is not None:
            work.close()
            return running
        running = _Running(work, key)
        if key is not None:
            self._by_key[key] = running
        return running

    def __contains__(self, key: Hashable) -> bool:
        """Whether a work of this key is running."""
        return key in self._by_key

    def stalls(self) -> Iterator[str]:
        """Yield a line where work waits for a turn and none is to come."""
        if self._ready and not self._is_scheduled:
            yield f"{len(self._ready)} works wait for no turn"

    def _begin_turn(self) -> None:
        """Begin the budget of this turn, and request the next one."""
        self._steps = 0
        self._now_s = self._elapsed_s()
        self._end_s = self._now_s + TURN_S
        self._is_scheduled = True
        self._call_soon(self._turn)

    def _has_budget(self) -> bool:
        return self._now_s < self._end_s and self._steps < self.max_steps

    def _turn(self) -> None:
        self._is_scheduled = False
        ready = self._ready
        if not ready:
            return
        self._begin_turn()  # before the steps: one may raise
        while ready and self._has_budget():
            running = ready.popleft()
            if self._step(running):
                ready.append(running)
                if running.awaited is NEXT_TURN:
                    break

    def _step(self, running: _Running[Any]) -> bool:
        """Resume a work; return whether it is due for another step.

        An error of a callback of the result reaches the caller, and ends no other work.
        """
        self._steps += 1
        begin_s = self._now_s
        awaited, running.awaited = running.awaited, None
        try:
            if awaited is None or awaited is NEXT_TURN:
                awaited = next(running.work)
            elif awaited.error is not None:
                awaited = running.work.throw(awaited.error)
            else:
                awaited = running.work.send(awaited.value)
        except StopIteration as end:
            self._forget(running)
            running.pending.complete(end.value)
            return False
        except Exception as error:  # noqa: BLE001 - raised where the result is read
            self._forget(running)
            running.pending.fail(error)
            return False
        finally:
            self._now_s = self._elapsed_s()
            if self._now_s - begin_s > LONG_STEP_S and self._on_long_step is not None:
                name = getattr(running.work, "__qualname__", "")
                self._on_long_step(name, self._now_s - begin_s)
        if awaited is None:
            return True
        running.awaited = awaited
        if awaited is NEXT_TURN or awaited.done:
            return True
        awaited.on_done(lambda _done: self._resume(running))
        return False

    def _resume(self, running: _Running[Any]) -> None:
        self._ready.append(running)
        if not self._is_scheduled:
            self._begin_turn()

    def _forget(self, running: _Running[Any]) -> None:
        if running.key is not None:
            del self._by_key[running.key]


def finish(work: Work[T]) -> T:
    """Run a work that waits for nothing to its end at once: where little is to be done."""
    while True:
        try:
            awaited = next(work)
        except StopIteration as end:
            result: T = end.value
            return result
        assert awaited is None or awaited is NEXT_TURN, "the work waits for something"


def _no_time() -> float:
    return 0.0
