"""A cluster's clock that tests can advance without waiting.

Kafka: org.apache.kafka.common.utils.MockTime.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.server.system.timers import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable


class ClusterClock:
    """The clock of all nodes of a `Cluster`; clients use the system clock."""

    def __init__(self, moved: Callable[[], None]) -> None:
        """Take the callback that notifies the nodes of a change."""
        self._moved = moved
        self._machine = SystemClock()
        self.ahead_ms = 0
        """Offset from the system clock, in ms."""

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch."""
        return self._machine.now_ms() + self.ahead_ms

    def monotonic_ms(self) -> int:
        """Milliseconds that never step back."""
        return self._machine.monotonic_ms() + self.ahead_ms

    def advance(
        self,
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
        milliseconds: float = 0,
    ) -> None:
        """Advance the time of all nodes: due timers fire, and retention is applied."""
        whole_seconds = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
        step_ms = round(whole_seconds * 1000 + milliseconds)
        if step_ms < 0:
            raise ValueError("time does not go back")
        self.ahead_ms += step_ms
        self._moved()
