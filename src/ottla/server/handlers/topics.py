"""CreateTopics, DeleteTopics, CreatePartitions, DescribeTopicPartitions and DeleteRecords.

Kafka: ControllerApis.createTopics and others; the decisions are in controller.topics;
kafka.server.handlers.DescribeTopicPartitionsRequestHandler (KIP-966);
KafkaApis.handleDeleteRecordsRequest, ReplicaManager.deleteRecords,
kafka.server.DelayedDeleteRecords.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from ottla.protocol.apis.create_topics import CreateTopicsRequest, CreateTopicsResponse
from ottla.protocol.apis.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from ottla.protocol.apis.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from ottla.protocol.apis.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from ottla.purgatory.pending import Pending
from ottla.security.acl import CLUSTER_NAME, Operation, ResourceType
from ottla.server.broker.topic_auto_creation import INTERNAL_TOPICS
from ottla.server.handlers.metadata import view_of
from ottla.server.requests.api import handles
from ottla.server.requests.rights import ByHandler, Each, Reduced, cut
from ottla.types import ZERO_UUID, is_topic_name

if TYPE_CHECKING:
    from ottla.metadata.partition import PartitionRegistration
    from ottla.replication.leader_state import LeaderState
    from ottla.server.requests.context import Context
    from ottla.server.requests.rights import Decision

    RequestedPartition = DeleteRecordsRequest.DeleteRecordsTopic.DeleteRecordsPartition

_DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


def _may_create(ctx: Context, request: CreateTopicsRequest) -> Decision | None:
    """CREATE on the cluster or on the topic."""
    may_all = ctx.is_allowed(Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME)
    result = CreateTopicsResponse.CreatableTopicResult
    return cut(
        ctx,
        request,
        "topics",
        lambda topic: may_all or ctx.authorize(Operation.CREATE, ResourceType.TOPIC, topic.name),
        lambda topic: result(
            name=topic.name,
            error_code=int(_DENIED),
            error_message="Authorization failed.",
            configs=[],
        ),
    )


def _may_see_settings(ctx: Context, request: CreateTopicsRequest) -> Reduced:
    """DESCRIBE_CONFIGS on the topic to see the resulting settings."""

    def finish(response: CreateTopicsResponse) -> CreateTopicsResponse:
        for topic in response.topics:
            if topic.error_code:
                continue
            if not ctx.is_allowed(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, topic.name):
                topic.topic_config_error_code = int(_DENIED)
                topic.num_partitions = topic.replication_factor = -1
                topic.configs = []
        return response

    return Reduced(request, finish)


@handles(
    CreateTopicsRequest,
    right=(_may_create, _may_see_settings),
    forwarded=True,
    refused_over_quota_from=6,
    notes={
        5: "the resulting settings",
        6: "over the mutation quota refused (KIP-599)",
        7: "topic ids (KIP-516)",
    },
)
def create_topics(ctx: Context, request: CreateTopicsRequest) -> Pending[CreateTopicsResponse]:
    """Create topics; answered when they are committed and have a leader."""
    return ctx.controller.send(request, ctx.requester())


def _may_delete(ctx: Context, request: DeleteTopicsRequest) -> Decision | None:
    """DELETE on the cluster, or DESCRIBE and DELETE on the topic.

    The refusal of a topic given by its id names it only to a client that may describe it.
    """
    if ctx.is_allowed(Operation.DELETE, ResourceType.CLUSTER, CLUSTER_NAME):
        return None

    def may(operation: Operation, name: str) -> bool:
        return ctx.authorize(operation, ResourceType.TOPIC, name)

    def is_allowed(name: str) -> bool:
        return may(Operation.DESCRIBE, name) and may(Operation.DELETE, name)

    def refuse(name: str | None, **topic_id: Any) -> Any:
        code = _DENIED
        is_absent = name is not None and name not in ctx.broker.image.topics.by_name
        if is_absent and ctx.is_allowed(Operation.DESCRIBE, ResourceType.TOPIC, name or ""):
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return DeleteTopicsResponse.DeletableTopicResult(
            name=name, error_code=int(code), error_message=code.text, **topic_id
        )

    if request.topic_names:  # the list of older versions
        return cut(ctx, request, "topic_names", is_allowed, refuse)

    def name_of(topic: Any) -> str | None:
        return topic.name if topic.name is not None else ctx.broker.topic_name(topic.topic_id)

    def is_left(topic: Any) -> bool:
        """Whether the topic may be deleted, is not known, or is refused for having two names."""
        is_invalid = topic.name is not None and bool(topic.topic_id)
        return is_invalid or (name := name_of(topic)) is None or is_allowed(name)

    def refuse_topic(topic: Any) -> Any:
        name = name_of(topic)
        is_hidden = topic.name is None and not may(Operation.DESCRIBE, name or "")
        return refuse(None if is_hidden else name, topic_id=topic.topic_id)

    return cut(ctx, request, "topics", is_left, refuse_topic)


@handles(
    DeleteTopicsRequest,
    right=_may_delete,
    forwarded=True,
    refused_over_quota_from=5,
    notes={
        5: "over the mutation quota refused (KIP-599)",
        6: "topics by id (KIP-516)",
    },
)
def delete_topics(ctx: Context, request: DeleteTopicsRequest) -> Pending[DeleteTopicsResponse]:
    """Delete topics by name; v6 by name or id (KIP-516)."""
    return ctx.controller.send(request, ctx.requester())


@handles(
    CreatePartitionsRequest,
    right=Each(Operation.ALTER, ResourceType.TOPIC, "topics", "name", has_text=False),
    forwarded=True,
    refused_over_quota_from=3,
    notes={3: "over the mutation quota refused (KIP-599)"},
)
def create_partitions(
    ctx: Context, request: CreatePartitionsRequest
) -> Pending[CreatePartitionsResponse]:
    """Add partitions to topics."""
    return ctx.controller.send(request, ctx.requester())


TopicResponse = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic
PartitionResponse = TopicResponse.DescribeTopicPartitionsResponsePartition
Cursor = DescribeTopicPartitionsResponse.Cursor


@handles(DescribeTopicPartitionsRequest, right=ByHandler("DESCRIBE on each topic"))
def describe_topic_partitions(
    ctx: Context, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    """Describe topics by name, up to the partition limit per response."""
    requested = {topic.name for topic in request.topics}
    may_fail = "" in requested and request.cursor is None
    if may_fail and ctx.authorize(Operation.DESCRIBE, ResourceType.TOPIC, ""):
        return _refuse(request, ErrorCode.UNKNOWN_SERVER_ERROR)  # Kafka fails on it
    start_topic, start_partition = "", 0
    if request.cursor is not None:
        start_topic = request.cursor.topic_name
        start_partition = request.cursor.partition_index
        if start_partition < 0 or (requested and start_topic not in requested):
            return _refuse(request, ErrorCode.INVALID_REQUEST)
    limit = min(
        ctx.broker.metadata.config.max_request_partition_size_limit,
        request.response_partition_limit,
    )
    names = requested or {
        name
        for name in ctx.broker.image.topics.by_name
        if ctx.is_allowed(Operation.DESCRIBE, ResourceType.TOPIC, name)
    }
    return _page(
        ctx,
        sorted(name for name in names if name >= start_topic),
        limit=max(limit, 1),
        start=(start_topic, start_partition),
    )


def _refuse(
    request: DescribeTopicPartitionsRequest, code: ErrorCode
) -> DescribeTopicPartitionsResponse:
    """Refuse the request for each of its topics."""
    return DescribeTopicPartitionsResponse(
        topics=[
            TopicResponse(error_code=int(code), name=topic.name, topic_id=ZERO_UUID, partitions=[])
            for topic in request.topics
        ]
    )


def _page(
    ctx: Context, names: list[str], *, limit: int, start: tuple[str, int]
) -> DescribeTopicPartitionsResponse:
    answer = DescribeTopicPartitionsResponse(topics=[])
    left = limit
    for name in names:
        if left == 0:
            answer.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        topic, following = _describe(ctx, name, start[1] if name == start[0] else 0, left)
        answer.topics.append(topic)
        if following is not None:
            answer.next_cursor = Cursor(topic_name=name, partition_index=following)
            break
        left -= len(topic.partitions)
    return answer


def _describe(ctx: Context, name: str, first: int, limit: int) -> tuple[TopicResponse, int | None]:
    """Describe one topic from a partition on; return the next partition if some remain."""
    image = ctx.broker.image.topics.by_name.get(name)
    if not ctx.authorize(Operation.DESCRIBE, ResourceType.TOPIC, name):
        denied = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return TopicResponse(error_code=denied, name=name, topic_id=ZERO_UUID, partitions=[]), None
    if image is None:
        known = is_topic_name(name)
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if known else ErrorCode.INVALID_TOPIC_EXCEPTION
        unknown = TopicResponse(
            error_code=int(code),
            name=name,
            topic_id=ZERO_UUID,
            partitions=[],
            topic_authorized_operations=ctx.operations(ResourceType.TOPIC, name),
        )
        return unknown, None
    indexes = [index for index in sorted(image.partitions) if index >= first]
    topic = TopicResponse(
        name=name,
        topic_id=image.topic_id,
        is_internal=name in INTERNAL_TOPICS,
        partitions=[_partition(ctx, index, image.partitions[index]) for index in indexes[:limit]],
        topic_authorized_operations=ctx.operations(ResourceType.TOPIC, name),
    )
    return topic, indexes[limit] if len(indexes) > limit else None


def _partition(ctx: Context, index: int, partition: PartitionRegistration) -> PartitionResponse:
    view = view_of(ctx.broker.image.cluster.brokers, partition, ctx.listener_name)
    return PartitionResponse(  # without an error code, as in Kafka, even without a leader
        partition_index=index,
        leader_id=view.leader_id,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        eligible_leader_replicas=list(partition.eligible_leader_replicas),
        last_known_elr=list(partition.last_known_elr),
        offline_replicas=view.offline_replicas,
    )


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
        partitions.update((partition.partition_index, partition) for partition in topic.partitions)
    awaited: list[_Awaited] = []
    response = DeleteRecordsResponse(
        topics=[
            TopicResult(
                name=name,
                partitions=[
                    _delete_before(ctx, name, partition, awaited)
                    for partition in partitions.values()
                ],
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
        for awaited in waiting.values():
            awaited.result.error_code = int(ErrorCode.REQUEST_TIMED_OUT)
            awaited.leading.deletions.forget_expired()
        self.answer.complete(self._response)
