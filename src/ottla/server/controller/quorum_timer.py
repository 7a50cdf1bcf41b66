"""Calls the member of the quorum when its next deadline comes: an election, the end of a long poll.

Kafka: org.apache.kafka.raft.TimingWheelExpirationService, KafkaRaftClientDriver.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.raft.timeouts import NEVER_MS

if TYPE_CHECKING:
    from ottla.clock import Clock
    from ottla.purgatory.timing_wheel import TimingWheel
    from ottla.raft.driver import RaftDriver


class QuorumTimer:
    """Keeps one timer at the earliest deadline; deadlines that move back cost no new one."""

    __slots__ = ("_clock", "_driver", "_next_ms", "_timer")

    def __init__(self, driver: RaftDriver, clock: Clock, timer: TimingWheel) -> None:
        self._driver = driver
        self._clock = clock
        self._timer = timer
        self._next_ms = NEVER_MS

    def due(self, due_ms: int) -> None:
        """Tick the driver at this monotonic time, or at an earlier one that is set already."""
        if due_ms < self._next_ms:
            self._next_ms = max(due_ms, self._clock.monotonic_ms() + 1)
            self._timer.add(self._next_ms, self._tick)

    def _tick(self, now_ms: int) -> None:
        if now_ms >= self._next_ms:
            self._next_ms = NEVER_MS
            self._driver.tick()
