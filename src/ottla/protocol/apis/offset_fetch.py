"""Fetch a group's committed offsets.

Kafka: OffsetFetchRequest, OffsetFetchResponse (key 9).

v2 top-level error code, null topics mean all; v5 leader epochs (KIP-320); v6 flexible; v7 can
require stable offsets: offsets pending in a transaction are then refused as retriable (KIP-447);
v8 many groups at once (KIP-709); v9 member epoch of the consumer protocol (KIP-848); v10 topic
ids in place of names.
"""

from __future__ import annotations

from ottla.protocol.schema import EMPTY, Request, Response, Struct, field, int16, int32, int64
from ottla.types import ZERO_UUID, Uuid


class OffsetFetchRequest(Request, key=9, versions="1-10", flexible="6+", listeners=("broker",)):
    group_id: str = field("0-7", default="")
    topics: list[OffsetFetchRequestTopic] | None = field("0-7", default=EMPTY, nullable="2-7")
    groups: list[OffsetFetchRequestGroup] = field("8+", default=EMPTY)  # KIP-709
    require_stable: bool = field("7+", default=False)  # KIP-447

    class OffsetFetchRequestTopic(Struct):
        name: str
        partition_indexes: list[int32]

    class OffsetFetchRequestGroup(Struct):
        group_id: str
        member_id: str | None = field("9+", default=None, ignorable=True)
        member_epoch: int32 = field("9+", default=-1, ignorable=True)
        topics: list[OffsetFetchRequestTopics] | None

        class OffsetFetchRequestTopics(Struct):
            name: str = field("8-9", default="", ignorable=True)
            topic_id: Uuid = field("10+", default=ZERO_UUID, ignorable=True)
            partition_indexes: list[int32]


class OffsetFetchResponse(Response, key=9, versions="1-10", flexible="6+"):
    throttle_time_ms: int32 = field("3+", default=0, ignorable=True)
    topics: list[OffsetFetchResponseTopic] = field("0-7", default=EMPTY)
    error_code: int16 = field("2-7", default=0, ignorable=True)
    groups: list[OffsetFetchResponseGroup] = field("8+", default=EMPTY)

    class OffsetFetchResponseTopic(Struct):
        name: str
        partitions: list[OffsetFetchResponsePartition]

        class OffsetFetchResponsePartition(Struct):
            partition_index: int32
            committed_offset: int64
            committed_leader_epoch: int32 = field("5-7", default=-1, ignorable=True)
            metadata: str | None
            error_code: int16 = 0

    class OffsetFetchResponseGroup(Struct):
        group_id: str
        topics: list[OffsetFetchResponseTopics]
        error_code: int16 = 0

        class OffsetFetchResponseTopics(Struct):
            name: str = field("8-9", default="", ignorable=True)
            topic_id: Uuid = field("10+", default=ZERO_UUID, ignorable=True)
            partitions: list[OffsetFetchResponsePartitions]

            class OffsetFetchResponsePartitions(Struct):
                partition_index: int32
                committed_offset: int64
                committed_leader_epoch: int32 = field(default=-1, ignorable=True)
                metadata: str | None
                error_code: int16 = 0
