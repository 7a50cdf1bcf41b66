"""Shares the event loop among the partitions of a coordinator that work at the same time.

Without it a broker that takes over many partitions at once would load a slice of each in one turn;
and the checks of all partitions that were loaded together fall due together.

Kafka: none; its coordinators have threads of their own.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from ottla.purgatory.pending import Pending

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from ottla.clock import Clock
    from ottla.purgatory.timing_wheel import TimerTask, TimingWheel

T = TypeVar("T")
Work: TypeAlias = "Generator[int, None, T]"
"""A computation that yields what it has cost since it last yielded, in records."""

SLICE_RECORDS: Final = 250
"""Records replayed per slice, up to 20 µs each: this bounds how long loading blocks the loop."""
ANSWER_RECORDS: Final = 100
"""What an answer may cost in one turn, to leave time for other requests."""
_STEP_COST_RECORDS: Final = 10
"""The cost of a step that reads the log, besides its records."""


class SharedTurns:
    """Runs the long work of a coordinator, SLICE_RECORDS in a millisecond in all.

    Work is measured in records as a load replays them, some 20 µs each.
    """

    def __init__(self, timer: TimingWheel, clock: Clock) -> None:
        self._timer = timer
        self._clock = clock
        self._steps: deque[Callable[[], bool]] = deque()
        """Of work that waits for its turn."""
        self._task: TimerTask | None = None
        self._records_left = SLICE_RECORDS
        self._since_ms = 0

    def add(self, step: Callable[[], bool]) -> None:
        """Call step() until it returns False, each time in another millisecond.

        The first time is now, unless other work waits or has used up this millisecond.
        """
        if not self.is_free or step():
            self._wait(step)

    @property
    def is_free(self) -> bool:
        """Whether no work waits, and this turn has time left for some."""
        self._begin_turn()
        return not self._steps and self._records_left > 0

    def run(self, work: Work[T]) -> Pending[T]:
        """Compute an answer: a part of it now, the rest in turns."""
        answer: Pending[T] = Pending()

        def step() -> bool:
            cost = 0
            try:
                while cost < ANSWER_RECORDS:
                    cost += next(work)
            except StopIteration as done:
                answer.complete(done.value)
            except Exception as error:  # noqa: BLE001 - raised where the answer is read
                answer.fail(error)
            self.spent(cost)
            return not answer.done

        self._begin_turn()
        if step():
            self._wait(step)
        return answer

    def stalls(self) -> Iterator[str]:
        """Yield a line where work waits and no timer calls it."""
        if self._steps and (self._task is None or not self._task.is_waiting):
            yield f"{len(self._steps)} pieces of work wait for no turn"

    def spent(self, record_count: int) -> None:
        """Count the records of a step."""
        self._records_left -= record_count + _STEP_COST_RECORDS

    def _begin_turn(self) -> None:
        now_ms = self._clock.monotonic_ms()
        if now_ms != self._since_ms:
            self._since_ms = now_ms
            self._records_left = SLICE_RECORDS

    def _wait(self, step: Callable[[], bool]) -> None:
        self._steps.append(step)
        if len(self._steps) == 1:
            self._schedule()

    def _schedule(self) -> None:
        self._task = self._timer.add(self._clock.monotonic_ms() + 1, self._tick)

    def waits_for(self, step: Callable[[], bool]) -> bool:
        """Whether a step is to be called again."""
        return step in self._steps and self._task is not None and self._task.is_waiting

    def _tick(self, _now_ms: int) -> None:
        """Run steps; the error of one ends it alone, and reaches the owner of the timer."""
        self._begin_turn()
        steps = self._steps
        try:
            for _ in range(len(steps)):
                if self._records_left <= 0:
                    break
                self._run_first()
        finally:
            if steps:
                self._schedule()

    def _run_first(self) -> None:
        """Run the first step, which waits with the others as long as it runs."""
        has_more = False
        try:
            has_more = self._steps[0]()
        finally:
            step = self._steps.popleft()
            if has_more:
                self._steps.append(step)
