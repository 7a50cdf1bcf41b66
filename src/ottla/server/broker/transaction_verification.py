"""Asks transaction coordinators whether partitions belong to transactions, before the first append.

Verification (KIP-890) or, for producers of transaction version 2, adding of the partition.

Kafka: AddPartitionsToTxnManager, ReplicaManager.maybeSendPartitionsToTransactionCoordinator.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ottla.coordinator.runtime.log import TransactionSupport
from ottla.errors import ErrorCode, KafkaError
from ottla.metrics.samples import Recent
from ottla.protocol.apis.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from ottla.purgatory.pending import Pending

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ottla.clock import Clock
    from ottla.config.broker import BrokerConfig
    from ottla.coordinator.transaction.decisions import ProducerKey
    from ottla.protocol.apis.add_partitions_to_txn import AddPartitionsToTxnResponse
    from ottla.purgatory.timing_wheel import TimingWheel
    from ottla.replication.partition import Partition
    from ottla.server.broker.broker_channel import BrokerChannel
    from ottla.storage.producers.append import Verification
    from ottla.types import TopicPartition

_Transaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction


# Older clients retry these codes wrongly; NOT_ENOUGH_REPLICAS makes all of them try again
_TRY_AGAIN: Final = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


@dataclass(frozen=True, slots=True, eq=False)
class _Question:
    """One partition of a transaction that the coordinator is asked about, until the deadline."""

    transactional_id: str
    partition: TopicPartition
    support: TransactionSupport
    request: AddPartitionsToTxnRequest
    deadline_ms: int
    answer: Pending[None] = field(default_factory=Pending)

    def asks_again_after(self, code: ErrorCode, now_ms: int) -> bool:
        """Whether the previous transaction is not complete yet, and there is time to wait."""
        return (
            code is ErrorCode.CONCURRENT_TRANSACTIONS
            and self.support is TransactionSupport.ADDS_PARTITIONS
            and now_ms < self.deadline_ms
        )


class TransactionVerification:
    """The requests to transaction coordinators on behalf of producers."""

    def __init__(
        self,
        channel: BrokerChannel,
        coordinator_of: Callable[[str], TopicPartition | None],
        timer: TimingWheel,
        clock: Clock,
        config: Callable[[], BrokerConfig],
    ) -> None:
        """coordinator_of returns the partition that owns a transactional id, if it exists."""
        self._channel = channel
        self._coordinator_of = coordinator_of
        self._timer = timer
        self._clock = clock
        self._config = config
        self.times_ms = Recent()
        """How long coordinators took to answer."""
        self.failed_count = 0

    def begin(
        self,
        partition: Partition,
        transactional_id: str,
        producer: ProducerKey,
        sequence: int,
        support: TransactionSupport,
    ) -> Pending[Verification | None]:
        """Return the guard to append a batch with, once the coordinator knows the partition.

        None where the transaction goes on in this partition, or nothing is to be verified. Raises
        INVALID_PRODUCER_EPOCH for a producer that the log knows to be fenced, and
        NOT_LEADER_OR_FOLLOWER.
        """
        if (
            support is not TransactionSupport.ADDS_PARTITIONS
            and not self._config().transaction_partition_verification_enable
        ):
            return Pending.of(None)
        if not partition.is_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        log = partition.log
        if not log.is_ready:
            log.make_ready()
        guard = log.producer_state.start_verification(
            producer.producer_id,
            sequence,
            producer.producer_epoch,
            now_ms=self._clock.now_ms(),
            supports_epoch_bump=support is TransactionSupport.ADDS_PARTITIONS,
        )
        if guard is None:
            return Pending.of(None)
        verified = self._verify(transactional_id, producer, partition.topic_partition, support)
        return verified.then(lambda _: guard)

    def _verify(
        self,
        transactional_id: str,
        producer: ProducerKey,
        partition: TopicPartition,
        support: TransactionSupport,
    ) -> Pending[None]:
        limit_ms = self._config().add_partitions_to_txn_retry_backoff_max_ms
        question = _Question(
            transactional_id,
            partition,
            support,
            _request(
                transactional_id,
                producer,
                [partition],
                verify_only=support is not TransactionSupport.ADDS_PARTITIONS,
            ),
            self._clock.monotonic_ms() + limit_ms,
        )
        self._ask(question)
        return question.answer

    def _ask(self, question: _Question) -> None:
        """Ask once; an answer of CONCURRENT_TRANSACTIONS is asked for again for a short time."""
        begin_ms = self._clock.monotonic_ms()
        self._send(question.transactional_id, question.request).on_done(
            lambda done: self._take(question, _code_of(done, question.partition), begin_ms)
        )

    def _take(self, question: _Question, code: ErrorCode, begin_ms: int) -> None:
        now_ms = self._clock.monotonic_ms()
        self.times_ms.add(now_ms - begin_ms)
        self.failed_count += code is not ErrorCode.NONE
        if question.asks_again_after(code, now_ms):
            again_ms = now_ms + self._config().add_partitions_to_txn_retry_backoff_ms
            self._timer.add(again_ms, lambda _now_ms: self._ask(question))
        elif code is ErrorCode.NONE:
            question.answer.complete(None)
        else:
            question.answer.fail(_refusal(code, question.support))

    def _send(
        self, transactional_id: str, request: AddPartitionsToTxnRequest
    ) -> Pending[AddPartitionsToTxnResponse]:
        owner = self._coordinator_of(transactional_id)
        leader = None if owner is None else self._channel.leader_of(owner)
        if leader is None or leader < 0:
            missing: Pending[AddPartitionsToTxnResponse] = Pending()
            missing.fail(KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return missing
        return self._channel.send(leader, request)


def _request(
    transactional_id: str,
    producer: ProducerKey,
    partitions: Iterable[TopicPartition],
    *,
    verify_only: bool,
) -> AddPartitionsToTxnRequest:
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    transaction = _Transaction(
        transactional_id=transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        verify_only=verify_only,
        topics=[
            AddPartitionsToTxnTopic(name=name, partitions=indexes)
            for name, indexes in topics.items()
        ],
    )
    return AddPartitionsToTxnRequest(transactions=[transaction])


def _code_of(done: Pending[AddPartitionsToTxnResponse], partition: TopicPartition) -> ErrorCode:
    error = done.error
    if error is not None:
        return error.code if isinstance(error, KafkaError) else ErrorCode.NETWORK_EXCEPTION
    if done.value.error_code:
        return ErrorCode(done.value.error_code)
    for result in done.value.results_by_transaction:
        for topic in result.topic_results:
            for one in topic.results_by_partition:
                if (topic.name, one.partition_index) == partition:
                    return ErrorCode(one.partition_error_code)
    return ErrorCode.COORDINATOR_NOT_AVAILABLE


def _refusal(code: ErrorCode, support: TransactionSupport) -> KafkaError:
    """Return what the producer is answered."""
    if code is ErrorCode.PRODUCER_FENCED:
        return KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH)
    if code is ErrorCode.TRANSACTION_ABORTABLE and support is TransactionSupport.DEFAULT:
        return KafkaError(ErrorCode.INVALID_TXN_STATE, "Partition was not added to the transaction")
    if code is ErrorCode.CONCURRENT_TRANSACTIONS and support is TransactionSupport.ADDS_PARTITIONS:
        return KafkaError(code)
    if code in _TRY_AGAIN:
        return KafkaError(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            "Unable to verify the partition has been added to the transaction. Underlying error: "
            f"{code.name}",
        )
    return KafkaError(code)
