"""What waits for too long is ended in time, whatever else is over before."""

from __future__ import annotations

import pytest

from ottla.purgatory.expiries import SWEEP_SIZE, Expiries
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
    for now_ms in range(20, 130):
        timer.advance(now_ms)
        for one in waits.values():
            is_due = one is not waits[100, 10] and now_ms >= one.deadline_ms
            assert one.is_expired == is_due, (now_ms, one.deadline_ms)
    assert len(timer) == len(expiries) == 0


@pytest.mark.parametrize("first_is_over", [True, False])
def test_what_is_over_is_let_go_when_others_come(first_is_over: bool) -> None:  # noqa: FBT001
    """A queue does not grow with the requests of its timeout, also behind one that waits."""
    timer = TimingWheel(0)
    expiries = Expiries(timer)
    first = Waiting(30_000)
    expiries.add(30_000, first)
    first.is_over = first_is_over
    for _ in range(1000):
        one = Waiting(30_000)
        expiries.add(30_000, one)
        one.is_over = True
        assert len(expiries) <= SWEEP_SIZE + 1
    assert len(timer) == 1
    timer.advance(30_000)
    assert first.is_expired is not first_is_over
    assert len(expiries) == len(timer) == 0
