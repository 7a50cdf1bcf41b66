"""A partition as one share group reads it, at the leader: offsets, batches in flight, persistence.

Deliveries begin at `start_offset`; `end_offset` is the last offset in flight, or the next one to
fetch where nothing is in flight. What holds between any two events, so that a partition of which no
member has a record can move (`stalls` examines it):

- No state is below the start offset, and the first one has not ended, or its change is being
  written: each operation ends with `settle`.
- An offset between start and end without a state holds no record. Those that have no persisted
  state when the partition is loaded may never have been delivered: they are put in flight as
  available after 0 deliveries.
- An acquired record has a lock whose timer runs; a changing one has a write under way.

Kafka keeps states below the start, and offsets without a state in a window of its own; there an
aborted transaction as long as the window stops the group, for instance (docs/reliability.md).

Kafka: kafka.server.share.SharePartition. Its parts are `acquiring`, `acknowledging`, `archiving`;
the ConcurrentSkipListMap of SharePartition.cachedState;
org.apache.kafka.server.share.metrics.SharePartitionMetrics, SharePartition.{maybeAcquireFetchLock,
releaseFetchLock, recordFetchLockRatioMetric}.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.errors import ErrorCode, KafkaError
from ottla.metrics.samples import Recent
from ottla.protocol.apis.read_share_group_state import ReadShareGroupStateRequest
from ottla.protocol.apis.write_share_group_state import WriteShareGroupStateRequest
from ottla.purgatory.pending import Pending
from ottla.replication.share.states import (
    ACQUIRED,
    TERMINAL,
    InFlightBatch,
    InFlightState,
    RecordLock,
    RecordState,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ottla.protocol.apis.read_share_group_state import ReadShareGroupStateResponse
    from ottla.protocol.apis.write_share_group_state import WriteShareGroupStateResponse
    from ottla.replication.partition import Partition
    from ottla.replication.share.states import (
        ShareEnvironment,
        SharePartitionKey,
        ShareSettings,
    )


class ShareMeasures:
    """Distributions since the share partition was opened.

    In Kafka a fetch locks a share partition while it reads its log. Here it does not: the time from
    the read to the acquisition, or to the decision to wait, takes the lock's place.
    """

    __slots__ = ("_released_ms", "batch_sizes", "lock_ratios", "lock_times_ms")

    def __init__(self) -> None:
        self.batch_sizes = Recent()
        self.lock_times_ms = Recent()
        self.lock_ratios = Recent()
        """What percentage of the time since the last fetch this one took."""
        self._released_ms: int | None = None

    def fetched(self, begin_ms: int, end_ms: int) -> None:
        """Record that a fetch occupied the share partition."""
        held_ms = end_ms - begin_ms
        idle_ms = 0 if self._released_ms is None else begin_ms - self._released_ms
        self._released_ms = end_ms
        self.lock_times_ms.add(held_ms)
        if idle_ms >= 0:
            self.lock_ratios.add(_percentage(held_ms, idle_ms))


def _percentage(held_ms: int, idle_ms: int) -> int:
    """Return Kafka's figure; it counts less than a millisecond as one."""
    if not held_ms + idle_ms:
        return 100
    return int((held_ms / (held_ms + idle_ms) if held_ms else 1 / idle_ms) * 100)


