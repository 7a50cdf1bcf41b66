"""What connections may cost: how many there are, how long one may be silent or trickle.

Kafka: kafka.network.ConnectionQuotas, org.apache.kafka.common.network.Selector's idle expiry.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

UNLIMITED = 2**31 - 1
FRAME_GRACE_MS = 30_000
"""A frame may take this long whatever its size; beyond, its bytes must have come in time."""
SLOWEST_BYTES_PER_MS = 1024 / 1000
"""The mean speed, one KiB a second, below which a frame is given up after the grace."""


def frame_limit_ms(received_bytes: int) -> float:
    """Return how long a frame of which so many bytes have arrived may be under way.

    What arrived counts, not what was announced: 100 MiB announced and two bytes sent end at 30 s.
    """
    return FRAME_GRACE_MS + received_bytes / SLOWEST_BYTES_PER_MS


def sweep_interval_ms(max_idle_ms: int) -> int:
    """Return how often connections are looked at: often enough for a short idle limit."""
    return max(100, min(5000, max_idle_ms // 2)) if max_idle_ms >= 0 else 5000


class ConnectionPace(Protocol):
    """Says how fast connections may come, in milliseconds of a monotonic clock."""

    def wait_ms(self, listener: str, now_ms: int) -> int:
        """Return for how long a new connection and those behind it have to wait."""

    def refuse_ms(self, address: str, now_ms: int) -> int:
        """Return 0 to let a connection in, else when to close it."""


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
        """Take other limits; who waits for room looks again."""
        self._most = most
        self._max_per_address = max_per_address
        self._overrides = dict(overrides)
        self._wake()

    def has_room(self) -> bool:
        """Whether another connection may be accepted."""
        return self.count < self._most

    def when_room(self, resume: Callable[[], None]) -> None:
        """Call once when a connection has ended: a full node leaves newcomers in the backlog."""
        self._waiting.append(resume)

    def admit(self, address: str) -> bool:
        """Count a connection; False, and nothing counted, when its address has too many."""
        most = self._overrides.get(address, self._max_per_address)
        if self._by_address[address] >= most:
            return False
        self._by_address[address] += 1
        self.count += 1
        return True

    def release(self, address: str) -> None:
        """Uncount a closed connection and let those waiting in."""
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
