"""Fetch: read logs from given offsets; wait while there are fewer bytes than min_bytes.

Kafka: KafkaApis.handleFetchRequest, ReplicaManager.fetchMessages. Hot path:
benchmarks/against_kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.fetch import FetchRequest
from ottla.protocol.fetch_values import FetchAnswer, FetchedPartition, read_fetch, write_fetch
from ottla.purgatory.pending import Pending, as_pending
from ottla.replication.delayed_fetch import DelayedFetch
from ottla.replication.partition import NO_EPOCH
from ottla.security.acl import CLUSTER_NAME, Operation, ResourceType
from ottla.server.fetch.read import FetchRead
from ottla.server.requests.api import Form, handles
from ottla.server.requests.page_cache import when_warm
from ottla.server.requests.rights import ByHandler
from ottla.storage.log.append_info import FetchIsolation, OffsetMovedToTier

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

    from ottla.protocol.fetch_values import FetchValues, PartitionFetch, PartitionKey
    from ottla.purgatory.work import Work
    from ottla.quota.replication import ReplicationQuota
    from ottla.replication.fetch_session import CachedPartition, FetchSession
    from ottla.replication.partition import Partition
    from ottla.server.requests.context import Context
    from ottla.storage.log.reads import Found

_SMALL_BYTES: Final = 64 * 1024


class FollowerRead(FetchRead):
    """Reads up to the log end, unless throttled, and records the follower's position."""

    __slots__ = ("_limit", "_replica_epoch", "_replica_id")

    def __init__(self, ctx: Context, request: FetchValues, session: FetchSession | None) -> None:
        self._replica_id = request[1]
        self._replica_epoch = request[2]
        quota = ctx.broker.quotas.replication.leader
        self._limit = quota if quota.is_on else None
        """The throttle of followers out of sync."""
        FetchRead.__init__(self, ctx, request, session, _LOG_END, True)

    @property
    def may_grow(self) -> bool:
        """Whether the response is so small that the next records should be added to it."""
        return 0 < self.size_bytes < _SMALL_BYTES and self._max_wait_ms > 0 and not self._has_error

    @property
    def _may_skip(self) -> bool:
        return True

    def positions(self) -> dict[Partition, int]:
        """Return what is watched, without throttled partitions."""
        found = FetchRead.positions(self)
        if self._limit is not None:
            found = {one: offset for one, offset in found.items() if not self._is_throttled(one)}
        return found

    def _session_fetched(self, session: FetchSession) -> None:
        """Record the time for idle partitions; all are read after a change of incarnation."""
        replica_id, epoch = self._replica_id, self._replica_epoch
        environment = self._ctx.broker.replicas.environment
        if (
            replica_id != session.replica_id
            or epoch != session.replica_epoch
            or (environment is not None and environment.is_stale(replica_id, epoch))
        ):
            session.activate_all()
            session.replica_id, session.replica_epoch = replica_id, epoch
        session.last_fetch_ms = self._ctx.broker.clock.monotonic_ms()

    def _is_unchanged(self, cached: CachedPartition) -> bool:
        """Return whether a follower in sync needs no read of a partition; record its fetch."""
        replica = cached.replica
        if replica is None or replica.leading is None:
            return False
        epoch, offset, last_fetched_epoch, log_start_offset, _ = cached.requested
        log = replica.log
        return (
            offset == log.log_end_offset
            and log.failure is None
            and cached.high_watermark == log.high_watermark
            and cached.log_start_offset == log.log_start_offset
            and epoch == replica.leader_epoch
            and (last_fetched_epoch == log.latest_epoch or _agrees(replica, cached.requested))
            and replica.leading.stayed(
                self._replica_id,
                self._replica_epoch,
                offset,
                log_start_offset,
                self._ctx.broker.clock.monotonic_ms(),
            )
        )

    def _lacks_right(self, _key: PartitionKey) -> bool:
        """Whether CLUSTER_ACTION is missing: a replica id proves nothing (CVE-2018-1288)."""
        return not self._ctx.authorize(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)

    def _read_checked(
        self, key: PartitionKey, replica: Partition, requested: PartitionFetch, max_bytes: int
    ) -> Found | None:
        """Read to the log end; None where the follower's log diverges."""
        data, diverging = replica.read_for_follower(
            self._replica_id,
            self._replica_epoch,
            requested,
            max_bytes,
            now_ms=self._ctx.broker.clock.monotonic_ms(),
            min_one_message=not self.size_bytes,
            is_repeated=self._was_known,
        )
        if diverging is not None:
            self._add_diverging(key, replica, diverging)
            return None
        if data is not None and self._limit is not None and self._is_throttled(replica):
            return b"", data[1]
        return data

    def _is_throttled(self, replica: Partition) -> bool:
        """Whether a follower is out of sync, listed, and the limit of its leader exceeded."""
        limit = self._limit
        return (
            limit is not None
            and self._replica_id not in replica.isr
            and limit.is_listed(replica.topic_partition)
            and limit.is_exceeded(self._ctx.broker.clock.monotonic_ms())
        )

    def _read_remote(self, key: PartitionKey, replica: Partition, error: KafkaError) -> bool:
        """Send the follower to the local start; it learns where the log begins, as in Kafka."""
        if not isinstance(error, OffsetMovedToTier):
            return False
        self._has_error = True
        self._replicas.append(replica)
        log = replica.log
        self._results.append(
            FetchedPartition(key, error.code, log.high_watermark, -1, log.log_start_offset)
        )
        return True

    def _count_sent(self) -> None:
        traffic = self._ctx.broker.replicas.traffic
        traffic.bytes_out += self.size_bytes
        for fetched, replica in zip(self._results, self._replicas, strict=True):
            if replica is not None and self._replica_id in replica.adding:
                traffic.moved_bytes_out += fetched.size_bytes
        if self._limit is not None:
            self._record(self._limit)

    def _record(self, limit: ReplicationQuota) -> None:
        """Record the bytes of listed partitions, those of followers in sync included."""
        size_bytes = sum(
            fetched.size_bytes
            for fetched, replica in zip(self._results, self._replicas, strict=True)
            if replica is not None and limit.is_listed(replica.topic_partition)
        )
        if size_bytes:
            limit.record(size_bytes, self._ctx.broker.clock.monotonic_ms())


