"""Find an offset by timestamp, or one of the special positions.

Kafka: ListOffsetsRequest, ListOffsetsResponse (key 2).

Timestamps -1 latest, -2 earliest, -3 of the largest timestamp (v7, KIP-734), -4 earliest local
(v8, KIP-405), -5 latest tiered (v9, KIP-1005), -6 earliest not yet tiered (v11, KIP-1023).
v2 isolation level (KIP-98); v4 leader epochs (KIP-320); v5 OFFSET_NOT_AVAILABLE (KIP-207);
v6 flexible; v10 remote lookups wait at most timeout_ms (KIP-1075).
"""

from __future__ import annotations

from ottla.protocol.schema import Request, Response, Struct, field, int8, int16, int32, int64


class ListOffsetsRequest(Request, key=2, versions="1-11", flexible="6+", listeners=("broker",)):
    replica_id: int32
    isolation_level: int8 = field("2+", default=0)
    topics: list[ListOffsetsTopic]
    timeout_ms: int32 = field("10+", default=0, ignorable=True)

    class ListOffsetsTopic(Struct):
        name: str
        partitions: list[ListOffsetsPartition]

        class ListOffsetsPartition(Struct):
            partition_index: int32
            current_leader_epoch: int32 = field("4+", default=-1, ignorable=True)
            timestamp: int64  # negative: a special position


class ListOffsetsResponse(Response, key=2, versions="1-11", flexible="6+"):
    throttle_time_ms: int32 = field("2+", default=0, ignorable=True)
    topics: list[ListOffsetsTopicResponse]

    class ListOffsetsTopicResponse(Struct):
        name: str
        partitions: list[ListOffsetsPartitionResponse]

        class ListOffsetsPartitionResponse(Struct):
            partition_index: int32
            error_code: int16 = 0
            timestamp: int64 = -1
            offset: int64 = -1
            leader_epoch: int32 = field("4+", default=-1)
