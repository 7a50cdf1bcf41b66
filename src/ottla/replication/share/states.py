"""The state of a record, or of a batch of records in the same state.

| from | to | by |
|---|---|---|
| AVAILABLE | ACQUIRED | a fetch |
| ACQUIRED | ACKNOWLEDGED | accept |
| ACQUIRED | AVAILABLE | release, lock expiry, end of the session |
| ACQUIRED | ARCHIVED | reject, gap, aborted; any of the line above after the last delivery |
| AVAILABLE | ARCHIVED | a fetch no longer finds it: it was compacted |

A change that was not persisted is undone: the record is ACQUIRED again, or what the end of its lock
makes of it. `MOVES` holds the table; no other move is made.

Kafka: org.apache.kafka.server.share.fetch.{RecordState, InFlightState, InFlightBatch}; the
constructor arguments of kafka.server.share.SharePartition.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from itertools import takewhile
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.clock import Clock
    from ottla.protocol.apis.read_share_group_state import (
        ReadShareGroupStateRequest,
        ReadShareGroupStateResponse,
    )
    from ottla.protocol.apis.write_share_group_state import (
        WriteShareGroupStateRequest,
        WriteShareGroupStateResponse,
    )
    from ottla.purgatory.pending import Pending
    from ottla.purgatory.timing_wheel import TimerTask, TimingWheel
    from ottla.replication.partition import Partition
    from ottla.types import Uuid

NO_MEMBER: Final = ""


class RecordState(IntEnum):
    """Kafka's numbers; ARCHIVING belongs to dead-letter queues, which Kafka 4.3 does not have."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    ARCHIVED = 4


AVAILABLE: Final = RecordState.AVAILABLE
ACQUIRED: Final = RecordState.ACQUIRED
ARCHIVED: Final = RecordState.ARCHIVED
TERMINAL: Final = frozenset({RecordState.ACKNOWLEDGED, RecordState.ARCHIVED})
MOVES: Final = {
    AVAILABLE: frozenset({ACQUIRED, ARCHIVED}),
    ACQUIRED: frozenset({AVAILABLE, RecordState.ACKNOWLEDGED, ARCHIVED}),
}


class RecordLock:
    """The acquisition lock: the time for which records are a member's alone."""

    __slots__ = ("deadline_ms", "task")

    def __init__(self, deadline_ms: int) -> None:
        self.deadline_ms = deadline_ms
        self.task: TimerTask | None = None

    def has_expired(self, now_ms: int) -> bool:
        """Whether its time is over, also before its timer fires."""
        return self.deadline_ms <= now_ms


class InFlightState:
    """A state with its owner, its lock and the number of deliveries.

    A change that has to be persisted is made at once, and undone where that fails: `is_changing`
    in between. Nothing else may change the state then.
    """

    __slots__ = ("_before", "delivery_count", "lock", "member_id", "state")

    def __init__(
        self,
        state: RecordState,
        delivery_count: int,
        member_id: str = NO_MEMBER,
        lock: RecordLock | None = None,
    ) -> None:
        self.state = state
        self.delivery_count = delivery_count
        self.member_id = member_id
        self.lock = lock
        self._before: tuple[RecordState, str, int] | None = None

    @property
    def is_changing(self) -> bool:
        """Whether a change is not persisted yet."""
        return self._before is not None

    @property
    def is_available(self) -> bool:
        """Whether the records can be acquired."""
        return self.state is AVAILABLE and self._before is None

    @property
    def is_terminal(self) -> bool:
        """Whether no delivery follows."""
        return self.state in TERMINAL

    @property
    def has_running_lock(self) -> bool:
        """Whether a timer will end the lock."""
        return self.lock is not None and self.lock.task is not None and self.lock.task.is_waiting

    def _move(self, state: RecordState, member_id: str) -> None:
        assert self._before is None, f"a change to {self.state.name} is not persisted yet"
        assert state in MOVES.get(self.state, ()), f"{self.state.name} to {state.name}"
        self.state, self.member_id = state, member_id

    def acquire(self, member_id: str, lock: RecordLock) -> None:
        """Give available records to a member."""
        self._move(ACQUIRED, member_id)
        self.lock = lock
        self.delivery_count += 1

    def release(self, state: RecordState, delivery_limit: int) -> bool:
        """Take acquired records from their member into a state; False while they change.

        After the last delivery they are archived instead of available.
        """
        if self._before is not None or self.state is not ACQUIRED:
            return False
        if state is AVAILABLE and self.delivery_count >= delivery_limit:
            state = ARCHIVED
        self._move(state, NO_MEMBER)
        return True

    def begin_release(self, state: RecordState, delivery_limit: int) -> bool:
        """Release, until `complete` says whether that was persisted."""
        before = self.state, self.member_id, delivery_limit
        if not self.release(state, delivery_limit):
            return False
        self._before = before
        return True

    def complete(self, now_ms: int, *, is_persisted: bool) -> None:
        """End a change; where it was not persisted the records are their member's again.

        If the lock has expired in between they are available, or archived after the last delivery.
        """
        before, self._before = self._before, None
        if is_persisted or before is None:
            self.cancel_lock()
            return
        state, member_id, delivery_limit = before
        if self.lock is not None and self.lock.has_expired(now_ms):
            is_last = self.delivery_count >= delivery_limit
            self.state, self.member_id = ARCHIVED if is_last else AVAILABLE, NO_MEMBER
            self.cancel_lock()
            return
        self.state, self.member_id = state, member_id

    def archive(self) -> None:
        """End the records for good."""
        self._move(ARCHIVED, NO_MEMBER)
        self.cancel_lock()

    def cancel_lock(self) -> None:
        """End the lock, if there is one."""
        lock, self.lock = self.lock, None
        if lock is not None and lock.task is not None:
            lock.task.cancel()


