"""How often logs are synced: new ones, idle ones, many at a stop; what a power cut leaves."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from ottla.storage.layout import CLEAN_MARKER
from ottla.storage.log_set.jobs import run_all
from ottla.testing.disk import SimulatedDisk
from ottla.types import TopicPartition
from tests.storage.logs import NOW_MS, TOPIC_ID, close, flush, new_log, put
from tests.storage.sets import A, drain, finish, make, open_set

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.testing.disk import Call

MANY = [TopicPartition("many", number) for number in range(30)]


def syncs_of(disk: SimulatedDisk, action: Callable[[], object]) -> list[str]:
    """Return the paths that an action syncs, "" for the log directory; not the checkpoints'."""
    found: list[str] = []

    def note(call: Call) -> bool:
        is_checkpoint = call.path.endswith(".tmp") and "/" not in call.path
        if call.kind in ("sync", "sync_directory") and not is_checkpoint:
            found.append(call.path)
        return False

    disk.fail(note)
    action()
    disk.heal()
    return found


def test_new_logs_without_records_are_not_synced() -> None:
    """A power cut can take nothing from them; neither at creation nor at a clean stop."""
    disk = SimulatedDisk()
    logs = open_set(disk)

    def create_and_stop() -> None:
        for partition in MANY:
            make(logs, partition).assign_epoch(3)
        drain(logs)
        logs.shutdown()

    assert [path for path in syncs_of(disk, create_and_stop) if path] == []
    assert disk.exists(CLEAN_MARKER)


def test_new_logs_with_records_share_one_sync_of_their_names() -> None:
    """Each syncs its topic id and its directory; the log directory is synced once for all."""
    disk = SimulatedDisk()
    logs = open_set(disk)
    for partition in MANY:
        put(make(logs, partition))
    found = syncs_of(disk, lambda: drain(logs))
    assert found.count("") == 1
    assert len(found) == 1 + 2 * len(MANY)


def test_the_first_record_makes_a_new_log_durable_by_name() -> None:
    """With its topic id: records that are flushed later have a place."""
    for seed in range(8):
        disk = SimulatedDisk(seed)
        logs = open_set(disk)
        put(make(logs))
        drain(logs)
        disk.crash()
        log = open_set(disk).get(A)
        assert log is not None
        assert log.topic_id == TOPIC_ID


def test_an_empty_log_may_vanish_with_the_power_and_is_made_again() -> None:
    """Whatever part of it is left, nothing is set aside and records can be written."""
    for seed in range(20):
        disk = SimulatedDisk(seed)
        logs = open_set(disk)
        make(logs)
        if seed % 2:
            logs.shutdown()
        disk.crash()
        logs = open_set(disk)
        assert not [name for name in disk.list() if name.endswith("-stray")]
        log = make(logs)
        put(log)
        drain(logs)
        flush(log)
        disk.crash()
        again = open_set(disk).get(A)
        assert again is not None
        assert (again.topic_id, again.log_end_offset) == (TOPIC_ID, 1)


def test_logs_that_a_clean_stop_left_are_not_synced_by_the_next_one() -> None:
    """Nothing was written to them meanwhile."""
    disk = SimulatedDisk()
    logs = open_set(disk)
    for partition in MANY:
        put(make(logs, partition))
    logs.shutdown()
    logs = open_set(disk)
    put(make(logs, MANY[0]))
    found = syncs_of(disk, logs.shutdown)
    assert {path.partition("/")[0] for path in found} <= {"", "many-0"}
    assert disk.exists(CLEAN_MARKER)


def test_logs_that_were_not_closed_are_synced_by_the_next_stop() -> None:
    """A killed process may have left anything in the page cache."""
    disk = SimulatedDisk()
    logs = open_set(disk)
    put(make(logs))
    drain(logs)
    disk.kill()
    logs = open_set(disk)
    assert "a-0" in syncs_of(disk, logs.shutdown)


def test_a_new_epoch_without_records_is_not_synced() -> None:
    """It is written with the first records that are flushed."""
    disk = SimulatedDisk()
    log = new_log(disk)
    put(log, epoch=1)
    flush(log)
    log.assign_epoch(2)
    assert log.flushes.is_durable
    put(log, epoch=2)
    flush(log)
    assert disk.read_file("t-0/leader-epoch-checkpoint") == b"0\n2\n1 0\n2 1\n"


def test_a_removed_epoch_is_synced_without_records() -> None:
    """Else the file says something that is not true any more."""
    disk = SimulatedDisk()
    log = new_log(disk)
    put(log, epoch=1)
    put(log, epoch=2)
    flush(log)
    log.truncation.truncate_to(1, now_ms=NOW_MS)
    close(log)
    assert disk.read_file("t-0/leader-epoch-checkpoint") == b"0\n1\n1 0\n"


def test_a_power_cut_after_a_log_was_started_over_leaves_no_damaged_log() -> None:
    """No file of the flushed records is left, nor perhaps one of the new segment."""
    for seed in range(20):
        disk = SimulatedDisk(seed)
        logs = open_set(disk)
        log = make(logs)
        put(log, 5)
        flush(log)
        logs.checkpoints.request_all()
        drain(logs)
        log.truncation.truncate_fully_and_start_at(70, now_ms=NOW_MS)
        disk.crash()
        assert not open_set(disk).broken


def test_logs_are_closed_by_workers_many_at_a_time() -> None:
    """A list of jobs is to be done before the next; `shutdown` then finds nothing to close."""
    disk = SimulatedDisk()
    logs = open_set(disk)
    for number in range(150):
        put(make(logs, TopicPartition("many", number)))
    counts = []
    for jobs in chain.from_iterable(logs.closing_jobs()):
        counts.append(len(jobs))
        finish(reversed(jobs))
    assert counts == [128, 22]
    assert [path for path in syncs_of(disk, logs.shutdown) if path] == []
    assert disk.exists(CLEAN_MARKER)
    disk.crash()
    assert all(log.log_end_offset == 1 for log in open_set(disk))


def test_a_disk_that_fails_at_the_close_leaves_no_marker() -> None:
    """Its directory is offline; the other one is closed in order."""
    first, second = SimulatedDisk(), SimulatedDisk()
    logs = open_set(first, second)
    for partition in MANY:
        put(make(logs, partition))
    first.fail(lambda call: call.kind == "sync", times=1)
    for jobs in chain.from_iterable(logs.closing_jobs()):
        finish(jobs)
    logs.shutdown()
    assert [one.path for one in logs.online_directories] == ["/d1"]
    assert not first.exists(CLEAN_MARKER)
    assert second.exists(CLEAN_MARKER)


def test_jobs_that_fail_are_done_too() -> None:
    """`run_all` is complete when the last job has ended, in any order."""
    disk = SimulatedDisk()
    logs = open_set(disk)
    for partition in MANY[:3]:
        put(make(logs, partition))
    ((jobs,),) = logs.closing_jobs()
    waiting: list[Callable[[], None]] = []

    def run_in_worker(
        _volume: object, job: Callable[[], None], done: Callable[[None, Exception | None], None]
    ) -> None:
        error = None if waiting else OSError("simulated")
        if error is None:
            job()
        waiting.append(lambda: done(None, error))

    all_done = run_all(jobs, run_in_worker)
    for report in waiting[:0:-1]:
        report()
        assert not all_done.done
    waiting[0]()
    assert all_done.done
    assert not logs.online_directories
