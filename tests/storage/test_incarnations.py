"""A topic that is deleted and created again: nothing of the old one reaches the new one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.testing.disk import SimulatedDisk
from ottla.types import Uuid
from tests.storage.logs import NOW_MS, put
from tests.storage.sets import A, drain, make, open_set

if TYPE_CHECKING:
    from ottla.storage.log_set import LogSet

OTHER = Uuid(b"another incarnat")


def with_checkpoints(disk: SimulatedDisk) -> LogSet:
    """Return a set with one log whose offsets, 5 and more, are in both checkpoints."""
    logs = open_set(disk)
    log = make(logs)
    for _ in range(9):
        put(log)
    log.update_high_watermark(9)
    log.delete_records_before(5)
    drain(logs)
    logs.checkpoint_recovery_points()
    drain(logs)
    return logs


def check_second_life(disk: SimulatedDisk) -> None:
    """Write to the new incarnation, kill the process and find all of it again."""
    disk.kill()
    log = open_set(disk, is_stray=lambda log: log.topic_id != OTHER).get(A)
    assert log is not None
    assert (log.log_start_offset, log.log_end_offset) == (0, 3)


def test_a_checkpoint_under_way_is_not_waited_for() -> None:
    """KAFKA-12257: the old offsets are on the disk until the job that leaves them out is done."""
    disk = SimulatedDisk()
    logs = with_checkpoints(disk)
    logs.delete(A, now_ms=NOW_MS)
    assert logs.take_jobs()
    log = make(logs, topic_id=OTHER)
    for _ in range(3):
        put(log)
    check_second_life(disk)


def test_one_checkpoint_serves_all_that_are_created_while_a_job_hangs() -> None:
    """Thousands of new logs must not each wait for the disk."""
    disk = SimulatedDisk()
    logs = with_checkpoints(disk)
    logs.delete(A, now_ms=NOW_MS)
    assert logs.take_jobs()
    disk.trace = []
    for partition in range(9):
        make(logs, A._replace(partition=partition), OTHER)
    assert sum(call.path.endswith("recovery-point-offset-checkpoint") for call in disk.trace) == 1


def test_the_offsets_of_a_stray_go_with_it() -> None:
    """Its successor has its name, and is not to be taken for flushed up to there."""
    disk = SimulatedDisk()
    with_checkpoints(disk)
    disk.kill()
    logs = open_set(disk, is_stray=lambda _: True)
    assert disk.read_file("recovery-point-offset-checkpoint") == b"0\n0\n"
    assert disk.read_file("log-start-offset-checkpoint") == b"0\n0\n"
    log = make(logs, topic_id=OTHER)
    for _ in range(3):
        put(log)
    check_second_life(disk)
