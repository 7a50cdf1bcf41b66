"""One connection of a client across reconnects, and the backoff between them.

Kafka: org.apache.kafka.clients.ClusterConnectionStates, common.utils.ExponentialBackoff.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ottla.network.request_channel import Channel
    from ottla.types import Node


class Random(Protocol):
    """The random source for jitter and choices."""

    def random(self) -> float:
        """Return a number in [0, 1)."""

    def getrandbits(self, count: int, /) -> int:
        """Return a number of so many bits."""


class Backoff:
    """Exponential backoff with 20 % jitter (KIP-580)."""

    def __init__(self, initial_ms: int, maximum_ms: int, rng: Random) -> None:
        self._initial_ms, self._maximum_ms, self._rng = initial_ms, maximum_ms, rng

    def after(self, failures: int) -> int:
        """Return the delay in ms after a number of consecutive failures."""
        if failures <= 0:
            return 0
        exponential = self._initial_ms * 2 ** min(failures - 1, 20)
        jitter = 0.8 + 0.4 * self._rng.random()
        return int(min(exponential, max(self._maximum_ms, self._initial_ms)) * jitter)


class NodeConnection:
    """The state of one connection across reconnects."""

    __slots__ = (
        "channel",
        "failures",
        "has_answered",
        "is_open",
        "node",
        "open_at_ms",
        "setup_deadline_ms",
    )

    def __init__(self, node: Node, channel: Channel) -> None:
        self.node = node
        self.channel = channel
        self.failures = 0
        self.has_answered = False  # a request, since it was opened
        self.is_open = False  # the transport opens it or has it open
        self.open_at_ms = 0
        self.setup_deadline_ms = 0

    @property
    def address(self) -> str:
        """The address of the node."""
        return f"{self.node.host}:{self.node.port}"

    @property
    def opening_due_ms(self) -> int:
        """When it must be open, or may be opened again."""
        return self.setup_deadline_ms if self.is_open else self.open_at_ms
