"""Fetch: read logs from given offsets; wait when there is too little.

Kafka: KafkaApis.handleFetchRequest, ReplicaManager.fetchMessages. Hot path:
benchmarks/against_kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.fetch import FetchRequest
from ottla.protocol.fetch_values import FetchAnswer, read_fetch, write_fetch
from ottla.purgatory.pending import Pending
from ottla.replication.delayed_fetch import DelayedFetch
from ottla.replication.fetch_session import INITIAL_EPOCH, INVALID_SESSION_ID, CachedPartition
from ottla.replication.partition import NO_EPOCH
from ottla.security.acl import CLUSTER_NAME, Operation, ResourceType
from ottla.server.handlers.current_leader import current_leader
from ottla.server.requests.api import Form, handles
from ottla.server.requests.page_cache import when_warm
from ottla.storage.log.append_info import FetchIsolation
from ottla.types import FileSlice

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Sequence

    from ottla.protocol.fetch_values import (
        FetchedPartition,
        FetchValues,
        PartitionFetch,
        PartitionKey,
    )
    from ottla.quota.replication import ReplicationQuota
    from ottla.replication.fetch_session import FetchSession
    from ottla.replication.partition import Partition
    from ottla.server.requests.context import Context
    from ottla.storage.indexes.transaction_index import AbortedTransaction
    from ottla.storage.log.reads import Found
    from ottla.types import Node, SendItem

_FOLLOWERS_FROM: Final = 11
"""From this version on consumers may read from any replica (KIP-392)."""
_DIVERGING_FROM: Final = 12
_TOPIC_IDS_FROM: Final = 13
_STORAGE_ERROR_FROM: Final = 6
_LEADERS_FROM: Final = 16
_UNKNOWN: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
_LED_ELSEWHERE: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
# looked up once: an enum's members are found slowly
_COMMITTED: Final = FetchIsolation.TXN_COMMITTED
_UNCOMMITTED: Final = FetchIsolation.HIGH_WATERMARK
_LOG_END: Final = FetchIsolation.LOG_END
_SMALL_BYTES: Final = 64 * 1024
_SIZE: Final = 7  # in a FetchedPartition
_DIVERGING: Final = 8
_new_tuple: Final = tuple.__new__


def fail_request(_request: FetchValues, error: KafkaError) -> FetchAnswer:
    """Return the response of a fetch that failed as a whole."""
    return FetchAnswer(int(error.code), 0, ())


@handles(FetchRequest, form=Form(read_fetch, write_fetch, fail_request), listener="broker")
def fetch(ctx: Context, request: FetchValues) -> FetchAnswer | Pending[FetchAnswer]:
    """Answer at once when min_bytes are there, something is wrong, or the client does not wait."""
    session = ctx.broker.fetch_sessions.session_of(request, ctx.api_version, ctx.now_ms)
    read = FetchRead(ctx, request, session)
    if read.run():
        return _gather(ctx, request, read) if read.may_grow else _answer(ctx, read)
    return _wait(ctx, request, read)


def _answer(ctx: Context, read: FetchRead) -> FetchAnswer | Pending[FetchAnswer]:
    """Answer at once, or when what the disk must give was read."""
    if read.cold is not None:
        return when_warm(read.cold, read.response(), ctx.broker.run_on_volume)
    return read.response()


def _gather(ctx: Context, request: FetchValues, read: FetchRead) -> Pending[FetchAnswer]:
    """Answer a follower when appends pause for a moment: a fetch costs as much as some appends.

    What it had fetched before is acknowledged by now, so that producers are about to send more.
    """
    pending: Pending[FetchAnswer] = Pending()
    ctx.broker.replicas.when_quiet(_again(ctx, request, read, pending))
    return pending


def _again(
    ctx: Context, request: FetchValues, read: FetchRead, pending: Pending[FetchAnswer]
) -> Callable[[], None]:
    """Return what reads once more and completes the answer."""
    session = read.session
    epoch = 0 if session is None else session.epoch

    def answer() -> None:
        try:
            if read.is_incremental and session is not None and session.epoch != epoch:
                pending.complete(_overtaken(session))
                return
            again = FetchRead(ctx, request, session)
            again.run_again(read)
            answered = _answer(ctx, again)
        except Exception as error:  # noqa: BLE001 - it is not the fault of the producer that wakes us up
            pending.fail(error)
            return
        if isinstance(answered, Pending):
            answered.then(pending.complete)
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


def _agrees(replica: Partition, requested: PartitionFetch) -> bool:
    """Return whether a log that ends so is ours up to its end, in which newer epochs may begin."""
    _, offset, last_fetched_epoch, _, _ = requested
    if last_fetched_epoch < 0:
        return True
    try:
        return replica.diverging_epoch(last_fetched_epoch, offset) is None
    except KafkaError:
        return False


def _overtaken(session: FetchSession) -> FetchAnswer:
    """Return the response to a client that has continued its session while a request waited."""
    return FetchAnswer(int(ErrorCode.INVALID_FETCH_SESSION_EPOCH), session.session_id, ())


class FetchRead:
    """One pass over the partitions of a fetch."""

    __slots__ = (
        "_bytes_left",
        "_cached",
        "_ctx",
        "_has_error",
        "_is_checked",
        "_is_denied",
        "_leader_ids",
        "_limit",
        "_max_wait_ms",
        "_partitions",
        "_rack_id",
        "_replica_epoch",
        "_replica_id",
        "_replicas",
        "_results",
        "_was_known",
        "cold",
        "is_incremental",
        "isolation",
        "min_bytes",
        "session",
        "size_bytes",
        "unknown",
    )

    def __init__(self, ctx: Context, request: FetchValues, session: FetchSession | None) -> None:
        (
            _, replica_id, replica_epoch, max_wait_ms, min_bytes, max_bytes, isolation_level,
            _, session_epoch, partitions, _, rack_id,
        ) = request  # fmt: skip
        self._ctx = ctx
        self.session = session
        if session is None:
            self.is_incremental = False
            self._cached: dict[PartitionKey, CachedPartition] = {}
        else:
            self.is_incremental = session_epoch != INITIAL_EPOCH
            self._cached = session.partitions
        self._partitions = partitions
        self._replica_id = replica_id
        self._replica_epoch = replica_epoch
        self._rack_id = rack_id
        self._is_checked = (
            replica_id >= 0
            or ctx.api_version < _FOLLOWERS_FROM
            or (ctx.broker.replica_selector is not None and len(rack_id) > 0)
        )
        """Whether more decides than what the partition itself knows."""
        self._max_wait_ms = max_wait_ms
        self.isolation = _COMMITTED if isolation_level else _UNCOMMITTED
        if replica_id >= 0:
            self.isolation = _LOG_END
        limit = ctx.broker.fetch_max_bytes
        if max_bytes > limit:  # noqa: PLR1730 - half the cost of min()
            max_bytes = limit
        self._bytes_left = max_bytes
        self.min_bytes = min_bytes if min_bytes < max_bytes else max_bytes  # noqa: FURB136 - see above
        self._results: list[FetchedPartition] = []
        self._replicas: list[Partition | None] = []
        """Of each result, where it was found."""
        quota = ctx.broker.quotas.replication.leader
        self._limit = quota if quota.is_on and replica_id >= 0 else None
        """Of what followers out of sync are sent."""
        self._has_error = False
        self._is_denied = None if ctx.broker.authorizer is None else self._lacks_right
        self._was_known = False
        self._leader_ids: set[int] | None = None
        self.unknown: dict[PartitionKey, FetchedPartition] | None = None
        self.cold: list[FileSlice] | None = None
        self.size_bytes = 0

    @property
    def may_grow(self) -> bool:
        """Whether a follower gets so little that the next records should go with it."""
        return (
            self._replica_id >= 0
            and 0 < self.size_bytes < _SMALL_BYTES
            and self._max_wait_ms > 0
            and not self._has_error
        )

    def positions(self) -> dict[Partition, int]:
        """Return what a waiting fetch watches: partition → offset from which it reads.

        Idle partitions of a session are added when they change.
        """
        if self.session is None:
            for (key, requested), replica in zip(
                self._partitions.items(), self._replicas, strict=True
            ):
                self._cached[key] = cached = CachedPartition(key, requested)
                if replica is not None:
                    cached.found(replica)
        active = self._cached.values() if self.session is None else self.session.active()
        found = {
            cached.replica: cached.fetch_offset for cached in active if cached.replica is not None
        }
        if self._limit is not None:  # records of these would not be sent
            found = {one: offset for one, offset in found.items() if not self._must_wait(one)}
        return found

    def run(self) -> bool:
        """Read each partition in turn until the byte limit is used up.

        Return whether the response should go out now.
        """
        session, count = self.session, len(self._partitions)
        if session is None:
            for key, requested in self._partitions.items():
                self._read(key, requested)
        else:
            count = len(self._cached)
            if self._replica_id >= 0 and not self._was_known:
                self._fetched_by_follower(session)
            # with a negative limit the first partition counts that is read, also one without news
            skips_unchanged = (
                self.is_incremental
                and self._has_same_rights(session)
                and self._bytes_left >= 0
                and (not self._is_checked or self._replica_id >= 0)
            )
            if not skips_unchanged:
                session.activate_all()
            for cached in session.active():
                if skips_unchanged and (
                    cached.is_unchanged()
                    if self._replica_id < 0
                    else self._is_unchanged_follower(cached)
                ):
                    session.unchanged(cached)
                else:
                    cached.was_unchanged = False
                    self._read_cached(cached.key, cached)
        return (
            self.size_bytes >= self.min_bytes
            or self._has_error
            or self._max_wait_ms <= 0
            or (self.unknown is not None and len(self.unknown) == count)
        )

    def _fetched_by_follower(self, session: FetchSession) -> None:
        """Note the time for idle partitions; a former incarnation is refused at each partition."""
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

    def _is_unchanged_follower(self, cached: CachedPartition) -> bool:
        """Return whether a follower in sync has all there is and knows it; note that it fetched."""
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

    def run_again(self, first: FetchRead) -> None:
        """Read what was known before a wait: what was unknown stays so, as in Kafka."""
        self._was_known = True
        self._cached = first._cached
        if first.unknown is None:
            self.run()
            return
        session = self.session
        active = self._cached.values() if session is None else session.active()
        for cached in list(active):
            answered = first.unknown.get(cached.key)
            if answered is None:
                self._read_cached(cached.key, cached)
            else:
                self._results.append(answered)
                self._replicas.append(None)

    def _has_same_rights(self, session: FetchSession) -> bool:
        """Whether no right has changed since the session's last fetch."""
        authorizer = self._ctx.broker.authorizer
        version = 0 if authorizer is None else authorizer.version
        is_same = session.rights_version == version
        session.rights_version = version
        return is_same

    def _lacks_right(self, key: PartitionKey) -> bool:
        """Whether the client may not read a partition; an unknown topic id is not found instead.

        A follower needs CLUSTER_ACTION: the replica id alone proves nothing (CVE-2018-1288).
        """
        ctx = self._ctx
        if self._replica_id >= 0:
            return not ctx.authorize(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)
        name = key[0] or ctx.broker.topic_name(key[1])
        return name is not None and not ctx.authorize(Operation.READ, ResourceType.TOPIC, name)

    def _read_cached(self, key: PartitionKey, cached: CachedPartition) -> None:
        self._read(key, cached.requested)
        replica = self._replicas[-1]
        if replica is not None and replica is not cached.replica:
            cached.found(replica)

    def _read(  # noqa: C901 - each further function costs half a microsecond here
        self, key: PartitionKey, requested: PartitionFetch
    ) -> None:
        """Read one partition; what is unusual branches off where it is found."""
        topic, topic_id, index = key
        epoch, offset, last_fetched_epoch, _, max_bytes = requested
        replica = None
        try:
            if self._is_denied is not None and self._is_denied(key):
                raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            if not topic:
                held = self._ctx.broker.replicas.by_topic_id.get(topic_id)
                replica = None if held is None else held.get(index)
            if replica is None:
                replica = self._find(key)
            if max_bytes > self._bytes_left:  # noqa: PLR1730 - see above
                max_bytes = self._bytes_left
            if last_fetched_epoch >= 0 or self._is_checked:
                data = self._read_checked(key, replica, requested, max_bytes)
                if data is None:
                    return
            else:
                data = replica.read(offset, max_bytes, self.isolation, epoch, not self.size_bytes)
            records, aborted = data
            if type(records) is not FileSlice:
                if self._bytes_left < 0:
                    self._end_negative_limit()
                self._add(key, replica, aborted, b"", 0)
                return
            file, position, size = records
            if not file.is_cached(position, size):  # type: ignore[attr-defined] # a log's own file
                self.cold = [records] if self.cold is None else [*self.cold, records]
        except KafkaError as error:
            self._fail(key, replica, error.code)
            return
        except OSError:  # no descriptor left, or the disk fails
            self._fail(key, replica, ErrorCode.KAFKA_STORAGE_ERROR)
            return
        self.size_bytes += size
        self._bytes_left = self._bytes_left - size if self._bytes_left > size else 0
        self._add(key, replica, aborted, records, size)

    def _read_checked(
        self, key: PartitionKey, replica: Partition, requested: PartitionFetch, max_bytes: int
    ) -> Found | None:
        """Read for a follower, for a client that knows the epoch of what it read last, and others.

        Where its log leaves ours it is answered that instead (KIP-595), and where another replica
        is nearer that one (KIP-392): None.
        """
        data: Found | None
        epoch, offset, last_fetched_epoch, _, _ = requested
        if self._replica_id >= 0:
            data, diverging = replica.read_for_follower(
                self._replica_id,
                self._replica_epoch,
                requested,
                max_bytes,
                now_ms=self._ctx.broker.clock.monotonic_ms(),
                min_one_message=not self.size_bytes,
                is_repeated=self._was_known,
            )
            if data is not None and self._limit is not None and self._must_wait(replica):
                data = b"", data[1]
        else:
            if self._prefers_other(key, replica, epoch, offset):
                return None
            if self._ctx.api_version < _FOLLOWERS_FROM:
                replica.check_leader(max(NO_EPOCH, epoch))  # as below zero
            diverging = data = None
            if last_fetched_epoch >= 0:
                replica.check_epoch(max(NO_EPOCH, epoch))
                diverging = replica.diverging_epoch(last_fetched_epoch, offset)
            if diverging is None:
                data = replica.read(offset, max_bytes, self.isolation, epoch, not self.size_bytes)
        if diverging is not None:
            self._has_error = True
            self._add(key, replica, None, b"", 0, diverging)
        return data

    def _must_wait(self, replica: Partition) -> bool:
        """Whether a follower is out of sync, listed, and the limit of its leader exceeded."""
        limit = self._limit
        return (
            limit is not None
            and self._replica_id not in replica.isr
            and limit.is_listed(replica.topic_partition)
            and limit.is_exceeded(self._ctx.broker.clock.monotonic_ms())
        )

    def _prefers_other(
        self, key: PartitionKey, replica: Partition, epoch: int, offset: int
    ) -> bool:
        """Answer which replica to read from, when it is not this one."""
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

    def _add(
        self,
        key: PartitionKey,
        replica: Partition,
        aborted: Sequence[AbortedTransaction] | None,
        records: SendItem,
        size: int,
        diverging: tuple[int, int] | None = None,
        preferred: int = -1,
    ) -> None:
        log = replica.log
        high_watermark = log.high_watermark
        stable = high_watermark if log.first_unstable_offset is None else log.last_stable_offset
        start = log.log_start_offset
        self._results.append((
            key, 0, high_watermark, stable, start, aborted, records, size, diverging, None,
            preferred,
        ))  # fmt: skip
        self._replicas.append(replica)

    def _fail(self, key: PartitionKey, replica: Partition | None, code: ErrorCode) -> None:
        """Answer for one partition; an unknown one does not end the wait for the others."""
        is_known = code not in _UNKNOWN
        if is_known:
            self._has_error = True
            self._end_negative_limit()
        version = self._ctx.api_version
        if code is ErrorCode.KAFKA_STORAGE_ERROR and version < _STORAGE_ERROR_FROM:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        leader = None
        if code in _LED_ELSEWHERE and version >= _LEADERS_FROM:
            leader = current_leader(self._ctx, key[1], key[2], replica)
            if leader is not None:
                self._leader_ids = (self._leader_ids or set()) | {leader[0]}
        self._replicas.append(replica)
        if is_known or self._was_known:
            empty = () if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED else None
            self._results.append((key, int(code), -1, -1, -1, empty, b"", 0, None, leader, -1))
            return
        unknown: FetchedPartition = (key, int(code), -1, -1, -1, (), b"", 0, None, None, -1)
        self.unknown = {} if self.unknown is None else self.unknown
        self.unknown[key] = unknown
        self._results.append(unknown)  # Kafka answers for these before it reads

    def _end_negative_limit(self) -> None:
        """Continue with a limit of zero after the first read, as Kafka."""
        self._bytes_left = max(self._bytes_left, 0)

    def _find(self, key: PartitionKey) -> Partition:
        """Return the replica of a partition that is named, or that is not held by its topic id.

        As in Kafka, a session remembers the name behind a topic id.
        """
        topic, topic_id, index = key
        broker = self._ctx.broker
        if self._ctx.api_version >= _TOPIC_IDS_FROM:
            cached = self._cached.get(key)
            name = broker.topic_name(topic_id)
            if name is None and cached is not None and cached.topic:
                is_recreated = broker.has_partition(cached.topic, index)
                raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID if is_recreated else _UNKNOWN[0])
            if name is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
            topic = name
            if cached is not None:
                cached.topic = name
        return broker.replicas.get(topic, index)

    def response(self) -> FetchAnswer:
        """Return the response; with a session it names what has changed."""
        results, session = self._results, self.session
        if self._has_error and session is not None and not self._can_be_told():
            return FetchAnswer(int(ErrorCode.UNSUPPORTED_VERSION), session.session_id, ())
        if self._replica_id < 0:
            for fetched, replica in zip(results, self._replicas, strict=True):
                if replica is not None:
                    replica.bytes_out += fetched[_SIZE]
        elif self.size_bytes:
            self._count_replicated()
        session_id = INVALID_SESSION_ID
        if session is not None:
            session_id = session.session_id
            changed = session.changed(results)
            if self.is_incremental:
                session.serve_later(changed)
                results = changed
        if self._limit is not None:
            self._count(self._limit)
        leaders = () if self._leader_ids is None else self._leaders(self._leader_ids)
        answer: FetchAnswer = _new_tuple(FetchAnswer, (0, session_id, results, leaders))
        return answer

    def _can_be_told(self) -> bool:
        """Whether the version can say, as a newer one began it, where a log diverges."""
        return self._ctx.api_version >= _DIVERGING_FROM or all(
            fetched[_DIVERGING] is None for fetched in self._results
        )

    def _count_replicated(self) -> None:
        """Count what a follower is sent."""
        traffic = self._ctx.broker.replicas.traffic
        traffic.bytes_out += self.size_bytes
        for fetched, replica in zip(self._results, self._replicas, strict=True):
            if replica is not None and self._replica_id in replica.adding:
                traffic.moved_bytes_out += fetched[_SIZE]

    def _count(self, limit: ReplicationQuota) -> None:
        """Count what followers are sent of listed partitions, also those in sync."""
        size_bytes = sum(
            fetched[_SIZE]
            for fetched, replica in zip(self._results, self._replicas, strict=True)
            if replica is not None and limit.is_listed(replica.topic_partition)
        )
        if size_bytes:
            limit.record(size_bytes, self._ctx.broker.clock.monotonic_ms())

    def _leaders(self, leader_ids: set[int]) -> list[Node]:
        """Return the addresses of leaders that clients are referred to (KIP-951)."""
        nodes = self._ctx.broker.nodes(self._ctx.listener_name)
        return [node for node in nodes if node.node_id in leader_ids]
