"""Quotas on rates of clients: bytes, request time, and partition mutations (KIP-599).

Kafka: org.apache.kafka.server.quota.ClientQuotaManager, kafka.server.ClientRequestQuotaManager;
org.apache.kafka.server.quota.QuotaUtils, ControllerMutationQuotaManager.throttleTimeMs;
org.apache.kafka.server.quota.{ControllerMutationQuotaManager, ControllerMutationQuota}.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from ottla.errors import ErrorCode, KafkaError
from ottla.metrics.sampled_stat import SampledStat
from ottla.quota.meters import Meters

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.metrics.sampled_stat import SampleWindow
    from ottla.quota.meters import ClientQuotaEntity, Limited

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


class ClientUse(NamedTuple):
    """The measured rate and the mean throttle time of one quota entity."""

    entity: ClientQuotaEntity
    rate: float
    throttle_time_ms: float


class _Meter(SampledStat):
    """The rate of usage, and the throttle times it caused."""

    __slots__ = ("throttle_count", "throttle_time_sum_ms")

    def __init__(self, window: SampleWindow) -> None:
        super().__init__(window)
        self.throttle_count = SampledStat(window)
        self.throttle_time_sum_ms = SampledStat(window)

    def mean_throttle_time_ms(self, now_ms: int) -> float:
        count = self.throttle_count.rate(now_ms)
        return self.throttle_time_sum_ms.rate(now_ms) / count if count else 0.0


class RateQuota(Meters[_Meter]):
    """Measures clients against their limits."""

    def __init__(self, window: SampleWindow, *, max_throttle_ms: int = MAX_THROTTLE_MS) -> None:
        self._window = window
        self._max_throttle_ms = max_throttle_ms
        super().__init__(lambda: _Meter(window))

    def record(self, user: str, client_id: str, amount: float, now_ms: int) -> int:
        """Record usage; return the throttle time."""
        limited = self.find(user, client_id, now_ms)
        return 0 if limited is None else self.record_on(limited, amount, now_ms)

    def record_on(self, limited: Limited[_Meter], amount: float, now_ms: int) -> int:
        """Record usage on a meter that `find` has returned; return the throttle time."""
        meter = limited.meter
        meter.record(amount, now_ms)
        measured = meter.rate(now_ms)
        if measured <= limited.limit:
            return 0
        throttle_time_ms = over_rate_ms(measured, limited.limit, meter.window_ms(now_ms))
        throttle_time_ms = min(throttle_time_ms, self._max_throttle_ms)
        if throttle_time_ms:
            meter.throttle_count.record(1, now_ms)
            meter.throttle_time_sum_ms.record(throttle_time_ms, now_ms)
        return throttle_time_ms

    def uses(self, now_ms: int) -> Iterator[ClientUse]:
        """Yield the current rate of every quota entity that was active within the last hour."""
        self.forget_idle(now_ms)
        for entity, meter in self:
            yield ClientUse(entity, meter.rate(now_ms), meter.mean_throttle_time_ms(now_ms))

    def record_unthrottled(self, user: str, client_id: str, amount: float, now_ms: int) -> None:
        """Record usage, or subtract a negative amount, without throttling this request."""
        limited = self.find(user, client_id, now_ms)
        if limited is not None:
            limited.meter.record(amount, now_ms)

    def max_in_window(self, user: str, client_id: str, now_ms: int) -> float:
        """Return the largest amount that an idle client may use at once without being throttled."""
        limited = self.find(user, client_id, now_ms)
        if limited is None:
            return math.inf
        samples, sample_ms = self._window
        return limited.limit * (samples - 1) * sample_ms / 1000


class TokenBucket:
    """Holds at most the amount that the quota allows in its whole window; starts full."""

    __slots__ = ("_filled_ms", "_tokens", "_window")

    def __init__(self, window: SampleWindow) -> None:
        self._window = window
        self._tokens: float | None = None
        self._filled_ms = 0

    def take(self, count: float, limit: float, now_ms: int) -> None:
        """Take tokens, or return them when count is negative; the result may be negative."""
        burst = self._window.length_s * limit
        self._tokens = min(burst, self.measure(limit, now_ms) - count)

    def measure(self, limit: float, now_ms: int) -> float:
        """Refill for the elapsed time and return the tokens; negative when overdrawn."""
        burst = self._window.length_s * limit
        if self._tokens is None:
            self._tokens = burst
        else:
            gained = limit * ((now_ms - self._filled_ms) / 1000)
            self._tokens = min(burst, self._tokens + gained)
        self._filled_ms = now_ms
        return self._tokens


class MutationPermits:
    """The permits that one request takes from its client's bucket."""

    def __init__(
        self, limited: Limited[TokenBucket] | None, now_ms: int, *, is_strict: bool
    ) -> None:
        self._limited = limited
        self._now_ms = now_ms
        self._is_strict = is_strict
        self._throttle_time_ms = 0

    def record(self, partitions: int) -> None:
        """Take a permit for each partition.

        On an overdrawn bucket a strict request takes none and is refused with KafkaError
        THROTTLING_QUOTA_EXCEEDED; others are throttled. A bucket that is not empty suffices for
        any number.
        """
        if self._limited is None:
            return
        bucket, limit = self._limited.meter, self._limited.limit
        if not self._is_strict:
            bucket.take(partitions, limit, self._now_ms)
        tokens = bucket.measure(limit, self._now_ms)
        if tokens < 0:
            self._throttle_time_ms = overdrawn_ms(tokens, limit)
            if self._is_strict:
                raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        elif self._is_strict:
            bucket.take(partitions, limit, self._now_ms)

    def throttle_time_ms(self, now_ms: int) -> int:
        """Return the remaining throttle time."""
        return max(0, self._throttle_time_ms - (now_ms - self._now_ms))


class MutationQuota(Meters[TokenBucket]):
    """One bucket for each quota entity with a limit."""

    def __init__(self, window: SampleWindow) -> None:
        super().__init__(lambda: TokenBucket(window))

    def permits_for(
        self, user: str, client_id: str, now_ms: int, *, is_strict: bool
    ) -> MutationPermits:
        """Return the permits of one request; strict ones are refused rather than throttled."""
        limited = self.find(user, client_id, now_ms)
        return MutationPermits(limited, now_ms, is_strict=is_strict)
