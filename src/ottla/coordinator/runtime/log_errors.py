"""Maps errors of the log to the error codes that clients of coordinators receive.

Kafka: TransactionStateManager.appendTransactionToLog,
CoordinatorOperationExceptionHelper.handleOperationException.
"""

from __future__ import annotations

from typing import Final

from ottla.errors import ErrorCode, KafkaError

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
