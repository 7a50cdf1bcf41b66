"""The timing wheel against a sorted list."""

from __future__ import annotations

import random

import pytest

from ottla.purgatory.timing_wheel import TimerTask, TimingWheel


@pytest.mark.parametrize("seed", range(20))
def test_fires_in_order_of_deadline(seed: int) -> None:
    """Each task fires once, at the first advance at or after its deadline, in order."""
    rng = random.Random(seed)
    now_ms = rng.choice([0, 17, 10**12])
    wheel = TimingWheel(now_ms)
    waiting: dict[int, TimerTask] = {}
    fired: list[int] = []
    for number in range(400):
        deadline_ms = now_ms + rng.choice([0, 1, 5, 19, 20, 399, 400, 8_000, 10**7])
        deadline_ms += rng.randrange(50)

        def note(_now_ms: int, number: int = number) -> None:
            fired.append(number)

        waiting[number] = wheel.add(deadline_ms, note)
        if rng.random() < 0.2:
            gone = rng.choice(list(waiting))
            assert waiting.pop(gone).cancel()
        if rng.random() < 0.3:
            next_ms = wheel.next_deadline()
            first_ms = min((task.deadline_ms for task in waiting.values()), default=None)
            assert (next_ms is None) == (first_ms is None)
            assert next_ms is None or first_ms is None or next_ms <= first_ms
            now_ms += rng.choice([0, 1, 25, 500, 10**5])
            fired.clear()
            assert wheel.advance(now_ms) == len(fired)
            due = [n for n, task in waiting.items() if task.deadline_ms <= now_ms]
            assert fired == sorted(due, key=lambda n: (waiting[n].deadline_ms, n))
            for gone in due:
                assert not waiting.pop(gone).cancel()
        assert len(wheel) == len(waiting)


def test_no_one_is_woken_for_a_bucket_of_few() -> None:
    """The next call is due at a deadline itself, not at the start of a coarse bucket."""
    wheel = TimingWheel(7)
    late = wheel.add(7_900, lambda _now_ms: None)
    assert wheel.next_deadline() == 7_900
    wheel.add(790, lambda _now_ms: None)
    assert wheel.next_deadline() == 790
    assert wheel.advance(790) == 1
    assert wheel.next_deadline() == 7_900
    late.cancel()
    assert wheel.next_deadline() is None


def test_callback_may_cancel_and_add() -> None:
    """A callback can cancel a task of the same millisecond; what it adds waits a millisecond."""
    wheel = TimingWheel(0)
    seen: list[tuple[str, int]] = []

    def first(now_ms: int) -> None:
        seen.append(("first", now_ms))
        second.cancel()
        wheel.add(0, lambda now_ms: seen.append(("added", now_ms)))

    wheel.add(10, first)
    second = wheel.add(10, lambda now_ms: seen.append(("second", now_ms)))
    assert wheel.advance(10) == 1
    assert wheel.advance(10) == 0
    assert wheel.advance(11) == 1
    assert seen == [("first", 10), ("added", 11)]


def test_raising_callback_loses_no_other() -> None:
    """An exception propagates; tasks after it fire in the next advance."""
    wheel = TimingWheel(0)
    seen: list[int] = []

    def fail(now_ms: int) -> None:
        raise RuntimeError("planted")

    wheel.add(5, fail)
    wheel.add(5, seen.append)
    with pytest.raises(RuntimeError):
        wheel.advance(7)
    wheel.advance(7)
    assert seen == [7]


def test_next_deadline_skips_cancelled() -> None:
    """A wheel whose tasks are all cancelled has no next deadline."""
    wheel = TimingWheel(0)
    for delay_ms in (5, 500):
        wheel.add(delay_ms, lambda now_ms: None).cancel()
    assert wheel.next_deadline() is None


def test_a_postponed_task_fires_at_its_new_deadline_only() -> None:
    """A later deadline is taken in place, from buckets of every level; an earlier one is not."""
    for first_ms in (1, 15, 30, 500, 9_000):
        wheel, fired = TimingWheel(0), list[int]()
        wheel.add(first_ms, lambda _now_ms: None)
        task = wheel.add(first_ms, fired.append)
        assert not wheel.postpone(task, first_ms - 1)
        assert wheel.postpone(task, first_ms + 7)
        wheel.advance(first_ms)
        assert wheel.postpone(task, first_ms + 450)
        wheel.advance(first_ms + 449)
        assert not fired
        next_ms = wheel.next_deadline()
        assert next_ms is not None
        assert next_ms <= first_ms + 450
        wheel.advance(first_ms + 450)
        assert fired == [first_ms + 450]
        assert not wheel.postpone(task, first_ms + 900)
