"""State of transactional ids (KIP-664).

Kafka: DescribeTransactionsRequest, DescribeTransactionsResponse (key 65).
"""

from __future__ import annotations

from ottla.protocol.schema import Request, Response, Struct, int16, int32, int64


class DescribeTransactionsRequest(
    Request, key=65, versions="0", flexible="0+", listeners=("broker",)
):
    transactional_ids: list[str]


class DescribeTransactionsResponse(Response, key=65, versions="0", flexible="0+"):
    throttle_time_ms: int32 = 0
    transaction_states: list[TransactionState]

    class TransactionState(Struct):
        error_code: int16 = 0
        transactional_id: str
        transaction_state: str
        transaction_timeout_ms: int32
        transaction_start_time_ms: int64
        producer_id: int64
        producer_epoch: int16
        topics: list[TopicData]

        class TopicData(Struct):
            topic: str
            partitions: list[int32]
