"""The runtime with a shard that counts: order of answers, reverts, loading, leadership."""

from __future__ import annotations

import gc
import sys
from itertools import count, pairwise
from typing import TYPE_CHECKING, Any

import pytest

from ottla.coordinator.runtime import (
    CoordinatorRecord,
    CoordinatorRuntime,
    Result,
    ShardEnvironment,
)
from ottla.coordinator.runtime.active import RuntimeEnvironment, ShardState
from ottla.coordinator.runtime.runtime import KEYS_AT_ONCE
from ottla.coordinator.runtime.shard import empty_result
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.records.group import GroupMetadataKey
from ottla.purgatory.loop import Loop
from ottla.purgatory.timing_wheel import TimingWheel
from ottla.purgatory.work import MAX_STEPS, Worker
from ottla.records.builder import encode_batch
from ottla.records.control import encode_end_txn_marker
from ottla.timeline import TimelineDict
from tests.coordinator.harness import MemoryLog, VirtualClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ottla.purgatory.pending import Pending


class Counter:
    """Counts how often each name was written; each record has a key of its own."""

    _serials = count()
    is_compacted = True

    def __init__(self, environment: ShardEnvironment) -> None:
        self.counts: TimelineDict[str, int] = TimelineDict(environment.registry)
        self.timers = environment.timers
        self.events: list[str] = []
        self.restarted: list[str] = []

    def replay(self, offset: int, producer_id: int, record: CoordinatorRecord) -> None:
        assert isinstance(record.key, GroupMetadataKey)
        if record.key.group == "poison":
            raise RuntimeError("planted")
        name = record.key.group if producer_id == -1 else f"{producer_id}:{record.key.group}"
        self.counts[name] = self.counts.get(name, 0) + 1

    def replay_end_transaction(self, producer_id: int, *, committed: bool) -> None:
        self.events.append(f"end {producer_id} {committed}")

    def encode(self, record: CoordinatorRecord) -> tuple[bytes, bytes | None]:
        assert isinstance(record.key, GroupMetadataKey)
        return f"{record.key.group}#{next(self._serials)}".encode(), None

    def decode(self, key: bytes, value: bytes | None) -> CoordinatorRecord | None:
        return None if key == b"?" else count_record(key.decode().partition("#")[0])

    def on_loaded(self) -> Iterator[None]:
        self.events.append("loaded")
        if "nonsense" in self.counts:
            self.timers.schedule("later", 5, empty_result)
            raise AssertionError("planted")
        for name in list(self.counts):
            self.restarted.append(name)
            yield

    def on_unloaded(self) -> None:
        self.events.append("unloaded")

    def stalls(self, *, is_writing: bool) -> Iterator[str]:
        if not is_writing and "wait" in self.counts:
            yield "waits"


def count_record(name: str) -> CoordinatorRecord:
    return CoordinatorRecord(GroupMetadataKey(group=name))


class Bench:
    """A runtime of counters."""

    def __init__(self) -> None:
        self.log = MemoryLog()
        self.timer = TimingWheel(0)
        self.clock = VirtualClock()
        self.turns: list[Callable[[], None]] = []
        """What is to be called in the next turn of the loop."""
        self.faults: list[Exception] = []
        environment = RuntimeEnvironment(
            self.log,
            Loop(self.clock, self.timer, Worker(self.turns.append)),
            5000,
            self.faults.append,
            "test",
            1 << 20,
        )
        self.runtime: CoordinatorRuntime[Counter] = CoordinatorRuntime(environment, Counter)
        self.log.on_high_watermark = self.runtime.on_high_watermark

    def count(self, *names: str) -> Pending[int]:
        def operation(shard: Counter) -> Result[int]:
            return Result(
                1 + shard.counts.get(names[0], 0) if names else -1,
                [count_record(name) for name in names],
            )

        return self.runtime.write(0, operation)

    def committed(self, name: str) -> object:
        return self.runtime.read(0, lambda shard, epoch: shard.counts.at(epoch).get(name, 0)).value

    def advance(self, now_ms: int) -> None:
        self.clock.time_ms = now_ms
        self.timer.advance(now_ms)
        turns, self.turns[:] = self.turns[:], []
        for turn in turns:
            turn()


def code_of(pending: Pending[Any]) -> ErrorCode:
    assert isinstance(pending.error, KafkaError)
    return pending.error.code


