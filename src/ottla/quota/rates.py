"""Quotas on what clients use a second: bytes written, bytes read, time of the loop.

Kafka: org.apache.kafka.server.quota.ClientQuotaManager, kafka.server.ClientRequestQuotaManager.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ottla.quota.meters import Meters
from ottla.quota.rate import SampledRate
from ottla.quota.throttle import MAX_THROTTLE_MS, over_rate_ms

if TYPE_CHECKING:
    from ottla.metadata.image.quotas import QuotaEntity
    from ottla.quota.rate import Window


class RateQuota:
    """Measures clients against their limits; user and client_id name the client."""

    def __init__(self, window: Window, *, max_throttle_ms: int = MAX_THROTTLE_MS) -> None:
        self._window = window
        self._max_throttle_ms = max_throttle_ms
        self._meters: Meters[SampledRate] = Meters(lambda: SampledRate(window))

    @property
    def is_on(self) -> bool:
        """Whether anybody is limited."""
        return self._meters.is_on

    def limits(self, user: str, client_id: str) -> bool:
        """Whether anything limits a user's client."""
        return self._meters.limits(user, client_id)

    def set_limit(self, entity: QuotaEntity, limit: float | None) -> None:
        """Set or remove the limit of an entity."""
        self._meters.set_limit(entity, limit)

    def record(self, user: str, client_id: str, amount: float, now_ms: int) -> int:
        """Count what was used; return for how many milliseconds the client must be kept waiting."""
        limited = self._meters.find(user, client_id, now_ms)
        if limited is None:
            return 0
        rate = limited.meter
        rate.record(amount, now_ms)
        measured = rate.measure(now_ms)
        if measured <= limited.limit:
            return 0
        pause_ms = over_rate_ms(measured, limited.limit, rate.window_ms(now_ms))
        return min(pause_ms, self._max_throttle_ms)

    def record_freely(self, user: str, client_id: str, amount: float, now_ms: int) -> None:
        """Count, or with a negative amount uncount, without a consequence for this request."""
        limited = self._meters.find(user, client_id, now_ms)
        if limited is not None:
            limited.meter.record(amount, now_ms)

    def most_in_window(self, user: str, client_id: str, now_ms: int) -> float:
        """Return the most that an idle client may use at once without waiting afterwards."""
        limited = self._meters.find(user, client_id, now_ms)
        if limited is None:
            return math.inf
        samples, sample_ms = self._window
        return limited.limit * (samples - 1) * sample_ms / 1000
