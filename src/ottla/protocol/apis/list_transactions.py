"""List the transactions of a coordinator (KIP-664).

Kafka: ListTransactionsRequest, ListTransactionsResponse (key 66).

v1 filter by duration (KIP-994); v2 filter by regular expression of the id (KIP-1152).
"""

from __future__ import annotations

from ottla.protocol.schema import Request, Response, Struct, field, int16, int32, int64


class ListTransactionsRequest(
    Request, key=66, versions="0-2", flexible="0+", listeners=("broker",)
):
    state_filters: list[str]
    producer_id_filters: list[int64]
    duration_filter: int64 = field("1+", default=-1)  # ms, KIP-994
    transactional_id_pattern: str | None = field("2+", default=None)  # KIP-1152


class ListTransactionsResponse(Response, key=66, versions="0-2", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    unknown_state_filters: list[str]
    transaction_states: list[TransactionState]

    class TransactionState(Struct):
        transactional_id: str
        producer_id: int64
        transaction_state: str