def test_pipelined_operations_see_the_newest_state() -> None:
    """Operations build on uncommitted state; reads do not; answers come in order at the commit."""
    bench = Bench()
    bench.runtime.on_elected(0, 1)
    bench.log.is_holding = True
    first, second, third = bench.count("a"), bench.count("a"), bench.count()
    order: list[int] = []
    for pending in (third, second, first):
        pending.on_done(lambda done: order.append(done.value))
    assert bench.committed("a") == 0
    assert order == []
    bench.runtime.on_high_watermark(0, 1)
    assert (order, bench.committed("a")) == ([1], 1)
    bench.runtime.on_high_watermark(0, 2)
    assert (order, bench.committed("a")) == ([1, 2, -1], 2)


def test_failed_append_reverts_only_itself() -> None:
    """What was appended before stays, whether committed or not."""
    bench = Bench()
    bench.runtime.on_elected(0, 1)
    bench.log.is_holding = True
    kept = bench.count("a")
    bench.log.next_error = ErrorCode.NOT_ENOUGH_REPLICAS
    failed = bench.count("a", "b")
    assert code_of(failed) == ErrorCode.NOT_ENOUGH_REPLICAS
    assert dict(bench.runtime.shard(0).counts) == {"a": 1}
    bench.log.commit(0)
    assert kept.value == 1


def test_on_append_runs_before_the_answer_and_once() -> None:
    """The callback learns of commit, failure or timeout exactly once."""
    bench = Bench()
    bench.runtime.on_elected(0, 1)
    bench.log.is_holding = True
    seen: list[str] = []

    def operation(shard: Counter) -> Result[None]:
        return Result(None, [count_record("a")], lambda error: seen.append(f"append {error}"))

    bench.runtime.write(0, operation).on_done(lambda done: seen.append(f"answer {done.error}"))
    bench.advance(4999)
    assert seen == []
    bench.advance(5000)
    text = ErrorCode.REQUEST_TIMED_OUT.text
    assert seen == [f"append {text}", f"answer {text}"]
    bench.log.commit(0)
    assert len(seen) == 2
    assert bench.committed("a") == 1


def test_fault_in_operation_or_replay_is_contained() -> None:
    """A bug costs one request, is reported, and leaves state and log as they were."""
    bench = Bench()
    bench.runtime.on_elected(0, 1)

    def broken(shard: Counter) -> Result[int]:
        raise RuntimeError("planted")

    assert isinstance(bench.runtime.write(0, broken).error, RuntimeError)
    assert code_of(bench.count("a", "poison")) == ErrorCode.UNKNOWN_SERVER_ERROR
    assert bench.log.end_offset(0) == 0
    assert bench.count("a").value == 1
    assert len(bench.faults) == 2


def test_loading_waits_for_log_and_commit() -> None:
    """While loading the answer is 14; a new leader serves nothing that is not committed yet."""
    bench = Bench()
    bench.runtime.on_elected(0, 1)
    for _ in range(3):
        bench.count("a")
    bench.runtime.on_resigned(0)
    assert code_of(bench.count("a")) == ErrorCode.NOT_COORDINATOR
    bench.log.slice_bytes = 1
    bench.log.high_watermarks[0] = 2
    bench.runtime.on_elected(0, 2)
    assert code_of(bench.count("a")) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    for now_ms in range(1, 10):
        bench.advance(now_ms)
    assert bench.runtime.partitions == {0: ShardState.LOADING}
    bench.runtime.on_high_watermark(0, 3)
    assert bench.runtime.partitions == {0: ShardState.ACTIVE}
    assert bench.committed("a") == 3
    assert bench.runtime.shard(0).events == ["loaded"]