def _agrees(replica: Partition, requested: PartitionFetch) -> bool:
    """Return whether the follower's log is a prefix of ours; newer epochs may begin after it."""
    _, offset, last_fetched_epoch, _, _ = requested
    if last_fetched_epoch < 0:
        return True
    try:
        return replica.diverging_epoch(last_fetched_epoch, offset) is None
    except KafkaError:
        return False


_FOLLOWERS_FROM: Final = 11
_IDS_FROM: Final = 13
"""From this version on consumers may read from any replica (KIP-392)."""
_COMMITTED: Final = FetchIsolation.TXN_COMMITTED  # an enum's members are found slowly
_UNCOMMITTED: Final = FetchIsolation.HIGH_WATERMARK


class ConsumerRead(FetchRead):
    """Reads committed records; refers the client to a nearer replica where there is one."""

    __slots__ = ("_rack_id", "_throttled")

    def __init__(self, ctx: Context, request: FetchValues, session: FetchSession | None) -> None:
        self._throttled: tuple[Partition, ...] = ()
        """Partitions that the rate of reads of the tier leaves empty."""
        self._rack_id = rack_id = request[11]
        is_checked = ctx.api_version < _FOLLOWERS_FROM or (
            ctx.broker.replica_selector is not None and len(rack_id) > 0
        )
        isolation = _COMMITTED if request[6] else _UNCOMMITTED
        FetchRead.__init__(self, ctx, request, session, isolation, is_checked)

    def _session_fetched(self, _session: FetchSession) -> None:
        """Record nothing: only the fetches of followers matter for the ISR."""

    def _is_unchanged(self, cached: CachedPartition) -> bool:
        return cached.is_unchanged()

    def _lacks_right(self, key: PartitionKey) -> bool:
        """Whether the client may not read a topic; an unknown topic id is an error of the read."""
        ctx = self._ctx
        name: str | None = key[0]
        if not name and ctx.api_version >= _IDS_FROM:
            name = ctx.broker.topic_name(key[1])
        return name is not None and not ctx.authorize(Operation.READ, ResourceType.TOPIC, name)

    def _read_checked(
        self, key: PartitionKey, replica: Partition, requested: PartitionFetch, max_bytes: int
    ) -> Found | None:
        """Read for a client that sends its last fetched epoch, an old version, or a rack.

        None where the answer is the diverging epoch (KIP-595) or a nearer replica (KIP-392).
        """
        epoch, offset, last_fetched_epoch, _, _ = requested
        if self._prefers_other(key, replica, epoch, offset):
            return None
        if self._ctx.api_version < _FOLLOWERS_FROM:
            replica.check_leader(max(NO_EPOCH, epoch))  # all negative epochs mean none
        if last_fetched_epoch >= 0:
            replica.check_epoch(max(NO_EPOCH, epoch))
            diverging = replica.diverging_epoch(last_fetched_epoch, offset)
            if diverging is not None:
                self._add_diverging(key, replica, diverging)
                return None
        return replica.read(offset, max_bytes, self.isolation, epoch, not self.size_bytes)

    def _prefers_other(
        self, key: PartitionKey, replica: Partition, epoch: int, offset: int
    ) -> bool:
        """Whether another replica is nearer; it is then the answer."""
        broker = self._ctx.broker
        selector = broker.replica_selector
        if selector is None or not self._rack_id or self._ctx.api_version < _FOLLOWERS_FROM:
            return False
        listener, now_ms = self._ctx.listener_name, broker.clock.monotonic_ms()
        preferred = selector.select(replica, self._rack_id, listener, offset, now_ms)
        if preferred < 0:
            return False
        replica.check_epoch(max(NO_EPOCH, epoch))
        self._has_error = True  # the answer must not wait
        self._add(key, replica, None, b"", 0, None, preferred)
        return True

    def positions(self) -> dict[Partition, int]:
        """Return what is watched, without partitions that wait for the rate of the tier."""
        found = FetchRead.positions(self)
        for replica in self._throttled:
            found.pop(replica, None)
        return found

    def _read_remote(self, key: PartitionKey, replica: Partition, error: KafkaError) -> bool:
        """Begin to read the tier; the partition is empty while its rate is exceeded.

        As in Kafka it takes all the bytes that it may have: how many come is not known yet.
        """
        if not isinstance(error, OffsetMovedToTier):
            return False
        reader = self._ctx.broker.remote_reader
        if reader is None:
            self._fail(key, replica, ErrorCode.OFFSET_OUT_OF_RANGE)
            return True
        if reader.must_wait():
            self._throttled += (replica,)
        else:
            read = reader.read(replica.log, error, self.isolation)
            self.remote = {**self.remote, len(self._results): read}
            self.cold = [] if self.cold is None else self.cold
            self._bytes_left = max(self._bytes_left - error.max_bytes, 0)
        self._add(key, replica, None, b"", 0)
        return True

    def _count_sent(self) -> None:
        for fetched, replica in zip(self._results, self._replicas, strict=True):
            if replica is not None:
                replica.bytes_out += fetched.size_bytes


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
    if read.is_large:
        epoch = 0 if session is None else session.epoch
        return ctx.broker.worker.run(_fetch_in_turns(ctx, request, read, epoch))
    return _answer_or_wait(ctx, request, read, is_due=read.run())


