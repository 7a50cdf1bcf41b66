"""Quotas on what clients use a second: bytes written, bytes read, time of the loop.

Kafka: org.apache.kafka.server.quota.ClientQuotaManager, kafka.server.ClientRequestQuotaManager.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from ottla.quota.meters import Meters
from ottla.quota.rate import SampledRate
from ottla.quota.throttle import MAX_THROTTLE_MS, over_rate_ms

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.metadata.image.quotas import QuotaEntity
    from ottla.quota.precedence import Sharers
    from ottla.quota.rate import Window


class ClientUse(NamedTuple):
    """What the sharers of one limit used a second, and their mean pause in milliseconds."""

    quota_entities: Sharers
    rate: float
    pause_ms: float


class _Meter(SampledRate):
    """The rate of what was used, and of the pauses that it led to."""

    __slots__ = ("pause_count", "pause_sum_ms")

    def __init__(self, window: Window) -> None:
        super().__init__(window)
        self.pause_count = SampledRate(window)
        self.pause_sum_ms = SampledRate(window)

    def mean_throttle_time_ms(self, now_ms: int) -> float:
        count = self.pause_count.measure(now_ms)
        return self.pause_sum_ms.measure(now_ms) / count if count else 0.0


class RateQuota:
    """Measures clients against their limits; user and client_id name the client."""

    def __init__(self, window: Window, *, max_throttle_ms: int = MAX_THROTTLE_MS) -> None:
        self._window = window
        self._max_throttle_ms = max_throttle_ms
        self._meters: Meters[_Meter] = Meters(lambda: _Meter(window))

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
        pause_ms = min(pause_ms, self._max_throttle_ms)
        if pause_ms:
            rate.pause_count.record(1, now_ms)
            rate.pause_sum_ms.record(pause_ms, now_ms)
        return pause_ms

    def uses(self, now_ms: int) -> Iterator[ClientUse]:
        """Yield what all who are measured use now; not those who have been gone for an hour."""
        self._meters.forget_idle(now_ms)
        for quota_entities, rate in self._meters:
            yield ClientUse(
                quota_entities, rate.measure(now_ms), rate.mean_throttle_time_ms(now_ms)
            )

    def record_freely(self, user: str, client_id: str, amount: float, now_ms: int) -> None:
        """Count, or with a negative amount uncount, without a consequence for this request."""
        limited = self._meters.find(user, client_id, now_ms)
        if limited is not None:
            limited.meter.record(amount, now_ms)

    def max_in_window(self, user: str, client_id: str, now_ms: int) -> float:
        """Return the most that an idle client may use at once without waiting afterwards."""
        limited = self._meters.find(user, client_id, now_ms)
        if limited is None:
            return math.inf
        samples, sample_ms = self._window
        return limited.limit * (samples - 1) * sample_ms / 1000
