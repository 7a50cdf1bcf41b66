"""Rights of APIs about groups: members, offsets, descriptions.

Kafka: kafka.server.KafkaApis.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ottla.controller.topic_names import is_topic_name
from ottla.coordinator.group.consumer.describe import undescribed
from ottla.coordinator.group.coordinator import PROTOCOL_NAMED_VERSION
from ottla.coordinator.group.streams.describe import undescribed as undescribed_streams
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.api_keys import ApiKey, response_class
from ottla.protocol.apis.delete_groups import DeleteGroupsResponse
from ottla.protocol.apis.describe_groups import DescribeGroupsResponse
from ottla.protocol.apis.find_coordinator import FindCoordinatorResponse
from ottla.protocol.apis.offset_commit import OffsetCommitResponse
from ottla.protocol.apis.offset_delete import OffsetDeleteResponse
from ottla.protocol.apis.offset_fetch import OffsetFetchResponse
from ottla.security.acl import CLUSTER_NAME, Operation, ResourceType
from ottla.server.broker.internal_topics import INTERNAL_TOPICS
from ottla.server.handlers.groups import has_consumer_groups, has_streams_groups
from ottla.server.handlers.rights.cluster import may
from ottla.server.handlers.rights.topics import DENIED as TOPIC_DENIED
from ottla.server.handlers.rights.topics import may_see_topic, may_topic, reduce, split
from ottla.server.requests.guards import Denied, guards

if TYPE_CHECKING:
    from ottla.server.requests.context import Context
    from ottla.server.requests.guards import Finish

_DENIED: Final = ErrorCode.GROUP_AUTHORIZATION_FAILED
_HIDDEN: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
HIDDEN_TEXT: Final = (
    "The group has described topic(s) that the client is not authorized to describe."
)
_HIDDEN_STREAMS_TEXT: Final = (
    "The described group uses topics that the client is not authorized to describe."
)
_GROUPS_FROM: Final = 8
_GROUP_ERROR_FROM: Final = 2
"""OffsetFetch has no error of the whole request before: each partition has it."""
_SHARE_KEYS_FROM: Final = 6
_KEYS_FROM: Final = 4
_NULL_PROTOCOL_FROM: Final = 7
_GROUP, _TRANSACTION, _SHARE = 0, 1, 2


def may_group(ctx: Context, operation: Operation, name: str) -> bool:
    """Whether the client may do this with a group."""
    return ctx.authorize(operation, ResourceType.GROUP, name)


@guards(
    ApiKey.JOIN_GROUP,
    ApiKey.HEARTBEAT,
    ApiKey.LEAVE_GROUP,
)
def member(ctx: Context, request: Any) -> Denied | None:
    """READ on the group; DESCRIBE on every topic that a heartbeat subscribes to."""
    if not may_group(ctx, Operation.READ, request.group_id):
        return without_text(ctx, _DENIED)
    names = getattr(request, "subscribed_topic_names", None) or ()
    if not all(may_topic(ctx, Operation.DESCRIBE, name) for name in names):
        return without_text(ctx, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    return None


@guards(ApiKey.SYNC_GROUP)
def sync_group(ctx: Context, request: Any) -> Finish | Denied | None:
    """READ on the group; a request without the protocol of its version is refused before."""
    is_complete = request.protocol_type is not None and request.protocol_name is not None
    if ctx.api_version >= PROTOCOL_NAMED_VERSION and not is_complete:
        return without_text(ctx, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    return member(ctx, request)


def without_text(ctx: Context, code: ErrorCode) -> Denied:
    """Return a refusal of the whole request with a code but no text, as Kafka's members get it."""
    response: Any = response_class(ctx.api_key)(error_code=int(code))
    if hasattr(response, "error_message"):
        response.error_message = None
    if ctx.api_key == ApiKey.JOIN_GROUP and ctx.api_version >= _NULL_PROTOCOL_FROM:
        response.protocol_name = None
    return Denied(response)


guards(ApiKey.CONSUMER_GROUP_HEARTBEAT, is_enabled=has_consumer_groups)(member)


