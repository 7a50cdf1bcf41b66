"""Transactions as data: those open in a log that no coordinator knows (KIP-664).

Kafka: TransactionsCommand.FindHangingTransactionsCommand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ottla.clients.admin.cluster import ProducerState
    from ottla.clients.blocking import Admin
    from ottla.types import TopicPartition


class OpenTransaction(NamedTuple):
    """A producer with an open transaction in a partition."""

    partition: TopicPartition
    producer: ProducerState


def hanging_transactions(
    admin: Admin,
    partitions: Iterable[TopicPartition],
    last_timestamp_ms: int,
    broker_id: int | None = None,
) -> list[OpenTransaction]:
    """Return hanging transactions without a record since a time, in ms since 1970.

    The replicas of one broker are searched, by default those of the leaders. Partitions that do
    not answer are omitted; raises KafkaError if a coordinator does not.
    """
    states = admin.describe_producers(partitions, broker_id=broker_id)
    candidates = [
        OpenTransaction(partition, producer)
        for partition, producers in states.items()
        if not isinstance(producers, KafkaError)
        for producer in producers
        if producer.transaction_start_offset is not None
        and producer.last_timestamp < last_timestamp_ms
    ]
    return _without_coordinator(admin, candidates) if candidates else []


def _without_coordinator(
    admin: Admin, candidates: Sequence[OpenTransaction]
) -> list[OpenTransaction]:
    """Return the transactions that no coordinator has open in their partition."""
    producer_ids = {candidate.producer.producer_id for candidate in candidates}
    listings = admin.list_transactions(producer_ids=producer_ids)
    names = {listing.producer_id: listing.transactional_id for listing in listings}
    descriptions = admin.describe_transactions(names.values())
    hanging = []
    for candidate in candidates:
        known = descriptions.get(names.get(candidate.producer.producer_id, ""))
        if isinstance(known, KafkaError):
            if known.code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise known
            known = None
        if known is None or candidate.partition not in known.partitions:
            hanging.append(candidate)
    return hanging
