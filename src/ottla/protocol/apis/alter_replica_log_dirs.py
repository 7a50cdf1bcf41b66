"""Move replicas between the log directories of a broker (KIP-113).

Kafka: AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse (key 34).

v2 flexible.
"""

from __future__ import annotations

from ottla.protocol.schema import Request, Response, Struct, int16, int32


class AlterReplicaLogDirsRequest(
    Request, key=34, versions="1-2", flexible="2+", listeners=("broker",)
):
    dirs: list[AlterReplicaLogDir]

    class AlterReplicaLogDir(Struct):
        path: str
        topics: list[AlterReplicaLogDirTopic]

        class AlterReplicaLogDirTopic(Struct):
            name: str
            partitions: list[int32]


class AlterReplicaLogDirsResponse(Response, key=34, versions="1-2", flexible="2+"):
    throttle_time_ms: int32 = 0
    results: list[AlterReplicaLogDirTopicResult]

    class AlterReplicaLogDirTopicResult(Struct):
        topic_name: str
        partitions: list[AlterReplicaLogDirPartitionResult]

        class AlterReplicaLogDirPartitionResult(Struct):
            partition_index: int32
            error_code: int16 = 0
