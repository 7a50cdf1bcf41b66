"""The log under power cuts and disk errors at any call, against a model of what it must keep.

What holds after every crash: no byte is lost that a completed flush covered; what is there beyond
is a chain of batches that were written; producers, transactions and epochs are what a replay of
the log gives; every offset can be read; and the next append goes right behind the end.
Run more with OTTLA_SEEDS=5000; a failure names its seed, `_Run(seed).go()` replays it.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.records.builder import encode_batch
from ottla.records.control import encode_end_txn_marker
from ottla.records.validator import AppendOrigin
from ottla.storage.batches import BatchHeader, whole_batches
from ottla.storage.directories.log_dir import LogDirectory
from ottla.storage.layout import CLEAN_MARKER
from ottla.storage.log.append_info import FetchIsolation
from ottla.storage.log.config import LogConfig
from ottla.storage.log_set.log_set import LogSet
from ottla.storage.log_set.retention_check import RetentionCheck
from ottla.storage.producers.update import read_marker
from ottla.testing.disk import SimulatedCrash, SimulatedDisk
from ottla.types import TopicPartition, Uuid
from tests.soaks import with_soaks
from tests.storage.sets import finish

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.storage.log.partition_log import PartitionLog
    from ottla.storage.log_set.jobs import StorageJob

SEEDS = int(os.environ.get("OTTLA_SEEDS", "150"))
PARTITION = TopicPartition("events", 0)
TOPIC_ID = Uuid(b"0123456789abcdef")
CONFIG = LogConfig(
    segment_bytes=2000,
    index_interval_bytes=150,
    segment_index_bytes=240,
    retention_bytes=9000,
    file_delete_delay_ms=50,
)
DIRECTORY = "/disk"
OPENING = ("append", "create", "write", "sync")


@dataclass
class Producer:
    """A producer's own view: what it will send next."""

    producer_id: int
    epoch: int = 0
    sequence: int = 0
    in_transaction: bool = False
    transactional: bool = False


@dataclass
class Reference:
    """What a replay of batches must give, worked out the plain way."""

    last: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    open: dict[int, int] = field(default_factory=dict)
    aborted: set[tuple[int, int, int]] = field(default_factory=set)
    epochs: list[tuple[int, int]] = field(default_factory=list)

    def replay(self, header: BatchHeader, data: bytes) -> None:
        if not self.epochs or header.leader_epoch > self.epochs[-1][0]:
            self.epochs.append((header.leader_epoch, header.base_offset))
        if header.producer_id < 0:
            return
        if header.is_control:
            marker = read_marker(data)
            assert marker is not None
            first = self.open.pop(header.producer_id, None)
            if first is not None and marker.is_abort:
                self.aborted.add((header.producer_id, first, header.base_offset))
            return
        self.last[header.producer_id] = (
            header.producer_epoch,
            header.last_sequence,
            header.last_offset,
        )
        if header.is_transactional:
            self.open.setdefault(header.producer_id, header.base_offset)


