"""Admin calls for transactions: list, describe, abort, fence.

Kafka: org.apache.kafka.clients.admin.{ListTransactionsResult, DescribeTransactionsResult,
AbortTransactionSpec, FenceProducersResult}.
"""

from __future__ import annotations

# ruff: noqa: ASYNC109 - as in Kafka, a call's timeout covers its retries; it is no cancellation
from typing import TYPE_CHECKING, NamedTuple

from ottla.clients.admin.calls import AdminCalls, by_partition, error_of
from ottla.clients.arguments import listed
from ottla.clients.coordinator import TRANSACTION
from ottla.protocol.apis.describe_transactions import DescribeTransactionsRequest
from ottla.protocol.apis.init_producer_id import InitProducerIdRequest
from ottla.protocol.apis.list_transactions import ListTransactionsRequest
from ottla.protocol.apis.write_txn_markers import WriteTxnMarkersRequest
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.errors import KafkaError


class TransactionListing(NamedTuple):
    """A transactional id with the node id of its coordinator."""

    transactional_id: str
    coordinator: int
    producer_id: int
    state: str


class TransactionDescription(NamedTuple):
    """The state of a transactional id; start_ms is None unless a transaction is open."""

    coordinator: int
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_ms: int | None
    partitions: frozenset[TopicPartition]


class AbortSpec(NamedTuple):
    """The open transaction of a producer in one partition."""

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int


class TransactionsAdmin(AdminCalls):
    """The part of the admin for transactions."""

    async def list_transactions(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        duration_ms: int = -1,
        pattern: str | None = None,
        timeout: float | None = None,
    ) -> list[TransactionListing]:
        """Return the transactional ids of all coordinators, by broker.

        Parameters:
            states, producer_ids: of these only, by default of all.
            duration_ms: only those open for longer than this; -1 for all (KIP-994).
            pattern: only ids that match this regular expression (RE2) whole (KIP-1152).
        """
        request = ListTransactionsRequest(
            state_filters=list(states),
            producer_id_filters=list(producer_ids),
            duration_filter=duration_ms,
            transactional_id_pattern=pattern,
        )
        answers = await self._call_brokers(request, timeout)
        return [
            TransactionListing(
                state.transactional_id, node_id, state.producer_id, state.transaction_state
            )
            for node_id, answer in answers.items()
            for state in answer.transaction_states
        ]

    async def describe_transactions(
        self, transactional_ids: Iterable[str], *, timeout: float | None = None
    ) -> dict[str, TransactionDescription | KafkaError]:
        """Describe transactional ids; returns an outcome for each."""

        async def describe(transactional_id: str, remaining: float) -> TransactionDescription:
            answer = await self._coordinator_call(
                transactional_id,
                DescribeTransactionsRequest(transactional_ids=[transactional_id]),
                error_of=lambda answer: answer.transaction_states[0].error_code,
                timeout=remaining,
                key_type=TRANSACTION,
            )
            state = answer.transaction_states[0]
            start_ms = state.transaction_start_time_ms
            return TransactionDescription(
                self._coordinators[TRANSACTION, transactional_id].node_id,
                state.transaction_state,
                state.producer_id,
                state.producer_epoch,
                state.transaction_timeout_ms,
                start_ms if start_ms >= 0 else None,
                frozenset(
                    TopicPartition(topic.topic, index)
                    for topic in state.topics
                    for index in topic.partitions
                ),
            )

        ids = listed("transactional_ids", transactional_ids)
        return await self._call_each(ids, describe, timeout)

    async def abort_transaction(self, spec: AbortSpec, *, timeout: float | None = None) -> None:
        """Write the abort marker of a hanging transaction, one that its coordinator does not know.

        The log's records and those of `describe_producers` give the values of a hanging one.
        """
        outcomes = await self._call_leaders(
            {spec.partition: 0},
            lambda _partitions: _marker(spec),
            lambda answer: by_partition(answer.markers[0].topics, error_of),
            timeout,
        )
        error = outcomes[spec.partition]
        if error is not None:
            raise error

    async def fence_producers(
        self, transactional_ids: Iterable[str], *, timeout: float | None = None
    ) -> dict[str, tuple[int, int] | KafkaError]:
        """Fence the producers of ids and abort their transactions.

        Returns the producer id and the epoch that fences, for each. The timeout becomes that of
        the ids' transactions too, as with Kafka's admin; by default it is request.timeout.ms.
        """
        seconds = self._settings.request_timeout_ms / 1000 if timeout is None else timeout
        timeout_ms = max(1, int(seconds * 1000))

        async def fence(transactional_id: str, remaining: float) -> tuple[int, int]:
            request = InitProducerIdRequest(
                transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
            )
            answer = await self._coordinator_call(
                transactional_id, request, timeout=remaining, key_type=TRANSACTION
            )
            return answer.producer_id, answer.producer_epoch

        return await self._call_each(listed("transactional_ids", transactional_ids), fence, timeout)


def _marker(spec: AbortSpec) -> WriteTxnMarkersRequest:
    kind = WriteTxnMarkersRequest.WritableTxnMarker
    topic = kind.WritableTxnMarkerTopic(
        name=spec.partition.topic, partition_indexes=[spec.partition.partition]
    )
    marker = kind(
        producer_id=spec.producer_id,
        producer_epoch=spec.producer_epoch,
        transaction_result=False,
        topics=[topic],
        coordinator_epoch=spec.coordinator_epoch,
    )
    return WriteTxnMarkersRequest(markers=[marker])
