"""Checkpoints and the clean marker when descriptors run out or jobs overtake each other."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.storage.layout import CLEAN_MARKER
from ottla.storage.log.config import LogConfig
from ottla.testing.disk import SimulatedDisk
from ottla.types import TopicPartition
from tests.storage.logs import NOW_MS, flush, put
from tests.storage.sets import A, drain, make, open_set

if TYPE_CHECKING:
    from ottla.storage.log_set.jobs import StorageJob
    from ottla.storage.log_set.log_set import LogSet

RECOVERY_POINTS = "recovery-point-offset-checkpoint"


@pytest.mark.parametrize(
    "part", ["a-0/00000000000000000000.log", "recovery-point", "log-start", "replication-offset"]
)
def test_a_stop_without_descriptors_leaves_no_marker(part: str) -> None:
    """The next start recovers: something was not flushed, or a checkpoint says old things."""
    disk = SimulatedDisk()
    logs = open_set(disk)
    log = make(logs)
    drain(logs)
    for _ in range(5):
        put(log)
    disk.fail(
        lambda call: call.path.startswith(part) and call.kind in ("sync", "create"), errno.EMFILE
    )
    logs.shutdown()
    assert logs.directories[0].is_online
    assert not disk.exists(CLEAN_MARKER)
    disk.crash()
    again = open_set(disk)
    again.shutdown()
    assert disk.exists(CLEAN_MARKER)


def test_a_truncation_without_descriptors_cuts_nothing() -> None:
    """The checkpoint on the disk is above the cut; the log goes on and may be cut later."""
    disk = SimulatedDisk()
    logs = open_set(disk)
    log = make(logs)
    for _ in range(9):
        put(log)
    flush(log)
    logs.checkpoints.request_all()
    drain(logs)
    disk.fail(lambda call: call.path.startswith(RECOVERY_POINTS), errno.EMFILE)
    with pytest.raises(KafkaError, match="before a-0 is truncated") as caught:
        log.truncation.truncate_to(4, now_ms=NOW_MS)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert (log.log_end_offset, log.failure) == (9, None)
    assert log.truncation.truncate_to(4, now_ms=NOW_MS)
    assert disk.read_file(RECOVERY_POINTS) == b"0\n1\na 0 4\n"


def test_a_checkpoint_without_descriptors_is_written_by_the_next_jobs() -> None:
    """Not only after a minute."""
    disk = SimulatedDisk()
    logs = open_set(disk)
    put(make(logs))
    flush(make(logs))
    logs.checkpoints.request_all()
    disk.fail(lambda call: call.path.startswith(RECOVERY_POINTS), errno.EMFILE)
    drain(logs)
    assert disk.read_file(RECOVERY_POINTS) == b"0\n1\na 0 1\n"


def checkpoint_job(logs: LogSet) -> StorageJob:
    logs.checkpoints.request_all()
    (job,) = logs.take_jobs()
    return job


def test_a_superseded_checkpoint_job_has_no_effect() -> None:
    """What it wrote is not in place, and a truncation above it must write a checkpoint first."""
    disk = SimulatedDisk()
    logs = open_set(disk)
    log = make(logs)
    drain(logs)
    jobs = []
    for _ in range(2):
        put(log)
        put(log)
        flush(log)
        jobs.append(checkpoint_job(logs))
    for job in reversed(jobs):
        job.run()
        job.done(None)
    assert logs.checkpoints._stored[logs.directories[0]][A] == 4
    log.truncation.truncate_to(3, now_ms=NOW_MS)
    assert disk.read_file(RECOVERY_POINTS) == b"0\n1\na 0 3\n"


def test_recovery_points_lowered_one_after_the_other_stay_low() -> None:
    """The second checkpoint holds the first log's lower point, too, whichever is done first."""
    disk = SimulatedDisk()
    logs = open_set(disk)
    made = [make(logs, TopicPartition("t", number)) for number in range(2)]
    for log in made:
        put(log, 4)
        put(log, 4)
        flush(log)
    logs.checkpoints.write_now(logs.directories[0])
    waiting: list[Any] = []
    for number, log in enumerate(made):
        (checkpoint,) = logs.checkpoints.lower([(log, number + 1)])
        checkpoint.start(lambda _, job, done: waiting.append((job, done)))
    assert all(map(logs.checkpoints.is_lowering, made))
    while waiting:
        job, done = waiting.pop()
        job()
        done(None, None)
        assert "t 1 8" not in disk.read_file(RECOVERY_POINTS).decode()
    assert disk.read_file(RECOVERY_POINTS) == b"0\n2\nt 0 1\nt 1 2\n"
    assert not any(map(logs.checkpoints.is_lowering, made))


def test_new_settings_are_applied_by_the_next_append() -> None:
    """Not one by one for thousands of logs in the turn that changes them."""
    logs = open_set(SimulatedDisk())
    log = make(logs)
    put(log)
    log.reconfigure(LogConfig(max_message_bytes=10))
    assert log.rules.max_message_bytes != 10
    with pytest.raises(KafkaError, match="exceeds the maximum configured value"):
        put(log)
    assert log.rules.max_message_bytes == 10
    assert log.is_ready


@pytest.mark.parametrize(
    "name", [RECOVERY_POINTS, "log-start-offset-checkpoint", "replication-offset-checkpoint"]
)
def test_a_damaged_checkpoint_is_reported(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """The logs load without it; that deleted records may be back must not go unnoticed."""
    disk = SimulatedDisk()
    logs = open_set(disk)
    log = make(logs)
    put(log, 3)
    logs.shutdown()
    disk.open(name).write_at(0, b"x")
    assert open_set(disk).get(A) is not None
    assert f"{name} in /d0 is not used: malformed checkpoint" in caplog.text
