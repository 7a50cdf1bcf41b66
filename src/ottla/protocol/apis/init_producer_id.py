"""Get a producer id and epoch; fence the former holder of a transactional id.

Kafka: InitProducerIdRequest, InitProducerIdResponse (key 22).

v2 flexible; v3 producers send their id and epoch to bump the epoch (KIP-360); v4 PRODUCER_FENCED
(KIP-588); v5 TRANSACTION_ABORTABLE (KIP-890); v6 two-phase commit, unstable (KIP-939).
"""

from __future__ import annotations

from ottla.protocol.schema import Request, Response, field, int16, int32, int64


class InitProducerIdRequest(
    Request,
    key=22,
    versions="0-6",
    flexible="2+",
    listeners=("broker",),
    latest_version_unstable=True,
):
    transactional_id: str | None  # null: idempotent only
    transaction_timeout_ms: int32
    producer_id: int64 = field("3+", default=-1)
    producer_epoch: int16 = field("3+", default=-1)
    enable2_pc: bool = field("6+", default=False)  # KIP-939
    keep_prepared_txn: bool = field("6+", default=False)


class InitProducerIdResponse(Response, key=22, versions="0-6", flexible="2+"):
    throttle_time_ms: int32 = field(default=0, ignorable=True)
    error_code: int16 = 0
    producer_id: int64 = -1
    producer_epoch: int16
    ongoing_txn_producer_id: int64 = field("6+", default=-1)
    ongoing_txn_producer_epoch: int16 = field("6+", default=-1)
