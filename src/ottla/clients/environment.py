"""Clocks and randomness of a client, as one argument; sockets and timers come from its event loop.

Kafka: org.apache.kafka.common.utils.Time, handed to every client.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from random import Random


class ClientEnvironment(Protocol):
    """What a client takes from outside beside its loop."""

    rng: Random
    """Spreads retries and load, guards no secret."""

    def monotonic_ms(self) -> int:
        """Milliseconds that never step back."""

    def wall_ns(self) -> int:
        """Nanoseconds since the Unix epoch."""


class RealClientEnvironment:
    """The clocks of this machine."""

    def __init__(self) -> None:
        self.rng: Random = random.Random()  # noqa: S311 - see the protocol

    def monotonic_ms(self) -> int:
        """Milliseconds that never step back."""
        return time.monotonic_ns() // 1_000_000

    def wall_ns(self) -> int:
        """Nanoseconds since the Unix epoch."""
        return time.time_ns()
