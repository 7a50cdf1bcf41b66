"""The state of one transactional id, and its record in `__transaction_state`.

A key is the kind of record (int16, 0) and a message of version 0. A value is its version (int16)
and a message of that version: 1 from transaction.version 1 on, else 0. A `CoordinatorRecord` has
the transactional id as its key and the `Transaction` itself as its value.

Hot path: `encode` (benchmarks/against_kafka/transactions.py); its layout is `TransactionLogValue`.

Kafka: org.apache.kafka.coordinator.transaction.{TransactionMetadata, TransactionState};
org.apache.kafka.coordinator.transaction.TransactionLog, TransactionCoordinatorRecordSerde.
"""

from __future__ import annotations

from enum import IntEnum
from functools import lru_cache
from struct import Struct as Layout
from struct import pack
from typing import Final, NamedTuple

from ottla.coordinator.runtime import CoordinatorRecord
from ottla.errors import CorruptMessage
from ottla.protocol import codec
from ottla.protocol.primitives import encode_uvarint
from ottla.protocol.records.transaction import TransactionLogKey, TransactionLogValue
from ottla.types import TopicPartition

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
MAX_PRODUCER_EPOCH: Final = 0x7FFF
TWO_PHASE_TIMEOUT_MS: Final = 0x7FFF_FFFF
"""The stored timeout of a two-phase transaction, which never times out (KIP-939)."""
EPOCH_BUMP_VERSION: Final = 2
"""The first transaction version that gives each transaction an epoch of its own (KIP-890)."""


class TransactionState(IntEnum):
    """The states, with the numbers of their records."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def text(self) -> str:
        """The name that tools show: "PrepareCommit"."""
        return "".join(word.capitalize() for word in self.name.split("_"))

    @property
    def is_prepared(self) -> bool:
        """Whether the outcome is decided, and its markers are still to be written."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def is_complete(self) -> bool:
        """Whether a transaction has ended and no other has begun."""
        return self in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)


STATES_BY_TEXT: Final = {state.text: state for state in TransactionState}


class Transaction(NamedTuple):
    """A transactional id; times in milliseconds, -1 where there is none.

    The next producer id alone replaces one whose epochs are used up, once the transaction ends. Id
    and epoch together are those of a producer that has taken over a prepared transaction (KIP-939).
    `last_epoch` is the epoch that the producer had before the last bump. It is no part of the
    record: a retried InitProducerId is recognised only by the coordinator that bumped the epoch.
    `record_offset` is the offset of its record in the coordinator's log. It names a decision: two
    transactions of an id may have the same producer, epoch and outcome.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = -1
    update_ms: int = -1
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    next_producer_epoch: int = NO_PRODUCER_EPOCH
    client_version: int = 0
    last_epoch: int = NO_PRODUCER_EPOCH
    record_offset: int = -1

    @property
    def owner(self) -> tuple[int, int]:
        """Id and epoch of the producer that may end the transaction; its records may have others.

        They differ after a producer has taken over a prepared transaction.
        """
        if self.is_taken_over:
            return self.next_producer_id, self.next_producer_epoch
        return self.producer_id, self.producer_epoch

    @property
    def is_taken_over(self) -> bool:
        """Whether another producer than the one that wrote the transaction will end it."""
        return self.next_producer_epoch != NO_PRODUCER_EPOCH

    @property
    def is_epoch_exhausted(self) -> bool:
        """Whether the next producer needs another producer id."""
        return self.producer_epoch >= MAX_PRODUCER_EPOCH - 1

    @property
    def bumps_epoch(self) -> bool:
        """Whether the producer's transactions have epochs of their own."""
        return self.client_version >= EPOCH_BUMP_VERSION

    @property
    def is_two_phase(self) -> bool:
        """Whether an external coordinator decides, in its own time."""
        return self.timeout_ms == TWO_PHASE_TIMEOUT_MS

    def has_timed_out(self, now_ms: int) -> bool:
        """Whether it is open for longer than its timeout; a two-phase one never is."""
        return (
            self.state is TransactionState.ONGOING
            and not self.is_two_phase
            and self.start_ms + self.timeout_ms < now_ms
        )

    def has_expired(self, now_ms: int, expiration_ms: int) -> bool:
        """Whether the id was unused for so long that it is forgotten."""
        is_idle = self.state is TransactionState.EMPTY or self.state.is_complete
        return is_idle and self.update_ms <= now_ms - expiration_ms


