"""The state machine of a coordinator: its interface, its operations' results, its timers.

A shard may have hundreds of thousands of entries. Changes to all of them, such as removals of
expired offsets, are an iterator over lists of records: each list is written when the one before it
is committed, and requests are served in between. Kafka has threads for that.

Kafka: org.apache.kafka.coordinator.common.runtime.{CoordinatorRecord, CoordinatorResult};
CompletableFuture.exceptionally; org.apache.kafka.server.util.FutureUtils.combineFutures;
org.apache.kafka.coordinator.common.runtime.CoordinatorShard;
org.apache.kafka.coordinator.common.runtime.CoordinatorTimer.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from ottla.purgatory.pending import Pending

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator

    from ottla.clock import Clock
    from ottla.errors import KafkaError
    from ottla.purgatory.loop import Loop
    from ottla.purgatory.timing_wheel import TimerTask
    from ottla.timeline import SnapshotRegistry

T = TypeVar("T")


class CoordinatorRecord(NamedTuple):
    """A record of a coordinator's topic; without a value it is a tombstone.

    Key and value are messages, or what the shard keeps in their place.
    """

    key: Any
    value: Any = None
    value_version: int = 0


class Bulk(Protocol):
    """Many records of one kind, encoded and replayed together: cheaper than one by one."""

    count: int

    def encode(self) -> bytes:
        """Return the records as the payload of a batch of the present time."""

    def replay(self, first_offset: int) -> None:
        """Apply all of them."""


@dataclass(slots=True)
class Result(Generic[T]):
    """Records, the response that is sent when they are committed, and a completion callback.

    `on_append` runs once: with None when the records are committed, before the response is
    released, or with the error that prevented it. It may change soft state only. After a timeout
    the records may still be committed: `on_commit` runs when they are, before or after the
    timeout, and never where they are lost. It receives the offset of the last record: what is done
    later, such as with the answer of another broker, names by it the state that it was meant for.
    Records that are not `atomic` may be split into several batches, some of which may be written
    while others are refused.
    """

    response: T
    records: list[CoordinatorRecord] = field(default_factory=list)
    on_append: Callable[[KafkaError | None], None] | None = None
    atomic: bool = True
    on_commit: Callable[[int], None] | None = None
    bulk: Bulk | None = None
    """Written in place of `records`, of which there are none then."""


class TransactionalProducer(NamedTuple):
    """The transactional producer of the records."""

    producer_id: int
    producer_epoch: int
    verification: object = None
    """The log's token for the verification of this transaction (KIP-890)."""


class EndTransaction(NamedTuple):
    """The decision on a transaction, to be written as a marker."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    committed: bool
    transaction_version: int


def replace_response(result: Result[Any], response: T) -> Result[T]:
    """Return a result with another response."""
    return replace(result, response=response)


def empty_result() -> Result[None]:
    """Return a result without records and without a response."""
    return Result(None)


R = TypeVar("R")


def recover(pending: Pending[T], refuse: Callable[[Exception], T]) -> Pending[T]:
    """Return a Pending that completes with refuse(error) if the given one fails."""
    if pending.succeeded:
        return pending
    result: Pending[T] = Pending()

    def finished(done: Pending[T]) -> None:
        result.complete(done.value if done.error is None else refuse(done.error))

    pending.on_done(finished)
    return result


def gather_begun(
    begun: Pending[list[Pending[T]]], combine: Callable[[list[Pending[T]]], R]
) -> Pending[R]:
    """Gather parts that are begun one after the other."""
    result: Pending[R] = Pending()

    def all_begun(done: Pending[list[Pending[T]]]) -> None:
        if done.error is not None:
            result.fail(done.error)
        else:
            gather(done.value, combine).pass_to(result)

    begun.on_done(all_begun)
    return result


def gather(parts: list[Pending[T]], combine: Callable[[list[Pending[T]]], R]) -> Pending[R]:
    """Return a Pending that completes with combine(parts) when all parts are done."""
    result: Pending[R] = Pending()
    missing = len(parts)

    def finished(_done: Pending[T] | None) -> None:
        nonlocal missing
        missing -= 1
        if not missing:
            result.complete(combine(parts))

    if not parts:
        result.complete(combine(parts))
    for part in parts:
        part.on_done(finished)
    return result


@dataclass(frozen=True, slots=True)
class ShardEnvironment:
    """A shard's dependencies: the registry of its timelines, its timers, the clock."""

    partition: int
    registry: SnapshotRegistry
    timers: ShardTimers
    clock: Clock


