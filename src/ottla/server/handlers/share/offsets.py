"""The APIs of share group offsets, and of the share coordinator between brokers.

Kafka: KafkaApis.{handleDescribeShareGroupOffsetsRequest, handleAlterShareGroupOffsetsRequest,
handleDeleteShareGroupOffsetsRequest}; the decisions are in coordinator.group.share.offset_requests;
org.apache.kafka.server.util.PartitionMetadataClient, NetworkPartitionMetadataClient;
KafkaApis.{handleInitializeShareGroupStateRequest, handleReadShareGroupStateRequest,
handleWriteShareGroupStateRequest, handleDeleteShareGroupStateRequest,
handleReadShareGroupStateSummaryRequest}.
"""

from __future__ import annotations

from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ottla.coordinator.runtime.log import full_error_text, operation_error
from ottla.coordinator.runtime.shard import gather
from ottla.errors import ErrorCode
from ottla.protocol.apis.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
)
from ottla.protocol.apis.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
)
from ottla.protocol.apis.delete_share_group_state import DeleteShareGroupStateRequest
from ottla.protocol.apis.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
)
from ottla.protocol.apis.initialize_share_group_state import InitializeShareGroupStateRequest
from ottla.protocol.apis.list_offsets import ListOffsetsRequest
from ottla.protocol.apis.read_share_group_state import ReadShareGroupStateRequest
from ottla.protocol.apis.read_share_group_state_summary import ReadShareGroupStateSummaryRequest
from ottla.protocol.apis.write_share_group_state import WriteShareGroupStateRequest
from ottla.purgatory.pending import Pending, Steps
from ottla.security.acl import Operation, ResourceType
from ottla.server.handlers.modern_groups import is_enabled
from ottla.server.requests.api import handles
from ottla.server.requests.rights import Each, Reduced, Right, split, text_of
from ottla.types import ZERO_UUID, TopicPartition, Uuid

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ottla.server.broker.broker import Broker
    from ottla.server.requests.context import Context
    from ottla.server.requests.rights import Check, Decision

Group = DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseGroup
Topic = Group.DescribeShareGroupOffsetsResponseTopic
Partition = Topic.DescribeShareGroupOffsetsResponsePartition
_UNKNOWN: Final = -1


def _may_describe_topics(ctx: Context, request: DescribeShareGroupOffsetsRequest) -> Reduced:
    """DESCRIBE on each topic; of all topics the others are left out."""
    split_groups = [_split_topics(ctx, group) for group in request.groups]  # one may be named twice
    reduced = copy(request)
    reduced.groups = [group for group, _ in split_groups]

    def finish(response: DescribeShareGroupOffsetsResponse) -> DescribeShareGroupOffsetsResponse:
        for group, (_, denied) in zip(response.groups, split_groups, strict=True):
            if group.error_code:  # a refused group has no topics
                continue
            group.topics = [
                topic
                for topic in group.topics
                if ctx.is_allowed(Operation.DESCRIBE, ResourceType.TOPIC, topic.topic_name)
            ]
            group.topics += denied
        return response

    return Reduced(reduced, finish)


def _split_topics(ctx: Context, group: Any) -> tuple[Any, list[Topic]]:
    """Return a group with its allowed topics, and the results of the others."""
    if group.topics is None:
        return group, []
    reduced = copy(group)
    reduced.topics, denied = split(
        group.topics,
        lambda topic: ctx.authorize(Operation.DESCRIBE, ResourceType.TOPIC, topic.topic_name),
    )
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return reduced, [
        Topic(
            topic_name=topic.topic_name,
            topic_id=ZERO_UUID,
            partitions=[
                Partition(
                    partition_index=index,
                    start_offset=0,
                    leader_epoch=0,
                    error_code=int(code),
                    error_message=code.text,
                )
                for index in topic.partitions
            ],
        )
        for topic in denied
    ]


def _unless_refused(right: Check) -> Check:
    """Leave refusals of topics out of a response that refuses the whole request."""

    def check(ctx: Context, request: Any) -> Decision | None:
        decision = right(ctx, request)
        if not isinstance(decision, Reduced):
            return decision
        finish = decision.finish
        return Reduced(
            decision.request,
            lambda response: response if response.error_code else finish(response),
        )

    check.__doc__ = text_of(right)
    return check


_READ_TOPICS: Final = _unless_refused(
    Each(Operation.READ, ResourceType.TOPIC, "topics", "topic_name")
)


