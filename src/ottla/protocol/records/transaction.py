"""transaction records.

Kafka: TODO.
"""

from __future__ import annotations

from ottla.protocol.schema import Struct, field, int8, int16, int32, int64


class TransactionLogKey(Struct, key=0, versions="0", flexible="none"):
    """TransactionLogKey."""

    transactional_id: str


class TransactionLogValue(Struct, key=0, versions="0-1", flexible="1+"):
    """TransactionLogValue."""

    producer_id: int64
    previous_producer_id: int64 = field(default=-1, tag=0, tagged="1+")
    next_producer_id: int64 = field(default=-1, tag=1, tagged="1+")
    producer_epoch: int16
    next_producer_epoch: int16 = field(default=-1, tag=3, tagged="1+")
    transaction_timeout_ms: int32
    transaction_status: int8
    transaction_partitions: list[PartitionsSchema] | None
    transaction_last_update_timestamp_ms: int64
    transaction_start_timestamp_ms: int64
    client_transaction_version: int16 = field(default=0, tag=2, tagged="1+")

    class PartitionsSchema(Struct):
        topic: str
        partition_ids: list[int32]
