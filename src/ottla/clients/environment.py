"""The clocks and the random source of a client; sockets and timers belong to its event loop.

Kafka: org.apache.kafka.common.utils.Time, an argument of every client.
"""

from __future__ import annotations

import random
import time
from typing import Protocol

from ottla.purgatory.backoff import Randomness


class RandomSource(Randomness, Protocol):
    """The random source for jitter and choices, not for secrets."""

    def getrandbits(self, count: int, /) -> int:
        """Return a number of `count` bits."""


class ClientEnvironment(Protocol):
    """The dependencies of a client on its environment, without the event loop."""

    @property
    def rng(self) -> RandomSource:
        """The source of jitter and choices."""

    def monotonic_ms(self) -> int:
        """Return the monotonic time in ms."""

    def wall_ns(self) -> int:
        """Return ns since the Unix epoch."""


class RealClientEnvironment:
    """The clocks of the operating system."""

    def __init__(self) -> None:
        self.rng: RandomSource = random.Random()  # noqa: S311 - see the protocol

    def monotonic_ms(self) -> int:
        """Return the monotonic time in ms."""
        return time.monotonic_ns() // 1_000_000

    def wall_ns(self) -> int:
        """Return ns since the Unix epoch."""
        return time.time_ns()