_INT16: Final = Layout(">h")
_HEAD: Final = Layout(">hqhib")
"""Version, producer id, epoch, timeout and state."""
_TIMES: Final = Layout(">qq")
_KIND: Final = 0
_MAX_REMEMBERED: Final = 64
"""Partitions of a transaction, characters of an id, whose encoding is kept for the next record:
some kilobytes."""
_NO_PARTITIONS: Final = (b"\xff\xff\xff\xff", b"\0")
"""A missing list in either version."""


def record_of(transaction: Transaction, value_version: int) -> CoordinatorRecord:
    """Return the record of a transactional id's state, with what its version can carry.

    A transaction that was taken over has fields that version 0 lacks.
    """
    version = max(value_version, int(transaction.is_taken_over))
    if not version:
        transaction = transaction._replace(
            previous_producer_id=-1, next_producer_id=-1, next_producer_epoch=-1, client_version=0
        )
    return CoordinatorRecord(transaction.transactional_id, transaction, version)


def tombstone(transactional_id: str) -> CoordinatorRecord:
    """Return the record that forgets a transactional id."""
    return CoordinatorRecord(transactional_id)


def encode(record: CoordinatorRecord) -> tuple[bytes, bytes | None]:
    """Return the bytes of key and value."""
    name: str = record.key
    key = _encoded_id(name) if len(name) <= _MAX_REMEMBERED else _encoded_id.__wrapped__(name)
    return key, None if record.value is None else _encoded(record.value, record.value_version)


def decode(key: bytes, value: bytes | None) -> CoordinatorRecord | None:
    """Return the record; None for kinds not known here. Raises CorruptMessage."""
    if _prefix(key) != _KIND:
        return None
    name = codec.decode(TransactionLogKey, 0, memoryview(key)[2:]).transactional_id
    if value is None:
        return tombstone(name)
    version = _prefix(value)
    decoded = codec.decode(TransactionLogValue, version, memoryview(value)[2:])
    return CoordinatorRecord(name, _transaction_of(name, decoded), version)


def _prefix(data: bytes) -> int:
    if len(data) < _INT16.size:
        raise CorruptMessage("a coordinator record ends before its version")
    number: int = _INT16.unpack_from(data)[0]
    return number


def _transaction_of(name: str, value: TransactionLogValue) -> Transaction:
    """Return the state in a record. CorruptMessage for a state that is none."""
    try:
        state = TransactionState(value.transaction_status)
    except ValueError as error:
        text = f"Unknown transaction state id {value.transaction_status}"
        raise CorruptMessage(text) from error
    return Transaction(
        name,
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


@lru_cache(maxsize=1024)
def _encoded_id(name: str) -> bytes:
    return _INT16.pack(_KIND) + codec.to_bytes(TransactionLogKey(transactional_id=name), 0)


def _encoded(transaction: Transaction, version: int) -> bytes:
    (_, producer_id, epoch, timeout_ms, state, partitions, start_ms, update_ms,
     previous_id, next_id, next_epoch, client_version, _, _) = transaction  # fmt: skip
    if state is TransactionState.EMPTY:
        listed = _NO_PARTITIONS[version]
    elif len(partitions) <= _MAX_REMEMBERED:
        listed = _encoded_partitions(partitions, version)
    else:
        listed = _encoded_partitions.__wrapped__(partitions, version)
    data = _HEAD.pack(version, producer_id, epoch, timeout_ms, state) + listed
    data += _TIMES.pack(update_ms, start_ms)
    if not version:
        return data
    tags = []
    if previous_id != -1:
        tags.append(pack(">BBq", 0, 8, previous_id))
    if next_id != -1:
        tags.append(pack(">BBq", 1, 8, next_id))
    if client_version:
        tags.append(pack(">BBh", 2, 2, client_version))
    if next_epoch != -1:
        tags.append(pack(">BBh", 3, 2, next_epoch))
    return data + bytes((len(tags),)) + b"".join(tags)


@lru_cache(maxsize=1024)
def _encoded_partitions(partitions: frozenset[TopicPartition], version: int) -> bytes:
    """Return the partitions as a list of topics; they are the same in a decision as before it."""
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        topics.setdefault(topic, []).append(index)
    parts = [encode_uvarint(len(topics) + 1) if version else pack(">i", len(topics))]
    for topic, indexes in topics.items():
        name = topic.encode()
        if version:
            parts += (encode_uvarint(len(name) + 1), name, encode_uvarint(len(indexes) + 1))
        else:
            parts += (_INT16.pack(len(name)), name, pack(">i", len(indexes)))
        parts.append(pack(f">{len(indexes)}i", *indexes))
        if version:
            parts.append(b"\0")  # no tagged fields
    return b"".join(parts)