@handles(
    DescribeShareGroupOffsetsRequest,
    right=(
        Each(
            Operation.DESCRIBE, ResourceType.GROUP, "groups", "group_id", "in place", has_text=False
        ),
        _may_describe_topics,
    ),
    is_enabled=is_enabled,
)
def describe_share_group_offsets(
    ctx: Context, request: DescribeShareGroupOffsetsRequest
) -> Pending[DescribeShareGroupOffsetsResponse]:
    """Return where the deliveries of share groups begin, and their lag."""
    return gather(
        [_describe(ctx, group) for group in request.groups],
        lambda parts: DescribeShareGroupOffsetsResponse(groups=[part.value for part in parts]),
    )


def _refused(group_id: str, code: ErrorCode, text: str | None) -> Group:
    return Group(group_id=group_id, topics=[], error_code=int(code), error_message=text)


def _describe(ctx: Context, requested: Any) -> Pending[Group]:
    """Describe one group: the topics of the request, or all that have a state."""
    answer: Pending[Group] = Pending()
    group_id: str = requested.group_id
    unknown: list[Topic] = []

    def known(done: Pending[dict[Uuid, list[int]]]) -> None:
        if done.error is not None:
            code, text = operation_error(done.error), full_error_text(done.error)
            answer.complete(_refused(group_id, code, text))
            return
        partitions = {key: one for key, one in done.value.items() if ctx.broker.topic_name(key)}
        if not partitions:
            answer.complete(Group(group_id=group_id, topics=unknown))
            return
        ctx.broker.groups.share_offsets.summaries(group_id, partitions).on_done(
            lambda states: _with_lags(ctx, answer, group_id, unknown, states.value)
        )

    if requested.topics is None:
        ctx.broker.groups.share_offsets.initialized(group_id).on_done(known)
        return answer
    found: dict[Uuid, list[int]] = {}
    for topic in requested.topics:
        topic_id = ctx.broker.metadata.topic_id(topic.topic_name)
        if topic_id is None:
            unknown.append(
                Topic(
                    topic_name=topic.topic_name,
                    topic_id=ZERO_UUID,
                    partitions=[
                        Partition(partition_index=index, start_offset=_UNKNOWN, leader_epoch=0)
                        for index in topic.partitions
                    ],
                )
            )
        else:
            found[topic_id] = list(topic.partitions)
    known(Pending.of(found))
    return answer


