"""Replicates partitions that one other broker leads, with one request in flight.

`poll` returns the next request, `received` and `failed` take its outcome. Each request names only
partitions whose position changed since the one before (KIP-227): idle partitions cost nothing.
There is no truncation before fetching (KIP-595): each fetch carries the last epoch of the log; a
leader whose log has another epoch there returns the end of the last epoch that both may share. The
follower truncates to it and goes on once the truncation is durable: after a power failure truncated
bytes could reappear below newer ones. Thousands of logs may have to be cut after one
response: `truncate` cuts some at a time. A log outside of the leader's range begins at the leader's
start, or loses what the leader does not have, after ListOffsets. Where the leader has the next
record in remote storage alone, the log begins again behind it, with the epochs and producers that
remote storage has (KIP-405).

Each replica is in one `FetchState`; `MOVES` lists the legal moves, and `_move` makes them all. Only
a replica that is FETCHING is part of the leader's session.

Hot path: `poll` and `received`. benchmarks/against_kafka.
Kafka: kafka.server.{AbstractFetcherThread, ReplicaFetcherThread}, FetchSessionHandler.
"""

from __future__ import annotations

import logging
from enum import Enum
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from ottla.errors import CorruptMessage, ErrorCode, KafkaError
from ottla.protocol.apis.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from ottla.protocol.fetch_values import FetchValues
from ottla.protocol.offset_timestamps import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from ottla.replication.log_copy import Cut, cut_without_epochs
from ottla.storage.disk_errors import is_exhaustion
from ottla.storage.log.append_info import UnexpectedAppendOffset

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ottla.protocol.fetch_values import (
        FetchAnswer,
        FetchedPartition,
        PartitionFetch,
        PartitionKey,
    )
    from ottla.replication.partition import Partition
    from ottla.replication.replica_set import ReplicationTraffic
    from ottla.storage.log.partition_log import PartitionLog
    from ottla.types import TopicPartition

log = logging.getLogger("ottla.replication")
_FULL: Final = 0
NAMED_AT_ONCE: Final = 500
"""New partitions of a request: at 10 µs each it is written, read and answered in less than 10 ms.
The others follow with the next requests of the session, which are answered at once."""
_MAX_EPOCH: Final = 0x7FFF_FFFF
_OffsetTopic = ListOffsetsRequest.ListOffsetsTopic
_SESSION_ERRORS: Final = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)
_new_tuple: Final = tuple.__new__


class FetchState(Enum):
    """What a replica waits for."""

    FETCHING = "the leader's next records"
    DELAYED = "the end of the back-off after an error"
    THROTTLED = "a rate below the limit of listed replicas"
    LOOKING_UP = "the leader's first or last offset: the log is out of its range"
    CUT = "the recovery point that allows the log to be truncated"
    CUTTABLE = "its turn to be truncated"
    BUILDING_REMOTE_STATE = "the epochs and producers at the end of what remote storage has"
    UNFLUSHED = "the start of the flush that makes its truncation durable"
    FLUSHING = "the end of that flush"
    REMOVED = "nothing: it is no longer replicated from this leader"

    __hash__ = object.__hash__  # the states are keys on the way of each request


_GOES_ON: Final = frozenset({FetchState.FETCHING, FetchState.LOOKING_UP, FetchState.UNFLUSHED})
"""Where a replica goes that nothing holds back: LOOKING_UP if a look-up is still to be made,
UNFLUSHED if its last truncation is not durable."""

MOVES: Final[dict[FetchState, frozenset[FetchState]]] = {
    FetchState.FETCHING: _GOES_ON
    | {FetchState.DELAYED, FetchState.THROTTLED, FetchState.CUT, FetchState.REMOVED}
    | {FetchState.BUILDING_REMOTE_STATE},
    FetchState.DELAYED: _GOES_ON | {FetchState.REMOVED},
    FetchState.THROTTLED: frozenset({FetchState.FETCHING, FetchState.REMOVED}),
    FetchState.LOOKING_UP: _GOES_ON | {FetchState.DELAYED, FetchState.CUT, FetchState.REMOVED},
    FetchState.CUT: frozenset({FetchState.CUTTABLE, FetchState.REMOVED}),
    FetchState.CUTTABLE: _GOES_ON | {FetchState.DELAYED, FetchState.REMOVED},
    FetchState.BUILDING_REMOTE_STATE: frozenset(
        {FetchState.CUT, FetchState.DELAYED, FetchState.REMOVED}
    ),
    FetchState.UNFLUSHED: frozenset({FetchState.FLUSHING, FetchState.REMOVED}),
    FetchState.FLUSHING: _GOES_ON | {FetchState.REMOVED},
    FetchState.REMOVED: _GOES_ON | {FetchState.CUT},
}
"""The legal moves; a replica begins as REMOVED."""


