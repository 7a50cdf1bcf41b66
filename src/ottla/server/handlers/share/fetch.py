"""ShareFetch and ShareAcknowledge.

Kafka: KafkaApis.{handleShareFetchRequest, handleFetchFromShareFetchRequest,
handleShareAcknowledgeRequest, processShareFetchResponse}; KafkaApis.{handleAcknowledgements,
validateAcknowledgementBatches}.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.share_acknowledge import ShareAcknowledgeRequest, ShareAcknowledgeResponse
from ottla.protocol.apis.share_fetch import ShareFetchRequest, ShareFetchResponse
from ottla.purgatory.pending import Pending, Steps
from ottla.replication.share.acknowledging import Acknowledgement
from ottla.replication.share.session import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    MemberKey,
    ShareSession,
    TopicIdPartition,
)
from ottla.replication.share.states import SharePartitionKey
from ottla.security.acl import Operation, ResourceType
from ottla.server.handlers.groups import MEMBER
from ottla.server.handlers.modern_groups import is_enabled, is_member_id
from ottla.server.requests.api import handles
from ottla.server.requests.refusals import refused_without_text
from ottla.server.requests.rights import ByHandler
from ottla.server.share.delayed_fetch import DelayedShareFetch, FetchedRecords, ShareFetchLimits
from ottla.types import AcknowledgeType

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ottla.replication.share.partition import SharePartition
    from ottla.server.requests.context import Context
    from ottla.types import Uuid

Topic = ShareFetchResponse.ShareFetchableTopicResponse
PartitionData = Topic.PartitionData
AcknowledgedTopic = ShareAcknowledgeResponse.ShareAcknowledgeTopicResponse
AcknowledgedPartition = AcknowledgedTopic.PartitionData
_LED_ELSEWHERE: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
_READ: Final = (MEMBER, ByHandler("READ on each topic"))
_STRICT: Final = 1


# -------------------------------------------------------------------- ShareFetch


@handles(
    ShareFetchRequest,
    right=_READ,
    is_enabled=is_enabled,
    notes={2: "renewal of locks (KIP-1222); strict limits of records"},
)
def share_fetch(
    ctx: Context, request: ShareFetchRequest
) -> ShareFetchResponse | Pending[ShareFetchResponse]:
    """Apply the acknowledgements of the request, then acquire records or wait for some."""
    try:
        group_id, member_id = check_member(request.group_id, request.member_id)
        _check_renewal(ctx, request)
        session = _session(ctx, MemberKey(group_id, member_id), request)
    except KafkaError as error:
        failed: ShareFetchResponse = refused_without_text(request, error.code, ctx.api_version)
        if error.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED:
            return _after(ctx, request.max_wait_ms, failed)
        return failed
    acknowledged = acknowledge_all(ctx, group_id, member_id, request)
    fetched = _fetch(ctx, request, session)
    answer: Pending[ShareFetchResponse] = Pending()

    def combine(_done: object) -> None:
        if not (acknowledged.done and fetched.done):
            return
        response = _fetch_response(ctx, request, session, fetched.value, acknowledged.value)
        if request.share_session_epoch == FINAL_EPOCH:
            ctx.broker.share.end_session(session)
        answer.complete(response)

    acknowledged.on_done(combine)
    if not answer.done:
        fetched.on_done(combine)
    return answer


def _check_renewal(ctx: Context, request: ShareFetchRequest) -> None:
    """Raise INVALID_REQUEST for a renewal of locks that also fetches."""
    if ctx.api_version < 2 or not request.is_renew_ack:
        return
    names = {
        "max_bytes": "maxBytes",
        "min_bytes": "minBytes",
        "max_records": "maxRecords",
        "max_wait_ms": "maxWaitMs",
    }
    wrong = [name for field, name in names.items() if getattr(request, field) != 0]
    if wrong:
        text = f"{', '.join(wrong)} must be set to 0 when isRenewAck is true."
        raise KafkaError(ErrorCode.INVALID_REQUEST, text)


def _after(ctx: Context, wait_ms: int, response: ShareFetchResponse) -> Pending[ShareFetchResponse]:
    """Answer after a time: a refused client would repeat its request at once."""
    answer: Pending[ShareFetchResponse] = Pending()
    due_ms = ctx.broker.clock.monotonic_ms() + wait_ms

    def complete(_now_ms: int) -> None:
        answer.complete(response)

    ctx.broker.timer.add(due_ms, complete)
    return answer


def _session(ctx: Context, key: MemberKey, request: ShareFetchRequest) -> ShareSession:
    """Return the session of a request: a new one, or the next step of the known one."""
    sessions = ctx.broker.share.sessions
    added = [
        TopicIdPartition(topic.topic_id, part.partition_index)
        for topic in request.topics
        for part in topic.partitions
    ]
    epoch = request.share_session_epoch
    if epoch == INITIAL_EPOCH:
        if any(part.acknowledgement_batches for one in request.topics for part in one.partitions):
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        return sessions.begin(key, added, ctx.connection)
    session = sessions.expect(key, epoch)
    if epoch != FINAL_EPOCH:
        forgotten = [
            TopicIdPartition(topic.topic_id, index)
            for topic in request.forgotten_topics_data
            for index in topic.partitions
        ]
        try:
            sessions.update(session, added, forgotten)
        except KafkaError:
            ctx.broker.share.end_session(session)
            raise
    return session


def _fetch(
    ctx: Context, request: ShareFetchRequest, session: ShareSession
) -> Pending[dict[Any, FetchedRecords]]:
    """Acquire records of the session's partitions; none where the request ends the session."""
    is_renewal = ctx.api_version >= 2 and request.is_renew_ack
    if request.share_session_epoch == FINAL_EPOCH or is_renewal:
        return Pending.of({})
    broker = ctx.broker
    refused: dict[Any, KafkaError] = {}
    opened: dict[object, SharePartition] = {}
    # begin with another partition in each epoch: the limits of a fetch favour the first ones
    partitions = list(session.partitions)
    start = request.share_session_epoch % len(partitions) if partitions else 0
    for one in partitions[start:] + partitions[:start]:
        code = partition_error(ctx, one)
        try:
            if code is not None:
                raise KafkaError(code)
            key = SharePartitionKey(session.key.group_id, one.topic_id, one.partition)
            opened[one] = broker.share.open(key)
        except KafkaError as error:
            refused[one] = error
    is_nothing = not request.max_records or not request.max_bytes
    if is_nothing or not opened:
        return Pending.of({one: FetchedRecords(error=error) for one, error in refused.items()})
    limits = ShareFetchLimits(
        session.key.member_id,
        request.max_wait_ms,
        request.min_bytes,
        min(request.max_bytes, broker.fetch_max_bytes),
        request.max_records,
        request.batch_size,
        request.share_acquire_mode == _STRICT,
        lambda: broker.share.sessions.is_current(session),
    )
    start_ms = broker.clock.monotonic_ms()

    def measure(done: Pending[dict[Any, FetchedRecords]]) -> None:
        got = sum(bool(one.acquired) for one in done.value.values())
        waited_ms = broker.clock.monotonic_ms() - start_ms
        broker.share.fetched(session.key.group_id, 100 * got / len(opened), waited_ms)

    delayed = DelayedShareFetch(
        broker.share.failed,
        opened,
        limits,
        start_ms + request.max_wait_ms,
        broker.run_on_volume,
        reader=broker.remote_reader,
    )
    delayed.answer.on_done(measure)
    delayed.failures.update(refused)
    _load(ctx, delayed, opened)
    keys: list[Any] = [*opened, *(one.key for one in opened.values())]
    broker.share.fetches.try_complete_else_watch(delayed, keys)
    return delayed.answer


