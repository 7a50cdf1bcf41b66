"""Limits of connections, and the bytes of frames that are being received.

Kafka: kafka.network.ConnectionQuotas, org.apache.kafka.common.network.Selector's idle expiry;
queued.max.request.bytes with org.apache.kafka.common.memory.SimpleMemoryPool. As in Kafka, a
connection without memory is not refused; it is not read from until other frames are complete.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

UNLIMITED = 2**31 - 1
FRAME_GRACE_MS = 30_000
"""Time that any frame may take; after it, the minimum speed applies."""
_MIN_PENDING, _MAX_PENDING, _PENDING_PART = 64, 10_000, 10
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
    """Counts the connections of listeners, in total and by peer address.

    A node has one for its broker's listeners and one for those of its controller, so that clients
    never use up the connections of the quorum. Where other brokers have a listener of their own, it
    accepts beyond the limit: then the connection of another listener that is idle longest is
    closed, as in Kafka.
    """

    def __init__(
        self,
        max_count: int = UNLIMITED,
        max_per_address: int = UNLIMITED,
        overrides: Mapping[str, int] | None = None,
    ) -> None:
        """Take max.connections, max.connections.per.ip and the latter's overrides."""
        self._max_count = max_count
        self._max_per_address = max_per_address
        self._overrides = dict(overrides or {})
        self._by_address: Counter[str] = Counter()
        self._waiting: list[Callable[[], None]] = []
        self.close_idlest: Callable[[], None] = _nothing_to_close
        """Closes the connection to which a protected listener is preferred, if there is one."""
        self.count = 0

    def change(self, max_count: int, max_per_address: int, overrides: Mapping[str, int]) -> None:
        """Change the limits and notify listeners that wait for room."""
        self._max_count = max_count
        self._max_per_address = max_per_address
        self._overrides = dict(overrides)
        self._wake()

    def has_room(self) -> bool:
        """Whether another connection may be accepted."""
        return self.count < self._max_count

    def make_room(self) -> None:
        """Let a protected listener accept another connection, whatever the count."""
        if not self.has_room():
            self.close_idlest()

    def when_room(self, resume: Callable[[], None]) -> None:
        """Call `resume` once when a connection ends; until then the backlog holds new ones."""
        self._waiting.append(resume)

    def admit(self, address: str) -> bool:
        """Count a connection; return False without counting when its address has too many."""
        max_count = self._overrides.get(address, self._max_per_address)
        if self._by_address[address] >= max_count:
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


def _nothing_to_close() -> None:
    """No other listener shares the limit."""


class Closable(Protocol):
    """A connection."""

    @property
    def peer_host(self) -> str:
        """The address of the peer."""

    @property
    def is_closed(self) -> bool:
        """Whether it has ended."""

    def close(self) -> None:
        """End it at once."""


class PendingLogins:
    """The connections of a listener that have not logged in; over the limit some are closed.

    The oldest of the address that has most of them goes first: a flood of half-open handshakes
    closes its own, however far away the peers of the others are.
    """

    def __init__(self, max_count: int) -> None:
        self.max_count = max_count
        self.dropped_count = 0
        self._count = 0
        self._by_address: dict[str, dict[Closable, None]] = {}

    def add(self, connection: Closable) -> None:
        """Count a new connection; close the oldest of the busiest address if there are too many."""
        self._by_address.setdefault(connection.peer_host, {})[connection] = None
        self._count += 1
        while self._count > self.max_count:
            busiest: dict[Closable, None] = max(self._by_address.values(), key=len)
            oldest = next(iter(busiest))
            self.discard(oldest)
            if not oldest.is_closed:
                self.dropped_count += 1
                oldest.close()

    def discard(self, connection: Closable) -> None:
        """Forget a connection that has logged in or is closed."""
        same_address = self._by_address.get(connection.peer_host, {})
        if connection in same_address:
            del same_address[connection]
            self._count -= 1
            if not same_address:
                del self._by_address[connection.peer_host]


def pending_limit(descriptors: int) -> int:
    """Return how many connections may be without a login: a tenth of the process's files."""
    return _MAX_PENDING if descriptors < 0 else max(_MIN_PENDING, descriptors // _PENDING_PART)


def parse_overrides(text: str) -> dict[str, int]:
    """Read max.connections.per.ip.overrides: "address:count,address:count"."""
    pairs = (entry.strip().rpartition(":") for entry in text.split(",") if entry.strip())
    return {address: int(count) for address, _, count in pairs}


SMALL_WINDOW_BYTES: Final = 4096
"""Enough for the requests of clients that send little."""


class ReceiveWindow:
    """The shared buffer into which the connections of a listener receive."""

    __slots__ = ("_small", "_whole", "view")

    def __init__(self, scratch: bytearray) -> None:
        self._whole = self.view = memoryview(scratch)
        self._small = self._whole[:SMALL_WINDOW_BYTES]

    def resize(self, *, is_small: bool) -> None:
        """Let one read take 4 KiB at most, or as much as the buffer holds again."""
        self.view = self._small if is_small else self._whole


class FrameBudget:
    """Counts the buffers of frames that are not complete, and of bytes read ahead.

    What has been received already is counted whatever the sum (`count`); a buffer grows only while
    there is room, but the oldest may always grow. While memory is used up, connections receive
    into small windows: small requests are served, large ones wait before much of them is read.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self._held: dict[Hashable, int] = {}
        self._waiting: dict[Hashable, Callable[[], None]] = {}
        self._windows: list[ReceiveWindow] = []
        self._is_full = False

    def window(self, scratch: bytearray) -> ReceiveWindow:
        """Return a window of a buffer, small while memory is used up."""
        made = ReceiveWindow(scratch)
        made.resize(is_small=self._is_full)
        self._windows.append(made)
        return made

    def _resize(self) -> None:
        is_full = self.used_bytes > self.limit_bytes
        if is_full is not self._is_full:
            self._is_full = is_full
            for window in self._windows:
                window.resize(is_small=is_full)

    def grow(self, holder: Hashable, size_bytes: int, resume: Callable[[], None]) -> bool:
        """Replace the holder's buffer by one of this size; return False when memory is used up.

        In that case `resume` is called once, when memory is released. The oldest holder always
        succeeds, so that half-read frames never all wait for each other.
        """
        held = self._held
        extra = size_bytes - held.get(holder, 0)
        if self.used_bytes + extra > self.limit_bytes and next(iter(held), holder) is not holder:
            self._waiting[holder] = resume
            return False
        held[holder] = size_bytes
        self.used_bytes += extra
        self._resize()
        return True

    def count(self, holder: Hashable, size_bytes: int) -> None:
        """Set the size of a holder's buffer, which is in memory already."""
        self.used_bytes += size_bytes - self._held.get(holder, 0)
        self._held[holder] = size_bytes
        self._resize()

    def measure(self) -> tuple[int, int]:
        """Return buffers and bytes, for the ledger."""
        return len(self._held), self.used_bytes

    def release(self, holder: Hashable) -> None:
        """Release a holder's memory: its frame is complete or its connection closed."""
        self._waiting.pop(holder, None)
        size_bytes = self._held.pop(holder, 0)
        if not size_bytes:
            return
        self.used_bytes -= size_bytes
        self._resize()
        waiting, self._waiting = self._waiting, {}
        for resume in waiting.values():
            resume()
