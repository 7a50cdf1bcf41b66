"""DeleteRecords: move log start offsets; answered when no live replica has the records (KIP-107).

Followers apply the new start from the response to a fetch, and report it with the next one.

Kafka: KafkaApis.handleDeleteRecordsRequest, ReplicaManager.deleteRecords,
kafka.server.DelayedDeleteRecords.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from ottla.purgatory.pending import Pending
from ottla.security.acl import Operation, ResourceType
from ottla.server.broker.topic_auto_creation import INTERNAL_TOPICS
from ottla.server.requests.api import handles
from ottla.server.requests.rights import Each

if TYPE_CHECKING:
    from ottla.replication.leader_state import LeaderState
    from ottla.server.requests.context import Context

    RequestedPartition = DeleteRecordsRequest.DeleteRecordsTopic.DeleteRecordsPartition

TopicResult = DeleteRecordsResponse.DeleteRecordsTopicResult
PartitionResult = TopicResult.DeleteRecordsPartitionResult
HIGH_WATERMARK = -1
_UNKNOWN = -1


class _Awaited(NamedTuple):
    """A partition whose followers still have deleted records."""

    result: PartitionResult
    leading: LeaderState
    offset: int


@handles(DeleteRecordsRequest, right=Each(Operation.DELETE, ResourceType.TOPIC, "topics", "name"))
def delete_records(
    ctx: Context, request: DeleteRecordsRequest
) -> DeleteRecordsResponse | Pending[DeleteRecordsResponse]:
    """Move log start offsets up; -1 means the high watermark.

    The last entry of a partition counts.
    """
    requested: dict[str, dict[int, RequestedPartition]] = {}
    for topic in request.topics:
        partitions = requested.setdefault(topic.name, {})
        partitions.update((one.partition_index, one) for one in topic.partitions)
    awaited: list[_Awaited] = []
    response = DeleteRecordsResponse(
        topics=[
            TopicResult(
                name=name,
                partitions=[_delete_before(ctx, name, one, awaited) for one in partitions.values()],
            )
            for name, partitions in requested.items()
            if partitions
        ]
    )
    return _when_replicated(ctx, request.timeout_ms, response, awaited) if awaited else response


def _delete_before(
    ctx: Context, topic: str, requested: RequestedPartition, awaited: list[_Awaited]
) -> PartitionResult:
    result = PartitionResult(partition_index=requested.partition_index, low_watermark=_UNKNOWN)
    try:
        if topic in INTERNAL_TOPICS and ctx.broker.has_partition(topic, requested.partition_index):
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
        partition = ctx.broker.replicas.get(topic, requested.partition_index)
        partition.check_leader()
        log = partition.log
        if log.config.is_compacted and not log.config.deletes_by_retention:
            raise KafkaError(ErrorCode.POLICY_VIOLATION)
        offset = log.high_watermark if requested.offset == HIGH_WATERMARK else requested.offset
        log.truncation.delete_records_before(offset)
        leading = partition.leading
        result.low_watermark = log.log_start_offset if leading is None else leading.low_watermark
        if leading is not None and result.low_watermark < offset:
            awaited.append(_Awaited(result, leading, offset))
    except KafkaError as error:
        result.error_code = int(error.code)
    return result


def _when_replicated(
    ctx: Context, timeout_ms: int, response: DeleteRecordsResponse, awaited: list[_Awaited]
) -> Pending[DeleteRecordsResponse]:
    """Answer when all followers have deleted the records, or after the timeout."""
    waits = DeletionWaits(response, awaited, ctx.broker.clock.monotonic_ms() + timeout_ms)
    for position, one in enumerate(awaited):
        one.leading.deletions.add(one.offset, waits, position)
    ctx.broker.expiries.add(timeout_ms, waits)
    return waits.answer


class DeletionWaits:
    """The low watermarks that one request waits for, until its timeout."""

    __slots__ = ("_open", "_response", "answer", "deadline_ms", "is_over")

    def __init__(
        self, response: DeleteRecordsResponse, awaited: list[_Awaited], deadline_ms: int
    ) -> None:
        self._response = response
        self._open = dict(enumerate(awaited))
        self.answer: Pending[DeleteRecordsResponse] = Pending()
        self.deadline_ms = deadline_ms
        self.is_over = False

    def acknowledged(self, position: int, code: ErrorCode) -> None:
        """Set the result of one partition: all replicas have deleted, or another broker leads."""
        one = self._open.pop(position, None)
        if one is None:
            return
        one.result.error_code = int(code)
        one.result.low_watermark = _UNKNOWN if code else one.leading.low_watermark
        if not self._open:
            self.is_over = True
            self.answer.complete(self._response)

    def expire(self) -> None:
        """Answer REQUEST_TIMED_OUT, with the current low watermark, for late followers."""
        waiting, self._open = self._open, {}
        self.is_over = True
        for one in waiting.values():
            one.result.error_code = int(ErrorCode.REQUEST_TIMED_OUT)
            one.leading.deletions.forget_expired()
        self.answer.complete(self._response)
