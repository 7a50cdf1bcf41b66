"""Rights of APIs about share groups.

A cluster without share groups refuses their members and tools before it looks at rights. The
handlers of ShareFetch and ShareAcknowledge check READ on each topic by its id.

Kafka: kafka.server.KafkaApis.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ottla.coordinator.group.share.describe import undescribed
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.api_keys import ApiKey, response_class
from ottla.protocol.apis.alter_share_group_offsets import AlterShareGroupOffsetsResponse
from ottla.protocol.apis.delete_share_group_offsets import DeleteShareGroupOffsetsResponse
from ottla.protocol.apis.describe_share_group_offsets import DescribeShareGroupOffsetsResponse
from ottla.security.acl import Operation
from ottla.server.handlers.rights.cluster import may
from ottla.server.handlers.rights.groups import HIDDEN_TEXT, may_group, member, without_text
from ottla.server.handlers.rights.topics import may_see_topic, may_topic, reduce, split
from ottla.server.handlers.share.groups import is_enabled, is_member_id
from ottla.server.requests.guards import Denied, guards
from ottla.types import ZERO_UUID

if TYPE_CHECKING:
    from ottla.server.requests.context import Context
    from ottla.server.requests.guards import Finish

_DENIED: Final = ErrorCode.GROUP_AUTHORIZATION_FAILED
_HIDDEN: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED


@guards(ApiKey.SHARE_GROUP_HEARTBEAT, is_enabled=is_enabled)
def share_group_heartbeat(ctx: Context, request: Any) -> Finish | Denied | None:
    """READ on the group; DESCRIBE on every topic, unless the member id is refused anyway."""
    if is_member_id(request.member_id):
        return member(ctx, request)
    return share_member(ctx, request)


@guards(ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE, is_enabled=is_enabled)
def share_member(ctx: Context, request: Any) -> Denied | None:
    """READ on the group, READ on each topic."""
    if request.group_id is not None and not may_group(ctx, Operation.READ, request.group_id):
        return without_text(ctx, _DENIED)
    return None


@guards(ApiKey.SHARE_GROUP_DESCRIBE, is_enabled=is_enabled)
def share_group_describe(ctx: Context, request: Any) -> Finish:
    """DESCRIBE on each group, and on every topic that its members are assigned."""
    add = reduce(
        request.group_ids,
        lambda name: may_group(ctx, Operation.DESCRIBE, name),
        lambda name: undescribed(name, _DENIED),
        "groups",
        refusals="first",
    )

    def finish(response: Any) -> Any:
        response.groups = [
            one if _may_see(ctx, one) else undescribed(one.group_id, _HIDDEN, HIDDEN_TEXT)
            for one in response.groups
        ]
        return response if add is None else add(response)

    return finish


def _may_see(ctx: Context, group: Any) -> bool:
    names = {
        part.topic_name for member in group.members for part in member.assignment.topic_partitions
    }
    return all(may_topic(ctx, Operation.DESCRIBE, name) for name in sorted(names))


@guards(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, is_enabled=is_enabled)
def describe_share_group_offsets(ctx: Context, request: Any) -> Finish | None:
    """DESCRIBE on each group, DESCRIBE on each topic; of all topics the others are left out."""
    group = DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseGroup
    add = reduce(
        request.groups,
        lambda one: may_group(ctx, Operation.DESCRIBE, one.group_id),
        lambda one: group(
            group_id=one.group_id, topics=[], error_code=int(_DENIED), error_message=None
        ),
        "groups",
        refusals="in place",
    )
    denied = [_cut_topics(ctx, one) for one in request.groups]  # a group may be named twice

    def finish(response: Any) -> Any:
        for one, cut in zip(response.groups, denied, strict=True):
            if one.error_code:  # a refused group has no topics
                continue
            one.topics = [topic for topic in one.topics if may_see_topic(ctx, topic.topic_name)]
            one.topics += cut
        return response if add is None else add(response)

    return finish


def _cut_topics(ctx: Context, requested: Any) -> list[Any]:
    """Take the denied topics out of a request; return their results."""
    group = DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseGroup
    topic = group.DescribeShareGroupOffsetsResponseTopic
    partition = topic.DescribeShareGroupOffsetsResponsePartition
    if requested.topics is None:
        return []
    requested.topics, denied = split(
        requested.topics, lambda one: may_topic(ctx, Operation.DESCRIBE, one.topic_name)
    )
    return [
        topic(
            topic_name=one.topic_name,
            topic_id=ZERO_UUID,
            partitions=[
                partition(
                    partition_index=index,
                    start_offset=0,
                    leader_epoch=0,
                    error_code=int(_HIDDEN),
                    error_message=_HIDDEN.text,
                )
                for index in one.partitions
            ],
        )
        for one in denied
    ]


def _unless_refused(add: Finish | None) -> Finish | None:
    """Leave refusals of topics out of a response that refuses the whole request."""
    if add is None:
        return None
    return lambda response: response if response.error_code else add(response)


@guards(ApiKey.ALTER_SHARE_GROUP_OFFSETS, is_enabled=is_enabled)
def alter_share_group_offsets(ctx: Context, request: Any) -> Finish | None:
    """READ on the group, READ on each topic."""
    if not may_group(ctx, Operation.READ, request.group_id):
        raise KafkaError(_DENIED)
    topic = AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponseTopic
    partition = topic.AlterShareGroupOffsetsResponsePartition
    add = reduce(
        request.topics,
        lambda one: may_topic(ctx, Operation.READ, one.topic_name),
        lambda one: topic(
            topic_name=one.topic_name,
            topic_id=ZERO_UUID,
            partitions=[
                partition(
                    partition_index=part.partition_index,
                    error_code=int(_HIDDEN),
                    error_message=_HIDDEN.text,
                )
                for part in one.partitions
            ],
        ),
        "responses",
    )
    return _unless_refused(add)


@guards(ApiKey.DELETE_SHARE_GROUP_OFFSETS, is_enabled=is_enabled)
def delete_share_group_offsets(ctx: Context, request: Any) -> Finish | None:
    """DELETE on the group, READ on each topic."""
    if not may_group(ctx, Operation.DELETE, request.group_id):
        raise KafkaError(_DENIED)
    topic = DeleteShareGroupOffsetsResponse.DeleteShareGroupOffsetsResponseTopic
    add = reduce(
        request.topics,
        lambda one: may_topic(ctx, Operation.READ, one.topic_name),
        lambda one: topic(
            topic_name=one.topic_name,
            topic_id=ZERO_UUID,
            error_code=int(_HIDDEN),
            error_message=_HIDDEN.text,
        ),
        "responses",
    )
    return _unless_refused(add)


@guards(
    ApiKey.INITIALIZE_SHARE_GROUP_STATE,
    ApiKey.READ_SHARE_GROUP_STATE,
    ApiKey.WRITE_SHARE_GROUP_STATE,
    ApiKey.DELETE_SHARE_GROUP_STATE,
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
)
def share_state(ctx: Context, request: Any) -> Denied | None:
    """CLUSTER_ACTION: what brokers send to share coordinators; else each partition is refused."""
    if may(ctx, Operation.CLUSTER_ACTION):
        return None
    response = response_class(ctx.api_key)
    results = _struct_of(response, "results")
    partition = _struct_of(results, "partitions")
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    refused = [
        results(
            topic_id=topic.topic_id,
            partitions=[
                partition(partition=one.partition, error_code=int(code), error_message=code.text)
                for one in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return Denied(response(results=refused))


def _struct_of(message: Any, name: str) -> Any:
    return next(one for one in message.fields if one.name == name).struct
