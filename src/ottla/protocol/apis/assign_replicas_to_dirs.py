"""A broker reports the log directories of its replicas (KIP-858).

Kafka: AssignReplicasToDirsRequest, AssignReplicasToDirsResponse (key 73).
"""

from __future__ import annotations

from ottla.protocol.schema import Request, Response, Struct, int16, int32, int64
from ottla.types import Uuid


class AssignReplicasToDirsRequest(
    Request, key=73, versions="0", flexible="0+", listeners=("controller",)
):
    broker_id: int32
    broker_epoch: int64 = -1
    directories: list[DirectoryData]

    class DirectoryData(Struct):
        id: Uuid
        topics: list[TopicData]

        class TopicData(Struct):
            topic_id: Uuid
            partitions: list[PartitionData]

            class PartitionData(Struct):
                partition_index: int32


class AssignReplicasToDirsResponse(Response, key=73, versions="0", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    directories: list[DirectoryData]

    class DirectoryData(Struct):
        id: Uuid
        topics: list[TopicData]

        class TopicData(Struct):
            topic_id: Uuid
            partitions: list[PartitionData]

            class PartitionData(Struct):
                partition_index: int32
                error_code: int16 = 0