def _with_lags(
    ctx: Context, answer: Pending[Group], group_id: str, topics: list[Topic], states: Any
) -> None:
    """Complete the description with the lag of each share partition that has begun."""
    names = {
        topic.topic_id: ctx.broker.topic_name(topic.topic_id) or "" for topic in states.results
    }
    begun = [
        TopicPartition(names[topic.topic_id], partition.partition)
        for topic in states.results
        for partition in topic.partitions
        if _has_lag(partition)
    ]

    def finish(ends: Mapping[TopicPartition, int | ErrorCode]) -> None:
        topics.extend(
            Topic(
                topic_name=names[topic.topic_id],
                topic_id=topic.topic_id,
                partitions=[
                    _partition(
                        partition,
                        ends.get(TopicPartition(names[topic.topic_id], partition.partition)),
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in states.results
        )
        answer.complete(Group(group_id=group_id, topics=topics))

    latest_offsets(ctx.broker, begun).on_done(lambda done: finish(done.value))


def _has_lag(one: Any) -> bool:
    is_known = _UNKNOWN not in (one.start_offset, one.delivery_complete_count)
    return not one.error_code and is_known


def _partition(one: Any, end: int | ErrorCode | None) -> Partition:
    if one.error_code:
        return Partition(
            partition_index=one.partition,
            start_offset=_UNKNOWN,
            leader_epoch=0,
            error_code=one.error_code,
            error_message=one.error_message,
        )
    if isinstance(end, ErrorCode):
        return Partition(
            partition_index=one.partition,
            start_offset=0,
            leader_epoch=0,
            error_code=int(end),
            error_message=end.text,
        )
    lag = _UNKNOWN if end is None else end - one.start_offset - one.delivery_complete_count
    return Partition(
        partition_index=one.partition,
        start_offset=one.start_offset,
        leader_epoch=one.leader_epoch,
        lag=lag,
    )


@handles(
    AlterShareGroupOffsetsRequest,
    right=(Right(Operation.READ, ResourceType.GROUP, "group_id"), _READ_TOPICS),
    is_enabled=is_enabled,
    disabled_has_text=True,
)
def alter_share_group_offsets(
    ctx: Context, request: AlterShareGroupOffsetsRequest
) -> Pending[AlterShareGroupOffsetsResponse]:
    """Set where the deliveries of a group without members begin."""
    return ctx.broker.groups.share_offsets.alter(request)


@handles(
    DeleteShareGroupOffsetsRequest,
    right=(Right(Operation.DELETE, ResourceType.GROUP, "group_id"), _READ_TOPICS),
    is_enabled=is_enabled,
    disabled_has_text=True,
)
def delete_share_group_offsets(
    ctx: Context, request: DeleteShareGroupOffsetsRequest
) -> Pending[DeleteShareGroupOffsetsResponse]:
    """Delete a group's offsets of topics, while it has no members."""
    return ctx.broker.groups.share_offsets.delete(request)


_LATEST: Final = -1
_CLIENT: Final = -1
_NO_LEADER: Final = -1
_Topic: Final = ListOffsetsRequest.ListOffsetsTopic


def latest_offsets(
    broker: Broker, partitions: Iterable[TopicPartition]
) -> Pending[dict[TopicPartition, int | ErrorCode]]:
    """Return the high watermark of each partition, or why it is not known."""
    found: dict[TopicPartition, int | ErrorCode] = {}
    by_leader: dict[int, list[TopicPartition]] = {}
    for partition in partitions:
        replica = broker.replicas.find(*partition)
        if replica is not None and replica.is_leader:
            found[partition] = replica.log.high_watermark
            continue
        leader = broker.channel.leader_of(partition)
        if leader is None:
            found[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif leader in (_NO_LEADER, broker.node_id):
            found[partition] = ErrorCode.LEADER_NOT_AVAILABLE
        else:
            by_leader.setdefault(leader, []).append(partition)
    steps = Steps(lambda: found)
    for leader, led in by_leader.items():
        found.update(dict.fromkeys(led, ErrorCode.UNKNOWN_SERVER_ERROR))  # until it answers
        steps.add(broker.channel.send(leader, _request(led)).then(partial(_take, found)))
    return steps.begin()


def _request(partitions: list[TopicPartition]) -> ListOffsetsRequest:
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    return ListOffsetsRequest(
        replica_id=_CLIENT,
        topics=[
            _Topic(
                name=name,
                partitions=[
                    _Topic.ListOffsetsPartition(partition_index=index, timestamp=_LATEST)
                    for index in indexes
                ],
            )
            for name, indexes in topics.items()
        ],
    )


def _take(found: dict[TopicPartition, int | ErrorCode], response: Any) -> None:
    """Take the offsets out of one leader's response."""
    for topic in response.topics:
        for partition in topic.partitions:
            name = TopicPartition(topic.name, partition.partition_index)
            found[name] = ErrorCode(partition.error_code) or partition.offset


@handles(InitializeShareGroupStateRequest, right=Right(Operation.CLUSTER_ACTION))
def initialize_share_group_state(
    ctx: Context, request: InitializeShareGroupStateRequest
) -> Pending[Any]:
    """Begin the states of share partitions."""
    return ctx.broker.share.coordinator.initialize(request)


@handles(ReadShareGroupStateRequest, right=Right(Operation.CLUSTER_ACTION))
def read_share_group_state(ctx: Context, request: ReadShareGroupStateRequest) -> Pending[Any]:
    """Return states to the leaders of partitions."""
    return ctx.broker.share.coordinator.read(request)


@handles(WriteShareGroupStateRequest, right=Right(Operation.CLUSTER_ACTION))
def write_share_group_state(ctx: Context, request: WriteShareGroupStateRequest) -> Pending[Any]:
    """Apply changes of the leaders of partitions."""
    return ctx.broker.share.coordinator.write(request)


@handles(DeleteShareGroupStateRequest, right=Right(Operation.CLUSTER_ACTION))
def delete_share_group_state(ctx: Context, request: DeleteShareGroupStateRequest) -> Pending[Any]:
    """Forget the states of share partitions."""
    return ctx.broker.share.coordinator.delete(request)


@handles(ReadShareGroupStateSummaryRequest, right=Right(Operation.CLUSTER_ACTION))
def read_share_group_state_summary(
    ctx: Context, request: ReadShareGroupStateSummaryRequest
) -> Pending[Any]:
    """Return start offsets and counts of completed deliveries."""
    return ctx.broker.share.coordinator.read_summary(request)
