"""Register partitions with a transaction before they are written to.

Kafka: AddPartitionsToTxnRequest, AddPartitionsToTxnResponse (key 24).

v0-3 are sent by clients, one transaction each; v3 flexible; v4+ are sent by brokers for many
transactions at once, optionally only to verify (KIP-890); v5 TRANSACTION_ABORTABLE.
"""

from __future__ import annotations

from ottla.protocol.schema import EMPTY, Request, Response, Struct, field, int16, int32, int64


class AddPartitionsToTxnRequest(
    Request, key=24, versions="0-5", flexible="3+", listeners=("broker",)
):
    transactions: list[AddPartitionsToTxnTransaction] = field("4+", default=EMPTY)
    v3_and_below_transactional_id: str = field("0-3", default="")
    v3_and_below_producer_id: int64 = field("0-3", default=0)
    v3_and_below_producer_epoch: int16 = field("0-3", default=0)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = field("0-3", default=EMPTY)

    class AddPartitionsToTxnTransaction(Struct):
        transactional_id: str
        producer_id: int64
        producer_epoch: int16
        verify_only: bool = False  # KIP-890
        topics: list[AddPartitionsToTxnTopic]


class AddPartitionsToTxnResponse(Response, key=24, versions="0-5", flexible="3+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = field("4+", default=0, ignorable=True)
    results_by_transaction: list[AddPartitionsToTxnResult] = field("4+", default=EMPTY)
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = field("0-3", default=EMPTY)

    class AddPartitionsToTxnResult(Struct):
        transactional_id: str
        topic_results: list[AddPartitionsToTxnTopicResult]


class AddPartitionsToTxnTopic(Struct):
    name: str
    partitions: list[int32]


class AddPartitionsToTxnTopicResult(Struct):
    name: str
    results_by_partition: list[AddPartitionsToTxnPartitionResult]


class AddPartitionsToTxnPartitionResult(Struct):
    partition_index: int32
    partition_error_code: int16
