"""The delay between retries, which doubles up to a limit.

Kafka: org.apache.kafka.common.utils.ExponentialBackoff (KIP-580).
"""

from __future__ import annotations

from typing import Final, Protocol

MAX_DOUBLINGS: Final = 30
"""Enough for any limit that an int32 of ms can state, and no overflow of a float."""


class Randomness(Protocol):
    """The random source of jitter."""

    def random(self) -> float:
        """Return a number in [0, 1)."""


class Backoff:
    """Exponential backoff from `initial_ms` to `max_ms`, with a multiplier of two.

    Parameters:
        initial_ms: the delay after the first failure; `max_ms` if that is less.
        max_ms: the longest delay, jitter included.
        rng: the source of jitter; without one the delays are exact.
        jitter: the largest deviation, as a fraction of the delay. Clients that lost the same
            broker would else return at the same moment.
    """

    __slots__ = ("_initial_ms", "_jitter", "_max_ms", "_rng")

    def __init__(
        self, initial_ms: int, max_ms: int, rng: Randomness | None = None, *, jitter: float = 0.2
    ) -> None:
        self._initial_ms, self._max_ms = min(initial_ms, max_ms), max_ms
        self._rng, self._jitter = rng, jitter

    def after(self, failures: int) -> int:
        """Return the delay in ms after a number of consecutive failures, 0 after none."""
        if failures <= 0:
            return 0
        delay_ms: float = self._initial_ms << min(failures - 1, MAX_DOUBLINGS)
        if self._rng is not None:
            delay_ms *= 1 + self._jitter * (2 * self._rng.random() - 1)
        return min(int(delay_ms), self._max_ms)
