"""Heartbeats and descriptions of consumer, share and streams groups.

Kafka: KafkaApis.{handleShareGroupHeartbeat, handleShareGroupDescribe}; the decisions are in
coordinator.group.share; KafkaApis.{handleConsumerGroupHeartbeat, handleConsumerGroupDescribe}; the
decisions are in coordinator.group.consumer; KafkaApis.{handleStreamsGroupHeartbeat,
handleStreamsGroupDescribe}; the decisions are in coordinator.group.streams.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeGuard

from ottla.coordinator.group.context import RequestContext
from ottla.coordinator.group.streams.configuration import Status
from ottla.coordinator.group.streams.requests import refused
from ottla.errors import ErrorCode
from ottla.metadata.features import SHARE_VERSION
from ottla.protocol.apis.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from ottla.protocol.apis.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from ottla.protocol.apis.share_group_describe import (
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from ottla.protocol.apis.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from ottla.protocol.apis.streams_group_describe import (
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
)
from ottla.protocol.apis.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)
from ottla.purgatory.pending import Pending
from ottla.security.acl import CLUSTER_NAME, Operation, ResourceType
from ottla.server.broker.topic_auto_creation import INTERNAL_TOPICS
from ottla.server.handlers.groups import (
    MEMBER,
    EachDescribed,
    group_context,
    has_consumer_groups,
    has_streams_groups,
    may_describe,
)
from ottla.server.requests.api import handles
from ottla.server.requests.refusals import refused_without_text
from ottla.server.requests.rights import Denied, with_group_operations
from ottla.types import is_topic_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ottla.coordinator.group.streams.configuration import InternalTopic
    from ottla.coordinator.group.streams.heartbeat import HeartbeatResult
    from ottla.server.requests.context import Context

_MAX_MEMBER_ID: Final = 36
_SHOWN_ERRORS: Final = 3


def _context(ctx: Context) -> RequestContext:
    return RequestContext(
        ctx.client_id,
        ctx.client_host,
        ctx.api_version,
        connection_id=ctx.connection.connection_id,
    )


def _refuse_hidden(ctx: Context, request: Any, names: Iterable[str]) -> Denied | None:
    """Refuse a heartbeat that names a topic which the client may not describe."""
    if may_describe(ctx, names):
        return None
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return Denied(refused_without_text(request, code, ctx.api_version))


def _may_subscribe(ctx: Context, request: Any) -> Denied | None:
    """DESCRIBE on every topic to which the member subscribes."""
    return _refuse_hidden(ctx, request, request.subscribed_topic_names or ())


# ---------------------------------------------------------------- consumer groups


def _consumer_topics(group: ConsumerGroupDescribeResponse.DescribedGroup) -> list[str]:
    """Return the topics of members' assignments, those of now and the targets."""
    return sorted(
        {
            topic.topic_name
            for member in group.members
            for assignment in (member.assignment, member.target_assignment)
            for topic in assignment.topic_partitions
        }
    )


@handles(
    ConsumerGroupHeartbeatRequest,
    right=(MEMBER, _may_subscribe),
    is_enabled=has_consumer_groups,
    notes={1: "regular expressions; the client makes the member's id (KIP-1082)"},
)
def consumer_group_heartbeat(
    ctx: Context, request: ConsumerGroupHeartbeatRequest
) -> Pending[ConsumerGroupHeartbeatResponse]:
    """Join, stay in, change or leave a consumer group."""
    return ctx.broker.groups.consumer_group_heartbeat(request, group_context(ctx))


@handles(
    ConsumerGroupDescribeRequest,
    right=EachDescribed(_consumer_topics, "that its members are assigned"),
    is_enabled=has_consumer_groups,
)
def consumer_group_describe(
    ctx: Context, request: ConsumerGroupDescribeRequest
) -> Pending[ConsumerGroupDescribeResponse]:
    """Describe the states, members and assignments of consumer groups."""
    answer = ctx.broker.groups.consumer_group_describe(request, group_context(ctx))
    return with_group_operations(ctx, request, answer)


# ---------------------------------------------------------------- share groups


def is_enabled(ctx: Context) -> bool:
    """Whether the cluster has share groups."""
    return ctx.broker.image.features.level(SHARE_VERSION) >= 1


def is_member_id(text: str | None) -> TypeGuard[str]:
    """Whether a client may have made a text as the id of its member: at most a UUID's length."""
    return text is not None and 0 < len(text) <= _MAX_MEMBER_ID


def _may_subscribe_as_member(ctx: Context, request: ShareGroupHeartbeatRequest) -> Denied | None:
    """DESCRIBE on every topic to which the member subscribes."""
    return _may_subscribe(ctx, request) if is_member_id(request.member_id) else None


def _assigned_topics(group: ShareGroupDescribeResponse.DescribedGroup) -> list[str]:
    return sorted(
        {
            topic.topic_name
            for member in group.members
            for topic in member.assignment.topic_partitions
        }
    )


