"""The ledger of memory kept for clients: holders, bytes and bounds.

What outlives a request and grows with names, ids or partitions that a client sends (caches of
decisions, meters, sessions, members, unfinished frames) has a bound in bytes and is registered;
`ottla_kept_for_clients_bytes` shows each holder next to its bound. Sizes are estimates that never
fall short by much: `size_of_texts` and ENTRY_BYTES, measured on CPython 3.11.

Kafka: none; most of its caches are unbounded, or bounded in entries of any size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

K = TypeVar("K")
V = TypeVar("V")

ENTRY_BYTES: Final = 250
"""An entry of a dict, its key as a tuple, and the headers of two texts."""


class Kept(NamedTuple):
    """What one holder keeps."""

    name: str
    entries: int
    used_bytes: int
    bound_bytes: int


class Ledger:
    """The holders of one node."""

    def __init__(self) -> None:
        self._holders: dict[str, tuple[int, Callable[[], tuple[int, int]]]] = {}

    def register(self, name: str, bound_bytes: int, measure: Callable[[], tuple[int, int]]) -> None:
        """Add a holder; measure() returns its entries and bytes, at the cost of a few additions."""
        assert name not in self._holders, name
        self._holders[name] = bound_bytes, measure

    def kept(self) -> list[Kept]:
        """Return what each holder keeps now."""
        return [
            Kept(name, *measure(), bound_bytes)
            for name, (bound_bytes, measure) in self._holders.items()
        ]


def size_of_texts(*texts: str) -> int:
    """Return the bytes of an entry that keeps these texts."""
    return ENTRY_BYTES + sum(len(text) if text.isascii() else 4 * len(text) for text in texts)


class BoundedCache(Generic[K, V]):
    """Results by keys that clients choose; all are forgotten when their bytes are used up.

    A key that would take more than a thousandth of the bound is not kept.
    """

    __slots__ = ("_max_entry_bytes", "bound_bytes", "known", "used_bytes")

    def __init__(self, bound_bytes: int) -> None:
        self.bound_bytes = bound_bytes
        self.used_bytes = 0
        self.known: dict[K, V] = {}
        """For look-ups; only `keep` adds to it."""
        self._max_entry_bytes = bound_bytes // 1000

    def keep(self, key: K, value: V, *texts: str) -> None:
        """Add a result; the texts are those of the key."""
        size_bytes = size_of_texts(*texts)
        if size_bytes > self._max_entry_bytes:
            return
        if self.used_bytes + size_bytes > self.bound_bytes:
            self.clear()
        self.known[key] = value
        self.used_bytes += size_bytes

    def clear(self) -> None:
        """Forget all results."""
        self.known.clear()
        self.used_bytes = 0

    def measure(self) -> tuple[int, int]:
        """Return entries and bytes, for the ledger."""
        return len(self.known), self.used_bytes
