"""The APIs of classic groups and FindCoordinator.

Kafka: KafkaApis.handleJoinGroupRequest and others; the decisions are in
coordinator.group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.coordinator.group.context import RequestContext
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
from ottla.security.acl import Operation, ResourceType
from ottla.server.broker.coordinators import KEY_TYPES, SHARE_KEY
from ottla.server.requests.api import handles
from ottla.server.requests.operations import with_group_operations

if TYPE_CHECKING:
    from ottla.purgatory.pending import Pending
    from ottla.server.broker.coordinators import FoundCoordinator
    from ottla.server.requests.context import Context
    from ottla.types import Node

Coordinator = FindCoordinatorResponse.Coordinator
_MANY_KEYS_FROM = 4


def _context(ctx: Context) -> RequestContext:
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


@handles(FindCoordinatorRequest)
def find_coordinator(ctx: Context, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    """Name the broker that coordinates each group."""
    if ctx.api_version >= _MANY_KEYS_FROM:
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


@handles(JoinGroupRequest)
def join_group(ctx: Context, request: JoinGroupRequest) -> Pending[JoinGroupResponse]:
    """Join a group or its next generation; answered at the end of the join phase."""
    return ctx.broker.groups.join_group(request, _context(ctx))


@handles(SyncGroupRequest)
def sync_group(ctx: Context, request: SyncGroupRequest) -> Pending[SyncGroupResponse]:
    """Submit (leader) or wait for the assignment of this generation."""
    return ctx.broker.groups.sync_group(request, _context(ctx))


@handles(HeartbeatRequest)
def heartbeat(ctx: Context, request: HeartbeatRequest) -> Pending[HeartbeatResponse]:
    """Keep a member's session alive and report a rebalance."""
    return ctx.broker.groups.heartbeat(request, _context(ctx))


@handles(LeaveGroupRequest)
def leave_group(ctx: Context, request: LeaveGroupRequest) -> Pending[LeaveGroupResponse]:
    """Remove members."""
    return ctx.broker.groups.leave_group(request, _context(ctx))


@handles(OffsetCommitRequest)
def offset_commit(ctx: Context, request: OffsetCommitRequest) -> Pending[OffsetCommitResponse]:
    """Commit a group's offsets."""
    return ctx.broker.groups.offset_commit(request, _context(ctx))


@handles(TxnOffsetCommitRequest)
def txn_offset_commit(
    ctx: Context, request: TxnOffsetCommitRequest
) -> Pending[TxnOffsetCommitResponse]:
    """Commit a group's offsets as part of a transaction."""
    return ctx.broker.groups.txn_offset_commit(request, _context(ctx))


@handles(OffsetFetchRequest)
def offset_fetch(ctx: Context, request: OffsetFetchRequest) -> Pending[OffsetFetchResponse]:
    """Return groups' committed offsets."""
    return ctx.broker.groups.offset_fetch(request, _context(ctx))


@handles(OffsetDeleteRequest)
def offset_delete(ctx: Context, request: OffsetDeleteRequest) -> Pending[OffsetDeleteResponse]:
    """Delete a group's offsets of topics to which no member subscribes."""
    return ctx.broker.groups.offset_delete(request, _context(ctx))


@handles(ListGroupsRequest)
def list_groups(ctx: Context, request: ListGroupsRequest) -> Pending[ListGroupsResponse]:
    """List the groups of this coordinator."""
    return ctx.broker.groups.list_groups(request, _context(ctx))


@handles(DescribeGroupsRequest)
def describe_groups(
    ctx: Context, request: DescribeGroupsRequest
) -> Pending[DescribeGroupsResponse]:
    """Describe states and members."""
    answer = ctx.broker.groups.describe_groups(request, _context(ctx))
    return with_group_operations(ctx, request, answer)


@handles(DeleteGroupsRequest)
def delete_groups(ctx: Context, request: DeleteGroupsRequest) -> Pending[DeleteGroupsResponse]:
    """Delete empty groups with their offsets."""
    return ctx.broker.groups.delete_groups(request, _context(ctx))
