"""A share partition: acquire, acknowledge, locks, limits, persistence that fails."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.read_share_group_state import ReadShareGroupStateResponse
from ottla.protocol.apis.write_share_group_state import WriteShareGroupStateResponse
from ottla.purgatory.pending import Pending
from ottla.purgatory.timing_wheel import TimingWheel
from ottla.replication.share import acknowledging, acquiring
from ottla.replication.share.acknowledging import Acknowledgement
from ottla.replication.share.acquiring import AcquireRequest, Fetched, FetchedBatch, acquire
from ottla.replication.share.partition import Phase, SharePartition
from ottla.replication.share.states import (
    ShareEnvironment,
    SharePartitionKey,
    ShareSettings,
)
from ottla.storage.indexes.transaction_index import AbortedTransaction
from ottla.types import TopicPartition, Uuid
from tests.coordinator.harness import VirtualClock

if TYPE_CHECKING:
    from collections.abc import Sequence

TOPIC = Uuid(bytes(15) + b"\x07")
READ, WRITTEN = (
    ReadShareGroupStateResponse.ReadStateResult,
    WriteShareGroupStateResponse.WriteStateResult,
)


class World:
    """A share partition with a log of ten records a batch and a state store in memory."""

    def __init__(
        self, *batches: tuple[int, int, int, int], start: int = 0, log_end_offset: int = 1_000_000
    ) -> None:
        self.clock = VirtualClock()
        self.timer = TimingWheel(0)
        self.settings = ShareSettings()
        self.code = ErrorCode.NONE
        self.log_end_offset = log_end_offset
        self.held: list[Pending[Any]] | None = None
        self.writes: list[Any] = []
        self._loaded = READ.PartitionResult(
            partition=0,
            state_epoch=1,
            start_offset=start,
            state_batches=[
                READ.PartitionResult.StateBatch(
                    first_offset=first, last_offset=last, delivery_state=state, delivery_count=count
                )
                for first, last, state, count in batches
            ],
        )
        environment = ShareEnvironment(
            timer=self.timer,
            clock=self.clock,
            store=self,
            settings=lambda _group: self.settings,
            start_offset=lambda _replica, _settings: 0,
            log_end_offset=lambda _replica: self.log_end_offset,
            on_available=lambda _key: None,
        )
        replica: Any = SimpleNamespace(topic_partition=TopicPartition("t", 0))
        key = SharePartitionKey("g", TOPIC, 0)
        self.partition = SharePartition(key, replica, 5, environment)
        self.partition.on_lock_expiry = acknowledging.expire_lock
        assert self.partition.initialize().error is None

    def set_loaded_start(self, start_offset: int) -> None:
        self._loaded.start_offset = start_offset

    def read(self, _request: Any) -> Pending[Any]:
        result = READ(topic_id=TOPIC, partitions=[self._loaded])
        return Pending.of(ReadShareGroupStateResponse(results=[result]))

    def failure(self) -> WriteShareGroupStateResponse:
        code = int(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        part = WRITTEN.PartitionResult(partition=0, error_code=code)
        return WriteShareGroupStateResponse(results=[WRITTEN(topic_id=TOPIC, partitions=[part])])

    def write(self, request: Any) -> Pending[Any]:
        part = request.topics[0].partitions[0]
        self.writes.append(part)
        part = WRITTEN.PartitionResult(partition=0, error_code=int(self.code))
        result = WriteShareGroupStateResponse(results=[WRITTEN(topic_id=TOPIC, partitions=[part])])
        if self.held is None:
            return Pending.of(result)
        pending: Pending[Any] = Pending()
        self.held.append(pending)
        pending.on_done(lambda _: None)
        return pending

    def acquire(
        self,
        member: str = "a",
        most: int = 500,
        *,
        end: int = 30,
        size: int = 500,
        strict: bool = False,
        aborted: Sequence[AbortedTransaction] = (),
    ) -> list[tuple[int, int, int]]:
        """Acquire from the next offset on, of a log that ends at an offset."""
        offset = self.partition.next_fetch_offset()
        first = offset // 10 * 10
        batches = [
            FetchedBatch(base, min(base + 9, end - 1), base, 10, 77, bool(aborted), False)
            for base in range(first, end, 10)
        ]
        request = AcquireRequest(member, most, size, strict)
        found = acquire(self.partition, request, offset, Fetched(batches, list(aborted)))
        return [(one.first_offset, one.last_offset, one.delivery_count) for one in found]

    def acknowledge(self, first: int, last: int, *types: int, member: str = "a") -> ErrorCode:
        done = acknowledging.acknowledge(
            self.partition, member, [Acknowledgement(first, last, types)]
        )
        if done.error is None:
            return ErrorCode.NONE
        assert isinstance(done.error, KafkaError)
        return done.error.code

    def advance(self, time_ms: int) -> None:
        self.clock.time_ms += time_ms
        self.timer.advance(self.clock.time_ms)

    def offsets(self) -> tuple[int, int]:
        return self.partition.start_offset, self.partition.end_offset


def test_the_locks_of_single_records_expire_together() -> None:
    """A batch whose records have states of their own is released by one write, not by one each."""
    world = World()
    assert world.acquire() == [(0, 29, 1)]
    assert world.acknowledge(29, 29, 1) is ErrorCode.NONE
    assert len(world.writes) == 1
    world.advance(world.settings.record_lock_duration_ms)
    assert len(world.writes) == 2
    assert [one.first_offset for one in world.writes[1].state_batches] == list(range(29))
    assert world.partition.lock_timeout_count == 29
    assert len(world.timer) == 0
    assert world.acquire("b") == [(0, 28, 2)]


def test_accepted_records_move_the_start() -> None:
    """A whole batch is one change; what is accepted in the middle waits for what is before it."""
    world = World()
    assert world.acquire(size=10) == [(0, 9, 1), (10, 19, 1), (20, 29, 1)]
    assert world.acquire("b") == []
    assert world.acknowledge(10, 19, 1) == ErrorCode.NONE
    assert world.offsets() == (0, 29)
    assert world.partition.delivery_complete_count == 10
    assert world.acknowledge(0, 9, 1) == ErrorCode.NONE
    assert world.offsets() == (20, 29)
    assert world.partition.delivery_complete_count == 0
    assert world.acknowledge(20, 29, 3) == ErrorCode.NONE
    assert world.offsets() == (30, 30)
    written = world.writes[-1]
    assert (written.state_epoch, written.leader_epoch, written.start_offset) == (1, 5, 20)


def test_released_records_come_again_to_anyone() -> None:
    """Types for each offset: accept, release, reject, gap."""
    world = World()
    assert world.acquire(end=4) == [(0, 3, 1)]
    assert world.acknowledge(0, 3, 1, 2, 3, 0) == ErrorCode.NONE
    assert world.offsets() == (1, 3)
    assert world.acquire("b", end=4) == [(1, 1, 2)]
    assert world.acknowledge(1, 1, 1) == ErrorCode.INVALID_RECORD_STATE
    assert world.acknowledge(1, 1, 1, member="b") == ErrorCode.NONE
    assert world.offsets() == (4, 4)


@pytest.mark.parametrize(
    ("first", "last", "code"),
    [
        (5, 40, ErrorCode.INVALID_REQUEST),
        (30, 31, ErrorCode.INVALID_REQUEST),
        (0, 29, ErrorCode.NONE),
    ],
)
def test_acknowledgements_of_what_was_not_acquired(first: int, last: int, code: ErrorCode) -> None:
    """All acknowledgements of a request are undone where one is wrong."""
    world = World()
    world.acquire()
    assert world.acknowledge(first, last, 1) == code
    left = 0 if code is ErrorCode.NONE else 30
    assert world.partition.in_flight_count == left


def test_a_failed_write_leaves_records_with_their_member() -> None:
    """COORDINATOR_NOT_AVAILABLE for the client, who may acknowledge again."""
    world = World()
    world.acquire(end=10)
    world.code = ErrorCode.NOT_COORDINATOR
    assert world.acknowledge(0, 9, 1) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.code = ErrorCode.NONE
    assert world.partition.delivery_complete_count == 0
    assert world.acknowledge(0, 9, 1) == ErrorCode.NONE
    assert world.offsets() == (10, 10)


def test_locks_expire_and_can_be_renewed() -> None:
    """A renewal begins the lock again; after its end the records are available."""
    world = World()
    world.acquire(end=10)
    world.advance(20_000)
    assert world.acknowledge(0, 4, 4) == ErrorCode.NONE
    world.advance(10_001)
    assert world.acquire("b", end=10) == [(5, 9, 2)]
    world.advance(20_000)
    assert world.acquire("c", end=10) == [(0, 4, 2)]
    assert world.acknowledge(0, 4, 1) == ErrorCode.INVALID_RECORD_STATE
    world.settings = replace(world.settings, is_renew_enabled=False)
    assert world.acknowledge(0, 4, 4, member="c") == ErrorCode.INVALID_RECORD_STATE


def test_after_the_last_delivery_records_are_archived() -> None:
    """From the third of five deliveries on fewer come together; the last one comes alone."""
    world = World()
    deliveries: dict[int, int] = {}
    most_together: dict[int, int] = {}
    for _ in range(100):
        found = world.acquire(end=8)
        if not found:
            break
        for first, last, count in found:
            for offset in range(first, last + 1):
                deliveries[offset] = count
            most_together[count] = max(most_together.get(count, 0), last - first + 1)
        acknowledging.release_member(world.partition, "a")
    assert deliveries == dict.fromkeys(range(8), 5)
    assert most_together == {1: 8, 2: 8, 3: 8, 4: 4, 5: 1}
    assert world.offsets() == (8, 8)


def test_a_strict_fetch_gets_no_more_than_it_asks_for() -> None:
    """The rest of the batch is available for others (KIP-1206)."""
    world = World()
    assert world.acquire(most=3, strict=True) == [(0, 2, 1)]
    assert world.acquire("b", most=4, strict=True) == [(3, 6, 1)]
    assert world.acquire("c", most=2) == [(7, 9, 1)]


def test_at_most_so_many_records_are_in_flight() -> None:
    """share.partition.max.record.locks counts from the start offset to the last one in flight."""
    world = World()
    world.settings = replace(world.settings, partition_max_record_locks=15)
    assert world.acquire() == [(0, 19, 1)]
    assert world.acquire("b") == []
    assert not world.partition.can_acquire
    world.acknowledge(0, 9, 1)
    assert world.partition.can_acquire
    assert world.acquire("b") == [(20, 29, 1)]


def test_loading_leaves_a_gap_that_is_acquired_first() -> None:
    """Offsets without a state before the last known one were never delivered, or again."""
    world = World((5, 9, 0, 2), (20, 24, 2, 1))
    assert world.offsets() == (0, 24)
    assert world.partition.next_fetch_offset() == 0
    assert world.acquire() == [(0, 4, 1), (5, 9, 3), (10, 19, 1), (25, 29, 1)]


def test_deleted_and_aborted_records_are_archived() -> None:
    """What a member still has stays with it; aborted transactions are cut out of a range."""
    world = World()
    world.acquire(end=10)
    acquiring.move_start(world.partition, 5)
    assert world.offsets() == (5, 9)
    assert world.acknowledge(0, 9, 2) == ErrorCode.NONE
    assert world.acquire("b", end=10) == [(5, 9, 2)]
    other = World()
    aborted = AbortedTransaction(77, 10, 19, 20)
    assert other.acquire(aborted=[aborted])[0][:2] == (0, 9)


def test_an_aborted_transaction_longer_than_the_window_is_passed() -> None:
    """Archived records move the start: the window does not stay full of them."""
    world = World()
    world.settings = replace(world.settings, partition_max_record_locks=20)
    aborted = AbortedTransaction(77, 0, 89, 90)
    for end in (20, 50, 90):
        while world.partition.next_fetch_offset() < end:
            assert world.acquire(end=end, aborted=[aborted]) == []
        assert world.offsets() == (end, end)
    assert world.acquire(end=100) == [(90, 99, 1)]


def test_a_record_before_a_full_loaded_window_moves_the_start() -> None:
    """More records than the window has places were loaded as accepted, but the first one."""
    world = World((1, 2498, 2, 1))
    assert world.acquire(end=3000) == [(0, 0, 1)]
    assert world.acknowledge(0, 0, 1) is ErrorCode.NONE
    assert world.offsets() == (2499, 2499)
    assert world.acquire(end=3000)[0] == (2499, 2999, 1)


def test_records_without_a_loaded_state_may_be_deleted() -> None:
    """The next fetch reads from the log start, not from where the records were."""
    world = World((11, 20, 2, 1), (21, 30, 0, 1))
    assert world.partition.next_fetch_offset() == 0
    acquiring.move_start(world.partition, 6)
    assert world.partition.next_fetch_offset() == 6
    assert world.acquire(end=40) == [(6, 10, 1), (21, 30, 2), (31, 39, 1)]


def test_what_is_below_the_start_is_forgotten() -> None:
    """A late answer to an acknowledgement gives no deleted record back; their member learns OK."""
    world = World()
    world.acquire(end=10)
    world.held = []
    world.acknowledge(0, 4, 1)
    acquiring.move_start(world.partition, 5)
    assert [one.first_offset for one in world.partition.batches] == [5]
    world.advance(31_000)
    held, world.held = world.held, None
    held[0].complete(world.failure())
    assert world.acknowledge(0, 3, 1) is ErrorCode.NONE
    assert world.acquire("b", end=10) == [(5, 9, 2)]
    assert world.acknowledge(0, 9, 1, member="b") is ErrorCode.NONE
    assert world.offsets() == (10, 10)


@pytest.mark.parametrize(
    ("batches", "start", "offsets"),
    [(((90, 120, 2, 1),), 90, (100, 100)), (((130, 140, 0, 1),), 120, (100, 100))],
)
def test_a_log_that_lost_records_is_delivered_from_its_end(
    batches: tuple[tuple[int, int, int, int], ...], start: int, offsets: tuple[int, int]
) -> None:
    """After an unclean election states may name offsets that the log does not have yet."""
    world = World(*batches, start=start, log_end_offset=100)
    assert world.offsets() == offsets
    assert world.acquire(end=120) == [(100, 119, 1)]


@pytest.mark.parametrize("state", [1, 3, 9])
def test_states_that_are_not_persisted_here_end_nothing_for_ever(state: int) -> None:
    """Acquired or unknown: delivered again; ARCHIVING of a later version: archived."""
    world = World((0, 9, state, 1))
    first = 10 if state == 3 else 0
    assert world.acquire(end=20)[0][0] == first


def test_a_load_that_raises_fails() -> None:
    """Whatever reading the log raises: else all later fetches would wait for the first one."""
    world = World()

    def fail(_replica: object, _settings: object) -> int:
        raise OSError(5, "Input/output error")

    environment = replace(world.partition.environment, start_offset=fail)
    world.set_loaded_start(-1)
    partition = SharePartition(world.partition.key, world.partition.replica, 5, environment)
    assert isinstance(partition.initialize().error, OSError)
    assert partition.phase is Phase.FAILED
