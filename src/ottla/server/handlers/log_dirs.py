"""DescribeLogDirs, AlterReplicaLogDirs.

Kafka: KafkaApis.{handleDescribeLogDirsRequest, handleAlterReplicaLogDirsRequest},
ReplicaManager.{describeLogDirs, alterReplicaLogDirs}.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.alter_replica_log_dirs import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
)
from ottla.protocol.apis.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from ottla.server.requests.api import handles
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.server.broker.broker import Broker
    from ottla.server.requests.context import Context
    from ottla.storage.directories.log_dir import LogDirectory
    from ottla.storage.log.partition_log import PartitionLog

Result = DescribeLogDirsResponse.DescribeLogDirsResult
TopicResult = Result.DescribeLogDirsTopic
PartitionResult = TopicResult.DescribeLogDirsPartition
AlteredTopic = AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult
Altered = AlteredTopic.AlterReplicaLogDirPartitionResult
log = logging.getLogger("ottla.replication")


@handles(DescribeLogDirsRequest)
def describe_log_dirs(ctx: Context, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    """Report the partitions, their sizes and the disk space of each log directory."""
    requested = None
    if request.topics is not None:
        requested = {(one.topic, index) for one in request.topics for index in one.partitions}
    return DescribeLogDirsResponse(
        results=[_describe(ctx, log_dir, requested) for log_dir in ctx.broker.logs.directories]
    )


def _describe(
    ctx: Context, log_dir: LogDirectory, requested: set[tuple[str, int]] | None
) -> Result:
    if not log_dir.is_online:
        return _undescribed(log_dir, ErrorCode.KAFKA_STORAGE_ERROR)
    try:
        total_bytes, usable_bytes = log_dir.directory.total_space(), log_dir.directory.free_space()
    except OSError as error:
        text = "log directory %s is not described: %s; check the disk"
        extra = {"event": "log_dir.not_described", "client": ctx.client}
        log.warning(text, log_dir.path, error, extra=extra)
        return _undescribed(log_dir, ErrorCode.UNKNOWN_SERVER_ERROR)
    logs = ctx.broker.logs
    chosen = [
        one
        for one in logs.table.logs_in(log_dir)
        if requested is None or one.topic_partition in requested
    ]
    return Result(
        log_dir=log_dir.path,
        topics=_by_topic(ctx.broker, chosen),
        total_bytes=total_bytes,
        usable_bytes=usable_bytes,
        is_cordoned=log_dir.path in logs.cordoned,
    )


def _undescribed(log_dir: LogDirectory, code: ErrorCode) -> Result:
    return Result(error_code=int(code), log_dir=log_dir.path, topics=[])


def _by_topic(broker: Broker, logs: Iterable[PartitionLog]) -> list[TopicResult]:
    topics: dict[str, TopicResult] = {}
    for one in logs:
        name, index = one.topic_partition
        is_future = one.is_future
        topic = topics.setdefault(name, TopicResult(name=name, partitions=[]))
        topic.partitions.append(
            PartitionResult(
                partition_index=index,
                partition_size=one.size_bytes,
                offset_lag=broker.moves.lag_of(one) if is_future else 0,
                is_future_key=is_future,
            )
        )
    return list(topics.values())


@handles(AlterReplicaLogDirsRequest)
def alter_replica_log_dirs(
    ctx: Context, request: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    """Begin to move replicas; the last directory named for a replica counts."""
    requested = {
        TopicPartition(topic.name, index): one.path
        for one in request.dirs
        for topic in one.topics
        for index in topic.partitions
    }
    topics: dict[str, AlteredTopic] = {}
    for partition, path in requested.items():
        name, index = partition
        topic = topics.setdefault(name, AlteredTopic(topic_name=name, partitions=[]))
        code = _alter(ctx.broker, partition, path)
        topic.partitions.append(Altered(partition_index=index, error_code=int(code)))
    return AlterReplicaLogDirsResponse(results=list(topics.values()))


def _alter(broker: Broker, partition: TopicPartition, path: str) -> ErrorCode:
    try:
        broker.moves.request(partition, path)
    except KafkaError as error:
        text = "replica %s is not moved to log directory %s: %s"
        extra = {"event": "replica.not_moved", "partition": str(partition)}
        log.info(text, partition, path, error, extra=extra)
        return error.code
    return ErrorCode.NONE
