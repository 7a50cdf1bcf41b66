"""Calls to remote storage: bounded by settings, whatever the store does."""

from __future__ import annotations

import asyncio
import time
from threading import Event
from typing import TYPE_CHECKING, Any

from ottla.clock import Clock
from ottla.server.remote.calls import SLOW_MS, RemoteCalls
from ottla.server.system.workers import DetachedThreads
from tests.waits import WAIT_S

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest


class Time(Clock):
    """A clock that the test moves."""

    ms = 0

    def now_ms(self) -> int:
        return self.ms

    def monotonic_ms(self) -> int:
        return self.ms


class Pool:
    """Workers whose jobs the test ends."""

    def __init__(self) -> None:
        self.jobs: list[Callable[[], None]] = []

    def run(self, job: Callable[[], Any], done: Callable[[Any, Any], None]) -> None:
        self.jobs.append(lambda: done(job(), None))

    def close(self) -> None:
        pass


def test_as_many_run_as_the_setting_says_and_it_may_change() -> None:
    """Those that run are not interrupted by a reduction; those that wait go on in their order."""
    pool, found = Pool(), []
    calls = RemoteCalls(pool, 2, Time())
    for number in range(6):
        calls.run(lambda number=number: number, lambda value, _error: found.append(value))  # type: ignore[misc]
    assert (len(pool.jobs), calls.waiting_count, calls.idle_share) == (2, 4, 0.0)
    calls.resize(4)
    assert (len(pool.jobs), calls.waiting_count) == (4, 2)
    calls.resize(2)
    assert calls.idle_share == -1
    pool.jobs[0]()
    pool.jobs[1]()
    assert len(pool.jobs) == 4
    pool.jobs[2]()
    assert len(pool.jobs) == 5
    calls.close()
    pool.jobs[3]()
    assert (len(pool.jobs), calls.waiting_count, found) == (5, 0, [0, 1, 2, 3])


def test_a_call_that_does_not_end_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    """And its age is known; others of its kind go on."""
    pool, clock = Pool(), Time()
    calls = RemoteCalls(pool, 2, clock)
    calls.run(lambda: None, lambda _value, _error: None, "the copy of segment 7 of t-0")
    clock.ms = SLOW_MS - 1
    calls.run(lambda: None, lambda _value, _error: None)
    calls.name_slow()
    assert not caplog.records
    clock.ms = SLOW_MS
    calls.name_slow()
    calls.name_slow()
    (line,) = [record.message for record in caplog.records]
    assert line.startswith("the copy of segment 7 of t-0 has not ended for 10 minutes: remote")
    assert "one of 2 threads" in line
    assert calls.oldest_ms == SLOW_MS
    pool.jobs[0]()
    assert calls.oldest_ms == 1


def test_a_stop_does_not_wait_for_ever() -> None:
    """The others have ended then, and their threads."""
    never = Event()

    async def work() -> None:
        loop = asyncio.get_running_loop()
        threads, found = DetachedThreads(loop, wait_s=0.2), loop.create_future()
        threads.run(never.wait, lambda _value, _error: None)
        threads.run(lambda: 1 // 0, lambda _value, error: found.set_result(error))
        assert isinstance(await found, ZeroDivisionError)
        begin = time.monotonic()
        threads.close()
        assert 0.2 <= time.monotonic() - begin < WAIT_S
        assert not threads.is_ended
        never.set()
        threads = DetachedThreads(loop, wait_s=WAIT_S)
        for _ in range(3):
            threads.run(lambda: time.sleep(0.01), lambda _value, _error: None)
        threads.close()
        assert threads.is_ended

    asyncio.run(work())
