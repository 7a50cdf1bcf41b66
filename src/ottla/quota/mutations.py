"""The quota on partition mutations: partitions that clients create and delete (KIP-599).

Kafka: org.apache.kafka.server.quota.{ControllerMutationQuotaManager, ControllerMutationQuota}.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.errors import ErrorCode, KafkaError
from ottla.quota.meters import Meters
from ottla.quota.rates import overdrawn_ms

if TYPE_CHECKING:
    from ottla.metrics.sampled_stat import SampleWindow
    from ottla.quota.meters import Limited


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
