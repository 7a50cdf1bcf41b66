"""The real clocks.

Kafka: org.apache.kafka.common.utils.SystemTime.
"""

from __future__ import annotations

import time


class SystemClock:
    """Wall time and monotonic time of this machine."""

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """Milliseconds that never step back."""
        return time.monotonic_ns() // 1_000_000
