"""Verifies with transaction coordinators that partitions belong to transactions (KIP-890).

This precedes the first append of a transaction to a partition. For producers of transaction version
2 the request also adds the partition to the transaction.

Kafka: AddPartitionsToTxnManager, ReplicaManager.maybeSendPartitionsToTransactionCoordinator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.coordinator.runtime.log import TransactionSupport
from ottla.errors import ErrorCode, KafkaError
from ottla.metrics.samples import Recent
from ottla.protocol.apis.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from ottla.purgatory.pending import Pending
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.config.broker import BrokerConfig
    from ottla.coordinator.transaction.decisions import ProducerKey
    from ottla.protocol.apis.add_partitions_to_txn import AddPartitionsToTxnResponse
    from ottla.purgatory.loop import Loop
    from ottla.replication.partition import Partition
    from ottla.server.broker.broker_channel import BrokerChannel
    from ottla.storage.producers.append import Verification

_Transaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction


_Codes = dict[TopicPartition, ErrorCode] | ErrorCode
"""The coordinator's answer by partition, or one error for all."""
_MISSING: Final = ErrorCode.COORDINATOR_NOT_AVAILABLE


class _QuestionKey(NamedTuple):
    """The transaction that one request to a coordinator concerns."""

    transactional_id: str
    producer: ProducerKey
    support: TransactionSupport


# older clients do not retry these codes correctly; all of them retry NOT_ENOUGH_REPLICAS
_RETRIED_AS_NOT_ENOUGH_REPLICAS: Final = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


class VerificationFailed(KafkaError):
    """The coordinator's refusal, before the log; a message of its own is part of the response."""


class _Question:
    """Partitions of a transaction that are verified with one request."""

    __slots__ = ("answers", "deadline_ms", "key")

    def __init__(self, key: _QuestionKey, deadline_ms: int) -> None:
        self.key = key
        self.answers: dict[TopicPartition, tuple[Verification, Pending[Verification]]] = {}
        """The guard of each partition, and the produce request that waits for it."""
        self.deadline_ms = deadline_ms
        """Until then (monotonic) CONCURRENT_TRANSACTIONS is retried."""

    def request(self) -> AddPartitionsToTxnRequest:
        """Return the request to the coordinator."""
        topics: dict[str, list[int]] = {}
        for topic, index in self.answers:
            topics.setdefault(topic, []).append(index)
        key = self.key
        transaction = _Transaction(
            transactional_id=key.transactional_id,
            producer_id=key.producer.producer_id,
            producer_epoch=key.producer.producer_epoch,
            verify_only=key.support is not TransactionSupport.ADDS_PARTITIONS,
            topics=[
                AddPartitionsToTxnTopic(name=name, partitions=indexes)
                for name, indexes in topics.items()
            ],
        )
        return AddPartitionsToTxnRequest(transactions=[transaction])

    def take(self, partition: TopicPartition, code: ErrorCode) -> None:
        """Complete the produce request that waits for a partition."""
        guard, answer = self.answers.pop(partition)
        try:
            if code is ErrorCode.NONE:
                answer.complete(guard)
            else:
                answer.fail(_refusal(code, self.key.support))
        finally:
            guard.waiting -= 1


