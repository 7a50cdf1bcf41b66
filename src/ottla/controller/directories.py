"""Records the log directories that brokers chose for their replicas (KIP-858).

Kafka: ReplicationControlManager.handleAssignReplicasToDirs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.controller.result import ControllerResult
from ottla.errors import ErrorCode
from ottla.metadata.framing import MessageAndVersion
from ottla.protocol.apis.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)
from ottla.protocol.records.metadata import PartitionChangeRecord

if TYPE_CHECKING:
    from ottla.controller.topics import Topics
    from ottla.metadata.partition import PartitionRegistration
    from ottla.types import Uuid

_Directory = AssignReplicasToDirsResponse.DirectoryData


def assign_replicas(
    request: AssignReplicasToDirsRequest, topics: Topics, *, version: int
) -> ControllerResult[AssignReplicasToDirsResponse]:
    """Record the directories of replicas; version is that of PartitionChangeRecord.

    The caller has checked the broker's epoch.
    """
    records: list[MessageAndVersion] = []
    response = AssignReplicasToDirsResponse(error_code=0, directories=[])
    for directory in request.directories:
        answer = _Directory(id=directory.id, topics=[])
        for topic in directory.topics:
            topic_answer = _Directory.TopicData(topic_id=topic.topic_id, partitions=[])
            for partition in topic.partitions:
                number = partition.partition_index
                error, record = _assign(
                    topics, topic.topic_id, number, request.broker_id, directory.id
                )
                if record is not None:
                    records.append(MessageAndVersion(record, version))
                topic_answer.partitions.append(
                    _Directory.TopicData.PartitionData(partition_index=number, error_code=error)
                )
            answer.topics.append(topic_answer)
        response.directories.append(answer)
    return ControllerResult(records, response)


def _assign(
    topics: Topics, topic_id: Uuid, partition_id: int, broker_id: int, directory: Uuid
) -> tuple[ErrorCode, PartitionChangeRecord | None]:
    topic = topics.by_id(topic_id)
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID, None
    partition: PartitionRegistration | None = topic.partitions.get(partition_id)
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None
    if broker_id not in partition.replicas:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER, None
    if partition.directory_of(broker_id) == directory:
        return ErrorCode.NONE, None
    directories = [
        directory if replica == broker_id else old
        for replica, old in zip(partition.replicas, partition.directories, strict=True)
    ]
    record = PartitionChangeRecord(
        topic_id=topic_id, partition_id=partition_id, directories=directories
    )
    return ErrorCode.NONE, record
