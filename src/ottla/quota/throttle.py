"""Throttle times of clients that exceed a quota.

Kafka: org.apache.kafka.server.quota.QuotaUtils, ControllerMutationQuotaManager.throttleTimeMs.
"""

from __future__ import annotations

import math

MAX_THROTTLE_MS = 2**31 - 1


def over_rate_ms(rate: float, limit: float, window_ms: int) -> int:
    """Return the delay after which the mean over window and delay equals the limit."""
    return _rounded((rate - limit) / limit * window_ms)


def overdrawn_ms(tokens: float, limit: float) -> int:
    """Return the time in which an overdrawn bucket (tokens < 0) refills to zero."""
    return _rounded(-tokens / limit * 1000)


def _rounded(milliseconds: float) -> int:
    """Round halves up, as Java does; the result must fit into a 32-bit protocol field."""
    return math.floor(min(milliseconds, MAX_THROTTLE_MS) + 0.5)