class InFlightBatch:
    """Consecutive offsets: one state for all, or one for each once they differ."""

    __slots__ = ("first_offset", "last_offset", "offsets", "whole")

    def __init__(self, first_offset: int, last_offset: int, state: InFlightState) -> None:
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.whole: InFlightState | None = state
        self.offsets: dict[int, InFlightState] = {}
        """By offset, rising, where `whole` is None."""

    @property
    def count(self) -> int:
        """How many offsets it has."""
        return self.last_offset - self.first_offset + 1

    def is_within(self, first_offset: int, last_offset: int) -> bool:
        """Whether all its offsets are in a range."""
        return self.first_offset >= first_offset and self.last_offset <= last_offset

    def cut_below(self, offset: int) -> None:
        """Forget the offsets below one."""
        self.first_offset = max(self.first_offset, offset)
        for known in list(takewhile(lambda known: known < offset, self.offsets)):
            self.offsets.pop(known).cancel_lock()

    def states(self) -> list[tuple[int, int, InFlightState]]:
        """Return first offset, last offset and state of all its parts."""
        if self.whole is not None:
            return [(self.first_offset, self.last_offset, self.whole)]
        return [(offset, offset, state) for offset, state in self.offsets.items()]


class SharePartitionKey(NamedTuple):
    """A partition as one share group reads it."""

    group_id: str
    topic_id: Uuid
    partition: int


@dataclass(frozen=True, slots=True)
class ShareSettings:
    """The settings in force of a share group (KIP-1240): its own, or the broker's."""

    record_lock_duration_ms: int = 30_000  # share.record.lock.duration.ms
    delivery_count_limit: int = 5  # share.delivery.count.limit
    partition_max_record_locks: int = 2_000  # share.partition.max.record.locks
    is_renew_enabled: bool = True  # share.renew.acknowledge.enable
    is_committed_only: bool = False  # share.isolation.level=read_committed
    auto_offset_reset: str = "latest"  # share.auto.offset.reset


class StateStore(Protocol):
    """The share coordinators, as the leader of a share partition uses them.

    The responses have a result for the share partition; no method fails as a whole.
    """

    def read(self, request: ReadShareGroupStateRequest) -> Pending[ReadShareGroupStateResponse]:
        """Return the state, and fence leaders of earlier epochs."""

    def write(self, request: WriteShareGroupStateRequest) -> Pending[WriteShareGroupStateResponse]:
        """Apply a change of the state."""


def _ignore(_load_ms: int) -> None:
    """Measure nothing."""


@dataclass(frozen=True, slots=True)
class ShareEnvironment:
    """Dependencies that all share partitions of a broker share.

    start_offset chooses where a new share partition begins, by its settings; KafkaError where that
    is not known now. log_end_offset returns where the partition's log ends. on_available is called
    when more records may be acquired, on_loaded with the milliseconds that a share partition took
    to load.
    """

    timer: TimingWheel
    clock: Clock
    store: StateStore
    settings: Callable[[str], ShareSettings]
    start_offset: Callable[[Partition, ShareSettings], int]
    log_end_offset: Callable[[Partition], int]
    on_available: Callable[[SharePartitionKey], None]
    on_loaded: Callable[[int], None] = _ignore
