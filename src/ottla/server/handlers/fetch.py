"""Fetch: read logs from given offsets; wait when there is too little.

Kafka: KafkaApis.handleFetchRequest, ReplicaManager.fetchMessages. Hot path:
benchmarks/against_kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.fetch import FetchRequest, FetchResponse
from ottla.protocol.codec import records_size
from ottla.purgatory.pending import Pending
from ottla.replication.delayed_fetch import DelayedFetch
from ottla.replication.partition import NO_EPOCH
from ottla.server.requests.dispatch import handles
from ottla.server.requests.page_cache import is_cold, when_warm
from ottla.storage.log.append_info import FetchIsolation
from ottla.types import FileSlice

if TYPE_CHECKING:
    from ottla.replication.fetch_session import FetchPartition, FetchPlan, PartitionKey
    from ottla.replication.partition import Partition
    from ottla.server.requests.context import Context
    from ottla.storage.log.append_info import FetchData

TopicResponse = FetchResponse.FetchableTopicResponse
PartitionData = TopicResponse.PartitionData
_TOPIC_IDS_FROM = 13
_STORAGE_ERROR_FROM = 6
_LEADERS_FROM = 16
_CONTROLLER = "controller"
_UNKNOWN = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
_LED_ELSEWHERE = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


@handles(FetchRequest)
def fetch(ctx: Context, request: FetchRequest) -> FetchResponse | Pending[FetchResponse]:
    """Answer at once when min_bytes are there, something is wrong, or nobody waits."""
    if ctx.listener == _CONTROLLER:  # the metadata log has no follower yet that could ask for it
        return FetchResponse(error_code=int(ErrorCode.INVALID_REQUEST), responses=[])
    plan = ctx.broker.fetch_sessions.plan(request, ctx.api_version, ctx.now_ms)
    read = FetchRead(ctx, request, plan)
    read.run()
    if read.is_enough:
        return _answer(ctx, read)
    return _wait(ctx, request, read)


def _answer(ctx: Context, read: FetchRead) -> FetchResponse | Pending[FetchResponse]:
    """Answer at once, or when what the disk must give was read."""
    if read.cold and ctx.broker.run_in_worker is not None:
        return when_warm(read.cold, read.response(), ctx.broker.run_in_worker)
    return read.response()


def _wait(ctx: Context, request: FetchRequest, read: FetchRead) -> Pending[FetchResponse]:
    broker = ctx.broker
    pending: Pending[FetchResponse] = Pending()

    def answer() -> None:
        try:
            answered = _answer_again(ctx, request, read.plan)
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
    ctx: Context, request: FetchRequest, plan: FetchPlan
) -> FetchResponse | Pending[FetchResponse]:
    """Read again after a wait; a client that went on with its session meanwhile gets no data."""
    if plan.is_overtaken:
        return FetchResponse(
            error_code=int(ErrorCode.INVALID_FETCH_SESSION_EPOCH),
            session_id=plan.session_id,
            responses=[],
        )
    read = FetchRead(ctx, request, plan)
    read.run()
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
        "_unknown_count",
        "cold",
        "min_bytes",
        "plan",
        "size_bytes",
    )

    def __init__(self, ctx: Context, request: FetchRequest, plan: FetchPlan) -> None:
        self._ctx = ctx
        self._request = request
        self.plan = plan
        self._isolation = (
            FetchIsolation.TXN_COMMITTED
            if request.isolation_level
            else FetchIsolation.HIGH_WATERMARK
        )
        self._bytes_left = min(request.max_bytes, ctx.broker.fetch_max_bytes)
        self.min_bytes = min(request.min_bytes, self._bytes_left)
        self._results: list[tuple[FetchPartition, PartitionData]] = []
        self._has_error = False
        self._unknown_count = 0
        self._leader_ids: set[int] = set()
        self.cold: list[FileSlice] = []
        self.size_bytes = 0

    @property
    def is_enough(self) -> bool:
        """Whether the answer should go out now."""
        request = self._request
        return (
            self.size_bytes >= self.min_bytes
            or self._has_error
            or request.max_wait_ms <= 0
            or self._unknown_count == len(self.plan.partitions)
        )

    def positions(self) -> dict[Partition, int]:
        """Return what a waiting fetch watches: partition → offset from which it reads."""
        return {
            wanted.replica: wanted.fetch_offset
            for wanted in self.plan.partitions
            if wanted.replica is not None
        }

    def run(self) -> None:
        """Read each partition in turn until the byte limit is used up."""
        incremental = self.plan.is_incremental
        for wanted in self.plan.partitions:
            if not (incremental and _is_unchanged(wanted)):
                self._results.append((wanted, self._read(wanted)))

    def _read(self, wanted: FetchPartition) -> PartitionData:
        index = wanted.key.partition
        try:
            replica = self._replica(wanted)
            if self._request.replica_id >= 0 or self._request.replica_state.replica_id >= 0:
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            diverging = _diverging_epoch(replica, wanted)
            if diverging is not None:
                self._has_error = True
                return self._diverged(replica, index, diverging)
            read = replica.read(
                wanted.fetch_offset,
                min(wanted.max_bytes, self._bytes_left),
                isolation=self._isolation,
                current_leader_epoch=_known_epoch(wanted),
                min_one_message=not self.size_bytes,
            )
            return self._data(replica, index, read)
        except KafkaError as error:
            return self._failed(wanted, error.code)
        except OSError:  # no descriptor left, or the disk fails
            return self._failed(wanted, ErrorCode.KAFKA_STORAGE_ERROR)

    def _failed(self, wanted: FetchPartition, code: ErrorCode) -> PartitionData:
        """Answer for one partition; what nobody knows does not end the wait for the others."""
        if code in _UNKNOWN:
            self._unknown_count += 1
        else:
            self._has_error = True
        if code is ErrorCode.KAFKA_STORAGE_ERROR and self._ctx.api_version < _STORAGE_ERROR_FROM:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        data = _without_records(wanted.key.partition, code)
        replica = wanted.replica
        if (
            replica is not None
            and code in _LED_ELSEWHERE
            and self._ctx.api_version >= _LEADERS_FROM
        ):
            data.current_leader = PartitionData.LeaderIdAndEpoch(
                leader_id=replica.leader_id, leader_epoch=replica.leader_epoch
            )
            self._leader_ids.add(replica.leader_id)
        return data

    def _replica(self, wanted: FetchPartition) -> Partition:
        replica = wanted.replica
        if replica is not None and replica.is_leader:
            return replica
        topic = wanted.key.topic
        if self._ctx.api_version >= _TOPIC_IDS_FROM:
            name = self._ctx.broker.topic_name(wanted.key.topic_id)
            if name is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
            topic = name
        wanted.replica = self._ctx.broker.replicas.get(topic, wanted.key.partition)
        return wanted.replica

    def _diverged(self, replica: Partition, index: int, end: tuple[int, int]) -> PartitionData:
        data = self._empty(replica, index)
        data.diverging_epoch = PartitionData.EpochEndOffset(epoch=end[0], end_offset=end[1])
        return data

    def _empty(self, replica: Partition, index: int) -> PartitionData:
        log = replica.log
        return PartitionData(
            partition_index=index,
            high_watermark=log.high_watermark,
            last_stable_offset=log.last_stable_offset,
            log_start_offset=log.log_start_offset,
            aborted_transactions=None,
            records=b"",
        )

    def _data(self, replica: Partition, index: int, read: FetchData) -> PartitionData:
        data = self._empty(replica, index)
        records = data.records = read.records
        size = records_size(records)
        if type(records) is FileSlice and is_cold(records):
            self.cold.append(records)
        self.size_bytes += size
        self._bytes_left = max(0, self._bytes_left - size)
        if read.aborted_transactions is not None:
            data.aborted_transactions = [
                PartitionData.AbortedTransaction(
                    producer_id=aborted.producer_id, first_offset=aborted.first_offset
                )
                for aborted in read.aborted_transactions
            ]
        return data

    def response(self) -> FetchResponse:
        """Shape the answer; partitions that gave data are served last the next time."""
        told = self._results
        for wanted, data in told:
            if data.records and wanted.replica is not None:
                wanted.replica.bytes_out += records_size(data.records)
        if self.plan.session is not None:
            changed = [result for result in told if result[0].must_respond(result[1])]
            if self.plan.is_incremental:
                told = changed
                self.plan.session.serve_later([w.key for w, data in told if data.records])
        return FetchResponse(
            session_id=self.plan.session_id,
            responses=_by_topic([(wanted.key, data) for wanted, data in told]),
            node_endpoints=self._leaders(),
        )

    def _leaders(self) -> list[FetchResponse.NodeEndpoint]:
        """Return where those are whom clients are sent to (KIP-951)."""
        if not self._leader_ids:
            return []
        return [
            FetchResponse.NodeEndpoint(node_id=node.node_id, host=node.host, port=node.port)
            for node in self._ctx.broker.nodes(self._ctx.listener_name)
            if node.node_id in self._leader_ids
        ]


def _is_unchanged(wanted: FetchPartition) -> bool:
    """Return whether an incremental answer can leave the partition out without a read."""
    replica = wanted.replica
    if replica is None or not replica.is_leader:
        return False
    log = replica.log
    return (
        log.failure is None
        and wanted.fetch_offset == wanted.high_watermark == log.high_watermark
        and wanted.log_start_offset == log.log_start_offset
        and wanted.current_leader_epoch in (-1, replica.leader_epoch)
        and wanted.last_fetched_epoch < 0
    )


def _known_epoch(wanted: FetchPartition) -> int:
    """Return the leader epoch that the client knows; here every negative one stands for none."""
    return max(NO_EPOCH, wanted.current_leader_epoch)


def _diverging_epoch(replica: Partition, wanted: FetchPartition) -> tuple[int, int] | None:
    """Return (epoch, end offset) where the fetcher's log leaves ours (KIP-595), else None."""
    if wanted.last_fetched_epoch < 0:
        return None
    replica.check_leader(_known_epoch(wanted))
    end_offset, epoch = replica.log.epoch_end_offset(wanted.last_fetched_epoch)
    if epoch < 0 or end_offset < 0 or wanted.fetch_offset < replica.log.log_start_offset:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
    if epoch < wanted.last_fetched_epoch or end_offset < wanted.fetch_offset:
        return epoch, end_offset
    return None


def _without_records(index: int, code: ErrorCode) -> PartitionData:
    is_known = code not in _UNKNOWN
    return PartitionData(
        partition_index=index,
        error_code=int(code),
        high_watermark=-1,
        last_stable_offset=-1,
        log_start_offset=-1,
        aborted_transactions=None if is_known else [],  # Kafka answers for these before it reads
        records=b"",
    )


def _by_topic(results: list[tuple[PartitionKey, PartitionData]]) -> list[TopicResponse]:
    topics: list[TopicResponse] = []
    last: tuple[str, bytes] | None = None
    for key, data in results:
        if last != (key.topic, key.topic_id):
            last = (key.topic, key.topic_id)
            topics.append(TopicResponse(topic=key.topic, topic_id=key.topic_id, partitions=[]))
        topics[-1].partitions.append(data)
    return topics
