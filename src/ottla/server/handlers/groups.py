"""The APIs of classic groups, FindCoordinator and committed offsets.

Kafka: KafkaApis.handleJoinGroupRequest and others; the decisions are in coordinator.group;
KafkaApis.handleOffsetCommitRequest and others; the decisions are in coordinator.group.offsets.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ottla.coordinator.group.context import RequestContext
from ottla.coordinator.group.coordinator import PROTOCOL_NAMED_VERSION
from ottla.coordinator.share.state import ShareKey
from ottla.errors import ErrorCode
from ottla.metadata.features import GROUP_VERSION, STREAMS_VERSION
from ottla.protocol.apis.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from ottla.protocol.apis.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from ottla.protocol.apis.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.apis.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.protocol.apis.leave_group import LeaveGroupRequest, LeaveGroupResponse
from ottla.protocol.apis.list_groups import ListGroupsRequest, ListGroupsResponse
from ottla.protocol.apis.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from ottla.protocol.apis.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from ottla.protocol.apis.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from ottla.protocol.apis.sync_group import SyncGroupRequest, SyncGroupResponse
from ottla.protocol.apis.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from ottla.security.acl import CLUSTER_NAME, Operation, ResourceType
from ottla.server.broker.coordinator_parts import KEY_TYPES, SHARE_KEY
from ottla.server.requests.api import handles
from ottla.server.requests.refusals import refused_without_text, result_maker
from ottla.server.requests.rights import (
    REFUSALS,
    Denied,
    Each,
    InOrder,
    Reduced,
    Right,
    cut,
    split,
    with_group_operations,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ottla.purgatory.pending import Pending
    from ottla.server.broker.coordinator_parts import FoundCoordinator
    from ottla.server.requests.context import Context
    from ottla.server.requests.rights import Decision
    from ottla.types import Node

Coordinator = FindCoordinatorResponse.Coordinator
_GROUP, _TRANSACTION, _SHARE = 0, 1, 2
_RESOURCES: Final = {
    _GROUP: ResourceType.GROUP,
    _TRANSACTION: ResourceType.TRANSACTIONAL_ID,
}
"""By the type of a coordinator's key."""
_HIDDEN: Final = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
HIDDEN_TEXT: Final = (
    "The group has described topic(s) that the client is not authorized to describe."
)
MEMBER: Final = Right(Operation.READ, ResourceType.GROUP, "group_id", has_text=False)
"""The right of members; Kafka's refusals of members have no text."""


@dataclass(frozen=True, slots=True)
class EachDescribed:
    """DESCRIBE on each group of a request, and on every topic that its description names."""

    topics: Callable[[Any], Iterable[str]]
    """(description) → names."""
    topics_text: str
    """Which they are, for the documents."""
    hidden_text: str = HIDDEN_TEXT

    def __call__(self, ctx: Context, request: Any) -> Decision | None:
        """Leave the allowed groups; hide descriptions with other topics."""
        each = Each(
            Operation.DESCRIBE, ResourceType.GROUP, "group_ids", order="first", has_text=False
        )
        return InOrder((each, self._hide))(ctx, request)

    def _hide(self, ctx: Context, request: Any) -> Reduced:
        refuse = result_maker(type(request), "group_ids", ctx.api_version)

        def finish(response: Any) -> Any:
            response.groups = [
                group
                if may_describe(ctx, self.topics(group))
                else refuse(group.group_id, _HIDDEN, self.hidden_text)
                for group in response.groups
            ]
            return response

        return Reduced(request, finish)

    def __str__(self) -> str:
        """Name the right as the documents do."""
        return f"DESCRIBE on each group, and on every topic {self.topics_text}"


def may_describe(ctx: Context, topics: Iterable[str]) -> bool:
    """Whether the client may describe each of these topics."""
    return all(ctx.authorize(Operation.DESCRIBE, ResourceType.TOPIC, name) for name in topics)


def group_context(ctx: Context) -> RequestContext:
    """Return the context of a request as the coordinator needs it."""
    return RequestContext(
        ctx.client_id,
        ctx.client_host,
        ctx.api_version,
        lambda name: ctx.is_allowed(Operation.DESCRIBE, ResourceType.TOPIC, name),
    )


