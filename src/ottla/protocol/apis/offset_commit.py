"""Commit offsets of a group.

Kafka: OffsetCommitRequest, OffsetCommitResponse (key 8).

v5 drops the retention time (KIP-211); v6 leader epochs (KIP-320); v7 static members (KIP-345);
v8 flexible; v9 usable by the consumer protocol: the generation carries the member epoch, which may
be stale (KIP-848); v10 topic ids in place of names (KIP-848).
"""

from __future__ import annotations

from ottla.protocol.schema import Request, Response, Struct, field, int16, int32, int64
from ottla.types import ZERO_UUID, Uuid


class OffsetCommitRequest(Request, key=8, versions="2-10", flexible="8+", listeners=("broker",)):
    group_id: str
    generation_id_or_member_epoch: int32 = field(default=-1, ignorable=True)  # -1: no member
    member_id: str = field(ignorable=True)
    group_instance_id: str | None = field("7+", default=None)
    retention_time_ms: int64 = field("2-4", default=-1, ignorable=True)
    topics: list[OffsetCommitRequestTopic]

    class OffsetCommitRequestTopic(Struct):
        name: str = field("0-9", default="", ignorable=True)
        topic_id: Uuid = field("10+", default=ZERO_UUID, ignorable=True)
        partitions: list[OffsetCommitRequestPartition]

        class OffsetCommitRequestPartition(Struct):
            partition_index: int32
            committed_offset: int64
            committed_leader_epoch: int32 = field("6+", default=-1, ignorable=True)
            committed_metadata: str | None


class OffsetCommitResponse(Response, key=8, versions="2-10", flexible="8+"):
    throttle_time_ms: int32 = field("3+", default=0, ignorable=True)
    topics: list[OffsetCommitResponseTopic]

    class OffsetCommitResponseTopic(Struct):
        name: str = field("0-9", default="", ignorable=True)
        topic_id: Uuid = field("10+", default=ZERO_UUID, ignorable=True)
        partitions: list[OffsetCommitResponsePartition]

        class OffsetCommitResponsePartition(Struct):
            partition_index: int32
            error_code: int16 = 0
