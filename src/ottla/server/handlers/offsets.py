"""ListOffsets and OffsetForLeaderEpoch.

Kafka: KafkaApis.handleListOffsetRequest, handleOffsetForLeaderEpochRequest.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from ottla.protocol.apis.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from ottla.protocol.offset_timestamps import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
)
from ottla.purgatory.pending import Pending
from ottla.security.acl import CLUSTER_NAME, Operation, ResourceType
from ottla.server.requests.api import handles
from ottla.server.requests.rights import Each
from ottla.storage.log.timestamp_reads import largest_timestamps, place_of_timestamp
from ottla.storage.log_set.jobs import run_reads, run_timestamp_reads

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TypeAlias

    from ottla.purgatory.work import Work
    from ottla.replication.partition import Partition
    from ottla.server.remote.reader import RemoteRead, RemoteReader
    from ottla.server.requests.context import Context
    from ottla.server.requests.rights import Decision
    from ottla.storage.log.partition_log import PartitionLog
    from ottla.storage.log.timestamps import TimestampAndOffset

    InTier: TypeAlias = dict[tuple[str, int], Pending[TimestampAndOffset | None]]
    """Results of remote storage by partition."""
    RequestedPartition = ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition

_LOWEST_VERSION_OF = {
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL_TIMESTAMP: 8,
    LATEST_TIERED_TIMESTAMP: 9,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP: 11,
}
_CONSUMER, _DEBUG_REPLICA = -1, -2
TopicResponse = ListOffsetsResponse.ListOffsetsTopicResponse
PartitionResponse = TopicResponse.ListOffsetsPartitionResponse
EpochTopicResult = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult
EpochEndOffset = EpochTopicResult.EpochEndOffset


@handles(
    ListOffsetsRequest,
    right=Each(Operation.DESCRIBE, ResourceType.TOPIC, "topics", "name"),
    notes={
        4: "leader epochs (KIP-320)",
        5: "OFFSET_NOT_AVAILABLE, before that LEADER_NOT_AVAILABLE (KIP-207)",
        7: "the largest timestamp (KIP-734)",
        8: "the earliest local offset",
        9: "the last tiered offset",
        11: "the earliest offset not yet tiered",
    },
)
def list_offsets(ctx: Context, request: ListOffsetsRequest) -> Pending[ListOffsetsResponse]:
    """Find offsets by timestamp or by the special timestamps -1 to -6.

    Remote storage is searched first, as long as the client waits; a worker then reads what a
    search by time needs from the disk.
    """
    reader = ctx.broker.remote_reader
    reads = {} if reader is None else _search_tier(ctx, request, reader)
    if reader is None or not reads:
        return _search_local(ctx, request, {})
    answer: Pending[ListOffsetsResponse] = Pending()
    timed_out = KafkaError(ErrorCode.REQUEST_TIMED_OUT)

    def search_local() -> None:
        in_tier: InTier = {
            key: read.result if read.result.done else Pending.failed(timed_out)
            for key, read in reads.items()
        }
        _search_local(ctx, request, in_tier).pass_to(answer)

    reader.wait_for_searches(list(reads.values()), search_local, request.timeout_ms)
    return answer


def _search_tier(
    ctx: Context, request: ListOffsetsRequest, reader: RemoteReader
) -> dict[tuple[str, int], RemoteRead[TimestampAndOffset | None]]:
    """Begin to search remote storage for partitions of which it alone has records."""
    reads: dict[tuple[str, int], RemoteRead[TimestampAndOffset | None]] = {}
    for topic in request.topics:
        for one in topic.partitions:
            partition = ctx.broker.replicas.find(topic.name, one.partition_index)
            if (
                one.timestamp >= 0
                and partition is not None
                and partition.log.config.is_tiered
                and partition.log.log_start_offset < partition.log.local_log_start_offset
                and _is_asked(partition, request, one)
            ):
                key = topic.name, one.partition_index
                reads[key] = reads.get(key) or reader.search(partition.log, one.timestamp)
    return reads


def _is_asked(
    partition: Partition, request: ListOffsetsRequest, requested: RequestedPartition
) -> bool:
    """Whether this replica answers; if not the error is that of the answer."""
    try:
        _check(partition, request, requested)
    except KafkaError:
        return False
    return True


def _check(
    partition: Partition, request: ListOffsetsRequest, requested: RequestedPartition
) -> None:
    if request.replica_id != _DEBUG_REPLICA:
        partition.check_leader(requested.current_leader_epoch)
    else:
        partition.check_epoch(requested.current_leader_epoch)


def _search_local(
    ctx: Context, request: ListOffsetsRequest, in_tier: InTier
) -> Pending[ListOffsetsResponse]:
    searches = _searches(ctx, request)
    if not searches:
        return _answer(ctx, request, in_tier)
    answer: Pending[ListOffsetsResponse] = Pending()
    _read_ahead(ctx, searches).on_done(lambda _none: _answer(ctx, request, in_tier).pass_to(answer))
    return answer


def _searches(ctx: Context, request: ListOffsetsRequest) -> list[tuple[PartitionLog, int]]:
    """Return the logs that are searched by time, with the timestamps."""
    found = []
    for topic in request.topics:
        for one in topic.partitions:
            if one.timestamp >= 0 or one.timestamp == MAX_TIMESTAMP:
                partition = ctx.broker.replicas.find(topic.name, one.partition_index)
                if partition is not None and partition.log.failure is None:
                    found.append((partition.log, one.timestamp))
    return found


def _read_ahead(ctx: Context, searches: list[tuple[PartitionLog, int]]) -> Pending[None]:
    """Read the largest timestamps of segments in workers, then the positions of the records."""
    pending: Pending[None] = Pending()
    run_on_volume = ctx.broker.run_on_volume
    reads = [read for log, _ in searches if (read := largest_timestamps(log)) is not None]

    def read_places(_none: object) -> None:
        places = [
            (log.directory.volume, place)
            for log, timestamp in searches
            if (place := place_of_timestamp(log, timestamp)) is not None
        ]
        run_reads(places, run_on_volume).pass_to(pending)

    run_timestamp_reads(reads, run_on_volume).on_done(read_places)
    return pending


def _answer(
    ctx: Context, request: ListOffsetsRequest, in_tier: InTier
) -> Pending[ListOffsetsResponse]:
    return ctx.broker.worker.run(_list_all(ctx, request, in_tier))


def _list_all(
    ctx: Context, request: ListOffsetsRequest, in_tier: InTier
) -> Work[ListOffsetsResponse]:
    response = ListOffsetsResponse(topics=[])
    requested: dict[str, list[RequestedPartition]] = {}
    for topic in request.topics:
        requested.setdefault(topic.name, []).extend(topic.partitions)
    for name, partitions in requested.items():
        if partitions:
            answered = TopicResponse(name=name, partitions=[])
            response.topics.append(answered)
            for one in _list_topic(ctx, request, name, partitions, in_tier):
                answered.partitions.append(one)
                yield
    return response


def _list_topic(
    ctx: Context,
    request: ListOffsetsRequest,
    topic: str,
    requested: list[RequestedPartition],
    in_tier: InTier,
) -> Iterator[PartitionResponse]:
    """Answer each partition once; duplicates are refused."""
    times = Counter(one.partition_index for one in requested)
    for index, one in {one.partition_index: one for one in requested}.items():
        if times[index] == 1:
            yield _list_partition(ctx, request, topic, one, in_tier.get((topic, index)))
        else:
            yield _unknown(index, ErrorCode.INVALID_REQUEST)


def _unknown(index: int, code: ErrorCode) -> PartitionResponse:
    return PartitionResponse(partition_index=index, error_code=int(code), timestamp=-1, offset=-1)


def _list_partition(
    ctx: Context,
    request: ListOffsetsRequest,
    topic: str,
    requested: RequestedPartition,
    in_tier: Pending[TimestampAndOffset | None] | None,
) -> PartitionResponse:
    index = requested.partition_index
    try:
        if requested.timestamp < 0 and not _is_special(requested.timestamp, ctx.api_version):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        partition = ctx.broker.replicas.get(topic, index)
        _check(partition, request, requested)
        timestamp, offset, epoch = _find(partition, request, requested.timestamp, in_tier)
    except KafkaError as error:
        if error.code is ErrorCode.OFFSET_NOT_AVAILABLE and ctx.api_version < 5:
            return _unknown(index, ErrorCode.LEADER_NOT_AVAILABLE)
        return _unknown(index, error.code)
    if ctx.api_version < 4:
        epoch = -1  # the field is absent there, and not ignorable
    return PartitionResponse(
        partition_index=index, timestamp=timestamp, offset=offset, leader_epoch=epoch
    )


def _is_special(timestamp: int, version: int) -> bool:
    if timestamp in (LATEST_TIMESTAMP, EARLIEST_TIMESTAMP):
        return True
    return version >= _LOWEST_VERSION_OF.get(timestamp, 0x7FFF)


def _readable_end(partition: Partition, request: ListOffsetsRequest) -> int:
    """Return the end of the readable records: for consumers what is committed, else the log end."""
    log = partition.log
    if request.replica_id != _CONSUMER:
        return log.log_end_offset
    return log.last_stable_offset if request.isolation_level else log.high_watermark


def _check_available(partition: Partition, request: ListOffsetsRequest) -> None:
    """Refuse while a new leader does not know its high watermark yet (KIP-207)."""
    leading = partition.leading
    if (
        request.replica_id == _CONSUMER
        and leading is not None
        and partition.log.high_watermark < leading.epoch_start_offset
    ):
        raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)


def _find(
    partition: Partition,
    request: ListOffsetsRequest,
    timestamp: int,
    in_tier: Pending[TimestampAndOffset | None] | None,
) -> tuple[int, int, int]:
    """Return (timestamp, offset, leader epoch); -1 where there is none.

    OFFSET_NOT_AVAILABLE where only the high watermark of the new leader can tell, the error of
    remote storage, REQUEST_TIMED_OUT without an answer of it.
    """
    log, end = partition.log, _readable_end(partition, request)
    if timestamp == LATEST_TIMESTAMP:
        _check_available(partition, request)
        return -1, end, partition.leader_epoch
    found = None if in_tier is None else in_tier.value
    if found is None:
        found = log.reads.offset_for_timestamp(timestamp)
    is_start = timestamp in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP)
    if found is None or (found.offset >= end and not is_start):
        _check_available(partition, request)
        return -1, -1, -1
    return found.timestamp, found.offset, found.leader_epoch


def _may_find_epochs(ctx: Context, request: OffsetForLeaderEpochRequest) -> Decision | None:
    """CLUSTER_ACTION on the cluster, or DESCRIBE on each topic."""
    if ctx.is_allowed(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME):
        return None
    return Each(Operation.DESCRIBE, ResourceType.TOPIC, "topics", "topic")(ctx, request)


@handles(
    OffsetForLeaderEpochRequest,
    right=_may_find_epochs,
)
def offset_for_leader_epoch(
    ctx: Context, request: OffsetForLeaderEpochRequest
) -> Pending[OffsetForLeaderEpochResponse]:
    """Return the end offset of each leader epoch, for truncation detection (KIP-320)."""
    return ctx.broker.worker.run(_find_ends(ctx, request))


def _find_ends(
    ctx: Context, request: OffsetForLeaderEpochRequest
) -> Work[OffsetForLeaderEpochResponse]:
    response = OffsetForLeaderEpochResponse(topics=[])
    for topic in request.topics:
        answered = EpochTopicResult(topic=topic.topic, partitions=[])
        response.topics.append(answered)
        for requested in topic.partitions:
            answered.partitions.append(_epoch_end(ctx, topic.topic, requested))
            yield
    return response


def _epoch_end(
    ctx: Context,
    topic: str,
    requested: OffsetForLeaderEpochRequest.OffsetForLeaderTopic.OffsetForLeaderPartition,
) -> EpochEndOffset:
    result = EpochEndOffset(partition=requested.partition, leader_epoch=-1, end_offset=-1)
    try:
        partition = ctx.broker.replicas.get(topic, requested.partition)
        partition.check_leader(requested.current_leader_epoch)
        result.end_offset, result.leader_epoch = partition.log.epoch_end_offset(
            requested.leader_epoch
        )
    except KafkaError as error:
        result.error_code = int(error.code)
    return result
