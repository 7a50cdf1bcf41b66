"""The records of `__transaction_state` and their encoding.

Kafka: org.apache.kafka.coordinator.transaction.TransactionLog, TransactionCoordinatorRecordSerde.

A key is the kind of record (int16, 0) and a message of version 0. A value is its version (int16)
and a message of that version: 1 from transaction.version 1 on, else 0.
"""

from __future__ import annotations

from struct import Struct as Layout
from typing import TYPE_CHECKING

from ottla.coordinator.runtime import CoordinatorRecord
from ottla.coordinator.transaction.state import Transaction, TransactionState
from ottla.errors import CorruptMessage
from ottla.protocol import codec
from ottla.protocol.records.transaction import TransactionLogKey, TransactionLogValue
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

_INT16 = Layout(">h")
_KIND = 0
_Partitions = TransactionLogValue.PartitionsSchema


def encode(record: CoordinatorRecord) -> tuple[bytes, bytes | None]:
    """Return the bytes of key and value."""
    key = _INT16.pack(_KIND) + codec.to_bytes(record.key, 0)
    if record.value is None:
        return key, None
    version = record.value_version
    return key, _INT16.pack(version) + codec.to_bytes(record.value, version)


def decode(key: bytes, value: bytes | None) -> CoordinatorRecord | None:
    """Return the record; None for kinds not known here. Raises CorruptMessage."""
    if _prefix(key) != _KIND:
        return None
    decoded_key = codec.decode(TransactionLogKey, 0, memoryview(key)[2:])
    if value is None:
        return CoordinatorRecord(decoded_key)
    version = _prefix(value)
    decoded = codec.decode(TransactionLogValue, version, memoryview(value)[2:])
    return CoordinatorRecord(decoded_key, decoded, version)


def _prefix(data: bytes) -> int:
    if len(data) < _INT16.size:
        raise CorruptMessage("a coordinator record ends before its version")
    number: int = _INT16.unpack_from(data)[0]
    return number


def record_of(transaction: Transaction, value_version: int) -> CoordinatorRecord:
    """Return the record of a transactional id's state.

    A transaction that was taken over has fields that version 0 lacks.
    """
    value_version = max(value_version, int(transaction.is_taken_over))
    partitions = None
    if transaction.state is not TransactionState.EMPTY:
        partitions = _grouped(transaction.partitions)
    value = TransactionLogValue(
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=int(transaction.state),
        transaction_partitions=partitions,
        transaction_last_update_timestamp_ms=transaction.update_ms,
        transaction_start_timestamp_ms=transaction.start_ms,
    )
    if value_version:
        value.previous_producer_id = transaction.previous_producer_id
        value.next_producer_id = transaction.next_producer_id
        value.client_transaction_version = transaction.client_version
        value.next_producer_epoch = transaction.next_producer_epoch
    key = TransactionLogKey(transactional_id=transaction.transactional_id)
    return CoordinatorRecord(key, value, value_version)


def tombstone(transactional_id: str) -> CoordinatorRecord:
    """Return the record that forgets a transactional id."""
    return CoordinatorRecord(TransactionLogKey(transactional_id=transactional_id))


def transaction_of(key: TransactionLogKey, value: TransactionLogValue) -> Transaction:
    """Return the state in a record. CorruptMessage for a state that is none."""
    try:
        state = TransactionState(value.transaction_status)
    except ValueError as error:
        text = f"Unknown transaction state id {value.transaction_status}"
        raise CorruptMessage(text) from error
    return Transaction(
        key.transactional_id,
        value.producer_id,
        value.producer_epoch,
        value.transaction_timeout_ms,
        state,
        frozenset(
            TopicPartition(part.topic, index)
            for part in value.transaction_partitions or ()
            for index in part.partition_ids
        ),
        value.transaction_start_timestamp_ms,
        value.transaction_last_update_timestamp_ms,
        value.previous_producer_id,
        value.next_producer_id,
        value.next_producer_epoch,
        value.client_transaction_version,
    )


def _grouped(partitions: Iterable[TopicPartition]) -> list[_Partitions]:
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        topics.setdefault(topic, []).append(index)
    return [_Partitions(topic=topic, partition_ids=indexes) for topic, indexes in topics.items()]
