"""Results of appends and reads.

Kafka: org.apache.kafka.storage.internals.log.{LogAppendInfo, FetchDataInfo}.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.storage.indexes.transaction_index import AbortedTransaction
    from ottla.types import SendItem


class AppendInfo(NamedTuple):
    """Offsets and times of what was appended, or of the old batch when it is a duplicate."""

    first_offset: int
    last_offset: int
    max_timestamp: int
    log_append_time_ms: int
    """-1 unless message.timestamp.type is LogAppendTime."""
    log_start_offset: int
    record_count: int = 0
    size_bytes: int = 0
    is_duplicate: bool = False


class FetchIsolation(Enum):
    """The upper limit of a read."""

    LOG_END = 0
    """Replicas and the log's owner."""
    HIGH_WATERMARK = 1
    """read_uncommitted consumers."""
    TXN_COMMITTED = 2
    """read_committed consumers: up to the last stable offset."""


class FetchData(NamedTuple):
    """Batches from the one that holds fetch_offset on; the last one may be cut short."""

    records: SendItem
    fetch_offset: int
    aborted_transactions: list[AbortedTransaction] | None = None
    """Only with TXN_COMMITTED: what a consumer must filter."""


class UnexpectedAppendOffset(KafkaError):
    """Batches for a follower begin below its log end."""

    def __init__(self, message: str, *, first_offset: int, last_offset: int) -> None:
        super().__init__(ErrorCode.UNKNOWN_SERVER_ERROR, message)
        self.first_offset = first_offset
        self.last_offset = last_offset


class OffsetMovedToTier(KafkaError):
    """The offset lies below the local log, in remote storage; with the read that was asked for."""

    def __init__(self, offset: int, max_bytes: int, *, min_one_message: bool) -> None:
        super().__init__(
            ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE,
            f"Given offset {offset} is moved to tiered storage",
        )
        self.offset = offset
        self.max_bytes = max_bytes
        self.min_one_message = min_one_message
