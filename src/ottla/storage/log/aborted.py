"""The aborted transactions that a read_committed consumer filters out of one fetch.

Kafka: LocalLog.addAbortedTransactions, TransactionIndex.collectAbortedTxns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.storage.indexes.transaction_index import AbortedTransaction
    from ottla.storage.log.partition_log import PartitionLog


def aborted_transactions(
    log: PartitionLog, segment_number: int, fetch_offset: int, limit: int
) -> list[AbortedTransaction]:
    """Return those that overlap [fetch_offset, the end of the segment read or the limit)."""
    segments = log.segments
    upper = min(limit, segments.end_of(segment_number, log.log_end_offset))
    found: list[AbortedTransaction] = []
    for number in range(segment_number, len(segments)):
        for entry in segments[number].transaction_index.entries():
            if entry.last_offset >= fetch_offset and entry.first_offset < upper:
                found.append(entry)
            if entry.last_stable_offset >= upper:
                return found
    return found
