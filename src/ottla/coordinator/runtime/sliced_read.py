"""A read of all entries of a coordinator, a bounded number in each turn of the event loop.

Each slice reads what is committed by then: a list of all entries is no snapshot, as in Kafka.

Kafka: none; its coordinators have threads of their own.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from ottla.coordinator.runtime.shard import Shard
from ottla.errors import ErrorCode, KafkaError
from ottla.purgatory.pending import Pending

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

KEYS_IN_A_TURN: Final = 400
"""Entries that are read in a turn, some 10 µs each."""
_KEYS_AS_A_RECORD: Final = 2
"""Entries that are read in the time in which a load replays a record."""

S = TypeVar("S", bound=Shard)
T = TypeVar("T")


class SlicedRead(Generic[S, T]):
    """The entries of all partitions that this node leads; `pending` has them in the end.

    Fails with the first error but NOT_COORDINATOR: a partition that has moved to another node is
    left out.
    """

    def __init__(
        self,
        partitions: Iterable[int],
        read_partition: Callable[[int, Callable[[S, int], list[T]]], Pending[list[T]]],
        keys: Callable[[S, int], Iterable[str]],
        read: Callable[[S, int, Sequence[str]], list[T]],
        weight: Callable[[str], int] | None = None,
    ) -> None:
        """keys(shard, epoch) returns all keys, read(shard, epoch, some keys) their entries.

        weight(key) returns how many entries of usual cost the entry of a key counts as.
        """
        self.pending: Pending[list[T]] = Pending()
        self.cost = 0
        """Of the last step, in records."""
        self._read_partition = read_partition
        self._keys_of = keys
        self._read_keys = read
        self._weight = weight
        self._partitions = deque(partitions)
        self._partition = -1
        self._keys: list[str] = []
        self._found: list[T] = []
        self._waiting: Pending[list[T]] | None = None

    def step(self) -> bool:
        """Read a slice; return whether more are left."""
        left = KEYS_IN_A_TURN
        while left > 0 and not self.pending.done:
            if self._waiting is None:
                self._waiting, count = self._next(left)
                left -= count
            if self._waiting is None:
                if left < KEYS_IN_A_TURN < len(self._found):
                    break  # a long answer takes a turn to be encoded
                self.pending.complete(self._found)
            elif self._waiting.done:
                self._take(self._waiting)
                self._waiting = None
            else:
                break  # another operation of the partition is in progress in this turn
        self.cost = (KEYS_IN_A_TURN - left) // _KEYS_AS_A_RECORD
        return not self.pending.done

    def _next(self, max_count: int) -> tuple[Pending[list[T]] | None, int]:
        """Begin the next read; return it, and how many entries it counts as."""
        if self._keys:
            count = weight = max_count
            if self._weight is not None:
                count = weight = 0
                while weight < max_count and count < len(self._keys):
                    weight += self._weight(self._keys[count])
                    count += 1
            some = self._keys[:count]
            del self._keys[:count]
            read = self._read_partition(
                self._partition, lambda shard, epoch: self._read_keys(shard, epoch, some)
            )
            return read, len(some) if self._weight is None else weight
        if not self._partitions:
            return None, 0
        self._partition = self._partitions.popleft()
        return self._read_partition(self._partition, self._begin), 1

    def _begin(self, shard: S, epoch: int) -> list[T]:
        self._keys = list(self._keys_of(shard, epoch))
        return []

    def _take(self, done: Pending[list[T]]) -> None:
        error = done.error
        if error is None:
            self._found += done.value
        elif isinstance(error, KafkaError) and error.code is ErrorCode.NOT_COORDINATOR:
            self._keys = []
        else:
            self.pending.fail(error)
