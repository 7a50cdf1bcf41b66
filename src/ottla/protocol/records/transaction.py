"""Records of __transaction_state.

Kafka: TransactionLogKey, TransactionLogValue.
"""

from __future__ import annotations

from ottla.protocol.schema import Struct, field, int8, int16, int32, int64


class TransactionLogKey(Struct, key=0, versions="0", flexible="none"):
    """Key in __transaction_state: a transactional id."""

    transactional_id: str


class TransactionLogValue(Struct, key=0, versions="0-1", flexible="1+"):
    """State of a transactional id. v1 flexible (KIP-915, KIP-890)."""

    producer_id: int64
    previous_producer_id: int64 = field("1+", default=-1, tag=0)
    next_producer_id: int64 = field("1+", default=-1, tag=1)
    producer_epoch: int16
    next_producer_epoch: int16 = field("1+", default=-1, tag=3)
    transaction_timeout_ms: int32
    transaction_status: int8
    transaction_partitions: list[PartitionsSchema] | None
    transaction_last_update_timestamp_ms: int64
    transaction_start_timestamp_ms: int64
    client_transaction_version: int16 = field("1+", default=0, tag=2)  # KIP-890

    class PartitionsSchema(Struct):
        topic: str
        partition_ids: list[int32]
