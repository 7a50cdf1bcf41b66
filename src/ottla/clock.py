"""The interface of a node's clocks, which are arguments; `server.system.clock` implements it.

Kafka: org.apache.kafka.common.utils.Time.
"""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """Wall time for record timestamps and retention, monotonic time for sessions and timers."""

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch; may step."""

    def monotonic_ms(self) -> int:
        """Milliseconds since an arbitrary point; never steps back."""
