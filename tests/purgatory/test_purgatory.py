"""Delayed operations: completed once, by condition, force or deadline."""

from __future__ import annotations

from ottla.purgatory.purgatory import DelayedOperation, Purgatory
from ottla.purgatory.timing_wheel import TimingWheel


class Waiter(DelayedOperation):
    """Completes when `ready` was set."""

    def __init__(self, deadline_ms: int) -> None:
        super().__init__(deadline_ms)
        self.ready = False
        self.log: list[str] = []

    def try_complete(self) -> bool:
        return self.ready and self.force_complete()

    def on_complete(self) -> None:
        self.log.append("complete")

    def on_expiration(self) -> None:
        self.log.append("expired")


def test_completes_at_once_or_when_checked() -> None:
    """A ready operation does not wait; others wait for a check of one of their keys."""
    timer = TimingWheel(0)
    purgatory: Purgatory[Waiter] = Purgatory("fetch", timer)
    ready, later = Waiter(100), Waiter(100)
    ready.ready = True
    assert purgatory.try_complete_else_watch(ready, ["a"])
    assert not purgatory.try_complete_else_watch(later, ["a", "b", "a"])
    assert (purgatory.delayed_count, purgatory.watched_count) == (1, 2)
    assert purgatory.check_and_complete("a") == 0
    later.ready = True
    assert purgatory.check_and_complete("c") == 0
    assert purgatory.check_and_complete("b") == 1
    assert (purgatory.delayed_count, purgatory.watched_count) == (0, 0)
    assert timer.next_deadline() is None
    assert ready.log == later.log == ["complete"]


def test_expires() -> None:
    """The deadline completes an operation once and calls `on_expiration`."""
    timer = TimingWheel(0)
    purgatory: Purgatory[Waiter] = Purgatory("fetch", timer)
    waiter = Waiter(100)
    purgatory.try_complete_else_watch(waiter, ["a"])
    timer.advance(99)
    assert waiter.log == []
    timer.advance(100)
    assert waiter.log == ["complete", "expired"]
    assert not waiter.force_complete()
    assert purgatory.watched_count == 0


def test_complete_all() -> None:
    """Shutdown completes all operations once."""
    purgatory: Purgatory[Waiter] = Purgatory("fetch", TimingWheel(0))
    one, two = Waiter(100), Waiter(100)
    purgatory.try_complete_else_watch(one, ["a", "b"])
    purgatory.try_complete_else_watch(two, ["b"])
    assert purgatory.complete_all() == 2
    assert (one.log, two.log, purgatory.delayed_count) == (["complete"], ["complete"], 0)
