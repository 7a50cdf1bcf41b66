"""Random histories of share partitions: what no member has can move, and each record is delivered.

After every step `SharePartition.stalls` finds nothing. In the end the store answers and one member
accepts all that it gets: the start reaches the end of the log, and each record that was committed
and is still there was accepted or rejected by a member, or delivered as often as it may be.
"""

from __future__ import annotations

from functools import partial
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest

from ottla.coordinator.share.state import StateBatch, combine_batches
from ottla.errors import ErrorCode
from ottla.protocol.apis.read_share_group_state import ReadShareGroupStateResponse
from ottla.protocol.apis.write_share_group_state import WriteShareGroupStateResponse
from ottla.purgatory.pending import Pending
from ottla.purgatory.timing_wheel import TimingWheel
from ottla.replication.share import acknowledging, acquiring
from ottla.replication.share.acknowledging import Acknowledgement
from ottla.replication.share.acquiring import AcquireRequest, Fetched, FetchedBatch, acquire
from ottla.replication.share.partition import SharePartition
from ottla.replication.share.states import (
    ShareEnvironment,
    SharePartitionKey,
    ShareSettings,
)
from ottla.storage.indexes.transaction_index import AbortedTransaction
from ottla.types import AcknowledgeType, TopicPartition, Uuid
from tests.coordinator.harness import VirtualClock
from tests.soaks import with_soaks

if TYPE_CHECKING:
    from collections.abc import Callable

KEY: Final = SharePartitionKey("g", Uuid(bytes(15) + b"\x07"), 0)
MEMBERS: Final = ("a", "b", "c")
STEPS: Final = 120
LOCK_MS: Final = 1000
_ENDS: Final = {AcknowledgeType.ACCEPT, AcknowledgeType.REJECT, AcknowledgeType.GAP}
READ, WRITTEN = (
    ReadShareGroupStateResponse.ReadStateResult,
    WriteShareGroupStateResponse.WriteStateResult,
)


