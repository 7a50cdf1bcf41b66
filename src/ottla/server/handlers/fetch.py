"""Fetch: read logs from given offsets; wait when there is too little.

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
from ottla.replication.partition import NO_EPOCH
from ottla.server.requests.api import Form, handles
from ottla.server.requests.page_cache import is_cold, when_warm
from ottla.storage.log.append_info import FetchIsolation
from ottla.types import FileSlice

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.protocol.fetch_values import FetchValues, PartitionKey
    from ottla.replication.fetch_session import FetchPartition, FetchPlan
    from ottla.replication.partition import Partition
    from ottla.server.requests.context import Context
    from ottla.storage.indexes.transaction_index import AbortedTransaction
    from ottla.types import Node

_TOPIC_IDS_FROM: Final = 13
_STORAGE_ERROR_FROM: Final = 6
_LEADERS_FROM: Final = 16
_UNKNOWN: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
_LED_ELSEWHERE: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
# looked up once: an enum's members are found slowly
_COMMITTED: Final = FetchIsolation.TXN_COMMITTED
_UNCOMMITTED: Final = FetchIsolation.HIGH_WATERMARK
_new_tuple: Final = tuple.__new__


def fail_request(_request: FetchValues, error: KafkaError) -> FetchAnswer:
    """Return the response of a fetch that failed as a whole."""
    return FetchAnswer(int(error.code), 0, ())


@handles(FetchRequest, form=Form(read_fetch, write_fetch, fail_request), listener="broker")
def fetch(ctx: Context, request: FetchValues) -> FetchAnswer | Pending[FetchAnswer]:
    """Answer at once when min_bytes are there, something is wrong, or the client does not wait."""
    plan = ctx.broker.fetch_sessions.plan(request, ctx.api_version, ctx.now_ms)
    read = FetchRead(ctx, request, plan)
    read.run()
    if read.is_enough:
        return _answer(ctx, read)
    return _wait(ctx, request, read)


def _answer(ctx: Context, read: FetchRead) -> FetchAnswer | Pending[FetchAnswer]:
    """Answer at once, or when what the disk must give was read."""
    if read.cold and ctx.broker.run_in_worker is not None:
        return when_warm(read.cold, read.response(), ctx.broker.run_in_worker)
    return read.response()


def _wait(ctx: Context, request: FetchValues, read: FetchRead) -> Pending[FetchAnswer]:
    broker = ctx.broker
    pending: Pending[FetchAnswer] = Pending()

    def answer() -> None:
        try:
            answered = _answer_again(ctx, request, read)
        except Exception as error:  # noqa: BLE001 - it is not the fault of the producer that wakes us up
            pending.fail(error)
            return
        if isinstance(answered, Pending):
            answered.then(pending.complete)
        else:
            pending.complete(answered)

    positions = read.positions()
    deadline_ms = broker.clock.monotonic_ms() + request.max_wait_ms
    missing_bytes = read.min_bytes - read.size_bytes
    delayed = DelayedFetch(deadline_ms, positions, missing_bytes, answer)
    broker.delayed_fetches.try_complete_else_watch(delayed, positions)
    return pending


def _answer_again(
    ctx: Context, request: FetchValues, first: FetchRead
) -> FetchAnswer | Pending[FetchAnswer]:
    """Read again after a wait; a client that has continued its session meanwhile gets no data."""
    plan = first.plan
    if plan.is_overtaken:
        return FetchAnswer(int(ErrorCode.INVALID_FETCH_SESSION_EPOCH), plan.session_id, ())
    read = FetchRead(ctx, request, plan)
    read.run_again(first)
    return _answer(ctx, read)


class FetchRead:
    """One pass over the partitions of a fetch."""

    __slots__ = (
        "_bytes_left",
        "_ctx",
        "_has_error",
        "_isolation",
        "_leader_ids",
        "_request",
        "_results",
        "_was_known",
        "cold",
        "min_bytes",
        "plan",
        "size_bytes",
        "unknown",
    )

    def __init__(self, ctx: Context, request: FetchValues, plan: FetchPlan) -> None:
        self._ctx = ctx
        self._request = request
        self.plan = plan
        self._isolation = _COMMITTED if request.isolation_level else _UNCOMMITTED
        bytes_left = self._bytes_left = min(request.max_bytes, ctx.broker.fetch_max_bytes)
        self.min_bytes = min(request.min_bytes, bytes_left)
        self._results: list[tuple[FetchPartition, FetchedPartition]] = []
        self._has_error = False
        self._was_known = False
        self.unknown: dict[PartitionKey, FetchedPartition] | None = None
        self._leader_ids: set[int] = set()
        self.cold: list[FileSlice] = []
        self.size_bytes = 0

    @property
    def is_enough(self) -> bool:
        """Whether the response should go out now."""
        return (
            self.size_bytes >= self.min_bytes
            or self._has_error
            or self._request.max_wait_ms <= 0
            or (self.unknown is not None and len(self.unknown) == len(self.plan.partitions))
        )

    def positions(self) -> dict[Partition, int]:
        """Return what a waiting fetch watches: partition → offset from which it reads."""
        return {
            requested.replica: requested.fetch_offset
            for requested in self.plan.partitions
            if requested.replica is not None
        }

    def run(self) -> None:
        """Read each partition in turn until the byte limit is used up."""
        results = self._results
        # with a negative limit the first partition counts that is read, also one without news
        is_incremental = self.plan.is_incremental and self._bytes_left >= 0
        for requested in self.plan.partitions:
            if not (is_incremental and _is_unchanged(requested)):
                results.append((requested, self._read(requested)))

    def run_again(self, first: FetchRead) -> None:
        """Read what was known before a wait: what was unknown stays so, as in Kafka."""
        self._was_known = True
        if first.unknown is None:
            self.run()
            return
        for requested in self.plan.partitions:
            answered = first.unknown.get(requested.key)
            self._results.append((requested, answered or self._read(requested)))

    def _read(self, requested: FetchPartition) -> FetchedPartition:
        try:
            replica = requested.replica
            if replica is None or not replica.is_leader:
                replica = self._find(requested)
            if self._request.replica_id >= 0:
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            if requested.last_fetched_epoch >= 0:
                diverging = _diverging_epoch(replica, requested)
                if diverging is not None:
                    self._has_error = True
                    return _fetched(requested, replica)._replace(diverging_epoch=diverging)
            max_bytes, epoch = requested.max_bytes, requested.current_leader_epoch
            records, _, aborted = replica.read(
                requested.fetch_offset,
                min(self._bytes_left, max_bytes),
                isolation=self._isolation,
                current_leader_epoch=epoch if epoch >= 0 else NO_EPOCH,
                min_one_message=not self.size_bytes,
            )
            if type(records) is not FileSlice:
                if self._bytes_left < 0:
                    self._end_negative_limit()
                return _fetched(requested, replica, aborted)
            if is_cold(records):
                self.cold.append(records)
        except KafkaError as error:
            return self._failed(requested, error.code)
        except OSError:  # no descriptor left, or the disk fails
            return self._failed(requested, ErrorCode.KAFKA_STORAGE_ERROR)
        size = records.size
        self.size_bytes += size
        self._bytes_left = max(0, self._bytes_left - size)
        return _fetched(requested, replica, aborted, records, size)

    def _failed(self, requested: FetchPartition, code: ErrorCode) -> FetchedPartition:
        """Answer for one partition; an unknown one does not end the wait for the others."""
        is_known = code not in _UNKNOWN
        if is_known:
            self._has_error = True
            self._end_negative_limit()
        version, replica = self._ctx.api_version, requested.replica
        if code is ErrorCode.KAFKA_STORAGE_ERROR and version < _STORAGE_ERROR_FROM:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        leader = None
        if replica is not None and code in _LED_ELSEWHERE and version >= _LEADERS_FROM:
            leader = replica.leader_id, replica.leader_epoch
            self._leader_ids.add(replica.leader_id)
        if is_known or self._was_known:
            return FetchedPartition(
                requested.key, int(code), -1, -1, -1, None, b"", 0, current_leader=leader
            )
        unknown = FetchedPartition(requested.key, int(code), -1, -1, -1, (), b"", 0)
        if self.unknown is None:
            self.unknown = {}
        self.unknown[requested.key] = unknown
        return unknown  # Kafka answers for these before it reads

    def _end_negative_limit(self) -> None:
        """Continue with a limit of zero after the first read, as Kafka."""
        self._bytes_left = max(self._bytes_left, 0)

    def _find(self, requested: FetchPartition) -> Partition:
        """Return the replica; as in Kafka, a session remembers the name behind a topic id."""
        topic, topic_id, index = requested.key
        broker = self._ctx.broker
        held = None if topic else broker.replicas.by_topic_id.get(topic_id)
        if held is not None and index in held:
            requested.replica = held[index]
            requested.topic = requested.replica.topic_partition.topic
            return requested.replica
        if self._ctx.api_version >= _TOPIC_IDS_FROM:
            name = broker.topic_name(topic_id)
            if name is None and requested.topic:
                is_recreated = broker.has_partition(requested.topic, index)
                raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID if is_recreated else _UNKNOWN[0])
            if name is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
            topic = requested.topic = name
        requested.replica = broker.replicas.get(topic, index)
        return requested.replica

    def response(self) -> FetchAnswer:
        """Return the response; partitions that gave data are served last the next time."""
        results, plan = self._results, self.plan
        session = plan.session
        fetched = []
        for requested, one in results:
            if one.size_bytes and requested.replica is not None:
                requested.replica.bytes_out += one.size_bytes
            must_respond = session is None or requested.must_respond(one)
            if must_respond or not plan.is_incremental:
                fetched.append(one)
        if plan.is_incremental and session is not None and len(session.partitions) > 1:
            session.serve_later([one.key for one in fetched if one.size_bytes])
        leaders = self._leaders() if self._leader_ids else ()
        answer: FetchAnswer = _new_tuple(FetchAnswer, (0, plan.session_id, fetched, leaders))
        return answer

    def _leaders(self) -> list[Node]:
        """Return the addresses of leaders that clients are referred to (KIP-951)."""
        nodes = self._ctx.broker.nodes(self._ctx.listener_name)
        return [node for node in nodes if node.node_id in self._leader_ids]


def _fetched(
    requested: FetchPartition,
    replica: Partition,
    aborted: Sequence[AbortedTransaction] | None = None,
    records: FileSlice | bytes = b"",
    size_bytes: int = 0,
) -> FetchedPartition:
    log = replica.log
    fetched: FetchedPartition = _new_tuple(
        FetchedPartition,
        (
            requested.key,
            0,
            log.high_watermark,
            log.last_stable_offset,
            log.log_start_offset,
            aborted,
            records,
            size_bytes,
            None,
            None,
        ),
    )
    return fetched


def _is_unchanged(requested: FetchPartition) -> bool:
    """Return whether an incremental response can leave the partition out without a read."""
    replica = requested.replica
    if replica is None or not replica.is_leader:
        return False
    log = replica.log
    return (
        log.failure is None
        and requested.fetch_offset == requested.high_watermark == log.high_watermark
        and requested.log_start_offset == log.log_start_offset
        and requested.current_leader_epoch in (-1, replica.leader_epoch)
        and requested.last_fetched_epoch < 0
    )


def _known_epoch(requested: FetchPartition) -> int:
    """Return the leader epoch that the client knows; here every negative one stands for none."""
    return max(NO_EPOCH, requested.current_leader_epoch)


def _diverging_epoch(replica: Partition, requested: FetchPartition) -> tuple[int, int] | None:
    """Return (epoch, end offset) where the fetcher's log leaves ours (KIP-595), else None."""
    replica.check_leader(_known_epoch(requested))
    end_offset, epoch = replica.log.epoch_end_offset(requested.last_fetched_epoch)
    if epoch < 0 or end_offset < 0 or requested.fetch_offset < replica.log.log_start_offset:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
    if epoch < requested.last_fetched_epoch or end_offset < requested.fetch_offset:
        return epoch, end_offset
    return None
