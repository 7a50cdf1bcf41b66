"""DescribeLogDirs.

Kafka: KafkaApis.handleDescribeLogDirsRequest, ReplicaManager.describeLogDirs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.errors import ErrorCode
from ottla.protocol.apis.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from ottla.server.requests.api import handles

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.server.requests.context import Context
    from ottla.storage.directories.log_dir import LogDirectory
    from ottla.storage.log.partition_log import PartitionLog

Result = DescribeLogDirsResponse.DescribeLogDirsResult
TopicResult = Result.DescribeLogDirsTopic
PartitionResult = TopicResult.DescribeLogDirsPartition


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
        return Result(
            error_code=int(ErrorCode.KAFKA_STORAGE_ERROR), log_dir=log_dir.path, topics=[]
        )
    logs = ctx.broker.logs
    chosen = [
        log
        for log in logs
        if logs.log_dir_of(log.topic_partition) is log_dir
        and (requested is None or log.topic_partition in requested)
    ]
    return Result(
        log_dir=log_dir.path,
        topics=_by_topic(chosen),
        total_bytes=log_dir.directory.total_space(),
        usable_bytes=log_dir.directory.free_space(),
        is_cordoned=log_dir.path in logs.cordoned,
    )


def _by_topic(logs: Iterable[PartitionLog]) -> list[TopicResult]:
    topics: dict[str, TopicResult] = {}
    for log in logs:
        name, index = log.topic_partition
        topic = topics.setdefault(name, TopicResult(name=name, partitions=[]))
        topic.partitions.append(
            PartitionResult(
                partition_index=index,
                partition_size=log.size_bytes,
                offset_lag=0,
                is_future_key=False,
            )
        )
    return list(topics.values())