class Shard(Protocol):
    """Replayed state lives in timelines and changes only in `replay`; soft state in one object.

    is_compacted says that a record replaces all former ones of its key, so that loading replays the
    newest ones only.
    """

    is_compacted: bool

    def replay(self, offset: int, producer_id: int, record: CoordinatorRecord) -> None:
        """Apply a record at its offset; producer_id is -1 outside a transaction."""

    def replay_end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Apply the marker that ends a producer's transaction."""

    def encode(self, record: CoordinatorRecord) -> tuple[bytes, bytes | None]:
        """Return key and value as stored in the log."""

    def decode(self, key: bytes, value: bytes | None) -> CoordinatorRecord | None:
        """Return the decoded record; None for a record type that this shard does not know.

        Raises CorruptMessage.
        """

    def on_loaded(self) -> Iterator[None]:
        """Rebuild soft state after the replayed state is complete, in steps of some 10 µs.

        Requests are served between the steps.
        """

    def on_unloaded(self) -> None:
        """Fail pending responses with NOT_COORDINATOR: the partition has another leader."""

    def stalls(self, *, is_writing: bool) -> Iterator[str]:
        """Yield what waits although nothing that is to come ends it: no timer, and no write.

        is_writing says that an operation's records are not committed yet.
        """


K = TypeVar("K")
RECORDS_AT_ONCE: Final = 100
"""Records that a sweep writes together: each takes about 20 µs to encode and to replay."""
EXAMINED_AS_A_RECORD: Final = 20
"""Entries that are examined in the time in which a record is written."""

_Examine: TypeAlias = "Callable[[K], tuple[list[CoordinatorRecord], float]]"
"""Returns the records of a key, and what it cost to examine it, in records."""


Operation: TypeAlias = "Callable[[], Result[None]]"


class ShardTimers:
    """Timers by key: scheduling a key again replaces its timer; all end with the shard."""

    def __init__(
        self,
        loop: Loop,
        run: Callable[[Operation, Callable[[Exception], None]], None],
        begin_writes: Callable[[Iterator[list[CoordinatorRecord] | None]], Pending[None]],
    ) -> None:
        self._timer = loop.timer
        self._clock = loop.clock
        self._run = run
        self._begin_writes = begin_writes
        self._tasks: dict[Hashable, TimerTask] = {}
        self._writing: set[Hashable] = set()
        """The keys of writes that are under way."""

    def __len__(self) -> int:
        return len(self._tasks)

    def __contains__(self, key: object) -> bool:
        return key in self._tasks or key in self._writing

    def __iter__(self) -> Iterator[Hashable]:
        return chain(self._tasks, self._writing)

    def write_all(self, key: Hashable, slices: Iterator[list[CoordinatorRecord] | None]) -> None:
        """Write lists of records one after the other, unless some of this key are under way.

        A list is computed in the turn in which it is appended, which is its alone: it is as much
        work as a hundred records. None only lets the loop go on. The first error ends all.
        """
        if key not in self._writing:
            self._writing.add(key)
            self._begin_writes(slices).on_done(lambda _done: self._writing.discard(key))

    def schedule(
        self, key: Hashable, delay_ms: int, operation: Operation, *, retry_ms: int | None = None
    ) -> None:
        """Run operation after delay_ms; retry after retry_ms when its records cannot be written."""
        self.cancel(key)

        def fire(_now_ms: int) -> None:
            if self._tasks.get(key) is not task:
                return
            del self._tasks[key]
            self._run(operation, retry)

        def retry(_error: Exception) -> None:
            if retry_ms is not None and key not in self._tasks:
                self.schedule(key, retry_ms, operation, retry_ms=retry_ms)

        task = self._timer.add(self._clock.monotonic_ms() + max(0, delay_ms), fire)
        self._tasks[key] = task

    def postpone(self, key: Hashable, delay_ms: int) -> bool:
        """Run the operation of a timer later than now scheduled; whether that was possible."""
        task = self._tasks.get(key)
        due_ms = self._clock.monotonic_ms() + delay_ms
        return task is not None and self._timer.postpone(task, due_ms)

    def cancel(self, key: Hashable) -> None:
        """Cancel the timer of key, if any."""
        task = self._tasks.pop(key, None)
        if task is not None:
            task.cancel()

    def cancel_all(self) -> None:
        """Cancel all timers."""
        for task in self._tasks.values():
            task.cancel()
        self._tasks.clear()


def sweep(keys: Iterable[K], examine: _Examine[K]) -> Iterator[list[CoordinatorRecord]]:
    """Yield the records of all keys, some at a time; a key may have more than fit."""
    remaining = deque(keys)
    while remaining:
        records: list[CoordinatorRecord] = []
        cost = 0.0
        while remaining and cost < RECORDS_AT_ONCE:
            of_key, examined = examine(remaining[0])
            records += of_key[:RECORDS_AT_ONCE]
            cost += min(len(of_key), RECORDS_AT_ONCE) + examined
            if len(of_key) < RECORDS_AT_ONCE:  # else the same key may have more
                remaining.popleft()
        yield records