def _answer_or_wait(
    ctx: Context, request: FetchValues, read: FetchRead, *, is_due: bool
) -> FetchAnswer | Pending[FetchAnswer]:
    if not is_due:
        return _wait(ctx, request, read)
    return _gather(ctx, request, read) if read.may_grow else _answer(ctx, read)


def _fetch_in_turns(
    ctx: Context, request: FetchValues, read: FetchRead, epoch: int
) -> Work[FetchAnswer]:
    session = read.session
    turns = read.run_in_turns()
    is_due = yield from turns if ctx.quota_use is None else ctx.quota_use.measured_work(turns)
    if read.is_incremental and session is not None and session.epoch != epoch:
        return _overtaken(session)
    answer = _answer_or_wait(ctx, request, read, is_due=is_due)
    return (yield answer) if isinstance(answer, Pending) else answer


def _read(ctx: Context, request: FetchValues, session: FetchSession | None) -> FetchRead:
    read_of = ConsumerRead if request.replica_id < 0 else FollowerRead
    return read_of(ctx, request, session)


def _answer(ctx: Context, read: FetchRead) -> FetchAnswer | Pending[FetchAnswer]:
    """Answer at once, or after a worker has read what is not in the page cache."""
    if read.cold is not None:
        if read.remote:
            return _when_tier_is_read(ctx, read)
        return when_warm(read.cold, read.response(), ctx.broker.run_on_volume)
    return read.response()


def _when_tier_is_read(ctx: Context, read: FetchRead) -> Pending[FetchAnswer]:
    """Answer with what the tier has sent until remote.fetch.max.wait.ms."""
    pending: Pending[FetchAnswer] = Pending()
    session = read.session
    epoch = 0 if session is None else session.epoch

    def answer() -> None:
        try:
            if read.is_incremental and session is not None and session.epoch != epoch:
                pending.complete(_overtaken(session))
                return
            read.take_remote()
            answered = as_pending(_answer(ctx, read))
        except Exception as error:  # noqa: BLE001 - the read of another fetch may have called this
            pending.fail(error)
            return
        answered.pass_to(pending)

    reader = ctx.broker.remote_reader
    assert reader is not None, "it has begun the reads"
    reader.wait_for_fetches(list(read.remote.values()), answer)
    return pending


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
            answered: FetchAnswer | Pending[FetchAnswer]
            if again.is_large:
                answered = ctx.broker.worker.begin(_answer_in_turns(ctx, again, read, epoch))
            else:
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


def _answer_in_turns(
    ctx: Context, again: FetchRead, first: FetchRead, epoch: int
) -> Work[FetchAnswer]:
    session = again.session
    yield from again.run_again_in_turns(first)
    if again.is_incremental and session is not None and session.epoch != epoch:
        return _overtaken(session)
    answer = _answer(ctx, again)
    return (yield answer) if isinstance(answer, Pending) else answer


def _wait(ctx: Context, request: FetchValues, read: FetchRead) -> Pending[FetchAnswer]:
    broker, session = ctx.broker, read.session
    pending: Pending[FetchAnswer] = Pending()
    answer = _again(ctx, request, read, pending)
    positions = read.positions()
    deadline_ms = broker.clock.monotonic_ms() + request.max_wait_ms
    missing_bytes = read.min_bytes - read.size_bytes - read.grown_bytes
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