def _load(
    ctx: Context, delayed: DelayedShareFetch, opened: Mapping[object, SharePartition]
) -> None:
    """Load share partitions that are not loaded yet; each one that is checks the fetch again."""
    share = ctx.broker.share

    def loaded(name: object, partition: SharePartition, error: Exception | None) -> None:
        if error is not None:
            code = ErrorCode.UNKNOWN_SERVER_ERROR
            known = error if isinstance(error, KafkaError) else KafkaError(code)
            delayed.failed(name, known)
            share.drop(partition)
        share.fetches.check_and_complete(partition.key)

    for name, partition in opened.items():
        partition.initialize().on_done(
            lambda done, name=name, partition=partition: loaded(name, partition, done.error)  # type: ignore[misc] # the loop's values
        )


def _fetch_response(
    ctx: Context,
    request: ShareFetchRequest,
    session: ShareSession,
    fetched: Mapping[TopicIdPartition, FetchedRecords],
    acknowledged: Mapping[TopicIdPartition, KafkaError | None],
) -> ShareFetchResponse:
    topics: dict[Uuid, list[PartitionData]] = {}
    leaders: set[int] = set()
    is_first = request.share_session_epoch == INITIAL_EPOCH
    named = [key for key in fetched if is_first or _is_named(session, key, fetched[key])]
    for key in dict.fromkeys((*named, *acknowledged)):
        result = fetched.get(key) or FetchedRecords()
        acknowledge_error = acknowledged.get(key)
        error = result.error
        data = PartitionData(
            partition_index=key.partition,
            error_code=0 if error is None else int(error.code),
            error_message=None
            if error is None or error.code in _LED_ELSEWHERE
            else error.code.text,
            acknowledge_error_code=0 if acknowledge_error is None else int(acknowledge_error.code),
            acknowledge_error_message=None if acknowledge_error is None else str(acknowledge_error),
            current_leader=PartitionData.LeaderIdAndEpoch(leader_id=0, leader_epoch=0),
            records=result.records,
            acquired_records=[
                PartitionData.AcquiredRecords(
                    first_offset=acquired.first_offset,
                    last_offset=acquired.last_offset,
                    delivery_count=acquired.delivery_count,
                )
                for acquired in result.acquired
            ],
        )
        leader = _leader(ctx, key, result.error)
        if leader is not None:
            data.current_leader.leader_id, data.current_leader.leader_epoch = leader
            leaders.add(leader[0])
        topics.setdefault(key.topic_id, []).append(data)
    return ShareFetchResponse(
        acquisition_lock_timeout_ms=ctx.broker.share.settings(
            session.key.group_id
        ).record_lock_duration_ms,
        responses=[Topic(topic_id=key, partitions=parts) for key, parts in topics.items()],
        node_endpoints=_endpoints(ctx, leaders, ShareFetchResponse.NodeEndpoint),
    )


