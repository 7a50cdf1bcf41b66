"""Responses to Metadata, encoded topic by topic; the bytes of unchanged topics are reused.

Each topic keeps its bytes for every listener and version until one of its partitions or any broker
changes. Thousands of partitions are encoded in several turns of the loop.

Kafka: KafkaApis.handleTopicMetadataRequest, KRaftMetadataCache.getTopicMetadata.
"""

from __future__ import annotations

import struct
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.errors import ErrorCode
from ottla.protocol import codec
from ottla.protocol.apis.metadata import MetadataRequest, MetadataResponse
from ottla.protocol.frames import response_header
from ottla.protocol.primitives import encode_uvarint
from ottla.security.acl import ResourceType
from ottla.server.broker.internal_topics import INTERNAL_TOPICS
from ottla.server.broker.partition_view import reachable, view_of
from ottla.server.requests import operations
from ottla.server.requests.api import Form, codec_form

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.metadata.partition import PartitionRegistration
    from ottla.metadata.topic import TopicImage
    from ottla.purgatory.pending import Pending
    from ottla.purgatory.work import Work
    from ottla.server.requests.context import Context

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
        bits = operations.OMITTED
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
        _omit_unreachable(ctx, described)
    return described


def _omit_unreachable(ctx: Context, described: PartitionResponse) -> None:
    """List only brokers with an endpoint here: version 0 clients look up each of them."""
    brokers, listener = ctx.broker.image.cluster.brokers, ctx.listener_name
    replicas = reachable(brokers, described.replica_nodes, listener)
    isr = reachable(brokers, described.isr_nodes, listener)
    is_short = (replicas, isr) != (described.replica_nodes, described.isr_nodes)
    if is_short and not described.error_code:
        described.error_code = int(ErrorCode.REPLICA_NOT_AVAILABLE)
    described.replica_nodes, described.isr_nodes = replicas, isr


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
