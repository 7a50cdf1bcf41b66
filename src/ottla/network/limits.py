"""Connection limits: total and per-address counts, idle time, and time for one frame.

Kafka: kafka.network.ConnectionQuotas, org.apache.kafka.common.network.Selector's idle expiry.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

UNLIMITED = 2**31 - 1
FRAME_GRACE_MS = 30_000
"""Time that any frame may take; after it, the minimum speed applies."""
SLOWEST_BYTES_PER_MS = 1024 / 1000
"""Minimum mean speed (1 KiB/s); a slower connection is closed after the grace period."""


def frame_limit_ms(received_bytes: int) -> float:
    """Return the time allowed for a frame of which this many bytes have arrived.

    The announced size does not count: a client that announces 100 MiB and sends two bytes is
    disconnected after 30 s.
    """
    return FRAME_GRACE_MS + received_bytes / SLOWEST_BYTES_PER_MS


def sweep_interval_ms(max_idle_ms: int) -> int:
    """Return the interval between idle checks, short enough for the idle limit."""
    return max(100, min(5000, max_idle_ms // 2)) if max_idle_ms >= 0 else 5000


class ConnectionPace(Protocol):
    """Connection rate limit; times are milliseconds of a monotonic clock."""

    def wait_ms(self, listener: str, now_ms: int) -> int:
        """Return the delay for a new connection and for those after it in the backlog."""

    def refuse_ms(self, address: str, now_ms: int) -> int:
        """Return 0 to accept a connection, else the delay after which to close it."""


class ConnectionQuota:
    """Counts the connections of all listeners of a node, in total and by peer address."""

    def __init__(
        self,
        most: int = UNLIMITED,
        max_per_address: int = UNLIMITED,
        overrides: Mapping[str, int] | None = None,
    ) -> None:
        """Take max.connections, max.connections.per.ip and the latter's overrides."""
        self._most = most
        self._max_per_address = max_per_address
        self._overrides = dict(overrides or {})
        self._by_address: Counter[str] = Counter()
        self._waiting: list[Callable[[], None]] = []
        self.count = 0

    def change(self, most: int, max_per_address: int, overrides: Mapping[str, int]) -> None:
        """Change the limits and notify listeners that wait for room."""
        self._most = most
        self._max_per_address = max_per_address
        self._overrides = dict(overrides)
        self._wake()

    def has_room(self) -> bool:
        """Whether another connection may be accepted."""
        return self.count < self._most

    def when_room(self, resume: Callable[[], None]) -> None:
        """Call `resume` once when a connection ends; until then the backlog holds new ones."""
        self._waiting.append(resume)

    def admit(self, address: str) -> bool:
        """Count a connection; return False without counting when its address has too many."""
        most = self._overrides.get(address, self._max_per_address)
        if self._by_address[address] >= most:
            return False
        self._by_address[address] += 1
        self.count += 1
        return True

    def release(self, address: str) -> None:
        """Uncount a closed connection and resume waiting listeners."""
        self.count -= 1
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]
        self._wake()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for resume in waiting:
            resume()


def parse_overrides(text: str) -> dict[str, int]:
    """Read max.connections.per.ip.overrides: "address:count,address:count"."""
    pairs = (entry.strip().rpartition(":") for entry in text.split(",") if entry.strip())
    return {address: int(count) for address, _, count in pairs}
