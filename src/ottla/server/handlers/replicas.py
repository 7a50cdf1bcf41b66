"""The APIs of leaders and replicas (elections, reassignments, in-sync sets) and log directories.

The controller decides all of them: controller.partitions. AlterPartition and AssignReplicasToDirs
come from brokers, on the controller's listener.

Kafka: ControllerApis.handleAlterPartitionRequest and others;
KafkaApis.{handleDescribeLogDirsRequest, handleAlterReplicaLogDirsRequest},
ReplicaManager.{describeLogDirs, alterReplicaLogDirs}.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from ottla.protocol.apis.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from ottla.protocol.apis.alter_replica_log_dirs import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
)
from ottla.protocol.apis.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)
from ottla.protocol.apis.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from ottla.protocol.apis.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from ottla.protocol.apis.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from ottla.security.acl import Operation
from ottla.server.requests.api import codec_form, handles
from ottla.server.requests.rights import Right
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from ottla.purgatory.pending import Pending
    from ottla.purgatory.work import Work
    from ottla.server.broker.broker import Broker
    from ottla.server.requests.context import Context
    from ottla.storage.directories.log_dir import LogDirectory


@handles(AlterPartitionRequest, right=Right(Operation.CLUSTER_ACTION), throttled=False)
def alter_partition(
    ctx: Context, request: AlterPartitionRequest
) -> Pending[AlterPartitionResponse]:
    """Change the in-sync replicas of partitions that the broker leads (KIP-497)."""
    return ctx.controller.send(request)


@handles(AssignReplicasToDirsRequest, right=Right(Operation.CLUSTER_ACTION))
def assign_replicas_to_dirs(
    ctx: Context, request: AssignReplicasToDirsRequest
) -> Pending[AssignReplicasToDirsResponse]:
    """Record the log directories of the broker's replicas (KIP-858)."""
    return ctx.controller.send(request)


@handles(
    ElectLeadersRequest,
    right=Right(Operation.ALTER),
    forwarded=True,
    form=codec_form(ElectLeadersRequest, errors_in_items="1-2"),
    notes={1: "unclean elections; an error of the whole request (KIP-460)"},
)
def elect_leaders(ctx: Context, request: ElectLeadersRequest) -> Pending[ElectLeadersResponse]:
    """Elect preferred or unclean leaders (KIP-460)."""
    return ctx.controller.send(request, ctx.requester())


@handles(
    AlterPartitionReassignmentsRequest,
    right=Right(Operation.ALTER),
    forwarded=True,
    form=codec_form(AlterPartitionReassignmentsRequest, errors_in_items="0-1"),
)
def alter_partition_reassignments(
    ctx: Context, request: AlterPartitionReassignmentsRequest
) -> Pending[AlterPartitionReassignmentsResponse]:
    """Start or cancel reassignments (KIP-455)."""
    return ctx.controller.send(request, ctx.requester())


@handles(ListPartitionReassignmentsRequest, right=Right(Operation.DESCRIBE), forwarded=True)
def list_partition_reassignments(
    ctx: Context, request: ListPartitionReassignmentsRequest
) -> Pending[ListPartitionReassignmentsResponse]:
    """List the current reassignments (KIP-455)."""
    return ctx.controller.send(request, ctx.requester())


Result = DescribeLogDirsResponse.DescribeLogDirsResult
TopicResult = Result.DescribeLogDirsTopic
PartitionResult = TopicResult.DescribeLogDirsPartition
AlteredTopic = AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult
Altered = AlteredTopic.AlterReplicaLogDirPartitionResult
log = logging.getLogger("ottla.replication")


@handles(DescribeLogDirsRequest, right=Right(Operation.DESCRIBE))
def describe_log_dirs(
    ctx: Context, request: DescribeLogDirsRequest
) -> Pending[DescribeLogDirsResponse]:
    """Report the partitions, their sizes and the disk space of each log directory."""
    return ctx.broker.worker.run(_describe_all(ctx, request))


def _describe_all(ctx: Context, request: DescribeLogDirsRequest) -> Work[DescribeLogDirsResponse]:
    requested = None
    if request.topics is not None:
        requested = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    directories = ctx.broker.logs.directories
    response = DescribeLogDirsResponse(
        results=[_describe(ctx, directory) for directory in directories]
    )
    for log_dir, result in zip(directories, response.results, strict=True):
        if not result.error_code:
            yield from _fill(ctx.broker, log_dir, result, requested)
    return response


def _describe(ctx: Context, log_dir: LogDirectory) -> Result:
    """Describe a directory without its partitions."""
    if not log_dir.is_online:
        return _undescribed(log_dir, ErrorCode.KAFKA_STORAGE_ERROR)
    try:
        total_bytes, usable_bytes = log_dir.directory.total_space(), log_dir.directory.free_space()
    except OSError as error:
        text = "log directory %s is not described: %s; check the disk"
        extra = {"event": "log_dir.not_described", "client": ctx.client}
        log.warning(text, log_dir.path, error, extra=extra)
        return _undescribed(log_dir, ErrorCode.UNKNOWN_SERVER_ERROR)
    return Result(
        log_dir=log_dir.path,
        topics=[],
        total_bytes=total_bytes,
        # What is left of the reserve is not for records: as in a full directory of Kafka, none are
        # accepted, and whoever watches the cluster has to see it.
        usable_bytes=0 if log_dir.is_short_of_space else usable_bytes,
        is_cordoned=log_dir.path in ctx.broker.logs.cordoned,
    )


def _undescribed(log_dir: LogDirectory, code: ErrorCode) -> Result:
    return Result(error_code=int(code), log_dir=log_dir.path, topics=[])


def _fill(
    broker: Broker,
    log_dir: LogDirectory,
    result: Result,
    requested: set[tuple[str, int]] | None,
) -> Work[None]:
    """Add the partitions of a directory; logs may be deleted in between."""
    topics: dict[str, TopicResult] = {}
    for hosted in broker.logs.table.logs_in(log_dir):
        yield
        if requested is not None and hosted.topic_partition not in requested:
            continue
        name, index = hosted.topic_partition
        is_future = hosted.is_future
        topic = topics.get(name)
        if topic is None:
            topic = topics[name] = TopicResult(name=name, partitions=[])
            result.topics.append(topic)
        topic.partitions.append(
            PartitionResult(
                partition_index=index,
                partition_size=hosted.size_bytes,
                offset_lag=broker.moves.lag_of(hosted) if is_future else 0,
                is_future_key=is_future,
            )
        )


def _refused(
    request: AlterReplicaLogDirsRequest, error: KafkaError, _version: int
) -> AlterReplicaLogDirsResponse:
    """Refuse each partition; the response does not name directories."""
    return AlterReplicaLogDirsResponse(
        results=[
            AlteredTopic(
                topic_name=topic.name,
                partitions=[
                    Altered(partition_index=index, error_code=int(error.code))
                    for index in topic.partitions
                ],
            )
            for directory in request.dirs
            for topic in directory.topics
        ]
    )


@handles(
    AlterReplicaLogDirsRequest,
    right=Right(Operation.ALTER),
    form=codec_form(AlterReplicaLogDirsRequest, fail=_refused),
)
def alter_replica_log_dirs(
    ctx: Context, request: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    """Begin to move replicas; the last directory named for a replica counts."""
    requested = {
        TopicPartition(topic.name, index): dir_.path
        for dir_ in request.dirs
        for topic in dir_.topics
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