class _Run:
    """One seeded run: a workload on one partition over a disk that fails."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = Random(seed)
        self.disk = SimulatedDisk(seed)
        self.now_ms = 1_000_000
        self.written: dict[int, set[bytes]] = {}
        self.batches: list[tuple[int, int, bytes]] = []
        self.durable_end = 0
        self.latest_start = 0
        self.epoch = 0
        self.producers = [
            Producer(7),
            Producer(8, transactional=True),
            Producer(9, transactional=True),
        ]
        self.pending: list[StorageJob] = []
        self.was_exhausted = False
        self.must_follow = False
        self.logs = self.start()

    # The system under test

    def start(self) -> LogSet:
        logs = LogSet(
            [LogDirectory(DIRECTORY, self.disk)],
            config_for=lambda _: CONFIG,
            rng=self.rng,
        )
        logs.load(self.now_ms)
        return logs

    @property
    def log(self) -> PartitionLog:
        return self.logs.get_or_create(PARTITION, topic_id=TOPIC_ID, now_ms=self.now_ms)

    def run_jobs(self, *, all_of_them: bool = True) -> None:
        self.pending += self.logs.take_jobs()
        while self.pending and (all_of_them or self.rng.random() < 0.7):
            finish([self.pending.pop(0)])
        log = self.logs.get(PARTITION)
        if log is not None:
            holds_data = log.recovery_point > log.log_start_offset
            self.durable_end = log.recovery_point if holds_data else 0
            if self.must_follow:
                self.follow_log()

    # Operations

    def op_append(self) -> None:
        records = [
            (self.now_ms + n, b"k%d" % n, self.rng.randbytes(self.rng.randrange(120)), ())
            for n in range(self.rng.randrange(1, 5))
        ]
        self.append(encode_batch(records))

    def op_produce(self) -> None:
        producer = self.rng.choice(self.producers)
        count = self.rng.randrange(1, 4)
        batch = encode_batch(
            [(self.now_ms, None, b"%d" % n, ()) for n in range(count)],
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=producer.sequence,
            transactional=producer.transactional,
        )
        if self.append(batch):
            producer.sequence += count
            producer.in_transaction = producer.transactional

    def op_duplicate(self) -> None:
        """Send an idempotent producer's last batch again: answered with its old offsets."""
        mine = [entry for entry in self.batches if whole_batches(entry[2])[0].producer_id == 7]
        if not mine or self.producers[0].sequence == 0 or not self.log.is_cut_durable:
            return
        base, last, data = mine[-1]
        header = whole_batches(data)[0]
        if header.last_sequence != self.producers[0].sequence - 1:
            return
        copy = bytearray(data)
        copy[0:8] = bytes(8)
        end = self.log.log_end_offset
        info = self.log.writes.append_as_leader(
            memoryview(copy), leader_epoch=self.epoch, now_ms=self.now_ms
        )
        assert info.is_duplicate
        assert (info.first_offset, info.last_offset) == (base, last)
        assert self.log.log_end_offset == end

    def op_end_transaction(self) -> None:
        open_ones = [producer for producer in self.producers if producer.in_transaction]
        if not open_ones:
            return
        producer = self.rng.choice(open_ones)
        marker = encode_end_txn_marker(
            commit=self.rng.random() < 0.5,
            coordinator_epoch=1,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            timestamp=self.now_ms,
        )
        if self.append(marker, origin=AppendOrigin.COORDINATOR):
            producer.in_transaction = False

    def append(self, batch: bytearray, *, origin: AppendOrigin = AppendOrigin.CLIENT) -> bool:
        log = self.log
        end = log.log_end_offset
        self.note(batch, end)
        try:
            log.writes.append_as_leader(
                memoryview(batch), leader_epoch=self.epoch, now_ms=self.now_ms, origin=origin
            )
        except KafkaError as error:
            if self.awaits_flush(error):
                return False
            if error.code is not ErrorCode.KAFKA_STORAGE_ERROR:
                raise AssertionError(self.seed) from error
            if log.log_end_offset > end:
                self.keep(batch)
            raise
        self.keep(batch)
        return True

    def awaits_flush(self, error: KafkaError) -> bool:
        """Whether an append was refused since a truncation is not durable, which may be now."""
        is_refused = error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert not is_refused or not self.log.is_cut_durable
        if is_refused and self.rng.random() < 0.5:
            self.op_flush()
        return is_refused

    def note(self, batch: bytearray, end: int) -> None:
        """Remember bytes that may reach the disk from now on."""
        copy = bytearray(batch)
        copy[0:8] = end.to_bytes(8, "big")
        copy[12:16] = self.epoch.to_bytes(4, "big")
        self.written.setdefault(end, set()).add(bytes(copy))

    def keep(self, batch: bytearray) -> None:
        header = whole_batches(batch)[0]
        self.batches.append((header.base_offset, header.last_offset, bytes(batch)))

    def op_new_epoch(self) -> None:
        self.epoch += 1
        self.log.assign_epoch(self.epoch)

    def op_flush(self) -> None:
        self.logs.flushes.request(self.log)
        self.run_jobs()

    def op_some_jobs(self) -> None:
        self.run_jobs(all_of_them=False)

    def op_checkpoint(self) -> None:
        self.logs.checkpoints.request_all()
        self.pending += self.logs.checkpoints.high_watermark_jobs()
        self.run_jobs()

    def op_high_watermark(self) -> None:
        log = self.log
        log.update_high_watermark(self.rng.randint(log.high_watermark, log.log_end_offset))

    def op_truncate(self) -> None:
        log = self.log
        bases = [base for base, _, _ in self.batches if base > log.high_watermark]
        if not bases:
            return
        target = self.rng.choice(bases)
        self.durable_end = min(self.durable_end, target)
        log.truncation.truncate_to(target, now_ms=self.now_ms)
        self.batches = [entry for entry in self.batches if entry[0] < target]
        self.follow_log()

    def op_start_over(self) -> None:
        """Do as a follower whose leader's log begins behind its end."""
        if self.rng.random() < 0.3:
            target = self.log.log_end_offset + self.rng.randrange(20)
            self.durable_end = 0
            self.log.truncation.truncate_fully_and_start_at(target, now_ms=self.now_ms)
            self.batches = []
            self.follow_log()

    def op_copy(self) -> None:
        """Append some batches in one piece, as a follower does."""
        log = self.log
        at = log.log_end_offset
        pieces = []
        for _ in range(self.rng.randrange(1, 4)):
            batch = encode_batch(
                [(self.now_ms, b"c", self.rng.randbytes(60), ())] * 2,
                base_offset=at,
                leader_epoch=self.epoch,
            )
            self.written.setdefault(at, set()).add(bytes(batch))
            pieces.append(bytes(batch))
            at += 2
        end = log.log_end_offset
        try:
            log.writes.append_as_follower(
                b"".join(pieces), leader_epoch=self.epoch, now_ms=self.now_ms
            )
        except KafkaError as error:
            if not self.awaits_flush(error):
                raise
        finally:
            if log.log_end_offset > end:
                for piece in pieces:
                    self.keep(bytearray(piece))

    def op_delete_records(self) -> None:
        log = self.log
        if self.rng.random() < 0.3:
            log.truncation.delete_records_before(
                self.rng.randint(log.log_start_offset, log.high_watermark)
            )
            self.latest_start = max(self.latest_start, log.log_start_offset)

    def op_retention(self) -> None:
        self.latest_start = max(self.latest_start, self.log.log_start_offset)
        RetentionCheck(self.logs).step(self.now_ms)
        self.pending += self.logs.removals.take_due(self.now_ms)

    def op_roll(self) -> None:
        if self.log.segments.active.size:
            self.log.roll(self.now_ms)

    def op_restart(self) -> None:
        self.run_jobs()
        is_stale = self.log.producer_state.is_stale
        end, producers = self.log.log_end_offset, self.state()
        self.logs.shutdown(5)
        clean = self.disk.exists(CLEAN_MARKER)
        assert clean or self.was_exhausted or not self.logs.online_directories, self.seed
        self.disk.kill()
        self.pending = []
        self.logs = self.start()
        if clean:
            assert self.logs.directories[0].had_clean_shutdown
            assert self.logs.previous_broker_epoch == 5
            assert self.log.log_end_offset == end
            assert is_stale or self.state() == producers
        self.check()

    def state(self) -> dict[int, tuple[int, ...]]:
        return {
            key: (entry.producer_epoch, entry.last_sequence, entry.transaction_first_offset)
            for key, entry in self.log.producer_state.producers.items()
        }

    # Crashes

    def crash(self, *, power: bool) -> None:
        if power:
            self.disk.crash()
        else:
            self.disk.kill()
        self.pending = []
        self.logs = self.start()
        self.check()

    def go(self, steps: int = 60) -> None:
        operations = self.operations()
        for _ in range(steps):
            self.now_ms += self.rng.randrange(40)
            try:
                self.rng.choice(operations)()
            except SimulatedCrash:
                self.crash(power=self.rng.random() < 0.8)
            except (KafkaError, OSError) as error:
                if isinstance(error, KafkaError) and error.code != ErrorCode.KAFKA_STORAGE_ERROR:
                    raise AssertionError(self.seed) from error
                self.disk.heal()
                log = self.logs.get(PARTITION)
                if log is None or log.failure is not None or self.logs.is_closed:
                    self.crash(power=self.rng.random() < 0.5)
            if self.rng.random() < 0.02:
                self.crash(power=self.rng.random() < 0.6)
            if self.rng.random() < 0.05:
                self.plan_fault()
        self.disk.heal()
        self.crash(power=True)

    def operations(self) -> list[Callable[[], None]]:
        return [
            *[self.op_append] * 6,
            *[self.op_produce] * 8,
            *[self.op_end_transaction] * 3,
            self.op_duplicate,
            self.op_new_epoch,
            *[self.op_flush] * 2,
            *[self.op_some_jobs] * 2,
            self.op_checkpoint,
            *[self.op_high_watermark] * 3,
            *[self.op_truncate] * 2,
            self.op_start_over,
            self.op_copy,
            self.op_delete_records,
            self.op_retention,
            self.op_roll,
            self.op_restart,
        ]

    def plan_fault(self) -> None:
        at = self.disk.calls + self.rng.randrange(1, 30)
        draw = self.rng.random()
        if draw < 0.45:
            self.disk.crash_at(at)
        elif draw < 0.75:
            self.disk.fail_at(at, self.rng.choice([errno.EIO, errno.ENOSPC]))
        else:
            self.run_out_of_descriptors(at)

    def run_out_of_descriptors(self, at: int) -> None:
        """Let some calls that may have to open a file find that they cannot, from `at` on."""
        self.was_exhausted = True
        times = self.rng.randrange(1, 4)
        if self.rng.random() < 0.5:
            self.disk.fail(
                lambda call: call.number >= at and call.kind in OPENING,
                errno.EMFILE,
                partial=False,
                times=times,
            )
            return
        passed = iter([False] * self.rng.randrange(15))
        self.disk.fail(lambda call: call.kind == "read" and next(passed, True), errno.EMFILE)

    # What must hold

    def check(self) -> None:
        log = self.log
        assert log.log_end_offset >= self.durable_end, self.seed
        log.update_high_watermark(log.log_end_offset)
        reference = Reference()
        kept = {base: data for base, last, data in self.batches if last < self.durable_end}
        contents = []
        expected = None
        for segment in log.segments:
            data = segment.file.read(0, segment.size)
            for header in whole_batches(data):
                raw = data[header.position : header.position + header.size]
                assert expected in (None, header.base_offset), (self.seed, expected, header)
                expected = header.last_offset + 1
                assert raw in self.written[header.base_offset], (self.seed, header)
                if header.base_offset in kept:
                    assert raw == kept[header.base_offset], (self.seed, header)
                if header.base_offset >= log.log_start_offset:
                    reference.replay(header, raw)
                contents.append((header, raw))
        assert expected in (None, log.log_end_offset), self.seed
        self.check_state(log, reference)
        self.check_reads(log, contents, reference)
        self.batches = [(header.base_offset, header.last_offset, raw) for header, raw in contents]
        self.follow_log()

    def check_state(self, log: PartitionLog, reference: Reference) -> None:
        state = log.producer_state
        for producer_id, (epoch, sequence, offset) in reference.last.items():
            entry = state.producers[producer_id]
            assert (entry.producer_epoch, entry.last_sequence, entry.last_data_offset) == (
                epoch,
                sequence,
                offset,
            ), (self.seed, entry)
        open_now = {
            entry.producer_id: entry.transaction_first_offset
            for entry in state.producers.values()
            if entry.in_transaction
        }
        for producer_id, first in reference.open.items():
            assert open_now[producer_id] <= first, self.seed
        for producer_id, first in open_now.items():
            assert first < log.log_start_offset or reference.open[producer_id] == first, self.seed
        assert sorted(one for _, one in state.transactions.open) == sorted(open_now), self.seed
        starts = [entry.start_offset for entry in log.leader_epochs.entries]
        assert starts == sorted(set(starts)), self.seed
        for epoch, start in reference.epochs:
            if start >= max(log.log_start_offset, self.latest_start):
                assert log.leader_epochs.epoch_for_offset(start) == epoch, (self.seed, epoch)

    def check_reads(
        self,
        log: PartitionLog,
        contents: list[tuple[BatchHeader, bytes]],
        reference: Reference,
    ) -> None:
        for header, raw in contents:
            if header.base_offset < log.log_start_offset:
                continue
            offset = self.rng.randint(header.base_offset, header.last_offset)
            found = log.reads.read(offset, len(raw)).records
            assert not isinstance(found, bytes | bytearray | memoryview), self.seed
            assert found.read() == raw, (self.seed, offset)
        log.producer_state.high_watermark_updated(log.high_watermark)
        aborted = set()
        offset = log.log_start_offset
        unstable = log.last_stable_offset
        for number, segment in enumerate(log.segments):
            offset = max(offset, segment.base_offset)
            if offset >= unstable or number == len(log.segments):
                break
            data = log.reads.read(offset, segment.size, isolation=FetchIsolation.TXN_COMMITTED)
            aborted |= {entry[:3] for entry in data.aborted_transactions or ()}
        start = log.log_start_offset
        for producer_id, first, last in reference.aborted:
            if start <= first < unstable:
                assert any(
                    entry[0] == producer_id and entry[1] <= first and entry[2] == last
                    for entry in aborted
                ), (self.seed, producer_id, first, last)

    def follow_log(self) -> None:
        """Let every producer go on from what the log remembers, as after InitProducerId.

        After a truncation that is once a flush has rebuilt the state.
        """
        self.must_follow = self.log.producer_state.is_stale
        if self.must_follow:
            return
        state = self.log.producer_state.producers
        for producer in self.producers:
            entry = state.get(producer.producer_id)
            producer.sequence = entry.last_sequence + 1 if entry and entry.batches else 0
            producer.in_transaction = bool(entry and entry.in_transaction)
            if entry and entry.producer_epoch > producer.epoch:
                producer.epoch = entry.producer_epoch
        self.epoch = max(self.epoch, self.log.latest_epoch)


