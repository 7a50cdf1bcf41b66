"""What waits for too long is ended in time, whatever else is over before."""

from __future__ import annotations

from ottla.purgatory.expiries import Expiries
from ottla.purgatory.timing_wheel import TimingWheel


class Waiting:
    """Waits until a deadline."""

    def __init__(self, deadline_ms: int) -> None:
        self.deadline_ms = deadline_ms
        self.is_over = False
        self.is_expired = False

    def expire(self) -> None:
        """Take note."""
        self.is_over = self.is_expired = True


def test_each_expires_at_its_own_deadline_and_none_that_is_over() -> None:
    """Also behind others, and with other timeouts."""
    timer = TimingWheel(0)
    expiries = Expiries(timer)
    waits = {}
    for timeout_ms, now_ms in ((100, 0), (100, 10), (30, 15), (100, 20)):
        timer.advance(now_ms)
        one = waits[timeout_ms, now_ms] = Waiting(now_ms + timeout_ms)
        expiries.add(timeout_ms, one)
    waits[100, 10].is_over = True
    assert len(expiries) == 3
    for now_ms in range(20, 130):
        timer.advance(now_ms)
        for one in waits.values():
            is_due = one is not waits[100, 10] and now_ms >= one.deadline_ms
            assert one.is_expired == is_due, (now_ms, one.deadline_ms)
    assert len(timer) == len(expiries) == 0


def test_what_is_over_is_let_go_when_others_come() -> None:
    """A queue does not grow with the requests of its timeout."""
    timer = TimingWheel(0)
    expiries = Expiries(timer)
    for _ in range(1000):
        one = Waiting(30_000)
        expiries.add(30_000, one)
        one.is_over = True
    assert len(expiries._queues[30_000]) == 1
    assert len(timer) == 1
