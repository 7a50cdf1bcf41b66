"""Metadata: brokers, topics, leaders.

Kafka: KafkaApis.handleTopicMetadataRequest, KRaftMetadataCache;
KafkaApis.handleTopicMetadataRequest, KRaftMetadataCache.getTopicMetadata;
org.apache.kafka.metadata.KRaftMetadataCache.
"""

from __future__ import annotations

import struct
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.errors import ErrorCode
from ottla.metadata.partition import NO_LEADER
from ottla.protocol import codec
from ottla.protocol.apis.metadata import MetadataRequest, MetadataResponse
from ottla.protocol.frames import response_header
from ottla.protocol.primitives import encode_uvarint
from ottla.security.acl import CLUSTER_NAME, Operation, ResourceType
from ottla.server.broker.topic_auto_creation import INTERNAL_TOPICS
from ottla.server.requests import rights
from ottla.server.requests.api import Form, codec_form, handles
from ottla.server.requests.rights import ByHandler
from ottla.types import ZERO_UUID, is_topic_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ottla.metadata.broker import BrokerRegistration
    from ottla.metadata.partition import PartitionRegistration, TopicImage
    from ottla.purgatory.pending import Pending
    from ottla.purgatory.work import Work
    from ottla.server.requests.context import Context
    from ottla.types import Uuid


class PartitionView(NamedTuple):
    """The leader, or the error in its place, and the offline replicas."""

    code: ErrorCode
    """NONE, LEADER_NOT_AVAILABLE, or LISTENER_NOT_FOUND for a leader without an address."""
    leader_id: int
    offline_replicas: list[int]


def view_of(
    brokers: Mapping[int, BrokerRegistration], partition: PartitionRegistration, listener: str
) -> PartitionView:
    """Return the view of a listener's clients."""
    offline = [
        replica
        for replica, directory in zip(partition.replicas, partition.directories, strict=False)
        if (broker := brokers.get(replica)) is None
        or broker.fenced
        or listener not in broker.listeners
        or not broker.has_online_directory(directory)
    ]
    leader = brokers.get(partition.leader)
    if leader is None:
        return PartitionView(ErrorCode.LEADER_NOT_AVAILABLE, NO_LEADER, offline)
    if listener not in leader.listeners:
        return PartitionView(ErrorCode.LISTENER_NOT_FOUND, NO_LEADER, offline)
    return PartitionView(ErrorCode.NONE, partition.leader, offline)


def reachable(
    brokers: Mapping[int, BrokerRegistration], ids: Sequence[int], listener: str
) -> list[int]:
    """Return the brokers that have an address on a listener."""
    return [
        broker_id
        for broker_id in ids
        if broker_id in brokers and listener in brokers[broker_id].listeners
    ]


TopicResponse = MetadataResponse.MetadataResponseTopic
PartitionResponse = TopicResponse.MetadataResponsePartition
PARTITIONS_AT_ONCE: Final = 32
"""Partitions encoded by one call, at 10 to 20 µs each."""
_MAX_ENCODED: Final = 8
"""Listeners and versions for which a topic keeps its bytes."""
_FLEXIBLE_FROM = 9
_LENGTH = struct.Struct(">i")


class EncodedTopics(NamedTuple):
    """A response without its topics, and the topics as bytes."""

    response: MetadataResponse
    topics: list[bytes]


class _Layout:
    """Where the arrays of topics and of partitions lie in the response of a version."""

    def __init__(self, version: int) -> None:
        self._version = version
        self._is_flexible = version >= _FLEXIBLE_FROM
        has_tags = int(self._is_flexible)
        self._topic_end = (4 if version >= 8 else 0) + has_tags
        self._end = (4 if 8 <= version <= 10 else 0) + (2 if version >= 13 else 0) + has_tags
        empty = len(self._encode(MetadataResponse(brokers=[], topics=[])))
        self._start = empty - self._end - len(self._count(0))

    def _encode(self, response: MetadataResponse) -> bytes:
        return codec.to_bytes(response, self._version)

    def _count(self, length: int) -> bytes:
        return encode_uvarint(length + 1) if self._is_flexible else _LENGTH.pack(length)

    def topic(self, topic: TopicResponse, partitions: Iterable[bytes], count: int) -> bytes:
        """Return a topic with so many partitions, which were encoded before."""
        data = self._encode(MetadataResponse(brokers=[], topics=[topic]))
        body = data[self._start + len(self._count(1)) : len(data) - self._end]
        head = len(body) - self._topic_end - len(self._count(0))
        end = body[len(body) - self._topic_end :]
        return b"".join((body[:head], self._count(count), *partitions, end))

    def partitions(self, described: list[PartitionResponse]) -> bytes:
        """Return the elements of a topic's array."""
        topic = TopicResponse(name="", partitions=[])
        empty = len(self.topic(topic, (), 0))
        topic.partitions = described
        data = self._encode(MetadataResponse(brokers=[], topics=[topic]))
        body = data[self._start + len(self._count(1)) : len(data) - self._end]
        head = empty - self._topic_end - len(self._count(0)) + len(self._count(len(described)))
        return body[head : len(body) - self._topic_end]

    def response(self, encoded: EncodedTopics) -> bytes:
        """Return a whole response."""
        data = self._encode(encoded.response)
        end = len(data) - self._end
        head = data[: end - len(self._count(0))]
        return b"".join((head, self._count(len(encoded.topics)), *encoded.topics, data[end:]))


_layout = cache(_Layout)