class FetcherSettings(NamedTuple):
    """The settings replica.fetch.*."""

    max_bytes: int = 1_048_576
    response_max_bytes: int = 10_485_760
    min_bytes: int = 1
    wait_max_ms: int = 500
    backoff_ms: int = 1000


class FollowerLimit(Protocol):
    """Limits the rate of fetches for listed replicas that lag (KIP-73)."""

    is_on: bool
    """Whether any replica is listed."""

    def is_listed(self, partition: TopicPartition, /) -> bool:
        """Whether the limit holds for a partition."""

    def is_exceeded(self, now_ms: int, /) -> bool:
        """Whether listed replicas that lag have to wait."""

    def record(self, size_bytes: int, now_ms: int, /) -> None:
        """Count bytes fetched for listed replicas."""


class _Replica:
    """One partition; `sent` is the position that the leader's session has."""

    __slots__ = (
        "_max_bytes", "cut", "due_ms", "key", "leader_epoch", "lookup", "partition", "position",
        "sent", "state",
    )  # fmt: skip

    def __init__(self, partition: Partition, leader_epoch: int, max_bytes: int) -> None:
        self.partition = partition
        self.key = _key_of(partition)
        self.leader_epoch = leader_epoch
        self._max_bytes = max_bytes
        self.sent: PartitionFetch | None = None
        self.state = FetchState.REMOVED
        self.due_ms = 0
        """When it is fetched again while it is DELAYED."""
        self.cut: Cut | None = None
        """The truncation to be made while it is CUT or CUTTABLE."""
        self.lookup = 0
        """The timestamp of ListOffsets while the log is out of the leader's range."""
        self.moved()

    def moved(self) -> None:
        """Take the position from the log."""
        log_of = self.partition.log
        self.position: PartitionFetch = (
            self.leader_epoch,
            log_of.log_end_offset,
            log_of.latest_epoch,
            log_of.log_start_offset,
            self._max_bytes,
        )


def _key_of(partition: Partition) -> PartitionKey:
    return "", partition.topic_id, partition.topic_partition.partition


