"""Register a group's offsets partition with a transaction.

Kafka: AddOffsetsToTxnRequest, AddOffsetsToTxnResponse (key 25).

v2 PRODUCER_FENCED (KIP-588); v3 flexible; v4 TRANSACTION_ABORTABLE (KIP-890).
"""

from __future__ import annotations

from ottla.protocol.schema import Request, Response, int16, int32, int64


class AddOffsetsToTxnRequest(Request, key=25, versions="0-4", flexible="3+", listeners=("broker",)):
    transactional_id: str
    producer_id: int64
    producer_epoch: int16
    group_id: str


class AddOffsetsToTxnResponse(Response, key=25, versions="0-4", flexible="3+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