def _is_named(session: ShareSession, one: TopicIdPartition, result: FetchedRecords) -> bool:
    """Whether a later response of a session names a partition: only where it has news."""
    return session.must_respond(
        one, has_records=bool(result.acquired), has_error=result.error is not None
    )


def _leader(
    ctx: Context, one: TopicIdPartition, error: KafkaError | None
) -> tuple[int, int] | None:
    """Return the leader that a client is referred to where another broker leads."""
    if error is None or error.code not in _LED_ELSEWHERE:
        return None
    replica = ctx.broker.replicas.by_topic_id.get(one.topic_id, {}).get(one.partition)
    return ctx.current_leader(one.topic_id, one.partition, replica)


def _endpoints(ctx: Context, leaders: set[int], endpoint: type[Any]) -> list[Any]:
    """Return the addresses of leaders that clients are referred to."""
    if not leaders:
        return []
    return [
        endpoint(node_id=node.node_id, host=node.host, port=node.port, rack=node.rack)
        for node in ctx.broker.nodes(ctx.listener_name)
        if node.node_id in leaders
    ]


# -------------------------------------------------------------------- ShareAcknowledge


@handles(
    ShareAcknowledgeRequest,
    right=_READ,
    is_enabled=is_enabled,
    notes={2: "renewal of locks (KIP-1222)"},
)
def share_acknowledge(
    ctx: Context, request: ShareAcknowledgeRequest
) -> ShareAcknowledgeResponse | Pending[ShareAcknowledgeResponse]:
    """Accept, release, reject or renew acquired records."""
    epoch = request.share_session_epoch
    try:
        group_id, member_id = check_member(request.group_id, request.member_id)
        if epoch == INITIAL_EPOCH:
            raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        session = ctx.broker.share.sessions.expect(MemberKey(group_id, member_id), epoch)
    except KafkaError as error:
        refused: ShareAcknowledgeResponse = refused_without_text(
            request, error.code, ctx.api_version
        )
        return refused
    done = acknowledge_all(ctx, group_id, member_id, request)

    def answer(results: Mapping[TopicIdPartition, KafkaError | None]) -> ShareAcknowledgeResponse:
        if epoch == FINAL_EPOCH:
            ctx.broker.share.end_session(session)
        return _acknowledge_response(ctx, group_id, results)

    return done.then(answer)