class ReplicaFetcher:
    """The follower's side of all partitions with one leader."""

    def __init__(
        self,
        node_id: int,
        leader_id: int,
        settings: FetcherSettings,
        *,
        broker_epoch: Callable[[], int],
        on_fetched: Callable[[Partition], None],
        limit: FollowerLimit,
        traffic: ReplicationTraffic,
        on_failed: Callable[[Partition, KafkaError], None],
    ) -> None:
        """on_fetched(partition) is called when its log or high watermark moved.

        on_failed(partition, error) is called when its replication ends with an error.
        """
        self.leader_id = leader_id
        self.number = 0
        """Index among the fetchers of this leader (num.replica.fetchers)."""
        self._node_id = node_id
        self._settings = settings
        self._broker_epoch = broker_epoch
        self._on_fetched = on_fetched
        self._limit = limit
        self._traffic = traffic
        self._on_failed = on_failed
        self._replicas: dict[PartitionKey, _Replica] = {}
        self._in_state: dict[FetchState, dict[_Replica, None]] = {state: {} for state in FetchState}
        self._changed: dict[_Replica, None] = {}
        """FETCHING replicas that the next request may have to name."""
        self._forgotten: dict[PartitionKey, None] = {}
        """Partitions that the next request takes out of the leader's session."""
        self._throttled_until_ms = 0
        """When the limit is checked again, if nothing else is fetched."""
        self._session_id = 0
        self._session_epoch = _FULL
        self._gets_sessions = True
        """Whether the leader began a session when it was last asked for one."""
        self._paused_until_ms = self._wall_ms = 0
        self._in_flight: FetchValues | ListOffsetsRequest | None = None
        self._looked_up: list[_Replica] = []
        self._remote_states: list[tuple[_Replica, int]] = []
        """Replicas that begin to build their remote state, with the leaders' log starts."""
        self.lags: dict[PartitionKey, int] = {}
        """Records that a log misses up to the leader's high watermark, where there are any.

        0 for one that has not been fetched yet: it is not known to be in sync.
        """

    def __len__(self) -> int:
        return len(self._replicas)

    # Partitions

    def add(self, partition: Partition, leader_epoch: int) -> None:
        """Replicate a partition from this leader in a leader epoch.

        A log without any leader epoch is cut to its high watermark before it is fetched: the leader
        could not find where it diverges. `take_cuts` names it.
        """
        replica = _Replica(partition, leader_epoch, self._settings.max_bytes)
        self.remove(partition)
        self._replicas[replica.key] = replica
        self.lags[replica.key] = 0
        cut = cut_without_epochs(partition.log)
        if cut is None:
            self._go_on(replica)
        else:
            self._cut(replica, cut)

    def remove(self, partition: Partition) -> bool:
        """Stop replicating a partition; data in flight is dropped. Whether it was replicated."""
        key = _key_of(partition)
        replica = self._replicas.pop(key, None)
        if replica is None:
            return False
        self.lags.pop(key, None)
        self._move(replica, FetchState.REMOVED)
        del self._in_state[FetchState.REMOVED][replica]
        return True

    def _move(self, replica: _Replica, state: FetchState) -> None:
        """Change a replica's state; one that is not fetched leaves the session."""
        assert state in MOVES[replica.state], (replica.state, state)
        self._in_state[replica.state].pop(replica, None)
        self._in_state[state][replica] = None  # behind those that wait already
        replica.state = state
        if state is FetchState.FETCHING:
            self._changed[replica] = None
            return
        self._changed.pop(replica, None)
        if replica.sent is not None:
            replica.sent = None
            self._forgotten[replica.key] = None

    def _go_on(self, replica: _Replica) -> None:
        """Fetch it, or look it up, with the next request: when no truncation has to be flushed."""
        if not replica.partition.log.is_cut_durable:
            self._move(replica, FetchState.UNFLUSHED)
        elif replica.lookup:
            self._move(replica, FetchState.LOOKING_UP)
        else:
            self._move(replica, FetchState.FETCHING)

    def _delay(self, replica: _Replica, now_ms: int) -> None:
        replica.due_ms = now_ms + self._settings.backoff_ms
        self._move(replica, FetchState.DELAYED)

    # Requests

    @property
    def due_ms(self) -> int | None:
        """When `poll` next has a request to send without another event; None: never."""
        if self._in_flight is not None or not self._replicas:
            return None
        states = self._in_state
        if states[FetchState.FETCHING] or states[FetchState.LOOKING_UP]:
            return self._paused_until_ms
        times_ms = [replica.due_ms for replica in states[FetchState.DELAYED]]
        if states[FetchState.THROTTLED]:
            times_ms.append(self._throttled_until_ms)
        return max(min(times_ms), self._paused_until_ms) if times_ms else None

    def poll(self, now_ms: int) -> FetchValues | ListOffsetsRequest | None:
        """Return the request to be sent now, None while one is in flight or there is none."""
        if self._in_flight is not None or now_ms < self._paused_until_ms:
            return None
        states = self._in_state
        if delayed := states[FetchState.DELAYED]:
            for replica in [replica for replica in delayed if replica.due_ms <= now_ms]:
                self._go_on(replica)
        if self._limit.is_on or states[FetchState.THROTTLED]:
            self._apply_limit(now_ms)
        if states[FetchState.LOOKING_UP]:
            self._in_flight = self._offsets_request()
        elif states[FetchState.FETCHING]:
            self._in_flight = self._fetch_request()
        return self._in_flight

    def _apply_limit(self, now_ms: int) -> None:
        """Leave out listed replicas that lag while the limit is exceeded."""
        limit = self._limit
        is_exceeded = limit.is_on and limit.is_exceeded(now_ms)
        for replica in list(self._in_state[FetchState.THROTTLED]):
            if not is_exceeded or not limit.is_listed(replica.partition.topic_partition):
                self._move(replica, FetchState.FETCHING)
        if not is_exceeded:
            return
        self._throttled_until_ms = now_ms + self._settings.backoff_ms
        for key in self.lags:
            replica = self._replicas[key]
            is_fetched = replica.state is FetchState.FETCHING
            if is_fetched and limit.is_listed(replica.partition.topic_partition):
                self._move(replica, FetchState.THROTTLED)

    def _fetch_request(self) -> FetchValues:
        settings, is_full = self._settings, self._session_epoch == _FULL
        named: Iterable[_Replica] = self._changed
        if is_full:
            self._forgotten.clear()
            named = self._in_state[FetchState.FETCHING]
        partitions: dict[PartitionKey, PartitionFetch] = {}
        limit = NAMED_AT_ONCE if self._gets_sessions else len(self._replicas)
        unnamed: list[_Replica] = []
        for replica in named:
            position = replica.position
            if not is_full and position == replica.sent:
                continue
            if len(partitions) < limit or not (is_full or replica.sent is None):
                replica.sent = partitions[replica.key] = position
            else:
                replica.sent = None  # the session does not have it
                unnamed.append(replica)
        self._changed = dict.fromkeys(unnamed)
        # the leader forgets last: what is named again must not be forgotten
        forgotten = [key for key in self._forgotten if key not in partitions]
        self._forgotten.clear()
        request: FetchValues = _new_tuple(
            FetchValues,
            (
                None,
                self._node_id,
                self._broker_epoch(),
                0 if unnamed else settings.wait_max_ms,
                settings.min_bytes,
                settings.response_max_bytes,
                0,
                self._session_id,
                self._session_epoch,
                partitions,
                forgotten,
                "",
            ),
        )
        return request

    def _offsets_request(self) -> ListOffsetsRequest:
        self._looked_up = list(islice(self._in_state[FetchState.LOOKING_UP], NAMED_AT_ONCE))
        topics: dict[str, ListOffsetsRequest.ListOffsetsTopic] = {}
        for replica in self._looked_up:
            name, index = replica.partition.topic_partition
            topic = topics.setdefault(name, _OffsetTopic(name=name, partitions=[]))
            topic.partitions.append(
                _OffsetTopic.ListOffsetsPartition(
                    partition_index=index,
                    current_leader_epoch=replica.leader_epoch,
                    timestamp=replica.lookup,
                )
            )
        return ListOffsetsRequest(
            replica_id=self._node_id, isolation_level=0, topics=list(topics.values())
        )

    # Responses

    def failed(self, now_ms: int) -> None:
        """Handle a request without response: a new session begins after the back-off."""
        self._in_flight = None
        self._looked_up = []
        self._session_epoch = _FULL
        self._paused_until_ms = now_ms + self._settings.backoff_ms

    def received(
        self, response: FetchAnswer | ListOffsetsResponse, now_ms: int, wall_ms: int
    ) -> None:
        """Apply the response to the request in flight; wall_ms is for the log."""
        self._in_flight = None
        self._wall_ms = wall_ms
        if isinstance(response, ListOffsetsResponse):
            self._received_offsets(response, now_ms)
            return
        error_code, session_id, partitions, _ = response
        if error_code:
            code = ErrorCode(error_code)
            log.info("broker %d refuses a fetch: %s", self.leader_id, code.name)
            self._session_epoch = _FULL
            if code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self._session_id = 0
            if code not in _SESSION_ERRORS:
                self._paused_until_ms = now_ms + self._settings.backoff_ms
            return
        self._continue_session(session_id)
        if self._limit.is_on:
            self._count(partitions, now_ms)
        for fetched in partitions:
            replica = self._replicas.get(fetched.key)
            if replica is None:
                continue
            if replica.sent == replica.position:
                self._apply(replica, fetched, now_ms)
            else:  # added again since the request was sent
                self._session_epoch = _FULL  # else the leader would not send it again

    def _count(self, partitions: Sequence[FetchedPartition], now_ms: int) -> None:
        """Count the bytes of listed replicas, in sync or not."""
        size_bytes = 0
        for fetched in partitions:
            replica = self._replicas.get(fetched.key)
            if replica and self._limit.is_listed(replica.partition.topic_partition):
                size_bytes += fetched.size_bytes
        if size_bytes:
            self._limit.record(size_bytes, now_ms)

    def _continue_session(self, session_id: int) -> None:
        if self._session_epoch == _FULL:
            self._session_id = session_id
            self._session_epoch = 1 if session_id else _FULL
            self._gets_sessions = bool(session_id)
        else:
            self._session_epoch = self._session_epoch % _MAX_EPOCH + 1

    def _apply(self, replica: _Replica, fetched: FetchedPartition, now_ms: int) -> None:
        """Apply the response for one partition; an error delays only this one."""
        try:
            if fetched.error_code:
                self._handle_error(replica, fetched, now_ms)
                return
            if fetched.diverging is not None:
                epoch, end_offset = fetched.diverging
                self._cut(replica, Cut(end_offset, epoch))
                self._session_epoch = _FULL  # Kafka's leader does not repeat its high watermark
                return
            self._append(replica, fetched)
        except (CorruptMessage, UnexpectedAppendOffset) as error:
            self._report(replica, f"the leader's records are refused: {error}")
            replica.moved()
            self._delay(replica, now_ms)
        except KafkaError as error:
            self._fail(replica, error, now_ms)

    def _fail(self, replica: _Replica, error: KafkaError, now_ms: int) -> None:
        """Stop replicating a partition whose disk fails; retry whatever else is refused.

        Only a failed disk is reported to the controller, which then moves the replica's duties.
        """
        self._report(replica, str(error))
        is_of_disk = error.code is ErrorCode.KAFKA_STORAGE_ERROR
        if not is_of_disk or is_exhaustion(error.__cause__):
            replica.moved()
            self._delay(replica, now_ms)
            return
        self.remove(replica.partition)
        self._on_failed(replica.partition, error)

    def _append(self, replica: _Replica, fetched: FetchedPartition) -> None:
        partition, high_watermark = replica.partition, fetched.high_watermark
        log_of = partition.log
        before = log_of.high_watermark
        info = partition.append_fetched(
            fetched.records,  # type: ignore[arg-type] # a buffer
            leader_epoch=replica.leader_epoch,
            high_watermark=high_watermark,
            log_start_offset=fetched.log_start_offset,
            now_ms=self._wall_ms,
        )
        if info is not None:
            self._traffic.bytes_in += info.size_bytes
            if partition.adding and self._node_id in partition.adding:
                self._traffic.moved_bytes_in += info.size_bytes
        lag = high_watermark - log_of.log_end_offset
        if lag > 0:
            self.lags[replica.key] = lag
        elif self.lags:
            self.lags.pop(replica.key, None)
        self._moved(replica)
        if info is not None or log_of.high_watermark != before:
            self._on_fetched(partition)

    # Truncation

    def _cut(self, replica: _Replica, cut: Cut) -> None:
        """Truncate it before it is fetched again."""
        replica.cut = cut
        self._move(replica, FetchState.CUT)

    def take_cuts(self) -> list[tuple[PartitionLog, int]]:
        """Return the logs that must be truncated, each with an offset below which all stays.

        `truncate` follows once no higher recovery point of theirs is stored.
        """
        taken = []
        for replica in list(self._in_state[FetchState.CUT]):
            self._move(replica, FetchState.CUTTABLE)
            assert replica.cut is not None
            taken.append((replica.partition.log, replica.cut.target(replica.partition.log)))
        return taken

    def truncate(
        self,
        max_count: int,
        now_ms: int,
        wall_ms: int,
        is_lowering: Callable[[PartitionLog], bool],
    ) -> bool:
        """Truncate so many of the logs that were taken; return whether some are left.

        Those of which is_lowering(log) says that their recovery point is not durable are skipped.
        """
        cuttable = self._in_state[FetchState.CUTTABLE]
        ready = [replica for replica in cuttable if not is_lowering(replica.partition.log)]
        for replica in ready[:max_count]:
            cut, replica.cut = replica.cut, None
            assert cut is not None
            try:
                cut.apply(replica.partition.log, wall_ms)
            except KafkaError as error:
                self._fail(replica, error, now_ms)
                continue
            replica.moved()
            self._go_on(replica)
        return len(ready) > max_count

    def take_unflushed(self) -> list[tuple[PartitionLog, Callable[[], None]]]:
        """Return the logs that have to be flushed, each with what to call when it is."""
        taken: list[tuple[PartitionLog, Callable[[], None]]] = []
        for replica in list(self._in_state[FetchState.UNFLUSHED]):
            self._move(replica, FetchState.FLUSHING)
            taken.append((replica.partition.log, partial(self._flushed, replica)))
        return taken

    def _flushed(self, replica: _Replica) -> None:
        """Fetch a log again: its truncation is durable."""
        if replica.state is FetchState.FLUSHING:
            self._go_on(replica)

    def _moved(self, replica: _Replica) -> None:
        replica.moved()
        if replica.position != replica.sent:
            self._changed[replica] = None

    def _handle_error(self, replica: _Replica, fetched: FetchedPartition, now_ms: int) -> None:
        code = ErrorCode(fetched.error_code)
        if code is ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE:
            self._move(replica, FetchState.BUILDING_REMOTE_STATE)
            self._remote_states.append((replica, fetched.log_start_offset))
            return
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            replica.lookup = LATEST_TIMESTAMP
            self._go_on(replica)
            return
        self._report(replica, f"the leader answers {code.name}")
        if code is ErrorCode.FENCED_LEADER_EPOCH:
            self.remove(replica.partition)  # until the metadata names the new leader
            return
        self._delay(replica, now_ms)

    def _report(self, replica: _Replica, what: str) -> None:
        log.info(
            "fetch of %s from broker %d: %s",
            replica.partition.topic_partition,
            self.leader_id,
            what,
            extra={
                "event": "replica.fetch_failed",
                "partition": str(replica.partition.topic_partition),
            },
        )

    # In remote storage

    def take_remote_states(
        self,
    ) -> list[tuple[Partition, int, int, Callable[[Cut | None, int], None]]]:
        """Return the partitions whose next record the leader has in remote storage alone.

        Each with leader epoch, the leader's log start, and what to call with the cut at which the
        log begins again and the time; None: it was not found out, and is tried again.
        """
        pending, self._remote_states = self._remote_states, []
        return [
            (replica.partition, replica.leader_epoch, start_offset, partial(self._built, replica))
            for replica, start_offset in pending
        ]

    def _built(self, replica: _Replica, cut: Cut | None, now_ms: int) -> None:
        if replica.state is not FetchState.BUILDING_REMOTE_STATE:
            return  # removed meanwhile
        if cut is None:
            self._delay(replica, now_ms)
        else:
            self._cut(replica, cut)

    # Out of the leader's range

    def _received_offsets(self, response: ListOffsetsResponse, now_ms: int) -> None:
        answers = {
            (topic.name, partition.partition_index): partition
            for topic in response.topics
            for partition in topic.partitions
        }
        for replica in self._looked_up:
            if replica.state is not FetchState.LOOKING_UP:
                continue  # removed meanwhile
            answer = answers.get(replica.partition.topic_partition)
            if answer is None or answer.error_code:
                self._delay(replica, now_ms)
                continue
            try:
                self._apply_offset(replica, answer.offset)
            except KafkaError as error:
                self._fail(replica, error, now_ms)
        self._looked_up = []

    def _apply_offset(self, replica: _Replica, offset: int) -> None:
        """Cut the log to the leader's end; empty one that ends below the leader's start."""
        log_of = replica.partition.log
        if replica.lookup == LATEST_TIMESTAMP and offset >= log_of.log_end_offset:
            # not the local start, as in Kafka: OFFSET_MOVED_TO_TIERED_STORAGE leads to that
            replica.lookup = EARLIEST_TIMESTAMP
            self._go_on(replica)
            return
        is_latest, replica.lookup = replica.lookup == LATEST_TIMESTAMP, 0
        if is_latest:
            self._report(replica, f"the log is truncated to the leader's end at {offset}")
            self._cut(replica, Cut(offset))
        elif offset > log_of.log_end_offset:
            self._report(replica, f"the log begins again at the leader's start at {offset}")
            self._cut(replica, Cut(offset, is_restart=True))
        else:
            self._go_on(replica)