def has_consumer_groups(ctx: Context) -> bool:
    """Whether the cluster has consumer groups (KIP-848), and this broker serves them."""
    return _is_protocol_enabled(ctx, GROUP_VERSION, "consumer")


def has_streams_groups(ctx: Context) -> bool:
    """Whether the cluster has streams groups (KIP-1071), and this broker serves them."""
    return _is_protocol_enabled(ctx, STREAMS_VERSION, "streams")


def _is_protocol_enabled(ctx: Context, feature: str, protocol: str) -> bool:
    """Whether the cluster has the feature of a protocol, and this broker's settings allow it."""
    has_feature = ctx.broker.image.features.level(feature) >= 1
    names = ctx.broker.metadata.config.group_coordinator_rebalance_protocols
    return has_feature and protocol in map(str.lower, names)


def _may_find(ctx: Context, request: FindCoordinatorRequest) -> Decision | None:
    """DESCRIBE on each group or transactional id; for share groups CLUSTER_ACTION."""
    kind = request.key_type
    if kind == _SHARE and ctx.api_version >= 6:  # before that it is refused, whoever asks
        Right(Operation.CLUSTER_ACTION)(ctx, request)
        return None
    resource = _RESOURCES.get(kind)
    if resource is None:
        return None
    if ctx.api_version < 4:
        return Right(Operation.DESCRIBE, resource, "key")(ctx, request)
    return cut(
        ctx,
        request,
        "coordinator_keys",
        lambda key: ctx.authorize(Operation.DESCRIBE, resource, key),
        lambda key: _not_found(key, REFUSALS[resource], ""),
        order="in place",
    )


