"""The offsets of groups: OffsetCommit, TxnOffsetCommit, OffsetFetch, OffsetDelete.

Kafka: KafkaApis.handleOffsetCommitRequest and others; the decisions are in
coordinator.group.offsets.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any, Final

from ottla.errors import ErrorCode
from ottla.protocol.apis.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from ottla.protocol.apis.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from ottla.protocol.apis.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from ottla.protocol.apis.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from ottla.security.acl import Operation, ResourceType
from ottla.server.handlers.groups import group_context
from ottla.server.requests.api import handles
from ottla.server.requests.rights import Each, InOrder, Reduced, Right, split

if TYPE_CHECKING:
    from ottla.purgatory.pending import Pending
    from ottla.server.requests.context import Context
    from ottla.server.requests.rights import Decision

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
