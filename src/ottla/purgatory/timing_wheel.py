"""Timers with insertion and cancellation in constant time.

Kafka: org.apache.kafka.server.util.timer.{TimingWheel, SystemTimer, TimerTask}.

A hierarchical timing wheel. Level 0 has one bucket for each of the next 20 ms, level 1 one for
each 20 ms of the next 400 ms, and so on. A task goes into the bucket of the lowest level that
reaches its deadline; when a bucket's time comes, its tasks move down or, on level 0, fire. Only
the buckets' start times are in a heap. Unlike Kafka's, this one has no thread and no clock: the
owner calls `advance(now_ms)`, and tasks fire in the order of their deadlines, then of insertion.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    Bucket = dict["TimerTask", None]

WHEEL_SIZE: Final = 20
_MAX_EXAMINED: Final = 16
"""Up to this many tasks of a bucket are examined to compute the exact next deadline."""


class TimerTask:
    """One callback at one deadline; fires at most once."""

    __slots__ = ("_bucket", "callback", "deadline_ms", "sequence")

    def __init__(self, deadline_ms: int, sequence: int, callback: Callable[[int], None]) -> None:
        self.deadline_ms = deadline_ms
        self.sequence = sequence
        self.callback = callback
        self._bucket: Bucket | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether it has neither fired nor was cancelled."""
        return self._bucket is not None

    def cancel(self) -> bool:
        """Cancel it; return False when it has fired or is cancelled already."""
        if self._bucket is None:
            return False
        del self._bucket[self]
        self._bucket = None
        self.callback = _no_callback  # it usually refers to the holder of the task: a cycle
        return True

    def move_to(self, bucket: Bucket | None) -> None:
        """Set the bucket that holds it; called by the wheel."""
        self._bucket = bucket
        if bucket is not None:
            bucket[self] = None


class TimingWheel:
    """Tasks by deadline; all times are monotonic milliseconds of the owner's clock."""

    __slots__ = ("_buckets", "_in_advance", "_now_ms", "_sequence", "_starts")

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms
        self._in_advance = False
        self._sequence = 0
        self._buckets: dict[tuple[int, int], Bucket] = {}
        self._starts: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return sum(map(len, self._buckets.values()))

    def add(self, deadline_ms: int, callback: Callable[[int], None]) -> TimerTask:
        """Call callback(now_ms) in the first `advance` at or after the deadline.

        A deadline that has passed fires in the next `advance`. A task added by a callback does not
        fire in the same `advance` at the same millisecond, so a task that renews itself without
        delay cannot block the event loop.
        """
        self._sequence += 1
        earliest_ms = self._now_ms + 1 if self._in_advance else self._now_ms
        task = TimerTask(max(deadline_ms, earliest_ms), self._sequence, callback)
        self._insert(task)
        return task

    def postpone(self, task: TimerTask, deadline_ms: int) -> bool:
        """Give a task a later deadline; False for an earlier one, or when it no longer waits.

        It stays in its bucket and moves to the one of its deadline when that bucket is opened.
        """
        if deadline_ms < task.deadline_ms or not task.is_waiting:
            return False
        self._sequence += 1
        task.deadline_ms, task.sequence = deadline_ms, self._sequence
        return True

    def next_deadline(self) -> int | None:
        """Return when `advance` should be called next, never later than the first deadline.

        It may be earlier by part of a bucket; None without tasks.
        """
        while self._starts:
            bucket = self._buckets[self._starts[0]]
            if len(bucket) > _MAX_EXAMINED:
                return self._starts[0][0]
            if bucket:
                earliest_ms = min(task.deadline_ms for task in bucket)
                return min((earliest_ms, *(start_ms for start_ms, _ in self._starts[1:3])))
            del self._buckets[heappop(self._starts)]
        return None

    def advance(self, now_ms: int, has_time: Callable[[], bool] | None = None) -> int:
        """Fire due tasks in order; return how many. Exceptions of callbacks propagate.

        Once has_time, which is asked after each task, returns False, the tasks that are left stay
        due.
        """
        fired = 0
        self._in_advance = True
        try:
            while self._starts and self._starts[0][0] <= now_ms:
                fired += self._open_next_bucket(now_ms, has_time)
                if has_time is not None and not has_time():
                    return fired
            self._now_ms = max(self._now_ms, now_ms)
        finally:
            self._in_advance = False
        return fired

    def _insert(self, task: TimerTask) -> None:
        distance_ms, tick_ms = task.deadline_ms - self._now_ms, 1
        while distance_ms >= tick_ms * WHEEL_SIZE:
            tick_ms *= WHEEL_SIZE
        # the coarser bucket of two with one start comes first: it may hold tasks of that time
        key = (task.deadline_ms - task.deadline_ms % tick_ms, -tick_ms)
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = {}
            heappush(self._starts, key)
        task.move_to(bucket)

    def _open_next_bucket(self, now_ms: int, has_time: Callable[[], bool] | None) -> int:
        key = heappop(self._starts)
        bucket = self._buckets.pop(key)
        self._now_ms = max(self._now_ms, key[0])
        try:
            return self._fire(bucket, now_ms, has_time) if key[1] == -1 else 0
        finally:  # tasks of a coarser bucket and postponed ones move, those left over stay due
            for task in bucket:
                self._insert(task)

    def _fire(self, bucket: Bucket, now_ms: int, has_time: Callable[[], bool] | None) -> int:
        fired = 0
        tasks = [task for task in bucket if task.deadline_ms <= self._now_ms]
        if len(tasks) > 1:
            tasks.sort(key=lambda task: task.sequence)
        for task in tasks:
            callback = task.callback
            if task.cancel():  # False: an earlier callback cancelled it
                fired += 1
                callback(now_ms)
                if has_time is not None and not has_time():
                    break
        return fired


def _no_callback(_now_ms: int) -> None:
    """Take the place of the callback of a task that has fired or is cancelled."""
