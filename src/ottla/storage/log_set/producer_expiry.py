"""Removes expired producers of all logs, in slices.

Kafka: UnifiedLog.removeExpiredProducers, a scheduled task of each log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.storage.log_set.log_set import LogSet

SLICE_LOGS = 1000
SLICE_PRODUCERS = 5000
"""Producers checked per slice, which takes about a millisecond."""


class ProducerExpiry:
    """One check of the producers of all logs that are there when it begins."""

    __slots__ = ("_waiting",)

    def __init__(self, logs: LogSet) -> None:
        self._waiting = [*logs, *logs.futures]

    def step(self, now_ms: int) -> bool:
        """Check the next producers; return whether any remains."""
        logs = producers = 0
        while self._waiting and logs < SLICE_LOGS and producers < SLICE_PRODUCERS:
            state = self._waiting[-1].producer_state
            logs += 1
            producers += len(state.producers)
            if state.remove_expired(now_ms, SLICE_PRODUCERS):
                break
            self._waiting.pop()
        return bool(self._waiting)