class BatchMap:
    """Batches by first offset; they do not overlap."""

    __slots__ = ("_batches", "_firsts")

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._batches: dict[int, InFlightBatch] = {}

    def __len__(self) -> int:
        return len(self._firsts)

    def __iter__(self) -> Iterator[InFlightBatch]:
        return (self._batches[first] for first in self._firsts.copy())

    @property
    def first(self) -> InFlightBatch:
        """The batch with the lowest offsets."""
        return self._batches[self._firsts[0]]

    @property
    def last(self) -> InFlightBatch:
        """The batch with the highest offsets."""
        return self._batches[self._firsts[-1]]

    def add(self, batch: InFlightBatch) -> None:
        """Add a batch, or replace the one with the same first offset."""
        first = batch.first_offset
        if first not in self._batches:
            self._firsts.insert(bisect_left(self._firsts, first), first)
        self._batches[first] = batch

    def floor(self, offset: int) -> InFlightBatch | None:
        """Return the last batch that begins at an offset or before it."""
        index = bisect_right(self._firsts, offset) - 1
        return None if index < 0 else self._batches[self._firsts[index]]

    def higher(self, offset: int) -> InFlightBatch | None:
        """Return the first batch that begins after an offset."""
        index = bisect_right(self._firsts, offset)
        return None if index == len(self._firsts) else self._batches[self._firsts[index]]

    def overlapping(self, first_offset: int, last_offset: int) -> list[InFlightBatch]:
        """Return the batches with offsets of a range, both ends included."""
        begin = bisect_right(self._firsts, first_offset)
        if begin and self._batches[self._firsts[begin - 1]].last_offset >= first_offset:
            begin -= 1
        end = bisect_right(self._firsts, last_offset)
        return [self._batches[first] for first in self._firsts[begin:end]]

    def remove(self, batch: InFlightBatch) -> None:
        """Remove a batch."""
        del self._batches[batch.first_offset]
        del self._firsts[bisect_left(self._firsts, batch.first_offset)]

    def drop_below(self, offset: int) -> None:
        """Forget the offsets below one; locks of them end."""
        end = bisect_left(self._firsts, offset)
        dropped = [self._batches.pop(first) for first in self._firsts[:end]]
        del self._firsts[:end]
        if dropped and dropped[-1].last_offset >= offset:
            cut = dropped.pop()
            cut.cut_below(offset)
            self._firsts.insert(0, cut.first_offset)
            self._batches[cut.first_offset] = cut
        for batch in dropped:
            for _, _, state in batch.states():
                state.cancel_lock()


_WriteTopic: Final = WriteShareGroupStateRequest.WriteStateData
_ReadTopic: Final = ReadShareGroupStateRequest.ReadStateData
_UNAVAILABLE: Final = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)
_FENCED: Final = frozenset({ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_STATE_EPOCH})
_KEPT: Final = frozenset({ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})

_PERSISTED_ENDS: Final = frozenset(map(int, TERMINAL)) | {int(RecordState.ARCHIVING)}
"""Any other persisted state is of a record that is to be delivered again."""


class Phase(Enum):
    """The life of a share partition."""

    EMPTY = "Empty"
    INITIALIZING = "Initializing"
    ACTIVE = "Active"
    FAILED = "Failed"
    FENCED = "Fenced"


class PersistedBatch(NamedTuple):
    """A change as it is persisted, and the state that it changes."""

    first_offset: int
    last_offset: int
    state: InFlightState