class Store:
    """A share coordinator in memory, which answers late or not at all where it is told to."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.start_offset = -1
        self.batches: tuple[StateBatch, ...] = ()
        self.late: list[Callable[[], bool]] = []
        self.is_reliable = False

    def read(self, _request: Any) -> Pending[Any]:
        """Answer at once."""
        found = [READ.PartitionResult.StateBatch(**one._asdict()) for one in self.batches]
        part = READ.PartitionResult(
            partition=0, state_epoch=1, start_offset=self.start_offset, state_batches=found
        )
        result = READ(topic_id=KEY.topic_id, partitions=[part])
        return Pending.of(ReadShareGroupStateResponse(results=[result]))

    def write(self, request: Any) -> Pending[Any]:
        """Apply a change, or fail, now or later."""
        answer: Pending[Any] = Pending()
        is_stored = self.is_reliable or self.rng.random() < 0.7
        if is_stored:
            part = request.topics[0].partitions[0]
            self.start_offset = max(self.start_offset, part.start_offset)
            added = [
                StateBatch(
                    one.first_offset, one.last_offset, one.delivery_state, one.delivery_count
                )
                for one in part.state_batches
            ]
            self.batches = combine_batches(self.batches, added, self.start_offset)
        code = ErrorCode.NONE if is_stored else ErrorCode.NOT_COORDINATOR
        written = WRITTEN.PartitionResult(partition=0, error_code=int(code))
        response = WriteShareGroupStateResponse(
            results=[WRITTEN(topic_id=KEY.topic_id, partitions=[written])]
        )
        if self.is_reliable or self.rng.random() < 0.5:
            answer.complete(response)
        else:
            self.late.append(partial(answer.complete, response))
        return answer


class Batch(NamedTuple):
    """A batch of the log."""

    base_offset: int
    last_offset: int
    producer_id: int
    is_abort: bool = False


class History:
    """One log, its share partition on one leader after the other, and the group's members."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = Random(seed)
        self.clock, self.timer, self.store = VirtualClock(), TimingWheel(0), Store(rng)
        self.settings = ShareSettings(
            record_lock_duration_ms=LOCK_MS,
            delivery_count_limit=rng.randrange(2, 6),
            partition_max_record_locks=rng.choice((5, 20, 60)),
            is_committed_only=True,
        )
        self.log: list[Batch] = []
        self.log_start_offset = self.log_end_offset = 0
        self.aborted: list[AbortedTransaction] = []
        self.ended: set[int] = set()
        """What a member accepted or rejected, or got for the last time."""
        self.has_lost_records = False
        self.held: dict[str, list[tuple[int, int]]] = {one: [] for one in MEMBERS}
        self.leader_epoch = 0
        self.append()
        self.partition = self._load()

    def _load(self) -> SharePartition:
        """Return the share partition of the next leader."""
        environment = ShareEnvironment(
            timer=self.timer,
            clock=self.clock,
            store=self.store,
            settings=lambda _group: self.settings,
            start_offset=lambda _replica, _settings: self.log_start_offset,
            log_end_offset=lambda _replica: self.log_end_offset,
            on_available=lambda _key: None,
        )
        self.leader_epoch += 1
        replica: Any = SimpleNamespace(topic_partition=TopicPartition("t", 0))
        partition = SharePartition(KEY, replica, self.leader_epoch, environment)
        partition.on_lock_expiry = acknowledging.expire_lock
        assert partition.initialize().error is None
        return partition

    def become_leader(self) -> None:
        """Load the state on a leader; what waits for the one before is answered later."""
        self.partition.fence()
        self.held = {one: [] for one in MEMBERS}
        self.partition = self._load()

    # The log

    def append(self) -> None:
        """Append batches, some of them of one aborted transaction."""
        is_aborted = self.rng.random() < 0.4
        producer_id = 1000 + self.log_end_offset if is_aborted else -1
        first_offset = self.log_end_offset
        for _ in range(self.rng.randrange(1, 8)):
            last_offset = self.log_end_offset + self.rng.choice((0, 0, 3, 9, 30))
            self.log.append(Batch(self.log_end_offset, last_offset, producer_id))
            self.log_end_offset = last_offset + 1
        if is_aborted:
            marker = self.log_end_offset
            self.log.append(Batch(marker, marker, producer_id, is_abort=True))
            self.log_end_offset += 1
            self.aborted.append(AbortedTransaction(producer_id, first_offset, marker, marker + 1))

    def compact(self) -> None:
        """Remove batches, not the last one."""
        self.log[:-1] = [one for one in self.log[:-1] if self.rng.random() < 0.8]

    def delete_records(self) -> None:
        """Raise the log start offset."""
        self.log_start_offset = self.rng.randint(self.log_start_offset, self.log_end_offset)
        self.log = [one for one in self.log if one.last_offset >= self.log_start_offset]

    def lose_records(self) -> None:
        """Lose the end of the log, as an unclean election does; others take its offsets."""
        if len(self.log) < 2:
            return
        self.has_lost_records = True
        del self.log[self.rng.randrange(1, len(self.log)) :]
        self.log_end_offset = self.log[-1].last_offset + 1
        self.aborted = [one for one in self.aborted if one.last_offset < self.log_end_offset]
        self.become_leader()

    # Members

    def fetch(self, member: str, max_records: int = 500) -> list[tuple[int, int]]:
        """Read and acquire, in some cases with other steps in between."""
        partition = self.partition
        if not partition.can_acquire:
            return []
        offset = partition.next_fetch_offset()
        if not self.log_start_offset <= offset <= self.log_end_offset:
            acquiring.move_start(partition, self.log_start_offset)
            return []
        found = [one for one in self.log if one.last_offset >= offset]
        found = found[: self.rng.choice((1, 3, 20))]
        if not self.store.is_reliable and self.rng.random() < 0.3:
            self.step()
        if partition is not self.partition or not found:
            return []
        end = found[-1].last_offset
        fetched = Fetched(
            [
                FetchedBatch(*one[:2], 0, 1, one.producer_id, one.producer_id >= 0, one.is_abort)
                for one in found
            ],
            [one for one in self.aborted if one.first_offset <= end and one.last_offset >= offset],
        )
        size, is_strict = self.rng.choice((1, 10, 500)), self.rng.random() < 0.3
        request = AcquireRequest(member, max_records, size, is_strict)
        acquired = []
        for first, last, delivery_count in acquire(partition, request, offset, fetched):
            acquired.append((first, last))
            if delivery_count >= self.settings.delivery_count_limit:
                self.ended.update(range(first, last + 1))
        self.held[member] += acquired
        return acquired

    def acknowledge(self, member: str, *, is_accepted: bool = False) -> None:
        """End some of what a member holds, or held: its locks may be over."""
        held = self.held[member]
        self.rng.shuffle(held)
        for _ in range(len(held) if is_accepted else self.rng.randint(0, len(held))):
            first, last = held.pop()
            kinds = [AcknowledgeType.ACCEPT]
            if not is_accepted:
                first, last = sorted(self.rng.choices(range(first, last + 1), k=2))
                count = self.rng.choice((1, last - first + 1))
                kinds = self.rng.choices(list(AcknowledgeType), k=count)
            acknowledged = Acknowledgement(first, last, kinds)
            self.ended.update(
                one for one in range(first, last + 1) if acknowledged.type_at(one) in _ENDS
            )
            acknowledging.acknowledge(self.partition, member, [acknowledged])

    def release(self, member: str) -> None:
        """End a member's session."""
        self.held[member].clear()
        acknowledging.release_member(self.partition, member)

    # Steps

    def advance(self, time_ms: int) -> None:
        """Let time pass."""
        self.clock.time_ms += time_ms
        self.timer.advance(self.clock.time_ms)

    def answer(self) -> None:
        """Answer a write."""
        if self.store.late:
            self.store.late.pop(self.rng.randrange(len(self.store.late)))()

    def step(self) -> None:
        """Do anything."""
        member = self.rng.choice(MEMBERS)
        what: list[Callable[[], object]] = [
            lambda: self.fetch(member, self.rng.choice((1, 5, 500))),
            lambda: self.acknowledge(member),
            self.answer,
            lambda: self.advance(self.rng.choice((1, LOCK_MS // 2, LOCK_MS))),
            lambda: self.release(member),
            self.append,
            self.compact,
            self.delete_records,
            self.become_leader,
            self.lose_records,
        ]
        self.rng.choices(what, (30, 25, 15, 8, 4, 8, 3, 2, 2, 0.3))[0]()
        self.check()

    def check(self) -> None:
        """Check that nothing waits for what does not come."""
        assert list(self.partition.stalls()) == []

    def finish(self) -> None:
        """Let one member accept all that is left, with a store that answers."""
        if self.rng.random() < 0.1:
            self.lose_records()
        self.store.is_reliable = True
        while self.store.late:
            self.answer()
            self.check()
        self.advance(LOCK_MS)
        self.held["a"].clear()
        for _ in range(len(self.log) * 50 + self.partition.in_flight_count * 10):
            partition = self.partition
            if partition.next_fetch_offset() == partition.start_offset >= self.log_end_offset:
                break
            before = partition.start_offset, partition.in_flight_count
            acquired = self.fetch("a")
            self.acknowledge("a", is_accepted=True)
            self.check()
            assert acquired or before != (partition.start_offset, partition.in_flight_count)
        assert self.partition.start_offset == self.log_end_offset
        aborted = {one.producer_id for one in self.aborted}
        visible = {
            offset
            for one in self.log
            if one.producer_id not in aborted
            for offset in range(max(one.base_offset, self.log_start_offset), one.last_offset + 1)
        }
        assert self.has_lost_records or visible <= self.ended


@pytest.mark.parametrize("first", with_soaks(range(0, 400, 100)))
def test_a_share_partition_always_moves(first: int) -> None:
    """Locks, limits, lost writes, aborts, compaction, deletion, new leaders, lost ends of logs."""
    for seed in range(first, first + 100):
        history = History(seed)
        try:
            for _ in range(STEPS):
                history.step()
            history.finish()
        except AssertionError as error:
            error.add_note(f"History({seed})")
            raise
