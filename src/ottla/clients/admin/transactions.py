"""Admin calls for transactions: list, describe, abort, fence.

Kafka: org.apache.kafka.clients.admin.{ListTransactionsResult, DescribeTransactionsResult,
AbortTransactionSpec, FenceProducersResult}.
"""

from __future__ import annotations

# ruff: noqa: ASYNC109 - as in Kafka, a call's timeout covers its retries; it is no cancellation
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.clients.admin.calls import error_or_none, response_code
from ottla.clients.admin.replicas import ReplicasAdmin
from ottla.clients.arguments import listed
from ottla.clients.coordinator import TRANSACTION
from ottla.errors import KafkaError
from ottla.protocol.apis.describe_transactions import DescribeTransactionsRequest
from ottla.protocol.apis.init_producer_id import InitProducerIdRequest
from ottla.protocol.apis.list_transactions import ListTransactionsRequest
from ottla.protocol.apis.write_txn_markers import WriteTxnMarkersRequest
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable


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


class TransactionsAdmin(ReplicasAdmin):
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

        Only those in some states, of some producers, open for longer than duration_ms, or whose
        whole id matches a regular expression (RE2).
        """
        request = ListTransactionsRequest(
            state_filters=list(states),
            producer_id_filters=list(producer_ids),
            duration_filter=duration_ms,
            transactional_id_pattern=pattern,
        )
        found = []
        deadline_ms = self._deadline_ms(timeout)
        for node_id in await self._broker_ids(deadline_ms):
            remaining = self._remaining_seconds(deadline_ms)
            answer = await self._call(request, timeout=remaining, node_id=node_id)
            found += [
                TransactionListing(
                    state.transactional_id, node_id, state.producer_id, state.transaction_state
                )
                for state in answer.transaction_states
            ]
        return found

    async def describe_transactions(
        self, transactional_ids: Iterable[str], *, timeout: float | None = None
    ) -> dict[str, TransactionDescription | KafkaError]:
        """Describe transactional ids; returns an outcome for each."""
        deadline_ms = self._deadline_ms(timeout)
        result: dict[str, TransactionDescription | KafkaError] = {}
        for name in listed("transactional_ids", transactional_ids):
            try:
                result[name] = await self._describe_transaction(
                    name, self._remaining_seconds(deadline_ms)
                )
            except KafkaError as error:
                result[name] = error
        return result

    async def _describe_transaction(self, name: str, timeout: float) -> TransactionDescription:
        answer = await self._coordinator_call(
            name,
            DescribeTransactionsRequest(transactional_ids=[name]),
            error_of=lambda answer: answer.transaction_states[0].error_code,
            timeout=timeout,
            key_type=TRANSACTION,
        )
        one = answer.transaction_states[0]
        started = one.transaction_start_time_ms
        return TransactionDescription(
            self._coordinators[TRANSACTION, name].node_id,
            one.transaction_state,
            one.producer_id,
            one.producer_epoch,
            one.transaction_timeout_ms,
            started if started >= 0 else None,
            frozenset(
                TopicPartition(topic.topic, index)
                for topic in one.topics
                for index in topic.partitions
            ),
        )

    async def abort_transaction(self, spec: AbortSpec, *, timeout: float | None = None) -> None:
        """Write the abort marker of a hanging transaction, one that its coordinator does not know.

        The log's records and those of `describe_producers` give the values of a hanging one.
        """
        requested = {spec.partition: 0}
        outcome = await self._by_leader(
            requested, lambda _partitions: _marker(spec), _marker_outcomes, timeout
        )
        error = outcome[spec.partition]
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
        deadline_ms = self._deadline_ms(timeout)
        result: dict[str, tuple[int, int] | KafkaError] = {}
        for name in listed("transactional_ids", transactional_ids):
            try:
                left = self._remaining_seconds(deadline_ms)
                result[name] = await self._fence(name, timeout_ms, left)
            except KafkaError as error:
                result[name] = error
        return result

    async def _fence(self, name: str, timeout_ms: int, timeout: float) -> tuple[int, int]:
        answer = await self._coordinator_call(
            name,
            InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=timeout_ms),
            error_of=response_code,
            timeout=timeout,
            key_type=TRANSACTION,
        )
        return answer.producer_id, answer.producer_epoch


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


def _marker_outcomes(answer: Any) -> dict[TopicPartition, KafkaError | None]:
    return {
        TopicPartition(topic.name, partition.partition_index): error_or_none(partition.error_code)
        for marker in answer.markers
        for topic in marker.topics
        for partition in topic.partitions
    }
