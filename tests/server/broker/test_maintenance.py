"""What a broker does by the clock: a retention check, one log after another."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

import pytest

from ottla.config.broker import parse_broker_config
from ottla.purgatory.timing_wheel import TimingWheel
from ottla.replication.replica_set import ReplicaSet
from ottla.server.broker import maintenance as module
from ottla.server.broker.maintenance import Maintenance
from ottla.storage.log.config import LogConfig
from ottla.storage.log_set.retention_check import RetentionCheck
from ottla.testing.disk import SimulatedDisk
from ottla.types import TopicPartition
from tests.controller.harness import PROPERTIES
from tests.coordinator.harness import loop_of
from tests.server.broker.no_cleaning import no_cleaning
from tests.storage.logs import NOW_MS, put
from tests.storage.sets import make, open_set

if TYPE_CHECKING:
    from ottla.storage.log.partition_log import PartitionLog

DAY_MS = 86_400_000
YEAR_MS = 365 * DAY_MS
FIRST_MS = 1000
TURN_MS = 1
INTERVAL_MS = 300_000
NODE = PROPERTIES | {"log.initial.task.delay.ms": str(FIRST_MS)}


class Machine:
    """Clocks, a disk with logs of several segments each, and their maintenance."""

    wall_ms = NOW_MS
    gone_ms = 0

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        logs: int,
        segments: int = 10,
        *,
        is_restarted: bool = False,
    ) -> None:
        monkeypatch.setattr(module, "LOGS_READ_AHEAD", 1)
        self.disk = SimulatedDisk()
        config = LogConfig(segment_bytes=200, retention_ms=7 * DAY_MS)
        self.logs = open_set(self.disk, config=config)
        for number in range(logs):
            log = make(self.logs, TopicPartition("t", number))
            for _ in range(segments):
                put(log)
            log.update_high_watermark(log.log_end_offset)
        if is_restarted:
            self._restart(config)
        self.timer = TimingWheel(0)
        loop = loop_of(self.timer, self)
        loop.worker.max_steps = 2  # the read of a log's ages, and its check
        self.worker_reads = 0
        self.maintenance = Maintenance(
            ReplicaSet(1, self.logs),
            parse_broker_config(NODE),
            no_cleaning(),
            loop=loop,
            run_on_volume=self._run_in_worker,
            on_failure=lambda error: pytest.fail(str(error)),
        )
        self.maintenance.start()

    def _restart(self, config: LogConfig) -> None:
        """Stop and open the logs again: the ages of their segments are on the disk only."""
        self.logs.shutdown()
        self.logs = open_set(self.disk, config=config)
        for log in self.logs:
            log.update_high_watermark(log.log_end_offset)

    def _run_in_worker(self, _volume: object, job: Any, done: Any) -> None:
        before = self.disk.reads
        job()
        self.worker_reads += self.disk.reads - before
        done(None, None)

    def now_ms(self) -> int:
        return self.wall_ms

    def monotonic_ms(self) -> int:
        return self.gone_ms

    def wait(self, ms: int, step_ms: int = 0) -> None:
        """Let time go by, after which the wall clock may have stepped as well."""
        self.gone_ms += ms
        self.wall_ms += ms + step_ms
        self.timer.advance(self.gone_ms)

    def check_whole(self) -> None:
        """Wait for the next check and all of its slices."""
        self.wait(INTERVAL_MS)
        for _ in range(50):
            self.wait(TURN_MS)

    def counts(self) -> list[int]:
        return [len(log.segments) for log in self.logs]


def loop_reads(machine: Machine) -> int:
    """Return how often the event loop reads while all closed segments are deleted."""
    before = machine.disk.reads
    machine.wait(8 * DAY_MS)
    machine.check_whole()
    assert machine.counts() == [1, 1, 1]
    assert machine.worker_reads > 0
    return machine.disk.reads - before - machine.worker_reads


def test_workers_read_the_ages_of_all_segments_that_a_slice_deletes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After a start these are on a disk that may be slow: the loop reads the active one's only."""
    few, many = (Machine(monkeypatch, 3, count, is_restarted=True) for count in (3, 40))
    assert loop_reads(few) == loop_reads(many)


def test_a_step_between_two_slices_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first slices did not know of it, so that the next check must hold back for them."""
    machine = Machine(monkeypatch, 2)
    machine.wait(FIRST_MS)
    machine.logs.delete(TopicPartition("t", 1), now_ms=NOW_MS)
    machine.wait(TURN_MS, step_ms=YEAR_MS)
    assert machine.counts() == [10]
    for left in (9, 8, 7):
        machine.check_whole()
        assert machine.counts() == [left]


def test_a_step_is_forgotten_when_it_has_no_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a whole check that held nothing back, time counts again as it goes by."""
    machine = Machine(monkeypatch, 1)
    machine.wall_ms += YEAR_MS
    for _ in range(12):
        machine.check_whole()
    assert machine.counts() == [1]
    assert machine.maintenance._steps.step is not None
    log = next(iter(machine.logs))
    put(log, timestamp=machine.wall_ms, now_ms=machine.wall_ms)
    log.update_high_watermark(log.log_end_offset)
    for _ in range(3):
        machine.check_whole()
    assert machine.maintenance._steps.step is None


def test_an_error_in_a_slice_ends_the_check_and_not_the_maintenance(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is said, and the next interval begins with the first log again."""
    machine = Machine(monkeypatch, 3)
    delete_old = RetentionCheck.step
    calls = []

    def fails_once(*arguments: object) -> bool:
        calls.append(arguments)
        if len(calls) == 2:
            raise OSError(errno.EIO, "a slice broke")
        return delete_old(*arguments)  # type: ignore[arg-type] # handed on as they came

    monkeypatch.setattr(RetentionCheck, "step", fails_once)
    machine.wall_ms += 8 * DAY_MS
    machine.gone_ms += 8 * DAY_MS
    machine.timer.advance(FIRST_MS)
    for _ in range(10):  # checkpoints have a share of the turns
        machine.wait(TURN_MS)
    assert "a slice broke" in caplog.text
    machine.check_whole()
    assert machine.counts() == [1, 1, 1]


def test_no_slice_begins_after_the_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check under way leaves the rest alone (KAFKA-13315)."""
    machine = Machine(monkeypatch, 3)
    machine.wall_ms += 8 * DAY_MS
    machine.gone_ms += 8 * DAY_MS
    machine.timer.advance(FIRST_MS)
    machine.maintenance.close()
    machine.check_whole()
    assert machine.counts() == [1, 10, 10]


def test_damage_is_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each check meets it again, every five minutes for as long as the log is there."""
    machine = Machine(monkeypatch, 2)
    damaged: PartitionLog = next(iter(machine.logs))
    damaged.segments[0]._max_timestamp = -2  # to be read again
    machine.disk.open("t-0/00000000000000000000.log").write_at(16, b"\x42")
    for _ in range(3):
        machine.check_whole()
    assert caplog.text.count("retention cannot read the log of t-0") == 1