@pytest.mark.parametrize("block", with_soaks(range(10), count=2))
def test_random_workloads_survive_crashes_and_errors(block: int) -> None:
    """Random operations with random crashes and disk errors keep every invariant."""
    for seed in range(block, SEEDS, 10):
        _Run(seed).go()


def _fixed_workload(run: _Run) -> None:
    for number in range(14):
        run.now_ms += 10
        run.op_produce()
        run.op_append()
        if number % 3 == 2:
            run.op_end_transaction()
        if number == 5:
            run.op_new_epoch()
        if number % 4 == 3:
            run.op_high_watermark()
            run.op_checkpoint()
            run.op_flush()
        if number == 9:
            run.op_truncate()
        if number == 11:
            run.op_retention()
    run.op_restart()


def _calls_of_workload() -> int:
    run = _Run(1)
    _fixed_workload(run)
    return run.disk.calls


@pytest.mark.soak
def test_a_crash_at_every_single_call() -> None:
    """One workload, cut off at each of its disk calls in turn, recovers every time."""
    calls = _calls_of_workload()
    assert calls > 100
    for number in range(12, calls + 1):
        run = _Run(1)
        run.disk.crash_at(number)
        try:
            _fixed_workload(run)
        except SimulatedCrash:
            run.crash(power=True)


@pytest.mark.soak
def test_an_error_at_every_single_call() -> None:
    """One workload, with EIO at each of its disk calls in turn, never acknowledges a lost batch."""
    calls = _calls_of_workload()
    for number in range(12, calls + 1):
        run = _Run(1)
        run.disk.fail_at(number)
        with suppress(KafkaError, OSError):
            _fixed_workload(run)
        run.disk.heal()
        run.crash(power=False)
