"""The shard of the share coordinator: epochs, updates and snapshots, pruning, its records."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ottla.coordinator.runtime import Result, ShardEnvironment, ShardTimers
from ottla.coordinator.runtime.shard import RECORDS_AT_ONCE
from ottla.coordinator.share.shard import ShareCoordinatorConfig, ShareShard, StateChange
from ottla.coordinator.share.state import ShareKey, StateBatch, combine_batches
from ottla.errors import ErrorCode, KafkaError
from ottla.purgatory.timing_wheel import TimingWheel
from ottla.purgatory.work import NEXT_TURN
from ottla.timeline import SnapshotRegistry
from ottla.types import Uuid
from tests.coordinator.harness import VirtualClock, loop_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ottla.coordinator.runtime import CoordinatorRecord
    from ottla.purgatory.work import Work

TOPIC = Uuid(bytes(15) + b"\x07")
KEY = ShareKey("g", TOPIC, 0)


class Shard:
    """A shard whose records are replayed at once."""

    def __init__(self, config: ShareCoordinatorConfig | None = None) -> None:
        self.clock = VirtualClock()
        self.timer = TimingWheel(0)
        loop = loop_of(self.timer, self.clock)
        timers = ShardTimers(
            loop,
            lambda operation, _: self.run(operation),
            lambda slices: loop.worker.begin(self.write_each(slices)),
        )
        environment = ShardEnvironment(0, SnapshotRegistry(), timers, self.clock)
        self.shard = ShareShard(
            environment,
            config or ShareCoordinatorConfig(),
            lambda topic_id, partition: topic_id == TOPIC and partition < 2,
        )
        self.offset = 0
        self.slices: list[list[str]] = []

    def apply(self, result: object) -> list[str]:
        """Replay the records of a result, through their bytes; return the kinds of values."""
        kinds = []
        for record in result.records:  # type: ignore[attr-defined] # a Result of any kind
            decoded = self.shard.decode(*self.shard.encode(record))
            assert decoded is not None
            assert decoded == record
            self.shard.replay(self.offset, -1, decoded)
            self.offset += 1
            kinds.append(type(record.value).__name__)
        return kinds

    def run(self, operation: Callable[[], Result[None]]) -> None:
        """Apply what a timer has run, as if it were committed."""
        result = operation()
        self.slices.append(self.apply(result))
        if result.on_append is not None:
            result.on_append(None)

    def write_each(self, slices: Iterator[list[CoordinatorRecord] | None]) -> Work[None]:
        """Apply lists of records, one in a turn."""
        for records in slices:
            self.run(lambda records=records: Result(None, records))  # type: ignore[misc] # a lambda's default binds the loop's value
            yield NEXT_TURN

    def advance(self, count_ms: int) -> None:
        """Run the timers of some milliseconds."""
        for _ in range(count_ms):
            self.clock.time_ms += 1
            self.timer.advance(self.clock.time_ms)


def change(*batches: tuple[int, int, int, int], start: int = -1, leader: int = 1) -> StateChange:
    return StateChange(0, leader, start, 0, tuple(StateBatch(*one) for one in batches))


def fails(code: ErrorCode, call: object) -> None:
    with pytest.raises(KafkaError) as raised:
        call()  # type: ignore[operator] # a lambda
    assert raised.value.code is code


def test_a_share_partition_is_initialised_read_and_written() -> None:
    """Reading raises the leader epoch with an update; an earlier leader is fenced from then on."""
    world = Shard()
    shard = world.shard
    fails(ErrorCode.INVALID_REQUEST, lambda: shard.read(KEY, 1))
    fails(ErrorCode.INVALID_REQUEST, lambda: shard.write(KEY, change()))
    fails(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, lambda: shard.summary(KEY._replace(partition=2)))
    assert world.apply(shard.initialize(KEY, 3, -1)) == ["ShareSnapshotValue"]
    assert world.apply(shard.read(KEY, 2)) == ["ShareUpdateValue"]
    assert world.apply(shard.read(KEY, 2)) == []
    fails(ErrorCode.FENCED_LEADER_EPOCH, lambda: shard.read(KEY, 1))
    fails(ErrorCode.FENCED_STATE_EPOCH, lambda: shard.write(KEY, change(leader=2)))
    fails(ErrorCode.FENCED_STATE_EPOCH, lambda: shard.initialize(KEY, 2, -1))
    world.apply(shard.write(KEY, change((0, 9, 2, 1), start=0, leader=2)._replace(state_epoch=3)))
    state = shard.states[KEY]
    assert (state.start_offset, state.leader_epoch, state.batches) == (
        0,
        2,
        (StateBatch(0, 9, 2, 1),),
    )
    assert world.apply(shard.delete(KEY)) == ["NoneType"]
    assert KEY not in shard.states
    assert world.apply(shard.delete(KEY)) == []


def test_a_delayed_initialisation_takes_nothing_away() -> None:
    """It repeats the state epoch without a start; at an offset the share partition begins again."""
    world = Shard()
    shard = world.shard
    world.apply(shard.initialize(KEY, 3, -1))
    world.apply(shard.write(KEY, change((0, 4, 2, 1), start=0)._replace(state_epoch=3)))
    assert world.apply(shard.initialize(KEY, 3, -1)) == []
    assert shard.states[KEY].batches == (StateBatch(0, 4, 2, 1),)
    assert world.apply(shard.initialize(KEY, 3, 7)) == ["ShareSnapshotValue"]
    assert (shard.states[KEY].start_offset, shard.states[KEY].batches) == (7, ())


@pytest.mark.parametrize("updates_per_snapshot", [0, 500])
def test_a_write_that_arrives_late_takes_nothing_back(updates_per_snapshot: int) -> None:
    """Sent again after a timeout, it follows later ones of the same leader: what they ended stays.

    Found by `scripts/simulate --cluster --seeds 40306`: the next leader gave an accepted record.
    """
    world = Shard(ShareCoordinatorConfig(updates_per_snapshot=updates_per_snapshot))
    shard = world.shard
    world.apply(shard.initialize(KEY, 0, -1))
    world.apply(shard.write(KEY, change((36, 36, 2, 2), (39, 42, 2, 1), start=36)))
    world.apply(
        shard.write(KEY, change((38, 38, 2, 3), start=37)._replace(delivery_complete_count=5))
    )
    world.apply(shard.write(KEY, change((36, 37, 2, 1), start=36)))  # begun before the others
    state = shard.states[KEY]
    assert (state.start_offset, state.delivery_complete_count) == (37, 5)
    ended = (StateBatch(37, 37, 2, 1), StateBatch(38, 38, 2, 3), StateBatch(39, 42, 2, 1))
    assert state.batches == ended


def test_after_some_updates_a_snapshot_is_written() -> None:
    """The snapshot has all batches; below the oldest one that is needed the log can go."""
    world = Shard(ShareCoordinatorConfig(updates_per_snapshot=2))
    shard = world.shard
    world.apply(shard.initialize(KEY, 0, 0))
    kinds = [
        world.apply(shard.write(KEY, change((first, first, 2, 1), leader=0)))[0]
        for first in range(5)
    ]
    updates = ["ShareUpdateValue"] * 2
    assert kinds == [*updates, "ShareSnapshotValue", *updates]
    assert shard.states[KEY].batches == (StateBatch(0, 4, 2, 1),)
    assert shard.states[KEY].snapshot_epoch == 1
    world.run(lambda: shard.forget_topics([TOPIC]))
    world.advance(2)
    assert not len(shard.states)


@pytest.mark.parametrize(
    ("known", "added", "start", "combined"),
    [
        ([(0, 9, 0, 1)], [(10, 19, 0, 1)], -1, [(0, 19, 0, 1)]),
        ([(0, 9, 0, 1)], [(3, 5, 2, 1)], -1, [(0, 2, 0, 1), (3, 5, 2, 1), (6, 9, 0, 1)]),
        ([(0, 9, 0, 2)], [(3, 12, 0, 1)], -1, [(0, 9, 0, 2), (10, 12, 0, 1)]),
        ([(0, 9, 0, 1)], [(5, 12, 0, 2)], -1, [(0, 4, 0, 1), (5, 12, 0, 2)]),
        ([(0, 9, 0, 1), (20, 29, 4, 1)], [], 5, [(5, 9, 0, 1), (20, 29, 4, 1)]),
        ([(0, 9, 0, 1)], [(0, 4, 2, 1)], 2, [(2, 4, 2, 1), (5, 9, 0, 1)]),
        ([(0, 9, 0, 1)], [], 30, []),
    ],
)
def test_batches_are_combined(
    known: list[tuple[int, int, int, int]],
    added: list[tuple[int, int, int, int]],
    start: int,
    combined: list[tuple[int, int, int, int]],
) -> None:
    """Of two states of a record the one after more deliveries counts, then the higher one."""
    found = combine_batches(
        (StateBatch(*one) for one in known), (StateBatch(*one) for one in added), start
    )
    assert list(found) == [StateBatch(*one) for one in combined]


class CountedOffset(int):
    """An offset that counts how often offsets are compared."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        CountedOffset.compared += 1
        return int(self) == other

    def __lt__(self, other: int) -> bool:
        CountedOffset.compared += 1
        return int(self) < int(other)

    __hash__ = int.__hash__


