"""The two clocks a node needs, as an argument. The real one lives in `server.clock`.

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
