"""Commit or abort a transaction.

Kafka: EndTxnRequest, EndTxnResponse (key 26).

v2 PRODUCER_FENCED (KIP-588); v3 flexible; v4 TRANSACTION_ABORTABLE; v5 bumps the epoch with each
transaction and returns the new one (KIP-890).
"""

from __future__ import annotations

from ottla.protocol.schema import Request, Response, field, int16, int32, int64


class EndTxnRequest(Request, key=26, versions="0-5", flexible="3+", listeners=("broker",)):
    transactional_id: str
    producer_id: int64
    producer_epoch: int16
    committed: bool  # else aborted


class EndTxnResponse(Response, key=26, versions="0-5", flexible="3+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    producer_id: int64 = field("5+", default=-1, ignorable=True)
    producer_epoch: int16 = field("5+", default=-1, ignorable=True)
