"""End offset of a leader epoch, with which followers find the point of divergence (KIP-101).

Kafka: OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse (key 23).

v2 current leader epoch, v3 replica id (KIP-320); v4 flexible.
"""

from __future__ import annotations

from ottla.protocol.schema import Request, Response, Struct, field, int16, int32, int64


class OffsetForLeaderEpochRequest(
    Request, key=23, versions="2-4", flexible="4+", listeners=("broker",)
):
    replica_id: int32 = field("3+", default=-2, ignorable=True)
    topics: list[OffsetForLeaderTopic]

    class OffsetForLeaderTopic(Struct):
        topic: str
        partitions: list[OffsetForLeaderPartition]

        class OffsetForLeaderPartition(Struct):
            partition: int32
            current_leader_epoch: int32 = field(default=-1, ignorable=True)
            leader_epoch: int32


class OffsetForLeaderEpochResponse(Response, key=23, versions="2-4", flexible="4+"):
    throttle_time_ms: int32 = field(default=0, ignorable=True)
    topics: list[OffsetForLeaderTopicResult]

    class OffsetForLeaderTopicResult(Struct):
        topic: str
        partitions: list[EpochEndOffset]

        class EpochEndOffset(Struct):
            error_code: int16 = 0
            partition: int32
            leader_epoch: int32 = field(default=-1, ignorable=True)
            end_offset: int64 = -1
