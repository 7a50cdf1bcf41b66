"""A partition as one share group reads it, at the leader: offsets, batches in flight, persistence.

Deliveries begin at `start_offset`; `end_offset` is the last offset in flight, or the next one to
fetch where nothing is in flight. `window` holds the gap that is left after loading: offsets before
its end that have no state yet and may never have been delivered.

Kafka: kafka.server.share.SharePartition. Its parts are `acquiring`, `acknowledging`, `archiving`.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.read_share_group_state import ReadShareGroupStateRequest
from ottla.protocol.apis.write_share_group_state import WriteShareGroupStateRequest
from ottla.purgatory.pending import Pending
from ottla.replication.share.batch_map import BatchMap
from ottla.replication.share.measures import ShareMeasures
from ottla.replication.share.states import (
    TERMINAL,
    InFlightBatch,
    InFlightState,
    RecordLock,
    RecordState,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ottla.protocol.apis.read_share_group_state import ReadShareGroupStateResponse
    from ottla.protocol.apis.write_share_group_state import WriteShareGroupStateResponse
    from ottla.replication.partition import Partition
    from ottla.replication.share.environment import (
        ShareEnvironment,
        SharePartitionKey,
        ShareSettings,
    )

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
        self.window: tuple[int, int] | None = None
        """First offset of the gap, and the end offset for which it holds."""
        self.delivery_complete_count = 0
        """Terminal records in flight, for the lag (KIP-1226)."""
        self.load_start_ms = 0
        self.lock_timeout_count = 0
        self.measures = ShareMeasures()
        self._waiting: list[Pending[None]] = []
        self.on_lock_expiry: Callable[[SharePartition, int, int], None] | None = None

    # ---------------------------------------------------------------- queries

    @property
    def settings(self) -> ShareSettings:
        """The group's settings in force."""
        return self.environment.settings(self.key.group_id)

    @property
    def gap_offset(self) -> int | None:
        """The first offset of the gap that is left after loading; None when it is closed."""
        if self.window is None or self.window[1] != self.end_offset:
            return None
        return self.window[0]

    def close_gap_to(self, offset: int) -> None:
        """Record that the offsets below one were examined."""
        if self.window is not None:
            is_open = self.window[1] == self.end_offset and offset <= self.window[1]
            self.window = (offset, self.window[1]) if is_open else None

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
        is_idle = not len(self.batches) or self.start_offset > self.batches.last.last_offset
        if is_idle:
            self.may_find_available = False
            return self.end_offset
        if not self.may_find_available:
            return self.end_offset + 1
        gap = self.gap_offset
        for batch in self.batches:
            if gap is not None:
                if batch.first_offset > gap:
                    return gap
                gap = batch.last_offset + 1
            for first, last, state in batch.states():
                if last >= self.start_offset and state.is_available:
                    return first
        self.may_find_available = False
        return self.end_offset + 1

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
            except KafkaError as problem:
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
        gap, previous_last = None, self.start_offset - 1
        for one in found.state_batches:
            if not self.start_offset <= one.first_offset <= one.last_offset:
                text = f"Failed to initialize the share partition {self.name}"
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, text)
            if gap is None and one.first_offset > previous_last + 1:
                gap = previous_last + 1
            previous_last = one.last_offset
            state = InFlightState(RecordState(one.delivery_state), one.delivery_count)
            batch = InFlightBatch(one.first_offset, one.last_offset, state)
            self.batches.add(batch)
            self.measures.batch_sizes.add(batch.count)
            if state.is_terminal:
                self.delivery_complete_count += batch.count
        if len(self.batches):
            self.may_find_available = True
            self.end_offset = self.batches.last.last_offset
            self.window = None if gap is None else (gap, self.end_offset)
            self.advance_start()

    @property
    def name(self) -> str:
        """Group and partition, as log lines name them."""
        return f"{self.key.group_id}-{self.replica.topic_partition}"

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
                    first_offset=one.first_offset,
                    last_offset=one.last_offset,
                    delivery_state=int(one.state.state),
                    delivery_count=one.state.delivery_count,
                )
                for one in changes
            ],
        )
        request = WriteShareGroupStateRequest(
            group_id=self.key.group_id,
            topics=[_WriteTopic(topic_id=self.key.topic_id, partitions=[part])],
        )
        return self.environment.store.write(request).then(_raise_failed)

    def finish_changes(
        self, changes: Sequence[PersistedBatch], error: Exception | None
    ) -> Pending[None]:
        """Persist changes that were begun, or undo them after an error; fails with the error."""
        if error is not None:
            self._complete(changes, is_persisted=False)
            return Pending.failed(error)
        if not changes:
            return Pending.of(None)
        pending: Pending[None] = Pending()

        def persisted(done: Pending[None]) -> None:
            self._complete(changes, is_persisted=done.error is None)
            has_moved = done.error is None and self.advance_start()
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
        for one in changes:
            was_terminal = one.state.is_terminal
            one.state.complete(now_ms, is_persisted=is_persisted)
            if one.state.state is RecordState.AVAILABLE:
                self.may_find_available = True
            if was_terminal and not one.state.is_terminal:
                self.delivery_complete_count -= self.count_in(one.first_offset, one.last_offset)

    # ---------------------------------------------------------------- the start offset

    def advance_start(self) -> bool:
        """Move the start past terminal records; return whether it has moved."""
        if not self._can_advance():
            return False
        last_offset, count = self._last_terminal()
        if last_offset < 0:
            return False
        end = self.batches.last.last_offset
        if last_offset == end:
            self.start_offset = self.end_offset = end + 1
            self.batches.clear()
            self.delivery_complete_count = 0
            return True
        gap = self.gap_offset
        batch = self.batches.floor(last_offset)
        assert batch is not None
        if batch.last_offset == last_offset:
            following = self.batches.higher(last_offset)
            assert following is not None
            self.start_offset = max(self.start_offset, following.first_offset)
            if gap is not None:
                self.start_offset = min(gap, self.start_offset)
            self.batches.drop_below(last_offset + 1)
        else:
            self.start_offset = max(self.start_offset, last_offset + 1)
            self.batches.drop_below(batch.first_offset)
        self.delivery_complete_count -= count
        return True

    def _can_advance(self) -> bool:
        batch = self.batches.floor(self.start_offset)
        if batch is None:
            return False
        state = batch.whole or batch.offsets.get(self.start_offset)
        return state is not None and not state.is_changing and state.state in TERMINAL

    def _last_terminal(self) -> tuple[int, int]:
        """Return the last offset up to which all are terminal, and how many count; -1 for none."""
        last_offset, count = -1, 0
        gap = self.gap_offset
        for batch in self.batches:
            if gap is not None and batch.last_offset >= gap:
                break
            for first, last, state in batch.states():
                if state.is_changing or not state.is_terminal:
                    return last_offset, count
                last_offset = last
                count += self.count_in(first, last)
        return last_offset, count


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