def test_the_work_to_combine_grows_with_the_number_of_batches() -> None:
    """Not with its square: each record in flight may have a state of its own."""

    def comparisons(count: int) -> int:
        offsets = [CountedOffset(index) for index in range(count)]
        known = [StateBatch(one, one, 2 * (one % 2), 1) for one in offsets]
        added = [StateBatch(one, one, 1 + 3 * (one % 2), 2) for one in offsets]
        before = CountedOffset.compared
        found = combine_batches(known, added, 0)
        made = CountedOffset.compared - before
        assert list(found) == added
        return made

    assert comparisons(4000) < 14 * comparisons(500)


def test_a_key_is_written_as_find_coordinator_reads_it() -> None:
    """The group may have colons."""
    key = KEY._replace(group_id="a:b")
    assert ShareKey.parse(str(key)) == key
    for text in ("", "g", "g:x:0", ":AAAAAAAAAAAAAAAAAAAAAA:0", "g:AAAAAAAAAAAAAAAAAAAAAA:x"):
        with pytest.raises(ValueError, match=r"."):
            ShareKey.parse(text)


def test_cold_states_get_a_snapshot_again() -> None:
    """A snapshot that is old is written again, so that pruning gets past it."""
    world = Shard()
    world.apply(world.shard.initialize(KEY, 0, 0))
    before = world.shard.states[KEY]
    world.clock.time_ms += 300_000
    world.run(world.shard._snapshot_cold)
    world.advance(2)
    after = world.shard.states[KEY]
    assert after == replace(
        before, snapshot_epoch=1, write_timestamp_ms=before.write_timestamp_ms + 300_001
    )
    world.slices.clear()
    world.run(world.shard._snapshot_cold)
    world.advance(2)
    assert world.slices == [[]]


def test_many_states_are_written_and_forgotten_in_slices() -> None:
    """A state counts by its batches; no turn of the loop writes all states of a shard."""
    world = Shard()
    keys = [ShareKey(f"g{number}", TOPIC, 0) for number in range(RECORDS_AT_ONCE)]
    batches = [(2 * index, 2 * index, 2, 1) for index in range(9)]
    for key in keys:
        world.apply(world.shard.initialize(key, 0, 0))
        world.apply(world.shard.write(key, change(*batches)))
    world.clock.time_ms += 300_000
    world.run(world.shard._snapshot_cold)
    world.advance(30)
    sizes = [len(kinds) for kinds in world.slices]
    assert sum(sizes) == len(keys)
    assert max(sizes) == RECORDS_AT_ONCE // 10
    world.slices.clear()
    world.run(lambda: world.shard.forget_topics([TOPIC]))
    world.advance(2)
    assert [len(kinds) for kinds in world.slices] == [0, RECORDS_AT_ONCE]
    assert not len(world.shard.states)