@handles(
    FindCoordinatorRequest,
    right=_may_find,
    notes={
        1: "transactional ids",
        4: "many keys (KIP-699)",
        6: "share groups (KIP-932)",
    },
)
def find_coordinator(ctx: Context, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    """Name the broker that coordinates each group; v4 many of them (KIP-699), v6 share groups."""
    if ctx.api_version >= 4:
        return FindCoordinatorResponse(
            coordinators=[
                _coordinator(ctx, request.key_type, key) for key in request.coordinator_keys
            ]
        )
    found = _coordinator(ctx, request.key_type, request.key)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=ErrorCode(found.error_code).text,  # "NONE" when it was found
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _coordinator(ctx: Context, key_type: int, key: str) -> Coordinator:
    if key_type not in KEY_TYPES:
        return _not_found(key, ErrorCode.INVALID_REQUEST, None)
    found = ctx.broker.coordinators.of_key_type(key_type)
    if found is None or (key_type == SHARE_KEY and not _is_share_key(key)):
        return _not_found(key, ErrorCode.INVALID_REQUEST, "")
    leader = _coordinator_node(ctx, found, key)
    if leader is None:
        return _not_found(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, "")  # as Kafka from version 4
    return Coordinator(
        key=key, node_id=leader.node_id, host=leader.host, port=leader.port, error_message=""
    )


def _is_share_key(key: str) -> bool:
    try:
        ShareKey.parse(key)
    except ValueError:
        return False
    return True


def _coordinator_node(ctx: Context, found: FoundCoordinator, key: str) -> Node | None:
    """Return the broker that coordinates a key; begin to create the topic if needed."""
    broker = ctx.broker
    topic = broker.image.topics.by_name.get(found.topic)
    if topic is None:
        broker.topic_auto_creation.create([found.topic])
        return None
    partition = topic.partitions.get(found.coordinator.partition_for(key))
    leader = None if partition is None else broker.image.cluster.brokers.get(partition.leader)
    return None if leader is None else leader.node(ctx.listener_name)


def _not_found(key: str, code: ErrorCode, text: str | None) -> Coordinator:
    return Coordinator(
        key=key,
        node_id=-1,
        host="",
        port=-1,
        error_code=int(code),
        error_message=code.text if text is None else text,
    )


@handles(
    JoinGroupRequest,
    right=MEMBER,
    notes={
        4: "a first join only names the member (KIP-394)",
        5: "static members (KIP-345)",
        7: "the protocol type (KIP-559)",
        9: "a static leader may keep the assignment (KIP-814)",
    },
)
def join_group(ctx: Context, request: JoinGroupRequest) -> Pending[JoinGroupResponse]:
    """Join a group or its next generation; answered at the end of the join phase."""
    return ctx.broker.groups.join_group(request, group_context(ctx))


def _may_sync(ctx: Context, request: SyncGroupRequest) -> Decision | None:
    """READ on the group; a request without the protocol of its version is refused before."""
    is_complete = request.protocol_type is not None and request.protocol_name is not None
    if ctx.api_version >= PROTOCOL_NAMED_VERSION and not is_complete:
        code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return Denied(refused_without_text(request, code, ctx.api_version))
    return MEMBER(ctx, request)


@handles(
    SyncGroupRequest,
    right=_may_sync,
    notes={
        3: "static members (KIP-345)",
        5: "protocol type and name are checked (KIP-559)",
    },
)
def sync_group(ctx: Context, request: SyncGroupRequest) -> Pending[SyncGroupResponse]:
    """Submit (leader) or wait for the assignment of this generation."""
    return ctx.broker.groups.sync_group(request, group_context(ctx))


@handles(
    HeartbeatRequest,
    right=MEMBER,
    notes={3: "static members (KIP-345)"},
)
def heartbeat(ctx: Context, request: HeartbeatRequest) -> Pending[HeartbeatResponse]:
    """Keep a member's session alive and report a rebalance."""
    return ctx.broker.groups.heartbeat(request, group_context(ctx))


@handles(
    LeaveGroupRequest,
    right=MEMBER,
    notes={3: "several members (KIP-345)"},
)
def leave_group(ctx: Context, request: LeaveGroupRequest) -> Pending[LeaveGroupResponse]:
    """Remove members."""
    return ctx.broker.groups.leave_group(request, group_context(ctx))


def _may_list(ctx: Context, request: ListGroupsRequest) -> Reduced | None:
    """DESCRIBE on the cluster shows all groups, DESCRIBE on a group this one."""
    if ctx.is_allowed(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        return None

    def finish(response: ListGroupsResponse) -> ListGroupsResponse:
        response.groups = [
            group
            for group in response.groups
            if ctx.is_allowed(Operation.DESCRIBE, ResourceType.GROUP, group.group_id)
        ]
        return response

    return Reduced(request, finish)


@handles(
    ListGroupsRequest,
    right=_may_list,
    notes={
        4: "states",
        5: "types (KIP-848)",
    },
)
def list_groups(ctx: Context, request: ListGroupsRequest) -> Pending[ListGroupsResponse]:
    """List the groups of this coordinator."""
    return ctx.broker.groups.list_groups(request, group_context(ctx))


@handles(
    DescribeGroupsRequest,
    right=Each(Operation.DESCRIBE, ResourceType.GROUP, "groups", order="first", has_text=False),
    notes={
        3: "authorized operations (KIP-430)",
        4: "static members (KIP-345)",
        6: "an error for groups that do not exist",
    },
)
def describe_groups(
    ctx: Context, request: DescribeGroupsRequest
) -> Pending[DescribeGroupsResponse]:
    """Describe states and members."""
    answer = ctx.broker.groups.describe_groups(request, group_context(ctx))
    return with_group_operations(ctx, request, answer)


@handles(DeleteGroupsRequest, right=Each(Operation.DELETE, ResourceType.GROUP, "groups_names"))
def delete_groups(ctx: Context, request: DeleteGroupsRequest) -> Pending[DeleteGroupsResponse]:
    """Delete empty groups with their offsets."""
    return ctx.broker.groups.delete_groups(request, group_context(ctx))


_TOPIC: Final = ResourceType.TOPIC
_READ: Final = Right(Operation.READ, ResourceType.GROUP, "group_id")
_DENIED: Final = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
_Fetched = OffsetFetchResponse.OffsetFetchResponseGroup.OffsetFetchResponseTopics


def _name(ctx: Context, topic: Any) -> str | None:
    """Return the name of a topic that a request names or identifies, None for an unknown id."""
    return topic.name or ctx.broker.topic_name(topic.topic_id)


@handles(
    OffsetCommitRequest,
    right=(_READ, Each(Operation.READ, _TOPIC, "topics", _name, "first")),
    notes={
        6: "leader epochs (KIP-320)",
        7: "static members (KIP-345)",
        9: "consumer groups (KIP-848)",
        10: "topic ids (KIP-516)",
    },
)
def offset_commit(ctx: Context, request: OffsetCommitRequest) -> Pending[OffsetCommitResponse]:
    """Commit a group's offsets."""
    return ctx.broker.groups.offset_commit(request, group_context(ctx))


@handles(
    TxnOffsetCommitRequest,
    right=(
        Right(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "transactional_id"),
        _READ,
        Each(Operation.READ, _TOPIC, "topics", "name", "first"),
    ),
    notes={
        3: "checks the member (KIP-447)",
        5: "adds the group to the transaction (KIP-890)",
    },
)
def txn_offset_commit(
    ctx: Context, request: TxnOffsetCommitRequest
) -> Pending[TxnOffsetCommitResponse]:
    """Commit a group's offsets as part of a transaction."""
    return ctx.broker.groups.txn_offset_commit(request, group_context(ctx))


def _may_fetch(ctx: Context, request: OffsetFetchRequest) -> Decision | None:
    """DESCRIBE on each group and each topic; of all topics the others are left out."""
    if ctx.api_version < 8:
        Right(Operation.DESCRIBE, ResourceType.GROUP, "group_id")(ctx, request)
        if request.topics is not None:
            return Each(Operation.DESCRIBE, _TOPIC, "topics", "name")(ctx, request)
        return Reduced(request, lambda response: _visible(ctx, response))
    each = Each(Operation.DESCRIBE, ResourceType.GROUP, "groups", "group_id", "in place")
    return InOrder((each, _may_fetch_topics))(ctx, request)


def _may_fetch_topics(ctx: Context, request: OffsetFetchRequest) -> Reduced:
    split_groups = [_split_topics(ctx, group) for group in request.groups]  # one may be named twice
    reduced = copy(request)
    reduced.groups = [group for group, _ in split_groups]

    def finish(response: OffsetFetchResponse) -> OffsetFetchResponse:
        for group, (_, denied) in zip(response.groups, split_groups, strict=True):
            if denied is None:
                _visible(ctx, group)
            elif not group.error_code:
                group.topics = [*group.topics, *map(_unfetched, denied)]
        return response

    return Reduced(reduced, finish)


def _visible(ctx: Context, answer: Any) -> Any:
    """Leave topics out of an answer about all of them: that is no denial."""

    def is_visible(topic: Any) -> bool:
        name = _name(ctx, topic)
        return name is None or ctx.is_allowed(Operation.DESCRIBE, _TOPIC, name)

    answer.topics = [topic for topic in answer.topics if is_visible(topic)]
    return answer


def _split_topics(ctx: Context, group: Any) -> tuple[Any, list[Any] | None]:
    """Return a group with its allowed topics, and the others; None when it asks for all."""
    if group.topics is None:
        return group, None

    def is_allowed(topic: Any) -> bool:
        name = _name(ctx, topic)
        return name is None or ctx.authorize(Operation.DESCRIBE, _TOPIC, name)

    reduced = copy(group)
    reduced.topics, denied = split(group.topics, is_allowed)
    return reduced, denied


def _unfetched(topic: Any) -> _Fetched:
    return _Fetched(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            _Fetched.OffsetFetchResponsePartitions(
                partition_index=index, committed_offset=-1, metadata="", error_code=_DENIED
            )
            for index in topic.partition_indexes
        ],
    )


@handles(
    OffsetFetchRequest,
    right=_may_fetch,
    notes={
        2: "all topics; an error of the whole request",
        7: "waits for open transactions (KIP-447)",
        8: "many groups",
        9: "checks members of consumer groups (KIP-848)",
        10: "topic ids (KIP-516)",
    },
)
def offset_fetch(ctx: Context, request: OffsetFetchRequest) -> Pending[OffsetFetchResponse]:
    """Return groups' committed offsets."""
    return ctx.broker.groups.offset_fetch(request, group_context(ctx))


@handles(
    OffsetDeleteRequest,
    right=(
        Right(Operation.DELETE, ResourceType.GROUP, "group_id"),
        Each(Operation.READ, _TOPIC, "topics", "name"),
    ),
)
def offset_delete(ctx: Context, request: OffsetDeleteRequest) -> Pending[OffsetDeleteResponse]:
    """Delete a group's offsets of topics to which no member subscribes."""
    return ctx.broker.groups.offset_delete(request, group_context(ctx))
