"""Metadata: brokers, topics, leaders.

Kafka: KafkaApis.handleTopicMetadataRequest, KRaftMetadataCache.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.controller.topic_names import is_topic_name
from ottla.errors import ErrorCode
from ottla.protocol.apis.metadata import MetadataRequest, MetadataResponse
from ottla.security.acl import CLUSTER_NAME, Operation, ResourceType
from ottla.server.broker.internal_topics import INTERNAL_TOPICS
from ottla.server.handlers.metadata_answers import FORM, TopicResponse, answer
from ottla.server.requests import operations
from ottla.server.requests.api import handles
from ottla.server.requests.rights import ByHandler
from ottla.types import ZERO_UUID

if TYPE_CHECKING:
    from ottla.metadata.topic import TopicImage
    from ottla.purgatory.pending import Pending
    from ottla.server.handlers.metadata_answers import EncodedTopics
    from ottla.server.requests.context import Context
    from ottla.types import Uuid

BrokerResponse = MetadataResponse.MetadataResponseBroker
_INVALID = ErrorCode.INVALID_TOPIC_EXCEPTION
_WITHOUT_OPERATIONS = {ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.TOPIC_AUTHORIZATION_FAILED}


@handles(
    MetadataRequest,
    right=ByHandler("DESCRIBE on each topic"),
    form=FORM,
    notes={
        1: "lists all replicas, also unreachable ones",
        4: "topic creation is the client's choice",
        6: "LISTENER_NOT_FOUND, before that LEADER_NOT_AVAILABLE",
        8: "authorized operations (KIP-430)",
        10: "topic ids in responses",
        12: "topics by id (KIP-516)",
        13: "an error of the whole request",
    },
)
def metadata(
    ctx: Context, request: MetadataRequest
) -> MetadataResponse | EncodedTopics | Pending[EncodedTopics]:
    """Describe the cluster and the requested topics; create missing ones if allowed."""
    broker = ctx.broker
    error_code = _why_refused(request, ctx.api_version)
    if error_code is not None:
        return _refuse(request, error_code)
    response = MetadataResponse(
        brokers=[
            BrokerResponse(node_id=node.node_id, host=node.host, port=node.port, rack=node.rack)
            for node in broker.nodes(ctx.listener_name)
        ],
        cluster_id=broker.cluster_id,
        controller_id=broker.metadata.any_controller_id(),
        topics=[],
        cluster_authorized_operations=operations.of_cluster(ctx)
        if request.include_cluster_authorized_operations
        else operations.OMITTED,
    )
    has_operations = request.include_topic_authorized_operations
    return answer(ctx, response, _topics(ctx, request), has_operations=has_operations)


def _why_refused(request: MetadataRequest, version: int) -> ErrorCode | None:
    """Return the error of topics named in a way that the version does not have.

    Versions 10 and 11 have a field for topic ids, but responses need a name. Later on Kafka's
    handler fails on null names where there is no id either.
    """
    has_ids = any(one.topic_id for one in request.topics or ())
    has_nulls = any(one.name is None for one in request.topics or ())
    if version < 12:
        return ErrorCode.INVALID_REQUEST if has_ids or has_nulls else None
    return ErrorCode.UNKNOWN_SERVER_ERROR if has_nulls and not has_ids else None


def _refuse(request: MetadataRequest, error_code: ErrorCode) -> MetadataResponse:
    return MetadataResponse(
        brokers=[],
        error_code=int(error_code),
        topics=[
            TopicResponse(
                error_code=int(error_code),
                name=one.name or "",
                topic_id=one.topic_id,
                partitions=[],
            )
            for one in request.topics or ()
        ],
    )


def _topics(ctx: Context, request: MetadataRequest) -> list[TopicImage | TopicResponse]:
    """Return the topics; TopicResponse for one that does not exist."""
    if request.topics is None or (ctx.api_version == 0 and not request.topics):
        topics = ctx.broker.image.topics.by_name.values()
        return [
            topic
            for topic in topics
            if ctx.is_allowed(Operation.DESCRIBE, ResourceType.TOPIC, topic.name)
        ]
    answers = _requested(ctx, request, request.topics)
    if request.include_topic_authorized_operations:
        for one in answers:
            if isinstance(one, TopicResponse) and one.error_code not in _WITHOUT_OPERATIONS:
                name = one.name or ""
                one.topic_authorized_operations = ctx.operations(ResourceType.TOPIC, name)
    return answers


def _requested(
    ctx: Context,
    request: MetadataRequest,
    requested: list[MetadataRequest.MetadataRequestTopic],
) -> list[TopicImage | TopicResponse]:
    """Return each topic once; if any is named by id, those without id are ignored."""
    topics = ctx.broker.image.topics.by_name
    ids = dict.fromkeys(one.topic_id for one in requested if one.topic_id)
    if ids:
        return [_by_id(ctx, topic_id) for topic_id in ids]
    answers: list[TopicImage | TopicResponse] = []
    missing: list[str] = []
    for name in dict.fromkeys(one.name for one in requested if one.name is not None):
        if not _may_describe(ctx, name):
            answers.append(_denied(name=name))
        elif name in topics:
            answers.append(topics[name])
        else:
            missing.append(name)
    return [*answers, *_create_missing(ctx, request, missing)]


def _by_id(ctx: Context, topic_id: Uuid) -> TopicImage | TopicResponse:
    name = ctx.broker.topic_name(topic_id)
    topic = ctx.broker.image.topics.by_name.get(name) if name is not None else None
    if topic is None:
        code = ErrorCode.UNKNOWN_TOPIC_ID
        return TopicResponse(error_code=int(code), name=None, topic_id=topic_id, partitions=[])
    if not _may_describe(ctx, topic.name):
        return _denied(topic_id=topic_id)
    return topic


def _may_describe(ctx: Context, name: str) -> bool:
    return ctx.authorize(Operation.DESCRIBE, ResourceType.TOPIC, name)


def _denied(name: str | None = None, topic_id: Uuid = ZERO_UUID) -> TopicResponse:
    """Answer for a topic that the client may not describe, whether or not it exists."""
    code = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    is_internal = name in INTERNAL_TOPICS
    return TopicResponse(
        error_code=code, name=name, topic_id=topic_id, is_internal=is_internal, partitions=[]
    )


def _create_missing(
    ctx: Context, request: MetadataRequest, names: list[str]
) -> list[TopicResponse]:
    """Answer unknown names, and begin to create them: the client's retry finds them."""
    if not names:
        return []
    codes = {name: _code_of_missing(name) for name in names}
    if request.allow_auto_topic_creation and ctx.broker.metadata.config.auto_create_topics_enable:
        may_all = ctx.is_allowed(Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME)
        for name in codes:
            if not may_all and not ctx.authorize(Operation.CREATE, ResourceType.TOPIC, name):
                codes[name] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        valid = [
            name
            for name, code in codes.items()
            if code not in {_INVALID, ErrorCode.TOPIC_AUTHORIZATION_FAILED}
        ]
        ctx.broker.topic_auto_creation.create(valid, ctx.requester())
    return [
        TopicResponse(
            error_code=int(code),
            name=name,
            topic_id=ZERO_UUID,
            is_internal=name in INTERNAL_TOPICS,
            partitions=[],
        )
        for name, code in codes.items()
    ]


def _code_of_missing(name: str) -> ErrorCode:
    """Return the error of a missing topic or of an invalid name."""
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_topic_name(name) else _INVALID