class SharePartition:
    """Owned by one loop; every method leaves it consistent."""

    def __init__(
        self,
        key: SharePartitionKey,
        replica: Partition,
        leader_epoch: int,
        environment: ShareEnvironment,
    ) -> None:
        self.key = key
        self.replica = replica
        self.leader_epoch = leader_epoch
        self.environment = environment
        self.phase = Phase.EMPTY
        self.state_epoch = 0
        self.start_offset = 0
        self.end_offset = 0
        self.batches = BatchMap()
        self.may_find_available = False
        """Whether a batch in flight may be available."""
        self.delivery_complete_count = 0
        """Terminal records in flight, for the lag (KIP-1226)."""
        self.load_start_ms = 0
        self.writes_under_way = 0
        self.lock_timeout_count = 0
        self.measures = ShareMeasures()
        self._waiting: list[Pending[None]] = []
        self.on_lock_expiry: Callable[[SharePartition, int, int], None] | None = None
        self.on_written: Callable[[SharePartition, Exception | None], None] | None = None

    # ---------------------------------------------------------------- queries

    @property
    def settings(self) -> ShareSettings:
        """The group's settings in force."""
        return self.environment.settings(self.key.group_id)

    @property
    def in_flight_count(self) -> int:
        """How many offsets are in flight."""
        return self.end_offset - self.start_offset + 1 if len(self.batches) else 0

    def count_in(self, first_offset: int, last_offset: int) -> int:
        """Return how many offsets of a range are not below the start offset."""
        return max(0, last_offset - max(self.start_offset, first_offset) + 1)

    @property
    def can_acquire(self) -> bool:
        """Whether a fetch may find records: some are available, or more may be in flight."""
        if self.next_fetch_offset() != self.end_offset + 1:
            return True
        return self.in_flight_count < self.settings.partition_max_record_locks

    def next_fetch_offset(self) -> int:
        """Return the first offset that a fetch has to read."""
        if not len(self.batches):
            return self.end_offset
        if self.may_find_available:
            for batch in self.batches:
                for first, _, state in batch.states():
                    if state.is_available:
                        return first
            self.may_find_available = False
        return self.end_offset + 1

    def stalls(self) -> Iterator[str]:
        """Yield what keeps the partition from moving although nothing that is to come ends it.

        Each record in flight waits for something that comes: a fetch that looks for it, the timer
        of its lock, the answer to a write. Examined by tests and simulations.
        """
        if self.phase is not Phase.ACTIVE:
            return
        ended, end_offset = 0, self.start_offset - 1
        for batch in self.batches:
            for first, last, state in batch.states():
                if first <= end_offset or not self._is_awaited(state):
                    yield f"{first} is {state.state.name} after {end_offset} and awaits nothing"
                ended, end_offset = ended + (last - first + 1) * state.is_terminal, last
        if self._has_ended_start():
            yield "the start was before a record that has not ended"
        if ended != self.delivery_complete_count:
            yield f"{ended} records have ended, {self.delivery_complete_count} are counted"
        if end_offset != self.end_offset - (not len(self.batches)):
            yield f"{end_offset} is the last offset in flight, not {self.end_offset}"

    def raise_unless_active(self) -> None:
        """Raise the error of a request for a share partition that is not active."""
        if self.phase is Phase.FENCED:
            raise KafkaError(ErrorCode.FENCED_STATE_EPOCH, "Share partition is fenced.")
        if self.phase is not Phase.ACTIVE:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Share partition is not initialized.")

    # ---------------------------------------------------------------- locks

    def lock(self, first_offset: int, last_offset: int) -> RecordLock:
        """Begin a lock of the group's duration."""
        deadline_ms = self.now_ms + self.settings.record_lock_duration_ms
        return self.lock_until(first_offset, last_offset, deadline_ms)

    def lock_until(self, first_offset: int, last_offset: int, deadline_ms: int) -> RecordLock:
        """Begin a lock that expires at a time."""
        lock = RecordLock(deadline_ms)

        def expire(_now_ms: int) -> None:
            if self.on_lock_expiry is not None:
                self.on_lock_expiry(self, first_offset, last_offset)

        lock.task = self.environment.timer.add(deadline_ms, expire)
        return lock

    def split(self, batch: InFlightBatch, acquired_last: int | None = None) -> None:
        """Give each offset of a batch a state of its own, with what is left of the lock.

        With acquired_last, of a batch that was just acquired, the offsets after it are available.
        """
        whole = batch.whole
        if whole is None:
            return
        assert not whole.is_changing, "the states would not learn of the change's end"
        batch.whole = None
        for offset in range(batch.first_offset, batch.last_offset + 1):
            if acquired_last is not None and offset > acquired_last:
                state = InFlightState(RecordState.AVAILABLE, whole.delivery_count - 1)
            else:
                state = InFlightState(whole.state, whole.delivery_count, whole.member_id)
                if whole.lock is not None:
                    state.lock = self.lock_until(offset, offset, whole.lock.deadline_ms)
            batch.offsets[offset] = state
        whole.cancel_lock()

    @property
    def now_ms(self) -> int:
        """The time on the clock of the locks."""
        return self.environment.clock.monotonic_ms()

    # ---------------------------------------------------------------- loading

    def initialize(self) -> Pending[None]:
        """Read the persisted state, once; fails with KafkaError where that fails."""
        if self.phase is Phase.ACTIVE:
            return Pending.of(None)
        if self.phase is Phase.FENCED:
            return Pending.failed(KafkaError(ErrorCode.FENCED_STATE_EPOCH))
        if self.phase is Phase.FAILED:
            return Pending.failed(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))
        pending: Pending[None] = Pending()
        self._waiting.append(pending)
        if self.phase is Phase.EMPTY:
            self.phase = Phase.INITIALIZING
            self.load_start_ms = self.now_ms
            part = _ReadTopic.PartitionData(
                partition=self.key.partition, leader_epoch=self.leader_epoch
            )
            request = ReadShareGroupStateRequest(
                group_id=self.key.group_id,
                topics=[_ReadTopic(topic_id=self.key.topic_id, partitions=[part])],
            )
            self.environment.store.read(request).on_done(self._loaded)
        return pending

    def _loaded(self, done: Pending[ReadShareGroupStateResponse]) -> None:
        error: Exception | None = done.error
        if error is None and self.phase is Phase.INITIALIZING:
            try:
                self._load(done.value)
            except Exception as problem:  # noqa: BLE001 - passed on: a later fetch loads again
                error = problem
        if self.phase is Phase.INITIALIZING:
            self.phase = Phase.ACTIVE if error is None else Phase.FAILED
            self.environment.on_loaded(self.now_ms - self.load_start_ms)
        elif error is None:
            error = KafkaError(ErrorCode.FENCED_STATE_EPOCH)
        waiting, self._waiting = self._waiting, []
        for pending in waiting:
            if error is None:
                pending.complete(None)
            else:
                pending.fail(error)

    def _load(self, response: ReadShareGroupStateResponse) -> None:
        found = response.results[0].partitions[0]
        if found.error_code:
            raise persistence_error(ErrorCode(found.error_code), found.error_message)
        self.state_epoch = found.state_epoch
        self.start_offset = self.end_offset = found.start_offset
        if found.start_offset < 0:
            self.start_offset = self.end_offset = self.environment.start_offset(
                self.replica, self.settings
            )
        # after an unclean election the log may end before what was delivered: begin at its end
        log_end_offset = self.environment.log_end_offset(self.replica)
        self.start_offset = self.end_offset = min(self.start_offset, log_end_offset)
        next_offset = self.start_offset
        for one in found.state_batches:
            first_offset = max(one.first_offset, next_offset)
            last_offset = min(one.last_offset, log_end_offset - 1)
            if last_offset < first_offset:
                continue
            if next_offset < first_offset:
                self.add_undelivered(next_offset, first_offset - 1)
            ends = one.delivery_state in _PERSISTED_ENDS
            is_accepted = one.delivery_state == RecordState.ACKNOWLEDGED
            state = RecordState.AVAILABLE
            if ends:
                state = RecordState.ACKNOWLEDGED if is_accepted else RecordState.ARCHIVED
            in_flight = InFlightState(state, one.delivery_count)
            batch = InFlightBatch(first_offset, last_offset, in_flight)
            self.batches.add(batch)
            self.measures.batch_sizes.add(batch.count)
            self.delivery_complete_count += batch.count if ends else 0
            self.end_offset = last_offset
            next_offset = last_offset + 1
        self.may_find_available = True
        self.settle()

    def add_undelivered(self, first_offset: int, last_offset: int) -> None:
        """Put offsets in flight that may never have been delivered."""
        state = InFlightState(RecordState.AVAILABLE, 0)
        self.batches.add(InFlightBatch(first_offset, last_offset, state))
        self.may_find_available = True

    def fence(self) -> None:
        """Stop serving: the partition has another leader or was deleted."""
        self.phase = Phase.FENCED
        for batch in self.batches:
            for _, _, state in batch.states():
                state.cancel_lock()

    # ---------------------------------------------------------------- persistence

    def persist(self, changes: Sequence[PersistedBatch]) -> Pending[None]:
        """Write changes of states; fails with KafkaError where they are not persisted."""
        batch_type = _WriteTopic.PartitionData.StateBatch
        part = _WriteTopic.PartitionData(
            partition=self.key.partition,
            state_epoch=self.state_epoch,
            leader_epoch=self.leader_epoch,
            start_offset=self.start_offset,
            delivery_complete_count=self.delivery_complete_count,
            state_batches=[
                batch_type(
                    first_offset=change.first_offset,
                    last_offset=change.last_offset,
                    delivery_state=int(change.state.state),
                    delivery_count=change.state.delivery_count,
                )
                for change in changes
            ],
        )
        request = WriteShareGroupStateRequest(
            group_id=self.key.group_id,
            topics=[_WriteTopic(topic_id=self.key.topic_id, partitions=[part])],
        )
        self.writes_under_way += 1
        written = self.environment.store.write(request).then(_raise_failed)
        written.on_done(self._written)
        return written

    def _written(self, done: Pending[None]) -> None:
        self.writes_under_way -= 1
        if self.on_written is not None:
            self.on_written(self, done.error)

    def finish_changes(
        self, changes: Sequence[PersistedBatch], error: Exception | None
    ) -> Pending[None]:
        """Persist changes that were begun, or undo them after an error; fails with the error."""
        if error is not None:
            self._complete(changes, is_persisted=False)
            self.settle()
            return Pending.failed(error)
        if not changes:
            return Pending.of(None)
        pending: Pending[None] = Pending()

        def persisted(done: Pending[None]) -> None:
            self._complete(changes, is_persisted=done.error is None)
            has_moved = self.settle()
            if done.error is None:
                pending.complete(None)
            else:
                pending.fail(done.error)
            if has_moved or self.may_find_available:
                self.environment.on_available(self.key)

        self.persist(changes).on_done(persisted)
        return pending

    def _complete(self, changes: Sequence[PersistedBatch], *, is_persisted: bool) -> None:
        now_ms = self.now_ms
        for change in changes:
            was_terminal = change.state.is_terminal
            change.state.complete(now_ms, is_persisted=is_persisted)
            if change.state.state is RecordState.AVAILABLE:
                self.may_find_available = True
            if was_terminal and not change.state.is_terminal:
                self.delivery_complete_count -= self.count_in(
                    change.first_offset, change.last_offset
                )

    # ---------------------------------------------------------------- the start offset

    def _is_awaited(self, state: InFlightState) -> bool:
        """Whether something is to come that ends a state: a write, a lock's timer, a fetch."""
        if state.is_changing:
            return self.writes_under_way > 0
        if state.state is ACQUIRED:
            return state.has_running_lock
        return state.is_terminal or self.may_find_available

    def _has_ended_start(self) -> bool:
        """Whether `settle` would move the start."""
        if not len(self.batches):
            return False
        first, _, state = self.batches.first.states()[0]
        return first > self.start_offset or (state.is_terminal and not state.is_changing)

    def settle(self) -> bool:
        """Move the start to the first record that has not ended; return whether it has moved.

        Every operation ends with it.
        """
        if not len(self.batches):
            return False
        ended = 0
        for batch in self.batches:
            for first, last, state in batch.states():
                if state.is_changing or not state.is_terminal:
                    return self._start_at(first, ended)
                ended += last - first + 1
        return self._start_at(self.end_offset + 1, ended)

    def _start_at(self, offset: int, ended: int) -> bool:
        if offset <= self.start_offset:
            return False
        self.start_offset = offset
        self.delivery_complete_count -= ended
        self.batches.drop_below(offset)
        if not len(self.batches):
            self.end_offset = offset
        return True

    def start_at(self, offset: int) -> None:
        """Begin at a later offset: the records before it were deleted."""
        below = self.batches.overlapping(self.start_offset, offset - 1)
        ended = sum(
            min(last, offset - 1) - first + 1
            for batch in below
            for first, last, state in batch.states()
            if first < offset and state.is_terminal
        )
        self._start_at(offset, ended)
        self.settle()


def _raise_failed(response: WriteShareGroupStateResponse) -> None:
    result = response.results[0].partitions[0]
    if result.error_code:
        raise persistence_error(ErrorCode(result.error_code), result.error_message)


def persistence_error(code: ErrorCode, text: str | None) -> KafkaError:
    """Return the error for clients of an error of the share coordinator."""
    if code in _UNAVAILABLE:
        return KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, text)
    if code in _FENCED:
        return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, text)
    return KafkaError(code if code in _KEPT else ErrorCode.UNKNOWN_SERVER_ERROR, text)
