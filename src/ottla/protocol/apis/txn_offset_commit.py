"""Commit offsets of a group as part of a transaction.

Kafka: TxnOffsetCommitRequest, TxnOffsetCommitResponse (key 28).

v2 leader epochs (KIP-320); v3 flexible, fenced by group generation (KIP-447);
v4 TRANSACTION_ABORTABLE; v5 adds the group to the transaction implicitly (KIP-890).
"""

from __future__ import annotations

from ottla.protocol.schema import Request, Response, Struct, field, int16, int32, int64


class TxnOffsetCommitRequest(Request, key=28, versions="0-5", flexible="3+", listeners=("broker",)):
    transactional_id: str
    group_id: str
    producer_id: int64
    producer_epoch: int16
    generation_id: int32 = field("3+", default=-1)
    member_id: str = field("3+", default="")
    group_instance_id: str | None = field("3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic]

    class TxnOffsetCommitRequestTopic(Struct):
        name: str
        partitions: list[TxnOffsetCommitRequestPartition]

        class TxnOffsetCommitRequestPartition(Struct):
            partition_index: int32
            committed_offset: int64
            committed_leader_epoch: int32 = field("2+", default=-1, ignorable=True)
            committed_metadata: str | None


class TxnOffsetCommitResponse(Response, key=28, versions="0-5", flexible="3+"):
    throttle_time_ms: int32 = 0
    topics: list[TxnOffsetCommitResponseTopic]

    class TxnOffsetCommitResponseTopic(Struct):
        name: str
        partitions: list[TxnOffsetCommitResponsePartition]

        class TxnOffsetCommitResponsePartition(Struct):
            partition_index: int32
            error_code: int16 = 0
