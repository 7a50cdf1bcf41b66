"""Long work in turns: what it costs a turn, in which order, and how it ends."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

import pytest

from ottla.purgatory.pending import Pending
from ottla.purgatory.work import LONG_STEP_S, MAX_STEPS, NEXT_TURN, TURN_S, Worker, finish

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.purgatory.work import Work


class Loop:
    """A loop whose turns are taken one by one, and a stopwatch that steps move."""

    def __init__(self) -> None:
        self.turns: list[Callable[[], None]] = []
        self.elapsed_s = 0.0
        self.long_steps: list[str] = []
        self.steps: list[str] = []
        self.worker = Worker(
            self.turns.append,
            lambda: self.elapsed_s,
            max_steps=inf,
            on_long_step=lambda name, _duration_s: self.long_steps.append(name),
        )

    def work(self, name: str, count: int, step_s: float = TURN_S / 4) -> Work[str]:
        """Take steps that take time; return the name."""
        for _ in range(count):
            self.elapsed_s += step_s
            self.steps.append(name)
            yield
        return name

    def turn(self) -> list[str]:
        """Run one turn of the loop; return the steps taken in it."""
        turns, self.turns[:] = self.turns[:], []
        del self.steps[:]
        for callback in turns:
            callback()
        return self.steps[:]


def test_a_short_work_that_others_rely_on_takes_more_of_a_turn() -> None:
    """Also where others have used the budget; not for ever."""
    loop = Loop()
    loop.worker.run(loop.work("long", 9))
    loop.steps.clear()
    loop.worker.run(loop.work("short", 9), at_once_s=TURN_S)
    assert loop.steps == ["short"] * 4


def test_little_work_is_done_at_once() -> None:
    """Without a turn of the loop; its answer need not wait."""
    loop = Loop()
    assert loop.worker.run(loop.work("a", 2)).value == "a"
    assert loop.turn() == []
    assert not loop.turns


def test_a_turn_ends_with_its_budget_and_works_take_turns() -> None:
    """Also those that begin in the same turn."""
    loop = Loop()
    first, second = (loop.worker.run(loop.work(name, 6)) for name in "ab")
    assert loop.steps == ["a"] * 4
    assert loop.turn() == ["a", "b", "a", "b"]
    assert (loop.turn(), first.done, second.done) == (["b"] * 4, True, False)
    loop.turn()
    assert second.done


def test_without_a_stopwatch_steps_are_counted() -> None:
    """A simulation runs the same each time."""
    turns: list[Callable[[], None]] = []
    steps = 0

    def work() -> Work[None]:
        nonlocal steps
        for _ in range(3 * MAX_STEPS):
            steps += 1
            yield

    Worker(turns.append).run(work())
    assert steps == MAX_STEPS
    turns.pop()()
    assert steps == 2 * MAX_STEPS


def test_a_long_step_has_its_turn_alone_and_is_named() -> None:
    """NEXT_TURN says so before the time is over; the name is that of the work."""
    loop = Loop()

    def work() -> Work[None]:
        loop.elapsed_s += 2 * LONG_STEP_S
        loop.steps.append("long")
        yield NEXT_TURN
        loop.steps.append("end")

    loop.worker.run(work())
    loop.worker.run(loop.work("b", 1))
    assert loop.steps == ["long"]
    assert loop.turn() == ["end", "b"]
    assert [name.rpartition(".")[2] for name in loop.long_steps] == ["work"]


def test_work_waits_for_what_it_yields() -> None:
    """The value comes back; an error is raised at the yield, where the work may handle it."""
    loop = Loop()
    answers: list[Pending[int]] = [Pending() for _ in range(2)]

    def work() -> Work[list[object]]:
        results: list[object] = []
        for answer in (*answers, Pending.of(3)):
            try:
                results.append((yield answer))
            except ConnectionError:
                results.append("lost")
        return results

    result = loop.worker.run(work())
    answers[0].complete(1)
    loop.turn()
    answers[1].fail(ConnectionError())
    assert not result.done
    loop.turn()
    assert result.value == [1, "lost", 3]


def test_work_of_a_running_key_is_joined() -> None:
    """One of them runs; when it is over, the next one begins again."""
    loop = Loop()
    first = loop.worker.run(loop.work("a", 6), "key")
    assert loop.worker.run(loop.work("b", 6), "key") is first
    assert "key" in loop.worker
    loop.turn()
    assert first.value == "a"
    assert "key" not in loop.worker
    assert loop.worker.run(loop.work("c", 1), "key").value == "c"


def test_a_work_that_begins_its_own_successor_is_refused() -> None:
    """It would be dropped without a word; another work may begin one of a running key."""
    loop = Loop()

    def successive() -> Work[str]:
        yield
        loop.worker.begin(loop.work("b", 1), "key")
        return "a"

    first = loop.worker.begin(successive(), "key")
    assert loop.worker.begin(loop.work("c", 1), "key") is first
    loop.turn()
    assert isinstance(first.error, AssertionError)
    assert "key" not in loop.worker


def test_an_error_ends_its_work_alone() -> None:
    """It is in the result; one of a callback reaches the loop, and the others go on."""
    loop = Loop()

    def fail() -> Work[None]:
        yield from loop.work("fail", 4)
        raise RuntimeError("a defect")

    failed = loop.worker.run(fail())
    broken = loop.worker.run(loop.work("a", 1))
    last = loop.worker.run(loop.work("b", 8))

    def callback(_done: Pending[Any]) -> None:
        raise AssertionError("planted")

    broken.on_done(callback)
    with pytest.raises(AssertionError, match="planted"):
        loop.turn()
    while loop.turns:
        loop.turn()
    assert last.value == "b"
    with pytest.raises(RuntimeError, match="a defect"):
        _ = failed.value
    assert not list(loop.worker.stalls())


def test_a_lost_turn_is_a_stall() -> None:
    """What waits for nothing that comes."""
    loop = Loop()
    loop.worker.run(loop.work("a", 8))
    assert not list(loop.worker.stalls())
    loop.worker._is_scheduled = False
    assert list(loop.worker.stalls()) == ["1 works wait for no turn"]


def test_few_steps_may_be_finished_at_once() -> None:
    """By who knows that they are few."""
    assert finish(Loop().work("a", 3)) == "a"
