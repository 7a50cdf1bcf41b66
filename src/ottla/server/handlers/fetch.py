"""Fetch: read logs from given offsets; wait while there are fewer bytes than min_bytes.

Kafka: KafkaApis.handleFetchRequest, ReplicaManager.fetchMessages. Hot path:
benchmarks/against_kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.fetch import FetchRequest
from ottla.protocol.fetch_values import FetchAnswer, FetchedPartition, read_fetch, write_fetch
from ottla.purgatory.pending import Pending
from ottla.replication.delayed_fetch import DelayedFetch
from ottla.security.acl import CLUSTER_NAME, Operation, ResourceType
from ottla.server.fetch.consumer_read import ConsumerRead
from ottla.server.fetch.follower_read import FollowerRead
from ottla.server.requests.api import Form, handles
from ottla.server.requests.page_cache import when_warm
from ottla.server.requests.rights import ByHandler
from ottla.storage.log.append_info import FetchIsolation

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

    from ottla.protocol.fetch_values import (
        FetchValues,
    )
    from ottla.replication.fetch_session import FetchSession
    from ottla.server.fetch.read import FetchRead
    from ottla.server.requests.context import Context

_LOG_END: Final = FetchIsolation.LOG_END  # an enum's members are found slowly


def fail_request(request: FetchValues, error: KafkaError, version: int) -> FetchAnswer:
    """Return the response of a fetch that failed as a whole; each partition's before version 7."""
    code = int(error.code)
    keys = request.partitions if version < 7 else ()
    return FetchAnswer(code, 0, [FetchedPartition(key, code, aborted=()) for key in keys])


@handles(
    FetchRequest,
    right=ByHandler("CLUSTER_ACTION on the cluster for followers, else READ on each topic"),
    form=Form(read_fetch, write_fetch, fail_request),
    listener="broker",
    notes={
        7: "sessions (KIP-227)",
        9: "leader epochs are checked (KIP-320)",
        11: "the nearest replica (KIP-392)",
        12: "diverging epochs (KIP-595)",
        13: "topic ids (KIP-516)",
        15: "broker epochs (KIP-903)",
        16: "leaders of partitions that moved (KIP-951)",
        18: "high watermarks of followers (KIP-1166)",
    },
)
def fetch(ctx: Context, request: FetchValues) -> FetchAnswer | Pending[FetchAnswer]:
    """Answer at once with min_bytes, after an error, or when the client does not wait."""
    sessions = ctx.broker.fetch_sessions
    is_follower = request[1] >= 0 and ctx.is_allowed(
        Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME
    )
    session = sessions.session_of(
        request, ctx.api_version, ctx.now_ms, ctx.connection, is_follower=is_follower
    )
    read = _read(ctx, request, session)
    if read.run():
        return _gather(ctx, request, read) if read.may_grow else _answer(ctx, read)
    return _wait(ctx, request, read)


def _read(ctx: Context, request: FetchValues, session: FetchSession | None) -> FetchRead:
    read_of = ConsumerRead if request.replica_id < 0 else FollowerRead
    return read_of(ctx, request, session)


def _answer(ctx: Context, read: FetchRead) -> FetchAnswer | Pending[FetchAnswer]:
    """Answer at once, or after a worker has read what is not in the page cache."""
    if read.cold is not None:
        return when_warm(read.cold, read.response(), ctx.broker.run_on_volume)
    return read.response()


def _gather(ctx: Context, request: FetchValues, read: FetchRead) -> Pending[FetchAnswer]:
    """Answer a follower after a turn without appends: a fetch costs as much as several appends.

    Its previous fetch has just been acknowledged, so producers are about to send more.
    """
    pending: Pending[FetchAnswer] = Pending()
    ctx.broker.replicas.when_quiet(_again(ctx, request, read, pending))
    return pending


def _again(
    ctx: Context, request: FetchValues, read: FetchRead, pending: Pending[FetchAnswer]
) -> Callable[[], None]:
    """Return a function that reads again and completes the answer."""
    session = read.session
    epoch = 0 if session is None else session.epoch

    def answer() -> None:
        try:
            if read.is_incremental and session is not None and session.epoch != epoch:
                pending.complete(_overtaken(session))
                return
            again = _read(ctx, request, session)
            again.run_again(read)
            answered = _answer(ctx, again)
        except Exception as error:  # noqa: BLE001 - the producer whose append completes the fetch must not get it
            pending.fail(error)
            return
        if isinstance(answered, Pending):
            answered.pass_to(pending)
        else:
            pending.complete(answered)

    return answer


def _wait(ctx: Context, request: FetchValues, read: FetchRead) -> Pending[FetchAnswer]:
    broker, session = ctx.broker, read.session
    pending: Pending[FetchAnswer] = Pending()
    answer = _again(ctx, request, read, pending)
    positions = read.positions()
    deadline_ms = broker.clock.monotonic_ms() + request.max_wait_ms
    missing_bytes = read.min_bytes - read.size_bytes
    isolation = read.isolation
    delayed = DelayedFetch(deadline_ms, positions, missing_bytes, answer, isolation=isolation)
    keys: Iterable[Hashable] = positions
    if isolation is _LOG_END:
        keys = [partition.log for partition in positions]
    purgatory = broker.delayed_fetches
    if not purgatory.try_complete_else_watch(delayed, keys) and session is not None:
        session.wait(delayed, purgatory)
    return pending


def _overtaken(session: FetchSession) -> FetchAnswer:
    """Return the response to a request that waited while its session continued."""
    return FetchAnswer(int(ErrorCode.INVALID_FETCH_SESSION_EPOCH), session.session_id, ())
