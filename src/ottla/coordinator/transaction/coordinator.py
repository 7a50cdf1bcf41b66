"""The transaction coordinator's façade: one method per request, pending answer out.

Kafka: org.apache.kafka.coordinator.transaction.TransactionCoordinator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.coordinator.runtime import CoordinatorRuntime
from ottla.coordinator.runtime.active import RuntimeEnvironment
from ottla.coordinator.runtime.java_hash import partition_for
from ottla.coordinator.runtime.log import operation_error
from ottla.coordinator.runtime.shard import recover
from ottla.coordinator.transaction.decisions import (
    EndRequest,
    InitRequest,
    ProducerIdRequired,
    ProducerKey,
)
from ottla.coordinator.transaction.markers import RETRY_MS, Markers
from ottla.coordinator.transaction.shard import Outcome, TransactionShard
from ottla.coordinator.transaction.state import TWO_PHASE_TIMEOUT_MS
from ottla.errors import ErrorCode
from ottla.purgatory.pending import Pending

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from ottla.coordinator.runtime import CoordinatorLog, Result
    from ottla.coordinator.transaction.markers import MarkerChannel, Sending
    from ottla.coordinator.transaction.shard import TransactionCoordinatorConfig
    from ottla.coordinator.transaction.state import Transaction
    from ottla.purgatory.loop import Loop
    from ottla.types import TopicPartition, Uuid

    Decision = Callable[[TransactionShard, int | None], Result[Outcome]]

_GONE: Final = frozenset({ErrorCode.NOT_COORDINATOR})


class TransactionCoordinator:
    """The transactional ids of the partitions of `__transaction_state` that this node leads.

    new_producer_id returns an id that was never used; transaction_version is the finalized level
    of the feature; may_take_over says whether all brokers can read the records of prepared
    transactions that were taken over; partition_count returns how many partitions the topic
    has, None before it exists. on_fault is called for internal errors.
    """

    def __init__(  # noqa: PLR0913 - its environment, by name
        self,
        config: TransactionCoordinatorConfig,
        *,
        log: CoordinatorLog,
        loop: Loop,
        channel: MarkerChannel,
        new_producer_id: Callable[[], Pending[int]],
        transaction_version: Callable[[], int],
        may_take_over: Callable[[], bool],
        partition_count: Callable[[], int | None],
        on_fault: Callable[[Exception], None],
    ) -> None:
        self._config = config
        self._timer = loop.timer
        self._clock = loop.clock
        self._new_producer_id = new_producer_id
        self._may_take_over = may_take_over
        self.append_retry_count = 0
        """Ended transactions whose record the log did not take; they are tried again."""
        self._partition_count = partition_count
        self.markers = Markers(channel, loop, self._complete)
        self.runtime: CoordinatorRuntime[TransactionShard] = CoordinatorRuntime(
            RuntimeEnvironment(
                log,
                loop,
                config.write_timeout_ms,
                on_fault,
                "transaction",
                config.load_buffer_bytes,
            ),
            lambda environment: TransactionShard(
                environment, config, transaction_version, self._prepared
            ),
        )

    def partition_for(self, key: str) -> int:
        """Return the partition of `__transaction_state` that owns a transactional id."""
        return partition_for(key, self._partition_count() or self._config.num_partitions)

    # ---------------------------------------------------------------- events from the broker

    def on_elected(self, partition: int, leader_epoch: int) -> None:
        """Load a partition of which this node became the leader."""
        if leader_epoch > self.runtime.leader_epoch(partition):
            self.markers.cancel(partition)
        self.runtime.on_elected(partition, leader_epoch)

    def on_resigned(self, partition: int, leader_epoch: int | None = None) -> None:
        """Unload a partition that another node leads, or that was deleted."""
        self.runtime.on_resigned(partition, leader_epoch)
        if partition not in self.runtime.partitions:
            self.markers.cancel(partition)

    def on_high_watermark(self, partition: int, offset: int) -> None:
        """Release what waits for committed records."""
        self.runtime.on_high_watermark(partition, offset)

    def on_topics_deleted(self, topics: Iterable[tuple[str, Uuid]]) -> None:
        """Keep their partitions in transactions: markers of deleted ones are left out."""

    def on_topics_changed(self, names: Iterable[str]) -> None:
        """Ignore changes of topics: no transaction depends on their number of partitions."""

    def close(self) -> None:
        """Unload all partitions; pending responses fail with NOT_COORDINATOR."""
        self.runtime.close()

    # ---------------------------------------------------------------- requests of producers

    def init_producer_id(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: ProducerKey | None,
        *,
        two_phase: bool = False,
        keeps_prepared: bool = False,
    ) -> Pending[Outcome]:
        """Give out the next epoch of a transactional id, which fences the one before.

        A two-phase transaction has no timeout. With keeps_prepared an open transaction is taken
        over instead of aborted (KIP-939).
        """
        if not transactional_id:
            return Pending.of(Outcome(ErrorCode.INVALID_REQUEST))
        if two_phase and not self._config.two_phase_commit:
            return Pending.of(Outcome(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
        if keeps_prepared and not self._may_take_over():
            return Pending.of(Outcome(ErrorCode.UNSUPPORTED_VERSION))
        if not two_phase and not 0 < timeout_ms <= self._config.max_timeout_ms:
            return Pending.of(Outcome(ErrorCode.INVALID_TRANSACTION_TIMEOUT))
        stored_ms = TWO_PHASE_TIMEOUT_MS if two_phase else timeout_ms
        request = InitRequest(transactional_id, stored_ms, expected, keeps_prepared)
        return self._decide(
            transactional_id, lambda shard, new_id: shard.init_producer_id(request, new_id)
        )

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerKey,
        partitions: Collection[TopicPartition],
        client_version: int,
    ) -> Pending[ErrorCode]:
        """Add partitions to the producer's transaction, which may begin with them."""
        if not transactional_id:
            return Pending.of(ErrorCode.INVALID_REQUEST)
        written = self.runtime.write(
            self.partition_for(transactional_id),
            lambda shard: shard.add_partitions(
                transactional_id, producer, partitions, client_version
            ),
        )
        return recover(written.then(lambda _: ErrorCode.NONE), operation_error)

    def verify_partitions(
        self, transactional_id: str, producer: ProducerKey, partitions: Collection[TopicPartition]
    ) -> Pending[dict[TopicPartition, ErrorCode]]:
        """Say of each partition whether it belongs to the producer's transaction (KIP-890)."""
        if not transactional_id:
            return Pending.of(dict.fromkeys(partitions, ErrorCode.INVALID_REQUEST))
        known = self.runtime.read(
            self.partition_for(transactional_id),
            lambda shard, epoch: shard.verify(epoch, transactional_id, producer, partitions),
        )
        return recover(known, lambda error: dict.fromkeys(partitions, operation_error(error)))

    def end_transaction(self, transactional_id: str, request: EndRequest) -> Pending[Outcome]:
        """Commit or abort the producer's transaction; answered once the decision is committed."""
        if not transactional_id:
            return Pending.of(Outcome(ErrorCode.INVALID_REQUEST))
        return self._decide(
            transactional_id, lambda shard, new_id: shard.end(transactional_id, request, new_id)
        )

    # ---------------------------------------------------------------- internals

    def _decide(self, transactional_id: str, decision: Decision) -> Pending[Outcome]:
        """Run a decision; where it needs a producer id, get one and run it again."""
        answer: Pending[Outcome] = Pending()
        partition = self.partition_for(transactional_id)

        def finish(done: Pending[Outcome]) -> None:
            error = done.error
            answer.complete(Outcome(operation_error(error)) if error else done.value)

        def decide_with(got: Pending[int]) -> None:
            if got.error is not None:
                answer.complete(Outcome(operation_error(got.error)))
                return
            new_id = got.value
            self.runtime.write(partition, lambda shard: decision(shard, new_id)).on_done(finish)

        def decided(done: Pending[Outcome]) -> None:
            if isinstance(done.error, ProducerIdRequired):
                self._new_producer_id().on_done(decide_with)
            else:
                finish(done)

        self.runtime.write(partition, lambda shard: decision(shard, None)).on_done(decided)
        return answer

    def _prepared(self, partition: int, transaction: Transaction) -> None:
        """Write the markers of a transaction whose decision is committed."""
        self.markers.begin(partition, self.runtime.leader_epoch(partition), transaction)

    def _complete(self, sending: Sending) -> None:
        """Record that all markers are written; again later where the log refuses it for now."""
        partition, epoch = sending.shard, sending.coordinator_epoch

        def again(_now_ms: int) -> None:
            self.append_retry_count -= 1
            if self.runtime.leader_epoch(partition) == epoch:
                self._complete(sending)

        def finished(done: Pending[None]) -> None:
            if done.error is not None and operation_error(done.error) not in _GONE:
                self.append_retry_count += 1
                self._timer.add(self._clock.monotonic_ms() + RETRY_MS, again)

        self.runtime.write(partition, lambda shard: shard.complete(sending.transaction)).on_done(
            finished
        )
