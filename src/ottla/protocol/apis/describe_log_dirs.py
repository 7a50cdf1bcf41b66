"""Contents of a broker's log directories (KIP-113).

Kafka: DescribeLogDirsRequest, DescribeLogDirsResponse (key 35).

v2 flexible; v3 top-level error code; v4 size of the volume (KIP-827); v5 whether the directory
is cordoned (KIP-1066).
"""

from __future__ import annotations

from ottla.protocol.schema import Request, Response, Struct, field, int16, int32, int64


class DescribeLogDirsRequest(Request, key=35, versions="1-5", flexible="2+", listeners=("broker",)):
    topics: list[DescribableLogDirTopic] | None

    class DescribableLogDirTopic(Struct):
        topic: str
        partitions: list[int32]


class DescribeLogDirsResponse(Response, key=35, versions="1-5", flexible="2+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = field("3+", default=0, ignorable=True)
    results: list[DescribeLogDirsResult]

    class DescribeLogDirsResult(Struct):
        error_code: int16 = 0
        log_dir: str
        topics: list[DescribeLogDirsTopic]
        total_bytes: int64 = field("4+", default=-1, ignorable=True)
        usable_bytes: int64 = field("4+", default=-1, ignorable=True)
        is_cordoned: bool = field("5+", default=False, ignorable=True)  # KIP-1066

        class DescribeLogDirsTopic(Struct):
            name: str
            partitions: list[DescribeLogDirsPartition]

            class DescribeLogDirsPartition(Struct):
                partition_index: int32
                partition_size: int64
                offset_lag: int64
                is_future_key: bool