@handles(
    ShareGroupHeartbeatRequest, right=(MEMBER, _may_subscribe_as_member), is_enabled=is_enabled
)
def share_group_heartbeat(
    ctx: Context, request: ShareGroupHeartbeatRequest
) -> Pending[ShareGroupHeartbeatResponse]:
    """Join, stay in, change or leave a share group."""
    if not is_member_id(request.member_id):
        code = ErrorCode.INVALID_REQUEST
        return Pending.of(refused_without_text(request, code, ctx.api_version))
    return ctx.broker.groups.share.heartbeat(request, _context(ctx))


@handles(
    ShareGroupDescribeRequest,
    right=EachDescribed(_assigned_topics, "that its members are assigned"),
    is_enabled=is_enabled,
)
def share_group_describe(
    ctx: Context, request: ShareGroupDescribeRequest
) -> Pending[ShareGroupDescribeResponse]:
    """Describe the states, members and assignments of share groups."""
    answer = ctx.broker.groups.share.describe(request, _context(ctx))
    return with_group_operations(ctx, request, answer)


# ---------------------------------------------------------------- streams groups


def _topology_topics(topology: Any) -> list[str]:
    """Return the topics of a request's or a description's topology, each once."""
    names: dict[str, None] = {}
    for part in () if topology is None else topology.subtopologies or ():
        names.update(dict.fromkeys(part.source_topics))
        names.update(dict.fromkeys(part.repartition_sink_topics))
        names.update((topic.name, None) for topic in part.repartition_source_topics)
        names.update((topic.name, None) for topic in part.state_changelog_topics)
    return list(names)


def _topics_of_topology(ctx: Context, request: StreamsGroupHeartbeatRequest) -> Denied | None:
    """DESCRIBE on every topic of a valid topology."""
    names = _topology_topics(request.topology)
    return None if _problem_of_names(names) is not None else _refuse_hidden(ctx, request, names)


@handles(
    StreamsGroupHeartbeatRequest,
    right=(MEMBER, _topics_of_topology),
    is_enabled=has_streams_groups,
)
def streams_group_heartbeat(
    ctx: Context, request: StreamsGroupHeartbeatRequest
) -> Pending[StreamsGroupHeartbeatResponse]:
    """Join, stay in, change or leave a streams group; missing internal topics are created."""
    problem = _problem_of_names(_topology_topics(request.topology))
    if problem is not None:
        return Pending.of(refused(ErrorCode.STREAMS_INVALID_TOPOLOGY, problem))
    answer = ctx.broker.groups.streams.heartbeat(request, _context(ctx))
    return answer.then(lambda result: _with_topics(ctx, result))


def _problem_of_names(names: list[str]) -> str | None:
    internal = ",".join(name for name in names if name in INTERNAL_TOPICS)
    if internal:
        return f"Use of Kafka internal topics {internal} in a Kafka Streams topology is prohibited."
    invalid = ",".join(name for name in names if not is_topic_name(name))
    return f"Topic names {invalid} are not valid topic names." if invalid else None


def _with_topics(ctx: Context, result: HeartbeatResult) -> StreamsGroupHeartbeatResponse:
    """Begin to create the missing topics with the member's rights; report errors in the status."""
    response, missing = result
    if not missing:
        return response
    denied = _not_creatable(ctx, missing)
    if denied:
        text = f"Unauthorized to CREATE on topics {', '.join(denied)}."
    else:
        creation = ctx.broker.streams_topic_creation
        ttl_ms = 2 * response.heartbeat_interval_ms
        creation.create(missing, ctx.requester(), ttl_ms)
        text = _creation_errors(creation.errors(missing))
    if text:
        for status in response.status or ():
            if status.status_code == Status.MISSING_INTERNAL_TOPICS:
                status.status_detail += f"; {text}"
    return response


def _not_creatable(ctx: Context, missing: Mapping[str, InternalTopic]) -> list[str]:
    if ctx.is_allowed(Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME):
        return []
    return [
        name for name in missing if not ctx.authorize(Operation.CREATE, ResourceType.TOPIC, name)
    ]


def _creation_errors(errors: Mapping[str, str]) -> str:
    if not errors:
        return ""
    shown = [f"{name} ({text})" for name, text in list(errors.items())[:_SHOWN_ERRORS]]
    more = len(errors) - len(shown)
    suffix = f" and {more} more" if more else ""
    return f"Creation failed: {', '.join(shown)}{suffix}."


@handles(
    StreamsGroupDescribeRequest,
    right=EachDescribed(
        lambda group: _topology_topics(group.topology),
        "of its topology",
        "The described group uses topics that the client is not authorized to describe.",
    ),
    is_enabled=has_streams_groups,
)
def streams_group_describe(
    ctx: Context, request: StreamsGroupDescribeRequest
) -> Pending[StreamsGroupDescribeResponse]:
    """Describe the states, topologies, members and tasks of streams groups."""
    answer = ctx.broker.groups.streams.describe(request)
    return with_group_operations(ctx, request, answer)