def _acknowledge_response(
    ctx: Context, group_id: str, results: Mapping[TopicIdPartition, KafkaError | None]
) -> ShareAcknowledgeResponse:
    topics: dict[Uuid, list[AcknowledgedPartition]] = {}
    leaders: set[int] = set()
    for one, error in results.items():
        data = AcknowledgedPartition(
            partition_index=one.partition,
            error_code=0 if error is None else int(error.code),
            error_message=None if error is None else error.message,
            current_leader=AcknowledgedPartition.LeaderIdAndEpoch(leader_id=0, leader_epoch=0),
        )
        leader = _leader(ctx, one, error)
        if leader is not None:
            data.current_leader.leader_id, data.current_leader.leader_epoch = leader
            leaders.add(leader[0])
        topics.setdefault(one.topic_id, []).append(data)
    return ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=ctx.broker.share.settings(group_id).record_lock_duration_ms,
        responses=[
            AcknowledgedTopic(topic_id=key, partitions=parts) for key, parts in topics.items()
        ],
        node_endpoints=_endpoints(ctx, leaders, ShareAcknowledgeResponse.NodeEndpoint),
    )


def check_member(group_id: str | None, member_id: str | None) -> tuple[str, str]:
    """Return group and member of a request; INVALID_REQUEST without one of them."""
    if group_id is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Invalid group id in the request.")
    if not is_member_id(member_id):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Invalid member id in the request.")
    return group_id, member_id


def partition_error(ctx: Context, one: TopicIdPartition) -> ErrorCode | None:
    """Return why a client may not use a partition: unknown id, missing right, no such partition."""
    name = ctx.broker.topic_name(one.topic_id)
    if name is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if not ctx.authorize(Operation.READ, ResourceType.TOPIC, name):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if not ctx.broker.has_partition(name, one.partition):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return None


def acknowledge_all(
    ctx: Context, group_id: str, member_id: str, request: Any
) -> Pending[dict[TopicIdPartition, KafkaError | None]]:
    """Apply all acknowledgements of a request; the result has an error or None for each."""
    can_renew = ctx.api_version >= 2 and request.is_renew_ack
    results: dict[TopicIdPartition, KafkaError | None] = {}
    answer: Steps[dict[TopicIdPartition, KafkaError | None]] = Steps(lambda: results)

    def note(one: TopicIdPartition, done: Pending[None]) -> None:
        error = done.error
        if error is not None and not isinstance(error, KafkaError):
            error = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
        results[one] = error

    for one, batches in _requested(request.topics).items():
        code = partition_error(ctx, one)
        if code is None and not _is_valid(ctx, batches, can_renew=can_renew):
            code = ErrorCode.INVALID_REQUEST
        if code is not None:
            results[one] = KafkaError(code)
            continue
        key = SharePartitionKey(group_id, one.topic_id, one.partition)
        done = ctx.broker.share.acknowledge(key, member_id, batches)
        done.on_done(partial(note, one))
        answer.add(done)
    return answer.begin()


def _requested(topics: Iterable[Any]) -> Mapping[TopicIdPartition, list[Acknowledgement]]:
    return {
        TopicIdPartition(topic.topic_id, part.partition_index): [
            Acknowledgement(batch.first_offset, batch.last_offset, tuple(batch.acknowledge_types))
            for batch in part.acknowledgement_batches
        ]
        for topic in topics
        for part in topic.partitions
        if part.acknowledgement_batches
    }


def _is_valid(ctx: Context, batches: list[Acknowledgement], *, can_renew: bool) -> bool:
    """Whether batches are in order, with one type or one for each offset, all known."""
    highest = AcknowledgeType.RENEW if ctx.api_version >= 2 else AcknowledgeType.REJECT
    end = -1
    for batch in batches:
        count = batch.last_offset - batch.first_offset + 1
        if count <= 0 or batch.first_offset < end or len(batch.types) not in (1, count):
            return False
        if any(not 0 <= kind <= highest for kind in batch.types):
            return False
        if AcknowledgeType.RENEW in batch.types and not can_renew:
            return False
        end = batch.last_offset
    return True
