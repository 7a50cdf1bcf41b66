"""Limits the rate of a sending loop.

Kafka: org.apache.kafka.server.util.ThroughputThrottler.
"""

from __future__ import annotations

import time


class Pace:
    """Delays a loop to at most `rate` iterations per second; a negative rate is unlimited."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._began = time.monotonic()

    def lead_s(self, done: int) -> float:
        """Return the delay before the next iteration; infinite for a rate of 0."""
        if self._rate < 0:
            return 0.0
        if self._rate == 0:
            return float("inf")
        return max(0.0, done / self._rate - (time.monotonic() - self._began))

    def wait(self, done: int) -> None:
        """Sleep until `done` iterations conform to the rate."""
        while (lead := self.lead_s(done)) > 0:
            time.sleep(min(lead, 1.0))