def answer(
    ctx: Context,
    response: MetadataResponse,
    topics: list[TopicImage | TopicResponse],
    *,
    has_operations: bool,
) -> EncodedTopics | Pending[EncodedTopics]:
    """Return the response with these topics; after several turns if many have changed.

    TopicResponse stands for a topic that does not exist.
    """
    encoded = ctx.broker.worker.run(
        _encode_all(ctx, response, topics, has_operations=has_operations)
    )
    return encoded.value if encoded.done else encoded


def _encode_all(
    ctx: Context,
    response: MetadataResponse,
    topics: list[TopicImage | TopicResponse],
    *,
    has_operations: bool,
) -> Work[EncodedTopics]:
    cluster, layout = ctx.broker.image.cluster, _layout(ctx.api_version)
    encoded = EncodedTopics(response, [])
    for topic in topics:
        if isinstance(topic, TopicResponse):
            encoded.topics.append(layout.topic(topic, (), 0))
            continue
        bits = rights.OMITTED
        if has_operations:
            bits = ctx.operations(ResourceType.TOPIC, topic.name)
        key = ctx.listener_name, ctx.api_version, bits
        known = topic.encoded.get(key)
        if known is None or known[0] != cluster.change_count:
            before = cluster.change_count, topic.change_count
            data = yield from _encode(ctx, topic, bits)
            known = before[0], data
            if before == (cluster.change_count, topic.change_count):
                if len(topic.encoded) >= _MAX_ENCODED:
                    topic.encoded.clear()
                topic.encoded[key] = known
        encoded.topics.append(known[1])
        yield
    return encoded


def _encode(ctx: Context, topic: TopicImage, bits: int) -> Work[bytes]:
    described = TopicResponse(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[],
    )
    described.topic_authorized_operations = bits
    layout, partitions = _layout(ctx.api_version), sorted(topic.partitions.items())
    ordered, encoded = iter(partitions), []
    while some := list(islice(ordered, PARTITIONS_AT_ONCE)):
        answers = [_describe(ctx, index, partition) for index, partition in some]
        encoded.append(layout.partitions(answers))
        yield
    return layout.topic(described, encoded, len(partitions))


def _describe(ctx: Context, index: int, partition: PartitionRegistration) -> PartitionResponse:
    view = view_of(ctx.broker.image.cluster.brokers, partition, ctx.listener_name)
    code = view.code
    if code is ErrorCode.LISTENER_NOT_FOUND and ctx.api_version < 6:
        code = ErrorCode.LEADER_NOT_AVAILABLE
    described = PartitionResponse(
        error_code=int(code),
        partition_index=index,
        leader_id=view.leader_id,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        offline_replicas=view.offline_replicas,
    )
    if ctx.api_version < 1:
        # list only brokers with an endpoint here: version 0 clients look up each of them
        brokers, listener = ctx.broker.image.cluster.brokers, ctx.listener_name
        replicas = reachable(brokers, described.replica_nodes, listener)
        isr = reachable(brokers, described.isr_nodes, listener)
        is_short = (replicas, isr) != (described.replica_nodes, described.isr_nodes)
        if is_short and not described.error_code:
            described.error_code = int(ErrorCode.REPLICA_NOT_AVAILABLE)
        described.replica_nodes, described.isr_nodes = replicas, isr
    return described


_by_codec = codec_form(MetadataRequest)


def _write(
    response: MetadataResponse | EncodedTopics,
    correlation_id: int,
    version: int,
    throttle_time_ms: int,
) -> Any:
    if isinstance(response, MetadataResponse):
        return _by_codec.write(response, correlation_id, version, throttle_time_ms)
    if throttle_time_ms:
        response.response.throttle_time_ms = throttle_time_ms
    body = _layout(version).response(response)
    return response_header(len(body), correlation_id, version >= _FLEXIBLE_FROM) + body


FORM: Final = Form(_by_codec.read, _write, _by_codec.fail)

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
        cluster_authorized_operations=rights.of_cluster(ctx)
        if request.include_cluster_authorized_operations
        else rights.OMITTED,
    )
    has_operations = request.include_topic_authorized_operations
    return answer(ctx, response, _topics(ctx, request), has_operations=has_operations)


def _why_refused(request: MetadataRequest, version: int) -> ErrorCode | None:
    """Return the error of topics named in a way that the version does not have.

    Versions 10 and 11 have a field for topic ids, but responses need a name. Later on Kafka's
    handler fails on null names where there is no id either.
    """
    has_ids = any(topic.topic_id for topic in request.topics or ())
    has_nulls = any(topic.name is None for topic in request.topics or ())
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
                name=topic.name or "",
                topic_id=topic.topic_id,
                partitions=[],
            )
            for topic in request.topics or ()
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
        for answer in answers:
            if isinstance(answer, TopicResponse) and answer.error_code not in _WITHOUT_OPERATIONS:
                name = answer.name or ""
                answer.topic_authorized_operations = ctx.operations(ResourceType.TOPIC, name)
    return answers


def _requested(
    ctx: Context,
    request: MetadataRequest,
    requested: list[MetadataRequest.MetadataRequestTopic],
) -> list[TopicImage | TopicResponse]:
    """Return each topic once; if any is named by id, those without id are ignored."""
    topics = ctx.broker.image.topics.by_name
    ids = dict.fromkeys(topic.topic_id for topic in requested if topic.topic_id)
    if ids:
        return [_by_id(ctx, topic_id) for topic_id in ids]
    answers: list[TopicImage | TopicResponse] = []
    missing: list[str] = []
    for name in dict.fromkeys(topic.name for topic in requested if topic.name is not None):
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
    codes = {
        name: (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_topic_name(name) else _INVALID)
        for name in names
    }
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
