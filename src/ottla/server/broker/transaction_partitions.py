"""What transactions need of a broker: partitions added to them, and producer ids.

Kafka: KafkaApis.handleAddPartitionsToTxnRequest;
org.apache.kafka.coordinator.transaction.RPCProducerIdManager.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from ottla.coordinator.runtime.shard import gather_begun
from ottla.coordinator.transaction.decisions import ProducerKey
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from ottla.protocol.apis.allocate_producer_ids import AllocateProducerIdsRequest
from ottla.purgatory.pending import Pending
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ottla.coordinator.transaction.coordinator import TransactionCoordinator
    from ottla.protocol.apis.allocate_producer_ids import AllocateProducerIdsResponse
    from ottla.purgatory.work import Work
    from ottla.server.controller.channel import ControllerChannel

_Transaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
_Result = AddPartitionsToTxnResponse.AddPartitionsToTxnResult
_BATCHED_VERSION: Final = 2
"""The transaction version of producers for whom brokers add partitions."""


class TransactionPartitions:
    """Checks the partitions, then asks the transaction coordinator of this broker."""

    def __init__(
        self, transactions: TransactionCoordinator, has_partition: Callable[[str, int], bool]
    ) -> None:
        self._transactions = transactions
        self._has_partition = has_partition

    def answer(self, request: AddPartitionsToTxnRequest) -> Pending[AddPartitionsToTxnResponse]:
        """Answer a broker's request for its producers; many transactions take several turns."""
        return gather_begun(
            self._transactions.runtime.worker.run(self._add_each(request.transactions)),
            lambda parts: AddPartitionsToTxnResponse(
                results_by_transaction=[part.value for part in parts]
            ),
        )

    def _add_each(self, transactions: list[_Transaction]) -> Work[list[Pending[_Result]]]:
        parts = []
        for transaction in transactions:
            parts.append(self.add(transaction, _BATCHED_VERSION))
            yield
        return parts

    def add_own(
        self, transactional_id: str, producer: ProducerKey, partitions: list[TopicPartition]
    ) -> Pending[ErrorCode] | None:
        """Add partitions of this broker for a producer of transaction version 2, without a request.

        None where the metadata lacks one of them, which only the answer to a request can tell.
        """
        if not all(self._has_partition(*partition) for partition in partitions):
            return None
        return self._transactions.add_partitions(
            transactional_id, producer, partitions, _BATCHED_VERSION
        )

    def add(self, transaction: _Transaction, client_version: int) -> Pending[_Result]:
        """Add partitions to one transaction, or verify that they belong to it."""
        partitions = [
            TopicPartition(topic.name, index)
            for topic in transaction.topics
            for index in topic.partitions
        ]
        unknown = [partition for partition in partitions if not self._has_partition(*partition)]
        if unknown:
            codes = dict.fromkeys(partitions, ErrorCode.OPERATION_NOT_ATTEMPTED)
            codes |= dict.fromkeys(unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return Pending.of(_result(transaction, codes))
        producer = ProducerKey(transaction.producer_id, transaction.producer_epoch)
        name = transaction.transactional_id
        if transaction.verify_only:
            verified = self._transactions.verify_partitions(name, producer, partitions)
            return verified.then(lambda found: _result(transaction, found))
        added = self._transactions.add_partitions(name, producer, partitions, client_version)
        return added.then(lambda code: _as_named(transaction, code))


def _result(transaction: _Transaction, codes: Mapping[TopicPartition, ErrorCode]) -> _Result:
    """Answer each partition once, however often it was named."""
    topics: dict[str, list[AddPartitionsToTxnPartitionResult]] = {}
    for (name, index), code in codes.items():
        topics.setdefault(name, []).append(
            AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=int(code))
        )
    return _Result(
        transactional_id=transaction.transactional_id,
        topic_results=[
            AddPartitionsToTxnTopicResult(name=name, results_by_partition=partitions)
            for name, partitions in topics.items()
        ],
    )


def _as_named(transaction: _Transaction, code: ErrorCode) -> _Result:
    """Answer the whole transaction: each topic and partition as often as it was named."""
    return _Result(
        transactional_id=transaction.transactional_id,
        topic_results=[
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(
                        partition_index=index, partition_error_code=int(code)
                    )
                    for index in topic.partitions
                ],
            )
            for topic in transaction.topics
        ],
    )


class ProducerIdManager:
    """The current block of ids, and the requests that wait for the next block."""

    def __init__(
        self, node_id: int, broker_epoch: Callable[[], int], controller: ControllerChannel
    ) -> None:
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._controller = controller
        self._next = 0
        self._end = 0
        self._waiting: deque[Pending[int]] = deque()

    def next_id(self) -> Pending[int]:
        """Return the next id.

        Fails with COORDINATOR_LOAD_IN_PROGRESS, which clients retry, when no block is allocated.
        """
        pending: Pending[int] = Pending()
        self._waiting.append(pending)
        self._serve()
        if len(self._waiting) == 1 and not pending.done:
            self._request_block()
        return pending

    def _serve(self) -> None:
        while self._waiting and self._next < self._end:
            self._next += 1
            self._waiting.popleft().complete(self._next - 1)

    def _request_block(self) -> None:
        request = AllocateProducerIdsRequest(
            broker_id=self._node_id, broker_epoch=self._broker_epoch()
        )
        self._controller.send(request).on_done(self._received)

    def _received(self, done: Pending[AllocateProducerIdsResponse]) -> None:
        response = None if done.error is not None else done.value
        if response is None or response.error_code:
            waiting, self._waiting = self._waiting, deque()
            for pending in waiting:
                pending.fail(KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
            return
        self._next = response.producer_id_start
        self._end = self._next + response.producer_id_len
        self._serve()
        if self._waiting:
            self._request_block()