class TransactionVerification:
    """The requests to transaction coordinators on behalf of producers."""

    def __init__(
        self,
        channel: BrokerChannel,
        coordinator_of: Callable[[str], TopicPartition | None],
        loop: Loop,
        config: Callable[[], BrokerConfig],
    ) -> None:
        """coordinator_of returns the partition that owns a transactional id, if it exists."""
        self._channel = channel
        self._coordinator_of = coordinator_of
        self._timer = loop.timer
        self._clock = loop.clock
        self._config = config
        self.times_ms = Recent()
        """Response times of coordinators."""
        self.failed_count = 0
        self._unsent: dict[_QuestionKey, _Question] = {}
        self._adding: tuple[str, ProducerKey, list[TopicPartition], Pending[ErrorCode]] | None = (
            None
        )
        """What `add_at_once` has begun, for the question about the same partitions."""

    def begin(
        self,
        partition: Partition,
        transactional_id: str,
        producer: ProducerKey,
        sequence: int,
        support: TransactionSupport,
    ) -> Pending[Verification] | None:
        """Return the guard to append a batch with, once the coordinator knows the partition.

        None for a later batch of a verified transaction, or when verification is disabled. `send`
        sends the request, together with those about other partitions. Raises
        INVALID_PRODUCER_EPOCH for a producer that the log knows to be fenced, and
        NOT_LEADER_OR_FOLLOWER.
        """
        config = self._config()
        adds_partitions = support is TransactionSupport.ADDS_PARTITIONS
        if not adds_partitions and not config.transaction_partition_verification_enable:
            return None
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
            supports_epoch_bump=adds_partitions,
        )
        if guard is None:
            return None
        key = _QuestionKey(transactional_id, producer, support)
        question = self._unsent.get(key)
        if question is None:
            limit_ms = config.add_partitions_to_txn_retry_backoff_max_ms
            question = _Question(key, self._clock.monotonic_ms() + limit_ms)
            self._unsent[key] = question
        known = question.answers.get(partition.topic_partition)
        if known is not None:  # the request names the partition twice
            return known[1]
        answer: Pending[Verification] = Pending()
        guard.waiting += 1
        question.answers[partition.topic_partition] = guard, answer
        return answer

    def send(self) -> None:
        """Send the requests that were begun, one for each transaction."""
        unsent, self._unsent = self._unsent, {}
        for question in unsent.values():
            self._ask(question)
        self._adding = None

    def _ask(self, question: _Question) -> None:
        """Send a request; CONCURRENT_TRANSACTIONS is retried for a short time."""
        begin_ms, key = self._clock.monotonic_ms(), question.key
        if key.support is TransactionSupport.ADDS_PARTITIONS:
            added = self._add_own(key.transactional_id, key.producer, list(question.answers))
            if added is not None:
                added.on_done(lambda done: self._take(question, done.value, begin_ms))
                return
        self._send(question.key.transactional_id, question.request()).on_done(
            lambda done: self._take(question, _codes(done), begin_ms)
        )

    def _add_own(
        self, transactional_id: str, producer: ProducerKey, partitions: list[TopicPartition]
    ) -> Pending[ErrorCode] | None:
        """Add partitions where the coordinator is on this broker; None where it has to be asked."""
        known = self._adding
        if known is not None and known[:3] == (transactional_id, producer, partitions):
            self._adding = None
            return known[3]
        owner = self._coordinator_of(transactional_id)
        if owner is None:
            return None
        leader = self._channel.leader_of(owner)
        return self._channel.add_own_partitions(leader, transactional_id, producer, partitions)

    def add_at_once(
        self, transactional_id: str, producer: ProducerKey, partitions: list[TopicPartition]
    ) -> bool:
        """Add partitions of producers of transaction version 2; return whether that is complete.

        Where it is not, `begin` each of the partitions in the same turn, and `send`.
        """
        added = self._add_own(transactional_id, producer, partitions)
        if added is None:
            return False
        if not added.done or added.value is not ErrorCode.NONE:
            self._adding = (transactional_id, producer, partitions, added)
            return False
        self.times_ms.add(0)
        return True

    def _take(self, question: _Question, codes: _Codes, begin_ms: int) -> None:
        now_ms = self._clock.monotonic_ms()
        self.times_ms.add(now_ms - begin_ms)
        may_wait = (
            question.key.support is TransactionSupport.ADDS_PARTITIONS
            and now_ms < question.deadline_ms
        )
        for partition in list(question.answers):
            code = codes if isinstance(codes, ErrorCode) else codes.get(partition, _MISSING)
            self.failed_count += code is not ErrorCode.NONE
            if code is not ErrorCode.CONCURRENT_TRANSACTIONS or not may_wait:
                question.take(partition, code)
        if question.answers:
            again_ms = now_ms + self._config().add_partitions_to_txn_retry_backoff_ms
            self._timer.add(again_ms, lambda _now_ms: self._ask(question))

    def _send(
        self, transactional_id: str, request: AddPartitionsToTxnRequest
    ) -> Pending[AddPartitionsToTxnResponse]:
        owner = self._coordinator_of(transactional_id)
        leader = None if owner is None else self._channel.leader_of(owner)
        if leader is None or leader < 0:
            return Pending.failed(KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        return self._channel.send(leader, request)


def _codes(done: Pending[AddPartitionsToTxnResponse]) -> _Codes:
    error = done.error
    if error is not None:
        return error.code if isinstance(error, KafkaError) else ErrorCode.NETWORK_EXCEPTION
    if done.value.error_code:
        return ErrorCode(done.value.error_code)
    return {
        TopicPartition(topic.name, one.partition_index): ErrorCode(one.partition_error_code)
        for result in done.value.results_by_transaction
        for topic in result.topic_results
        for one in topic.results_by_partition
    }


def _refusal(code: ErrorCode, support: TransactionSupport) -> VerificationFailed:
    """Return the error for the producer."""
    if code is ErrorCode.PRODUCER_FENCED:
        return VerificationFailed(ErrorCode.INVALID_PRODUCER_EPOCH)
    if code is ErrorCode.TRANSACTION_ABORTABLE and support is TransactionSupport.DEFAULT:
        code = ErrorCode.INVALID_TXN_STATE
    if code is ErrorCode.INVALID_TXN_STATE:
        return VerificationFailed(code, "Partition was not added to the transaction")
    if code is ErrorCode.CONCURRENT_TRANSACTIONS and support is TransactionSupport.ADDS_PARTITIONS:
        return VerificationFailed(code)
    if code in _RETRIED_AS_NOT_ENOUGH_REPLICAS:
        return VerificationFailed(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            "Unable to verify the partition has been added to the transaction. Underlying error: "
            f"{code.name}",
        )
    return VerificationFailed(code)
