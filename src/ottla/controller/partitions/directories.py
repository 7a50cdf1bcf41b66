"""Records the log directories that brokers chose for their replicas (KIP-858).

Kafka: ReplicationControlManager.handleAssignReplicasToDirs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.controller.partitions.index import IndexedPartition
from ottla.controller.result import PARTITIONS_PER_SLICE, ControllerResult
from ottla.controller.topics import Located
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)

if TYPE_CHECKING:
    from ottla.controller.cluster import ClusterControl
    from ottla.controller.partitions.leadership import Leadership
    from ottla.controller.result import Slices
    from ottla.controller.topics import Topics
    from ottla.metadata.framing import MessageAndVersion
    from ottla.metadata.partition import PartitionRegistration
    from ottla.types import Uuid

_Directory = AssignReplicasToDirsResponse.DirectoryData


def assign_replicas(
    request: AssignReplicasToDirsRequest,
    topics: Topics,
    leadership: Leadership,
    *,
    cluster: ClusterControl,
) -> Slices[ControllerResult[AssignReplicasToDirsResponse]]:
    """Record the directories of replicas; those in one that is offline lose their leaderships.

    KafkaError STALE_BROKER_EPOCH for another epoch.
    """
    broker = cluster.check_epoch(request.broker_id, request.broker_epoch)
    records: list[MessageAndVersion] = []
    offline: dict[IndexedPartition, None] = {}
    response = AssignReplicasToDirsResponse(error_code=0, directories=[])
    count = 0
    for directory in request.directories:
        answer = _Directory(id=directory.id, topics=[])
        is_online = broker.has_online_directory(directory.id)
        for topic in directory.topics:
            topic_answer = _Directory.TopicData(topic_id=topic.topic_id, partitions=[])
            for requested in topic.partitions:
                count += 1
                if count % PARTITIONS_PER_SLICE == 0:
                    yield records
                    records = []
                number = requested.partition_index
                try:
                    change = _replica_of(broker.broker_id, topic.topic_id, number, topics)
                except KafkaError as error:
                    code = error.code
                else:
                    code = ErrorCode.NONE
                    records += _moved(change, broker.broker_id, directory.id, leadership)
                    if not is_online:
                        offline[IndexedPartition(topic.topic_id, number)] = None
                topic_answer.partitions.append(
                    _Directory.TopicData.PartitionData(partition_index=number, error_code=code)
                )
            answer.topics.append(topic_answer)
        response.directories.append(answer)
    records = yield from leadership.update_slices([*offline], records, removed=broker.broker_id)
    return ControllerResult(records, response, is_atomic=False)


def _replica_of(broker_id: int, topic_id: Uuid, partition_id: int, topics: Topics) -> Located:
    """Return a partition of the broker; KafkaError when it is none."""
    topic = topics.by_id(topic_id)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
    partition: PartitionRegistration | None = topic.partitions.get(partition_id)
    if partition is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if broker_id not in partition.replicas:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    return Located(topic, partition_id, partition)


def _moved(
    located: Located, broker_id: int, directory: Uuid, leadership: Leadership
) -> list[MessageAndVersion]:
    change = leadership.change(*located)
    change.directories[broker_id] = directory
    record = leadership.build(change)
    return [] if record is None else [record]
