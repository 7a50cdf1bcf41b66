"""The interface to the log of a coordinator's topic, and the error codes that clients receive.

Kafka: org.apache.kafka.coordinator.common.runtime.PartitionWriter and CoordinatorLoader;
TransactionStateManager.appendTransactionToLog,
CoordinatorOperationExceptionHelper.handleOperationException.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final, Protocol

from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.purgatory.pending import Pending
    from ottla.types import Buffer


class TransactionSupport(Enum):
    """What a producer understands of transactions, by the version of its request (KIP-890)."""

    DEFAULT = 0
    """Neither TRANSACTION_ABORTABLE nor implicit adding of partitions."""
    ABORTABLE = 1
    """TRANSACTION_ABORTABLE: Produce 11, TxnOffsetCommit 4."""
    ADDS_PARTITIONS = 2
    """Transaction version 2: Produce 12, TxnOffsetCommit 5."""


class CoordinatorLog(Protocol):
    """The partitions of one internal topic that this broker leads."""

    def append(
        self,
        partition: int,
        batch: bytearray,
        leader_epoch: int,
        *,
        verification: object = None,
        transaction_version: int = -1,
    ) -> int:
        """Append one batch as leader of leader_epoch; return the new log end offset.

        A batch of a transaction comes with its verification, a marker with the version (KIP-1228).

        Raises KafkaError: NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS, MESSAGE_TOO_LARGE,
        KAFKA_STORAGE_ERROR …; then no record was appended. It may report a new high watermark
        before it returns.
        """

    def verify_transaction(
        self,
        partition: int,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        support: TransactionSupport,
    ) -> Pending[object]:
        """Return the verification to append a transaction's batch with, or fail with KafkaError."""

    def read(self, partition: int, offset: int, max_bytes: int) -> Buffer:
        """Return batches from offset on; empty at the end.

        The first one is complete, however large; the last one may be cut after max_bytes.
        """

    def max_batch_bytes(self, partition: int) -> int:
        """Return the maximum size of a batch."""

    def start_offset(self, partition: int) -> int:
        """Return the first offset."""

    def end_offset(self, partition: int) -> int:
        """Return the log end offset."""

    def high_watermark(self, partition: int) -> int:
        """Return the offset up to which records are committed."""

    def first_unstable_offset(self, partition: int) -> int:
        """Return where the first open transaction begins; the log end offset without one.

        The high watermark does not bound it.
        """


_FROM_THE_LOG: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def append_error(code: ErrorCode) -> ErrorCode:
    """Return the client's error code for a failed write with this code."""
    return _FROM_THE_LOG.get(code, code)


def operation_error(error: Exception) -> ErrorCode:
    """Return the client's error code for a failed operation."""
    if isinstance(error, KafkaError):
        return append_error(error.code)
    return ErrorCode.UNKNOWN_SERVER_ERROR


def describe_error(group_id: str, error: Exception) -> ErrorCode:
    """Return the code for a group that cannot be described: INVALID_GROUP_ID without a name."""
    return operation_error(error) if group_id else ErrorCode.INVALID_GROUP_ID


def error_text(error: Exception) -> str | None:
    """Return the client's error text for a failed operation: the error's own, if it has one."""
    code = operation_error(error)
    if not isinstance(error, KafkaError) or error.code != code:
        return None
    return error.message if error.message != code.text else None


def full_error_text(error: Exception) -> str:
    """Return the error's own text, or else that of its code."""
    return error_text(error) or operation_error(error).text


def fetch_error(error: Exception) -> ErrorCode:
    """Return the code for OffsetFetch: old consumers retry on NOT_COORDINATOR only."""
    code = operation_error(error)
    return ErrorCode.NOT_COORDINATOR if code == ErrorCode.COORDINATOR_NOT_AVAILABLE else code
