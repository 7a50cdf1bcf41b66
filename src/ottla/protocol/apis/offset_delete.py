"""Delete committed offsets of a group (KIP-496).

Kafka: OffsetDeleteRequest, OffsetDeleteResponse (key 47).
"""

from __future__ import annotations

from ottla.protocol.schema import Request, Response, Struct, field, int16, int32


class OffsetDeleteRequest(Request, key=47, versions="0", flexible="none", listeners=("broker",)):
    group_id: str
    topics: list[OffsetDeleteRequestTopic]

    class OffsetDeleteRequestTopic(Struct):
        name: str
        partitions: list[OffsetDeleteRequestPartition]

        class OffsetDeleteRequestPartition(Struct):
            partition_index: int32


class OffsetDeleteResponse(Response, key=47, versions="0", flexible="none"):
    error_code: int16 = 0
    throttle_time_ms: int32 = field(default=0, ignorable=True)
    topics: list[OffsetDeleteResponseTopic]

    class OffsetDeleteResponseTopic(Struct):
        name: str
        partitions: list[OffsetDeleteResponsePartition]

        class OffsetDeleteResponsePartition(Struct):
            partition_index: int32
            error_code: int16 = 0
