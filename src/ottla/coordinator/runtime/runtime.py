"""All partitions of one coordinator that this node leads.

Kafka: org.apache.kafka.coordinator.common.runtime.CoordinatorRuntime.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from ottla.coordinator.runtime.active import ActivePartition, RuntimeEnvironment, ShardState
from ottla.coordinator.runtime.loader import LoadTimes
from ottla.coordinator.runtime.shard import Shard, ShardEnvironment
from ottla.errors import ErrorCode, KafkaError
from ottla.purgatory.pending import Pending
from ottla.purgatory.work import NEXT_TURN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from ottla.coordinator.runtime.shard import EndTransaction, Result, TransactionalProducer
    from ottla.purgatory.work import Work, Worker

S = TypeVar("S", bound=Shard)
T = TypeVar("T")
KEYS_AT_ONCE: Final = 20
"""Entries that are read between two yields, some 10 µs each."""
LONG_ANSWER: Final = 400
"""Entries from which on an answer takes a turn of its own to be encoded."""


class CoordinatorRuntime(Generic[S]):
    """Shards by partition; requests for partitions led elsewhere fail with NOT_COORDINATOR."""

    def __init__(
        self, environment: RuntimeEnvironment, make_shard: Callable[[ShardEnvironment], S]
    ) -> None:
        self._environment = environment
        self._make_shard = make_shard
        self._partitions: dict[int, ActivePartition[S]] = {}
        self.load_times = LoadTimes()

    @property
    def partitions(self) -> dict[int, ShardState]:
        """The state of each partition that this node leads, in order of partition."""
        return {key: self._partitions[key].state for key in sorted(self._partitions)}

    def shard(self, partition: int) -> S:
        """Return a partition's shard, loaded or not; KeyError for one led elsewhere."""
        return self._partitions[partition].shard

    def on_elected(self, partition: int, leader_epoch: int) -> None:
        """Load the partition, which this node leads since leader_epoch.

        An older or equal epoch is ignored; a newer one reloads the partition.
        """
        current = self._partitions.get(partition)
        if current is not None:
            if leader_epoch <= current.leader_epoch and current.state != ShardState.FAILED:
                return
            self._remove(partition)
        created = ActivePartition(
            partition, leader_epoch, self._environment, self._make_shard, self.load_times
        )
        self._partitions[partition] = created
        created.start()

    def on_resigned(self, partition: int, leader_epoch: int | None = None) -> None:
        """Unload the partition; ignored when leader_epoch is older than the current one.

        None means that the partition was removed from this node.
        """
        current = self._partitions.get(partition)
        if current is None or (leader_epoch is not None and leader_epoch < current.leader_epoch):
            return
        self._remove(partition)

    def on_high_watermark(self, partition: int, offset: int) -> None:
        """Update the high watermark of a partition."""
        current = self._partitions.get(partition)
        if current is not None:
            current.on_high_watermark(offset)

    def close(self) -> None:
        """Unload all partitions."""
        for partition in sorted(self._partitions):
            self._remove(partition)

    def active_shards(self) -> list[S]:
        """Return the shards that are loaded."""
        active = (
            partition
            for partition in self._partitions.values()
            if partition.state is ShardState.ACTIVE
        )
        return [partition.shard for partition in active]

    def write(
        self,
        partition: int,
        operation: Callable[[S], Result[T]],
        producer: TransactionalProducer | None = None,
    ) -> Pending[T]:
        """Run an operation that may write; the response is sent when its records are committed.

        With a producer the records are part of its transaction.

        The Pending fails with KafkaError NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS,
        REQUEST_TIMED_OUT (not committed in time), an error of the log or of the operation.
        """
        current = self._partitions.get(partition)
        return _not_coordinator() if current is None else current.write(operation, producer)

    def end_transaction(self, partition: int, end: EndTransaction) -> Pending[None]:
        """Write the marker that ends a transaction; errors as in `write`."""
        current = self._partitions.get(partition)
        return _not_coordinator() if current is None else current.end_transaction(end)

    def leader_epoch(self, partition: int) -> int:
        """Return the epoch in which this node leads the partition; -1 where it does not."""
        current = self._partitions.get(partition)
        return -1 if current is None else current.leader_epoch

    def read(self, partition: int, operation: Callable[[S, int], T]) -> Pending[T]:
        """Run operation(shard, committed epoch); errors as in `write`."""
        current = self._partitions.get(partition)
        return _not_coordinator() if current is None else current.read(operation)

    def read_all(
        self,
        keys: Callable[[S, int], Iterable[str]],
        read: Callable[[S, int, Sequence[str]], list[T]],
        at_once: int = KEYS_AT_ONCE,
    ) -> Pending[list[T]]:
        """Read all entries of every partition that this node leads, `at_once` in a step.

        keys(shard, epoch) returns all keys, read(shard, epoch, some keys) their entries. Each step
        reads what is committed by then: a list of all entries is no snapshot, as in Kafka. A
        partition that moves to another node is left out. Refused while one is being loaded.
        """
        if any(partition.state is ShardState.LOADING for partition in self._partitions.values()):
            return Pending.failed(KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        return self.worker.run(self._read_each(keys, read, at_once))

    def _read_each(
        self,
        keys: Callable[[S, int], Iterable[str]],
        read: Callable[[S, int, Sequence[str]], list[T]],
        at_once: int,
    ) -> Work[list[T]]:
        entries: list[T] = []
        for partition in sorted(self._partitions):
            try:
                names = yield self.read(partition, lambda shard, epoch: list(keys(shard, epoch)))
                for start in range(0, len(names), at_once):
                    some = names[start : start + at_once]
                    entries += yield self.read(partition, partial(_read_some, read, some))
            except KafkaError as error:
                if error.code is not ErrorCode.NOT_COORDINATOR:
                    raise
        if len(entries) > LONG_ANSWER:
            yield NEXT_TURN
        return entries

    @property
    def worker(self) -> Worker:
        """Runs the long work of this coordinator, and of the whole node."""
        return self._environment.loop.worker

    def write_all(self, operation: Callable[[S], Result[T]]) -> list[Pending[T]]:
        """Run a write on every partition that this node leads."""
        return [self.write(partition, operation) for partition in sorted(self._partitions)]

    def stalls(self) -> Iterator[str]:
        """Yield what waits in a coordinator although nothing that is to come ends it."""
        for active in self._partitions.values():
            yield from active.stalls()
        yield from self.worker.stalls()

    def _remove(self, partition: int) -> None:
        self._partitions.pop(partition).close()


def _not_coordinator() -> Pending[T]:
    return Pending.failed(KafkaError(ErrorCode.NOT_COORDINATOR))


def _read_some(
    read: Callable[[S, int, Sequence[str]], list[T]], some: list[str], shard: S, epoch: int
) -> list[T]:
    return read(shard, epoch, some)