@guards(ApiKey.STREAMS_GROUP_HEARTBEAT, is_enabled=has_streams_groups)
def streams_member(ctx: Context, request: Any) -> Denied | None:
    """READ on the group; DESCRIBE on every topic of a valid topology."""
    if not may_group(ctx, Operation.READ, request.group_id):
        return without_text(ctx, _DENIED)
    names = topology_topics(request.topology)
    is_valid = all(is_topic_name(name) and name not in INTERNAL_TOPICS for name in names)
    if is_valid and not all(may_topic(ctx, Operation.DESCRIBE, name) for name in names):
        return without_text(ctx, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    return None


def topology_topics(topology: Any) -> list[str]:
    """Return the topics of a request's or a description's topology, each once."""
    names: dict[str, None] = {}
    for one in () if topology is None else topology.subtopologies or ():
        names.update(dict.fromkeys(one.source_topics))
        names.update(dict.fromkeys(one.repartition_sink_topics))
        names.update((topic.name, None) for topic in one.repartition_source_topics)
        names.update((topic.name, None) for topic in one.state_changelog_topics)
    return list(names)


@guards(ApiKey.FIND_COORDINATOR)
def find_coordinator(ctx: Context, request: Any) -> Finish | Denied | None:
    """DESCRIBE on the group or transactional id, CLUSTER_ACTION for share groups."""
    kind = request.key_type
    code = _DENIED
    if kind == _TRANSACTION:
        code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    is_share = kind == _SHARE and ctx.api_version >= _SHARE_KEYS_FROM  # others are refused for that
    if is_share and not may(ctx, Operation.CLUSTER_ACTION):
        return _no_share_coordinators(ctx, request)

    def is_allowed(key: str) -> bool:
        if kind == _GROUP:
            return may_group(ctx, Operation.DESCRIBE, key)
        resource = ResourceType.TRANSACTIONAL_ID
        return kind != _TRANSACTION or ctx.authorize(Operation.DESCRIBE, resource, key)

    if ctx.api_version < _KEYS_FROM:
        if not is_allowed(request.key):
            raise KafkaError(code)
        return None
    return reduce(
        request.coordinator_keys,
        is_allowed,
        lambda key: _no_coordinator(key, code, ""),
        "coordinators",
        refusals="in place",
    )


def _no_share_coordinators(ctx: Context, request: Any) -> Denied:
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    if ctx.api_version < _KEYS_FROM:
        raise KafkaError(code)
    refused = [_no_coordinator(key, code, code.text) for key in request.coordinator_keys]
    return Denied(FindCoordinatorResponse(coordinators=refused))


def _no_coordinator(key: str, code: ErrorCode, text: str) -> FindCoordinatorResponse.Coordinator:
    return FindCoordinatorResponse.Coordinator(
        key=key, node_id=-1, host="", port=-1, error_code=int(code), error_message=text
    )


def _topic_of(ctx: Context, one: Any) -> str | None:
    """Return the name of a topic that a request names or identifies, None for an unknown id."""
    return one.name or ctx.broker.topic_name(one.topic_id)


def _may_read(ctx: Context, one: Any) -> bool:
    name = _topic_of(ctx, one)
    return name is None or may_topic(ctx, Operation.READ, name)


@guards(ApiKey.OFFSET_COMMIT)
def offset_commit(ctx: Context, request: Any) -> Finish | Denied | None:
    """READ on the group, READ on each topic."""
    topic = OffsetCommitResponse.OffsetCommitResponseTopic
    partition = topic.OffsetCommitResponsePartition

    def refused(one: Any, code: int = TOPIC_DENIED) -> Any:
        return topic(
            name=one.name,
            topic_id=one.topic_id,
            partitions=[
                partition(partition_index=part.partition_index, error_code=code)
                for part in one.partitions
            ],
        )

    if not may_group(ctx, Operation.READ, request.group_id):
        topics = [refused(one, int(_DENIED)) for one in request.topics]
        return Denied(OffsetCommitResponse(topics=topics))
    may_read = partial(_may_read, ctx)
    return reduce(request.topics, may_read, refused, "topics", refusals="first")


@guards(ApiKey.OFFSET_FETCH)
def offset_fetch(ctx: Context, request: Any) -> Finish | Denied | None:
    """DESCRIBE on the group, DESCRIBE on each topic; of all topics the others are left out."""
    if ctx.api_version < _GROUPS_FROM:
        if not may_group(ctx, Operation.DESCRIBE, request.group_id):
            if ctx.api_version < _GROUP_ERROR_FROM:
                topics = [_unfetched_by_name(one, int(_DENIED)) for one in request.topics]
                return Denied(OffsetFetchResponse(topics=topics))
            raise KafkaError(_DENIED)
        return _one_group(ctx, request)
    group = OffsetFetchResponse.OffsetFetchResponseGroup
    add = reduce(
        request.groups,
        lambda one: may_group(ctx, Operation.DESCRIBE, one.group_id),
        lambda one: group(group_id=one.group_id, topics=[], error_code=int(_DENIED)),
        "groups",
        refusals="in place",
    )
    refused = [_cut_topics(ctx, one) for one in request.groups]  # a group may be named twice

    def finish(response: Any) -> Any:
        for one, denied in zip(response.groups, refused, strict=True):
            if denied is None:
                one.topics = [topic for topic in one.topics if _may_see_offsets(ctx, topic)]
            elif not one.error_code:
                one.topics = [*one.topics, *map(_unfetched, denied)]
        return response if add is None else add(response)

    return finish


def _cut_topics(ctx: Context, requested: Any) -> list[Any] | None:
    """Take the denied topics out of a request and return them; None when it asks for all."""
    if requested.topics is None:
        return None
    requested.topics, denied = split(requested.topics, lambda topic: _may_describe(ctx, topic))
    return denied


def _may_describe(ctx: Context, one: Any) -> bool:
    name = _topic_of(ctx, one)
    return name is None or may_topic(ctx, Operation.DESCRIBE, name)


def _may_see_offsets(ctx: Context, one: Any) -> bool:
    name = _topic_of(ctx, one)
    return name is None or may_see_topic(ctx, name)


def _unfetched(one: Any) -> Any:
    topic = OffsetFetchResponse.OffsetFetchResponseGroup.OffsetFetchResponseTopics
    return topic(
        name=one.name,
        topic_id=one.topic_id,
        partitions=[
            topic.OffsetFetchResponsePartitions(
                partition_index=index, committed_offset=-1, metadata="", error_code=TOPIC_DENIED
            )
            for index in one.partition_indexes
        ],
    )


def _one_group(ctx: Context, request: Any) -> Finish | None:
    """Reduce a request of the versions with one group."""
    if request.topics is None:

        def leave_out(response: Any) -> Any:
            response.topics = [one for one in response.topics if may_see_topic(ctx, one.name)]
            return response

        return leave_out
    return reduce(
        request.topics,
        lambda one: may_topic(ctx, Operation.DESCRIBE, one.name),
        lambda one: _unfetched_by_name(one, TOPIC_DENIED),
        "topics",
    )


def _unfetched_by_name(one: Any, code: int) -> Any:
    topic = OffsetFetchResponse.OffsetFetchResponseTopic
    return topic(
        name=one.name,
        partitions=[
            topic.OffsetFetchResponsePartition(
                partition_index=index, committed_offset=-1, metadata="", error_code=code
            )
            for index in one.partition_indexes
        ],
    )


@guards(ApiKey.DESCRIBE_GROUPS)
def describe_groups(ctx: Context, request: Any) -> Finish | None:
    """DESCRIBE on each group."""
    return reduce(
        request.groups,
        lambda name: may_group(ctx, Operation.DESCRIBE, name),
        lambda name: DescribeGroupsResponse.DescribedGroup(
            error_code=int(_DENIED),
            group_id=name,
            group_state="",
            protocol_type="",
            protocol_data="",
            members=[],
        ),
        "groups",
        refusals="first",
    )


@guards(ApiKey.CONSUMER_GROUP_DESCRIBE, is_enabled=has_consumer_groups)
def consumer_group_describe(ctx: Context, request: Any) -> Finish:
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


@guards(ApiKey.STREAMS_GROUP_DESCRIBE, is_enabled=has_streams_groups)
def streams_group_describe(ctx: Context, request: Any) -> Finish:
    """DESCRIBE on each group, and on every topic of its topology."""
    add = reduce(
        request.group_ids,
        lambda name: may_group(ctx, Operation.DESCRIBE, name),
        lambda name: undescribed_streams(name, _DENIED),
        "groups",
        refusals="first",
    )

    def finish(response: Any) -> Any:
        response.groups = [
            one
            if all(
                may_topic(ctx, Operation.DESCRIBE, name) for name in topology_topics(one.topology)
            )
            else undescribed_streams(one.group_id, _HIDDEN, _HIDDEN_STREAMS_TEXT)
            for one in response.groups
        ]
        return response if add is None else add(response)

    return finish


def _may_see(ctx: Context, group: Any) -> bool:
    names = {
        part.topic_name
        for member in group.members
        for assignment in (member.assignment, member.target_assignment)
        for part in assignment.topic_partitions
    }
    return all(may_topic(ctx, Operation.DESCRIBE, name) for name in sorted(names))


@guards(ApiKey.LIST_GROUPS)
def list_groups(ctx: Context, _request: Any) -> Finish | None:
    """DESCRIBE on the cluster shows all groups, DESCRIBE on a group this one."""
    if ctx.is_allowed(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        return None

    def finish(response: Any) -> Any:
        response.groups = [
            one
            for one in response.groups
            if ctx.is_allowed(Operation.DESCRIBE, ResourceType.GROUP, one.group_id)
        ]
        return response

    return finish


@guards(ApiKey.DELETE_GROUPS)
def delete_groups(ctx: Context, request: Any) -> Finish | None:
    """DELETE on each group."""
    result = DeleteGroupsResponse.DeletableGroupResult
    return reduce(
        request.groups_names,
        lambda name: may_group(ctx, Operation.DELETE, name),
        lambda name: result(group_id=name, error_code=int(_DENIED)),
        "results",
    )


@guards(ApiKey.OFFSET_DELETE)
def offset_delete(ctx: Context, request: Any) -> Finish | None:
    """DELETE on the group, READ on each topic."""
    if not may_group(ctx, Operation.DELETE, request.group_id):
        raise KafkaError(_DENIED)
    topic = OffsetDeleteResponse.OffsetDeleteResponseTopic
    partition = topic.OffsetDeleteResponsePartition
    return reduce(
        request.topics,
        lambda one: may_topic(ctx, Operation.READ, one.name),
        lambda one: topic(
            name=one.name,
            partitions=[
                partition(partition_index=part.partition_index, error_code=TOPIC_DENIED)
                for part in one.partitions
            ],
        ),
        "topics",
    )
