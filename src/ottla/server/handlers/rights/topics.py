"""Rights of APIs about topics: records, offsets, and topics themselves.

A topic without the right gets the error of the right, whether or not it exists. Metadata and
DescribeTopicPartitions filter in their own handlers.

Kafka: kafka.server.{KafkaApis, ControllerApis}.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from ottla.errors import ErrorCode
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.apis.create_partitions import CreatePartitionsResponse
from ottla.protocol.apis.create_topics import CreateTopicsResponse
from ottla.protocol.apis.delete_records import DeleteRecordsResponse
from ottla.protocol.apis.delete_topics import DeleteTopicsResponse
from ottla.protocol.apis.describe_producers import DescribeProducersResponse
from ottla.protocol.apis.fetch import FetchResponse
from ottla.protocol.apis.list_offsets import ListOffsetsResponse
from ottla.protocol.apis.offset_for_leader_epoch import OffsetForLeaderEpochResponse
from ottla.records.batch import ATTRIBUTES_POSITION, TRANSACTIONAL_FLAG
from ottla.security.acl import CLUSTER_NAME, Operation, ResourceType
from ottla.server.handlers.rights.cluster import may
from ottla.server.requests.guards import Denied, guards
from ottla.types import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ottla.protocol.produce_values import ProduceValues
    from ottla.server.requests.context import Context
    from ottla.server.requests.guards import Finish

T = TypeVar("T")
_DENIED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
DENIED: Final = int(_DENIED)
_WHOLE_ERROR_FROM, _IDS_FROM = 7, 13
_FLAGS_POSITION: Final = ATTRIBUTES_POSITION + 1


def may_topic(ctx: Context, operation: Operation, name: str) -> bool:
    """Whether the client may do this with a topic."""
    return ctx.authorize(operation, ResourceType.TOPIC, name)


def may_see_topic(ctx: Context, name: str) -> bool:
    """Whether an answer may have a topic that its request does not name; not audited."""
    return ctx.is_allowed(Operation.DESCRIBE, ResourceType.TOPIC, name)


def split(items: Iterable[T], is_allowed: Callable[[T], bool]) -> tuple[list[T], list[T]]:
    """Return the allowed items and the denied ones, in order."""
    allowed: list[T] = []
    denied: list[T] = []
    for one in items:
        (allowed if is_allowed(one) else denied).append(one)
    return allowed, denied


def reduce(
    items: list[Any],
    is_allowed: Callable[[Any], bool],
    refusal: Callable[[Any], Any],
    out: str,
    *,
    refusals: Literal["first", "last", "in place"] = "last",
) -> Finish | None:
    """Leave the allowed items in the list; return what adds the refusals to the response.

    Kafka has them first or last, or in the order of the request where it answers one by one.
    """
    decided = [(one, is_allowed(one)) for one in items]
    denied = [(position, one) for position, (one, allowed) in enumerate(decided) if not allowed]
    if not denied:
        return None
    items[:] = [one for one, allowed in decided if allowed]
    count = len(items)

    def finish(response: Any) -> Any:
        results = getattr(response, out)
        refused = [refusal(one) for _, one in denied]
        if refusals == "first":
            results[0:0] = refused
        elif refusals == "last" or len(results) != count:
            results.extend(refused)
        else:
            places = dict(zip((at for at, _ in denied), refused, strict=True))
            answered = iter(results)
            results[:] = [places.get(at) or next(answered) for at in range(len(decided))]
        return response

    return finish


@guards(ApiKey.METADATA, ApiKey.DESCRIBE_TOPIC_PARTITIONS)
def filtered_by_handler(_ctx: Context, _request: Any) -> None:
    """No right on the whole request: the handlers check each topic."""


@guards(ApiKey.PRODUCE)
def produce(ctx: Context, request: ProduceValues) -> Finish | Denied | None:
    """WRITE on the transactional id, then on each topic."""
    if any(_is_transactional(records) for _, _, records in request.partitions):
        name = request.transactional_id
        if name is None or not ctx.authorize(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, name):
            code = int(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
            return _produce_refused(ctx, request.acks, _refusals(request.partitions, code))
    allowed, denied = split(request.partitions, lambda part: _may_write(ctx, part[0]))
    if not denied:
        return None
    request.partitions[:] = allowed
    refusals = _refusals(denied, DENIED)
    if not allowed:
        return _produce_refused(ctx, request.acks, refusals)

    def finish(answers: Any) -> Any:
        if answers is None:
            ctx.connection.finish()
            return None
        return [*answers, *refusals]

    return finish


def _is_transactional(records: Any) -> bool:
    return bool(
        records is not None
        and len(records) > _FLAGS_POSITION
        and records[_FLAGS_POSITION] & TRANSACTIONAL_FLAG
    )


def _may_write(ctx: Context, topic: Any) -> bool:
    name = topic if type(topic) is str else ctx.broker.topic_name(topic)
    return name is None or may_topic(ctx, Operation.WRITE, name)  # an unknown id is not found


def _refusals(partitions: Iterable[Any], code: int) -> list[Any]:
    return [(topic, index, code, -1, -1, -1, (), None, None) for topic, index, _ in partitions]


def _produce_refused(ctx: Context, acks: int, refusals: list[Any]) -> Denied:
    if acks == 0:
        ctx.connection.finish()  # the only way to report it
        return Denied(None)
    return Denied(refusals)


@guards(ApiKey.FETCH)
def fetch(ctx: Context, request: Any) -> Denied | None:
    """CLUSTER_ACTION at a controller, for the metadata log; on a broker the handler checks rights.

    Partitions stay in sessions, so the handler checks each one that it reads.
    """
    if ctx.listener != "controller" or may(ctx, Operation.CLUSTER_ACTION):
        return None
    code = int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    topic = FetchResponse.FetchableTopicResponse
    refused = [
        topic(
            topic=one.topic,
            topic_id=one.topic_id,
            partitions=[
                topic.PartitionData(
                    partition_index=part.partition,
                    error_code=code,
                    high_watermark=-1,
                    aborted_transactions=[],
                    records=b"",
                )
                for part in one.partitions
            ],
        )
        for one in request.topics
    ]
    if ctx.api_version >= _IDS_FROM:
        refused = []
    whole = code if ctx.api_version >= _WHOLE_ERROR_FROM else 0
    return Denied(FetchResponse(error_code=whole, responses=refused))


@guards(ApiKey.LIST_OFFSETS)
def list_offsets(ctx: Context, request: Any) -> Finish | None:
    """DESCRIBE on each topic."""
    topic = ListOffsetsResponse.ListOffsetsTopicResponse
    partition = topic.ListOffsetsPartitionResponse
    return reduce(
        request.topics,
        lambda one: may_topic(ctx, Operation.DESCRIBE, one.name),
        lambda one: topic(
            name=one.name,
            partitions=[
                partition(partition_index=part.partition_index, error_code=DENIED)
                for part in one.partitions
            ],
        ),
        "topics",
    )


@guards(ApiKey.OFFSET_FOR_LEADER_EPOCH)
def offset_for_leader_epoch(ctx: Context, request: Any) -> Finish | None:
    """CLUSTER_ACTION, or DESCRIBE on each topic."""
    if ctx.is_allowed(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME):
        return None
    topic = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult
    return reduce(
        request.topics,
        lambda one: may_topic(ctx, Operation.DESCRIBE, one.topic),
        lambda one: topic(
            topic=one.topic,
            partitions=[
                topic.EpochEndOffset(partition=part.partition, error_code=DENIED)
                for part in one.partitions
            ],
        ),
        "topics",
    )


@guards(ApiKey.DELETE_RECORDS)
def delete_records(ctx: Context, request: Any) -> Finish | None:
    """DELETE on each topic."""
    topic = DeleteRecordsResponse.DeleteRecordsTopicResult
    partition = topic.DeleteRecordsPartitionResult
    return reduce(
        request.topics,
        lambda one: may_topic(ctx, Operation.DELETE, one.name),
        lambda one: topic(
            name=one.name,
            partitions=[
                partition(partition_index=part.partition_index, low_watermark=-1, error_code=DENIED)
                for part in one.partitions
            ],
        ),
        "topics",
    )


@guards(ApiKey.DESCRIBE_PRODUCERS)
def describe_producers(ctx: Context, request: Any) -> Finish | None:
    """READ on each topic."""
    topic = DescribeProducersResponse.TopicResponse
    return reduce(
        request.topics,
        lambda one: may_topic(ctx, Operation.READ, one.name),
        lambda one: topic(
            name=one.name,
            partitions=[
                topic.PartitionResponse(
                    partition_index=index,
                    error_code=DENIED,
                    error_message=_DENIED.text,
                    active_producers=[],
                )
                for index in one.partition_indexes
            ],
        ),
        "topics",
        refusals="in place",
    )


@guards(ApiKey.CREATE_TOPICS)
def create_topics(ctx: Context, request: Any) -> Finish | Denied:
    """CREATE on the cluster or on the topic; DESCRIBE_CONFIGS to see the resulting settings."""
    may_all = ctx.is_allowed(Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME)
    result = CreateTopicsResponse.CreatableTopicResult
    add = reduce(
        request.topics,
        lambda one: may_all or may_topic(ctx, Operation.CREATE, one.name),
        lambda one: result(
            name=one.name, error_code=DENIED, error_message="Authorization failed.", configs=[]
        ),
        "topics",
    )
    if add is not None and not request.topics:
        return Denied(add(CreateTopicsResponse(topics=[])))

    def finish(response: Any) -> Any:
        for one in response.topics:
            if one.error_code:
                continue
            if not ctx.is_allowed(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, one.name):
                one.topic_config_error_code = DENIED
                one.num_partitions = one.replication_factor = -1
                one.configs = []
        return response if add is None else add(response)

    return finish


@guards(ApiKey.CREATE_PARTITIONS)
def create_partitions(ctx: Context, request: Any) -> Finish | Denied | None:
    """ALTER on each topic."""
    result = CreatePartitionsResponse.CreatePartitionsTopicResult
    add = reduce(
        request.topics,
        lambda one: may_topic(ctx, Operation.ALTER, one.name),
        lambda one: result(name=one.name, error_code=DENIED, error_message=None),
        "results",
    )
    if add is not None and not request.topics:
        return Denied(add(CreatePartitionsResponse(results=[])))
    return add


@guards(ApiKey.DELETE_TOPICS)
def delete_topics(ctx: Context, request: Any) -> Finish | Denied | None:
    """DELETE on the cluster, or DESCRIBE and DELETE on the topic.

    The refusal of a topic given by its id names it only to a client that may describe it.
    """
    if ctx.is_allowed(Operation.DELETE, ResourceType.CLUSTER, CLUSTER_NAME):
        return None
    result = DeleteTopicsResponse.DeletableTopicResult

    def refused(name: str | None, topic_id: Any = ZERO_UUID) -> Any:
        code = _DENIED
        is_absent = name is not None and name not in ctx.broker.image.topics.by_name
        if is_absent and ctx.is_allowed(Operation.DESCRIBE, ResourceType.TOPIC, name or ""):
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return result(name=name, topic_id=topic_id, error_code=int(code), error_message=code.text)

    def is_allowed(name: str) -> bool:
        return may_topic(ctx, Operation.DESCRIBE, name) and may_topic(ctx, Operation.DELETE, name)

    def named(one: Any) -> str | None:
        return one.name if one.name is not None else ctx.broker.topic_name(one.topic_id)

    def refused_state(one: Any) -> Any:
        name = named(one)
        is_hidden = one.name is None and not may_topic(ctx, Operation.DESCRIBE, name or "")
        return refused(None if is_hidden else name, one.topic_id)

    by_name = reduce(request.topic_names, is_allowed, refused, "responses")
    by_state = reduce(
        request.topics,
        lambda one: _is_invalid(one) or (name := named(one)) is None or is_allowed(name),
        refused_state,
        "responses",
    )
    add = by_name or by_state
    if add is not None and not request.topic_names and not request.topics:
        return Denied(add(DeleteTopicsResponse(responses=[])))
    return add


def _is_invalid(one: Any) -> bool:
    """Whether a topic to be deleted is given by name and by id; that is refused for itself."""
    return one.name is not None and bool(one.topic_id)