@pytest.mark.parametrize("turns", range(8))
def test_a_commit_during_a_load_cuts_nothing_off(turns: int) -> None:
    """All that was read is replayed before the first request, whenever the followers catch up."""
    bench = Bench()
    for number in range(3 * MAX_STEPS // 10):
        records = [(0, f"{number}-{one}".encode(), None, ()) for one in range(10)]
        bench.log.append(0, encode_batch(records), 0)
    bench.log.high_watermarks[0] = 0
    bench.runtime.on_elected(0, 1)
    for _ in range(turns):
        bench.advance(bench.clock.time_ms + 1)
        assert list(bench.runtime.stalls()) == []
    bench.log.commit(0)
    while bench.runtime.partitions[0] is ShardState.LOADING:
        assert list(bench.runtime.stalls()) == []
        bench.advance(bench.clock.time_ms + 1)
    assert len(bench.runtime.shard(0).counts) == 3 * MAX_STEPS


def test_unload_during_load_leaves_no_stale_copy() -> None:
    """Resigning while loading, then leading again, loads from the start (bug 56)."""
    bench = Bench()
    bench.runtime.on_elected(0, 1)
    bench.count("a")
    bench.count("a")
    bench.runtime.on_resigned(0)
    bench.runtime._environment.loop.worker.max_steps = 1
    bench.log.slice_bytes = 1
    bench.runtime.on_elected(0, 2)
    bench.runtime.on_resigned(0, 1)
    assert bench.runtime.partitions == {0: ShardState.LOADING}
    bench.runtime.on_resigned(0, 2)
    assert bench.runtime.partitions == {}
    bench.runtime.on_elected(0, 3)
    for now_ms in range(1, 10):
        bench.advance(now_ms)
    assert bench.committed("a") == 2


def test_loads_what_others_wrote() -> None:
    """Transactional batches, markers, unknown kinds, jumps of offsets and empty slices load."""
    bench = Bench()
    row = [(0, b"a", None, ()), (0, b"?", None, ())]
    bench.log.append(0, encode_batch(row), 0)
    bench.log.append(
        0,
        encode_batch(
            [(0, b"b", None, ())],
            producer_id=7,
            producer_epoch=0,
            base_sequence=0,
            transactional=True,
        ),
        0,
    )
    for commits in (True, False):
        marker = encode_end_txn_marker(
            commit=commits, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp=0
        )
        bench.log.append(0, bytearray(marker), 0)
    bench.log.append(0, encode_batch([(0, b"c", None, ())]), 0)
    del bench.log.batches[0][1]  # compacted away
    bench.runtime.on_elected(0, 1)
    shard = bench.runtime.shard(0)
    assert dict(shard.counts) == {"a": 1, "c": 1}
    assert shard.events == ["end 7 True", "end 7 False", "loaded"]


def test_many_partitions_that_load_share_the_turns() -> None:
    """A broker that takes over thirty partitions loads one slice in a millisecond, not thirty."""
    bench = Bench()
    batch = encode_batch([(0, b"%d" % n, None, ()) for n in range(100)], leader_epoch=1)
    replayed: list[int] = [0]
    for partition in range(30):
        bench.log.append(partition, bytearray(batch), 1)
    for partition in range(30):
        bench.runtime.on_elected(partition, 1)
    for now_ms in range(1, 80):
        bench.advance(now_ms)
        shards = (bench.runtime.shard(partition) for partition in range(30))
        replayed.append(sum(len(shard.counts) for shard in shards))
    assert replayed[-1] == 3000
    assert all(after - before <= MAX_STEPS for before, after in pairwise(replayed[1:]))
    assert set(bench.runtime.partitions.values()) <= {ShardState.ACTIVE, ShardState.FAILED}


def read_all(bench: Bench) -> tuple[Pending[list[str]], list[int]]:
    """Read all counters; how many in each turn is in the list."""
    sizes: list[int] = []

    def read(_shard: Counter, _epoch: int, names: Sequence[str]) -> list[str]:
        sizes.append(len(names))
        return list(names)

    return bench.runtime.read_all(lambda shard, epoch: shard.counts.at(epoch), read), sizes


def test_all_entries_are_read_in_slices() -> None:
    """So many in a turn of the loop, over all partitions; few are read at once."""
    bench = Bench()
    for partition in range(3):
        bench.runtime.on_elected(partition, 1)
    assert read_all(bench)[0].value == []
    names = [[f"{partition}-{n}" for n in range(1500)] for partition in range(3)]
    bench.advance(1)
    for partition, some in enumerate(names):
        result = Result(0, [count_record(name) for name in some])
        bench.runtime.write(partition, lambda _shard, result=result: result)  # type: ignore[misc] # a lambda's default binds the loop's value
    bench.advance(2)
    pending, sizes = read_all(bench)
    assert not pending.done
    assert sum(sizes) <= MAX_STEPS * KEYS_AT_ONCE
    last_ms = 0
    for now_ms in range(3, 10):
        count = len(sizes)
        bench.advance(now_ms)
        last_ms = now_ms if len(sizes) > count else last_ms
        assert pending.done is (now_ms > last_ms)  # the answer has a turn of its own
    assert sorted(pending.value) == sorted(name for some in names for name in some)


def test_a_partition_that_is_resigned_during_a_read_of_all_is_left_out() -> None:
    """What was read of it stays; while one is loaded the whole read is refused."""
    bench = Bench()
    for partition in range(2):
        bench.runtime.on_elected(partition, 1)
    names = [count_record(f"{n}") for n in range(3_000)]
    bench.runtime.write(0, lambda _shard: Result(0, names))
    bench.advance(1)
    pending, sizes = read_all(bench)
    bench.runtime.on_resigned(0)
    for now_ms in (2, 3):
        bench.advance(now_ms)
    assert len(pending.value) == sum(sizes) <= MAX_STEPS * KEYS_AT_ONCE
    bench.runtime.on_elected(0, 2)
    assert code_of(read_all(bench)[0]) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


@pytest.mark.parametrize("slice_bytes", [70, 100, 150, 200, 333])
def test_slices_that_end_within_a_batch_load_everything(slice_bytes: int) -> None:
    """A log larger than a slice: the batch that is cut comes whole in the next slice."""
    bench = Bench()
    bench.runtime.on_elected(0, 1)
    for number in range(40):
        bench.count("a" * (1 + number % 3))
    bench.runtime.on_resigned(0)
    bench.log.slice_bytes = slice_bytes
    bench.runtime.on_elected(0, 2)
    for now_ms in range(1, 100):
        bench.advance(now_ms)
    assert not bench.faults
    assert [bench.committed(name) for name in ("a", "aa", "aaa")] == [14, 13, 13]


def test_a_log_that_ends_within_a_batch_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left can never be read as a whole batch."""
    bench = Bench()
    bench.runtime.on_elected(0, 1)
    bench.count("a")
    bench.runtime.on_resigned(0)
    left = bench.log.batches[0][0][:-1]
    monkeypatch.setattr(bench.log, "read", lambda *_: left)
    bench.runtime.on_elected(0, 2)
    text = "partition 0 is damaged after offset 0: A record batch is truncated"
    assert str(bench.faults[0]).startswith(text)


def test_corrupt_log_fails_the_partition_only() -> None:
    """A partition that cannot be replayed answers 16 until a new election tries again."""
    bench = Bench()
    bench.runtime.on_elected(0, 1)
    bench.count("a")
    bench.runtime.on_resigned(0)
    good = bench.log.batches[0][0]
    bench.log.batches[0][0] = good[:-1] + bytes([good[-1] ^ 1])
    bench.runtime.on_elected(0, 2)
    assert bench.runtime.partitions == {0: ShardState.FAILED}
    assert code_of(bench.count("a")) == ErrorCode.NOT_COORDINATOR
    assert len(bench.faults) == 1
    assert str(bench.faults[0]).startswith("partition 0 is damaged after offset 0: Record is corr")
    bench.log.batches[0][0] = good
    bench.runtime.on_elected(0, 2)
    assert bench.committed("a") == 1


def test_records_without_sense_fail_the_partition_only() -> None:
    """A shard that fails to load is reported as a fault, and leaves no timer."""
    bench = Bench()
    bench.log.append(0, encode_batch([(0, b"nonsense", None, ())], leader_epoch=1), 1)
    bench.runtime.on_elected(0, 1)
    bench.runtime.on_elected(1, 1)
    assert bench.runtime.partitions == {0: ShardState.FAILED, 1: ShardState.ACTIVE}
    assert code_of(bench.count("a")) == ErrorCode.NOT_COORDINATOR
    assert [type(fault) for fault in bench.faults] == [AssertionError]
    assert len(bench.timer) == 0


def test_answers_may_start_operations() -> None:
    """What an answer sets off runs after the operation that answered, not inside it."""
    bench = Bench()
    bench.runtime.on_elected(0, 1)
    steps: list[str] = []

    def outer(shard: Counter) -> Result[None]:
        steps.append("outer begins")
        bench.count("inner").on_done(lambda done: steps.append("inner answered"))
        steps.append("outer ends")
        return Result(None, [count_record("outer")], lambda error: steps.append("outer committed"))

    bench.runtime.write(0, outer)
    assert steps == ["outer begins", "outer ends", "outer committed", "inner answered"]


@pytest.mark.parametrize("is_resigned", [True, False])
def test_an_error_of_one_answer_does_not_keep_the_others_back(*, is_resigned: bool) -> None:
    """The answers that a commit, or the end of the leadership, releases."""
    bench = Bench()
    bench.runtime.on_elected(0, 1)
    bench.log.is_holding = True
    first, second = bench.count("a"), bench.count("b")

    def fail(_done: object) -> None:
        raise RuntimeError("planted")

    first.on_done(fail)
    if is_resigned:
        bench.runtime.on_resigned(0)
    else:
        bench.log.commit(0)
    assert second.done
    assert [str(fault) for fault in bench.faults] == ["planted"]


def test_an_error_of_one_step_does_not_keep_the_queued_ones_back() -> None:
    """The error reaches the step's caller; those of the steps begun within it are reported."""
    bench = Bench()
    bench.runtime.on_elected(0, 1)
    answers: list[Pending[int]] = []

    def fail(name: str) -> None:
        raise RuntimeError(name)

    def outer(_shard: Counter) -> Result[None]:
        answers.extend((bench.count("a"), bench.count("b")))
        answers[0].on_done(lambda _done: fail("queued"))
        return Result(None, [count_record("outer")], on_commit=lambda _offset: fail("outer"))

    with pytest.raises(RuntimeError, match="outer"):
        bench.runtime.write(0, outer)
    assert [one.value for one in answers] == [1, 1]
    assert [str(fault) for fault in bench.faults] == ["queued"]


@pytest.mark.parametrize("retries", [True, False])
def test_timer_operation_is_retried_where_asked(*, retries: bool) -> None:
    """A timer whose records cannot be written runs again if it was scheduled so."""
    bench = Bench()
    bench.runtime.on_elected(0, 1)
    timers = bench.runtime.shard(0).timers
    timers.schedule(
        "k", 10, lambda: Result(None, [count_record("t")]), retry_ms=500 if retries else None
    )
    assert len(bench.timer) == 1
    bench.log.next_error = ErrorCode.NOT_ENOUGH_REPLICAS
    bench.advance(10)
    assert (bench.committed("t"), len(bench.timer)) == (0, int(retries))
    bench.advance(510)
    assert bench.committed("t") == int(retries)
    timers.schedule("k", 10, lambda: Result(None, [count_record("t")]))
    bench.runtime.close()
    bench.advance(10_000)
    assert bench.log.end_offset(0) == int(retries)


def test_loading_takes_a_bounded_number_of_records_in_a_turn() -> None:
    """A turn of the loop replays some hundred records, whole batches, none twice."""
    bench = Bench()
    for number in range(3 * MAX_STEPS // 10):
        records = [(0, f"{number}-{one}".encode(), None, ()) for one in range(10)]
        bench.log.append(0, encode_batch(records), 0)
    bench.runtime.on_elected(0, 1)
    shard = bench.runtime.shard(0)
    seen = [len(shard.counts)]
    while bench.runtime.partitions[0] is ShardState.LOADING:
        bench.advance(bench.clock.time_ms + 1)
        seen.append(len(shard.counts))
    assert seen[-1] == 3 * MAX_STEPS
    assert all(after - before <= MAX_STEPS for before, after in pairwise([0, *seen]))
    assert set(shard.counts.values()) == {1}


def test_soft_state_is_rebuilt_in_slices() -> None:
    """A shard with thousands of members answers while it starts their sessions."""
    bench = Bench()
    for number in range(300):
        records = [(0, f"{number}-{one}".encode(), None, ()) for one in range(10)]
        bench.log.append(0, encode_batch(records), 0)
    bench.runtime.on_elected(0, 1)
    shard = bench.runtime.shard(0)
    while bench.runtime.partitions[0] is ShardState.LOADING:
        bench.advance(bench.clock.time_ms + 1)
    seen = [0, len(shard.restarted)]
    assert bench.committed("0-0") == 1
    while seen[-1] < 3000:
        bench.advance(bench.clock.time_ms + 1)
        seen.append(len(shard.restarted))
    assert all(after - before <= MAX_STEPS for before, after in pairwise(seen))
    bench.runtime.on_resigned(0)


def _calls_of_a_write(bench: Bench) -> int:
    """Return how many functions, and steps of generators, a write calls.

    Without those that a collection of other tests' garbage would call.
    """
    calls = 0

    def called(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in {"call", "c_call"}

    before = sys.getprofile()
    gc.disable()
    sys.setprofile(called)
    try:
        bench.count("a")
    finally:
        sys.setprofile(before)
        gc.enable()
    return calls


def test_a_write_costs_the_same_whatever_is_pending() -> None:
    """Thousands of writes wait for their commit where a follower is slow."""
    bench = Bench()
    bench.runtime.on_elected(0, 1)
    bench.log.is_holding = True
    bench.count("a")
    few = _calls_of_a_write(bench)
    for _ in range(1000):
        bench.count("a")
    assert _calls_of_a_write(bench) <= few + 3
    bench.runtime.on_resigned(0)
