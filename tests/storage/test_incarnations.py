"""A topic that is deleted and created again: nothing of the old one reaches the new one."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from ottla.storage.directories.partition_metadata import decode_partition_metadata
from ottla.testing.disk import Call, SimulatedDisk
from ottla.types import Uuid
from tests.storage.logs import NOW_MS, SMALL, TOPIC_ID, put
from tests.storage.sets import A, drain, finish, make, open_set

if TYPE_CHECKING:
    from ottla.storage.log_set.log_set import LogSet

OTHER = Uuid(b"another incarnat")


def with_checkpoints(disk: SimulatedDisk) -> LogSet:
    """Return a set with one log whose offsets, 5 and more, are in both checkpoints."""
    logs = open_set(disk)
    log = make(logs)
    for _ in range(9):
        put(log)
    log.update_high_watermark(9)
    log.truncation.delete_records_before(5)
    drain(logs)
    logs.checkpoints.request_all()
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


def test_a_crash_before_the_checkpoint_of_a_deletion_leaves_no_old_offsets() -> None:
    """The next start leaves the offsets of logs that are gone out of the checkpoints."""
    disk = SimulatedDisk()
    logs = with_checkpoints(disk)
    logs.delete(A, now_ms=NOW_MS)
    disk.kill()
    log = make(open_set(disk), topic_id=OTHER)
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


def test_a_flush_that_waited_writes_into_the_old_directory() -> None:
    """The id and the epochs of the new incarnation stay its own (two workers, many flushes)."""
    disk = SimulatedDisk()
    logs = open_set(disk)
    old = make(logs)
    for epoch in range(3):
        put(old, epoch=epoch)
    waiting = logs.take_jobs()
    logs.delete(A, now_ms=NOW_MS)
    log = make(logs, topic_id=OTHER)
    for _ in range(3):
        put(log)
    drain(logs)
    finish(waiting)
    assert disk.read_file("a-0/leader-epoch-checkpoint") == b"0\n1\n0 0\n"
    metadata = disk.read_file("a-0/partition.metadata")
    assert decode_partition_metadata(metadata) == OTHER
    (deleted,) = [name for name in disk.list() if name.endswith("-delete")]
    metadata = disk.read_file(f"{deleted}/partition.metadata")
    assert decode_partition_metadata(metadata) == TOPIC_ID
    check_second_life(disk)


def test_a_flush_under_way_does_not_lose_its_file_to_the_next_one() -> None:
    """Both write partition.metadata.tmp, each in its own directory; the disk is not to blame."""
    disk = SimulatedDisk()
    logs = open_set(disk)
    put(make(logs))
    (old,) = logs.take_jobs()
    begun = disk.calls

    def swap(call: Call) -> bool:
        if call.kind == "rename" and call.path == "a-0/partition.metadata" and disk.calls > begun:
            disk.heal()
            logs.delete(A, now_ms=NOW_MS)
            put(make(logs, topic_id=OTHER))
            drain(logs)
        return False

    disk.fail(swap)
    finish([old])
    assert logs.directories[0].is_online
    assert decode_partition_metadata(disk.read_file("a-0/partition.metadata")) == OTHER


def test_a_deleted_directory_stays_while_a_flush_writes_into_it() -> None:
    """Its removal would meet files that were not there when it looked."""
    disk = SimulatedDisk()
    logs = open_set(disk)
    put(make(logs))
    waiting = logs.take_jobs()
    logs.delete(A, now_ms=NOW_MS)
    later_ms = NOW_MS + SMALL.file_delete_delay_ms
    assert logs.removals.take_due(later_ms) == []
    finish(waiting)
    finish(logs.removals.take_due(later_ms))
    assert not [name for name in disk.list() if name.startswith("a-0")]


def test_a_removal_without_descriptors_is_tried_again() -> None:
    """EMFILE is no reason to keep the directory until the next start."""
    disk = SimulatedDisk()
    logs = open_set(disk)
    put(make(logs))
    drain(logs)
    logs.delete(A, now_ms=NOW_MS)
    later_ms = NOW_MS + SMALL.file_delete_delay_ms
    disk.fail(lambda call: call.kind == "remove", errno.EMFILE)
    finish(logs.removals.take_due(later_ms))
    assert [name for name in disk.list() if name.startswith("a-0")]
    finish(logs.removals.take_due(later_ms))
    assert not [name for name in disk.list() if name.startswith("a-0")]
