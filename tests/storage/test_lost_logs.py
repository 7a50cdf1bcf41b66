"""Logs that cannot be opened or whose directory is offline: not truncated, not duplicated."""

from __future__ import annotations

import errno
from random import Random

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.purgatory import work
from ottla.replication.replica_set import ReplicaSet
from ottla.storage.batches import walk_file
from ottla.storage.directories.log_dir import LogDirectory
from ottla.storage.log.config import LogConfig
from ottla.storage.log_set.log_set import LogSet
from ottla.testing.disk import SimulatedDisk
from ottla.types import TopicPartition, Uuid
from tests.storage.logs import NOW_MS, SMALL, TOPIC_ID, flush, put
from tests.storage.sets import A, drain, finish, make, open_set

SEGMENTED = LogConfig(segment_bytes=2000, index_interval_bytes=150)
OTHER = Uuid(b"another incarnat")


def sizes(disk: SimulatedDisk, subdirectory: str) -> dict[str, int]:
    return {
        name: disk.size(f"{subdirectory}/{name}")
        for name in disk.list(subdirectory)
        if name.endswith(".log")
    }


def damaged(
    disk: SimulatedDisk,
    *,
    at: int,
    lose_index: bool,
    config: LogConfig = SEGMENTED,
    segment: int = -2,
) -> dict[str, int]:
    """Flush a log of several segments, kill the process, damage a batch of one segment."""
    logs = open_set(disk, config=config)
    log = make(logs)
    for _ in range(60):
        put(log)
    log.update_high_watermark(60)
    flush(log)
    log.truncation.delete_records_before(15)
    logs.checkpoints.request_all()
    drain(logs)
    name = f"a-0/{log.segments.base_offsets[segment]:020d}"
    disk.kill()
    file = disk.open(name + ".log")
    file.write_at(list(walk_file(file, 0, file.size()))[3].position + at, b"\x42")
    if lose_index:
        index = disk.open(name + ".index")
        index.write_at(0, b"\xff" * index.size())
    return sizes(disk, "a-0")


def test_a_broken_log_keeps_its_place_in_the_checkpoints() -> None:
    """Else the next unclean start takes its flushed bytes for torn ones and cuts them."""
    disk = SimulatedDisk()
    before = damaged(disk, at=16, lose_index=True)
    logs = open_set(disk, config=SEGMENTED)
    assert set(logs.broken) == {A}
    logs.checkpoints.request_all()
    drain(logs)
    assert disk.read_file("recovery-point-offset-checkpoint") == b"0\n1\na 0 60\n"
    assert disk.read_file("log-start-offset-checkpoint") == b"0\n1\na 0 15\n"
    disk.kill()
    open_set(disk, config=SEGMENTED)
    assert sizes(disk, "a-0") == before


@pytest.mark.parametrize("at", [16, 80])
def test_a_bad_batch_in_flushed_bytes_cuts_nothing(at: int) -> None:
    """Neither a header nor a record that is damaged: what lies behind it is still whole."""
    disk = SimulatedDisk()
    without_entries = LogConfig(segment_bytes=2000)
    before = damaged(disk, at=at, lose_index=False, config=without_entries)
    open_set(disk, config=without_entries)
    assert sizes(disk, "a-0") == before


def test_damaged_records_take_the_partition_offline_until_they_are_repaired() -> None:
    """The next start looks again, also after a clean stop; the error names the way out."""
    disk = SimulatedDisk()
    before = damaged(disk, at=80, lose_index=False, segment=-1)
    for _ in range(2):
        logs = open_set(disk, config=SEGMENTED)
        replicas = ReplicaSet(1, logs)
        assert replicas.why_missing(*A) is ErrorCode.KAFKA_STORAGE_ERROR
        with pytest.raises(KafkaError) as caught:
            replicas.host(*A, TOPIC_ID, now_ms=NOW_MS, is_new=False)
        message = str(caught.value)
        assert "damaged at byte" in message
        assert message.endswith("ottla log-repair --log-dir /d0 --partition a-0")
        assert "\n" not in message
        assert sizes(disk, "a-0") == before
        logs.shutdown()
    assert disk.read_file("recovery-point-offset-checkpoint") == b"0\n1\na 0 60\n"


def test_a_broken_log_can_be_deleted_and_its_name_taken_again() -> None:
    """Its directory is renamed as that of others, and its offsets leave the checkpoints."""
    disk = SimulatedDisk()
    damaged(disk, at=16, lose_index=True)
    logs = open_set(disk, config=SEGMENTED)
    replicas = ReplicaSet(1, logs)
    assert replicas.why_missing(*A) is ErrorCode.KAFKA_STORAGE_ERROR
    replicas.drop(*A, now_ms=NOW_MS)
    assert replicas.why_missing(*A) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert make(logs, topic_id=OTHER).log_end_offset == 0
    assert disk.read_file("recovery-point-offset-checkpoint") == b"0\n0\n"
    finish(logs.removals.take_due(NOW_MS + SEGMENTED.file_delete_delay_ms))
    assert not [name for name in disk.list() if name.endswith("-delete")]
    assert not logs.delete(TopicPartition("b", 0), now_ms=NOW_MS)


def test_a_broken_log_of_a_deleted_topic_is_set_aside() -> None:
    """The topic may have been deleted and made again while the node was down: its name is free."""
    disk = SimulatedDisk()
    before = damaged(disk, at=16, lose_index=True)
    logs = open_set(disk, config=SEGMENTED, is_stray=lambda log: log.topic_id == TOPIC_ID)
    assert not logs.broken
    (stray,) = [name for name in disk.list() if name.endswith("-stray")]
    assert sizes(disk, stray) == before
    assert disk.read_file("recovery-point-offset-checkpoint") == b"0\n0\n"
    assert make(logs, topic_id=OTHER).log_end_offset == 0


def test_no_second_log_while_the_first_may_lie_in_an_offline_directory() -> None:
    """A partition that is not new waits for it; the next start finds each log once."""
    disks = SimulatedDisk(0), SimulatedDisk(1)
    logs = open_set(*disks)
    partitions = [TopicPartition("t", number) for number in range(4)]
    for partition in partitions:
        put(make(logs, partition))
    logs.shutdown()
    disks[1].fail(lambda call: call.kind == "read" and call.path.startswith("t-"))
    logs = open_set(*disks)
    replicas = ReplicaSet(1, logs)
    for topic, number in partitions:
        if logs.get(TopicPartition(topic, number)) is None:
            with pytest.raises(KafkaError, match="/d1 are offline"):
                replicas.host(topic, number, TOPIC_ID, now_ms=NOW_MS, is_new=False)
            assert replicas.why_missing(topic, number) is ErrorCode.KAFKA_STORAGE_ERROR
    assert len(logs) == 2
    replicas.host("t", 9, TOPIC_ID, now_ms=NOW_MS, is_new=True)
    logs.shutdown()
    for disk in disks:
        disk.kill()
    again = open_set(*disks)
    assert len(again) == 5
    assert all(log.log_end_offset == (log.topic_partition.partition < 9) for log in again)


def test_a_partition_deleted_while_its_directory_is_offline_is_forgotten() -> None:
    """Asking for it says again that there is none."""
    disks = SimulatedDisk(0), SimulatedDisk(1)
    logs = open_set(*disks)
    logs.fail(logs.directories[1], OSError(errno.EIO, "gone"))
    replicas = ReplicaSet(1, logs)
    with pytest.raises(KafkaError, match="offline"):
        replicas.host(*A, TOPIC_ID, now_ms=NOW_MS, is_new=False)
    replicas.drop(*A, now_ms=NOW_MS)
    assert replicas.why_missing(*A) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_start_without_descriptors_ends() -> None:
    """Startup fails: logs that were not loaded would be recreated empty in a healthy directory."""
    disk = SimulatedDisk()
    logs = open_set(disk)
    put(make(logs))
    logs.shutdown()
    disk.fail(lambda call: call.kind == "read" and call.path.startswith("a-0"), errno.EMFILE)
    with pytest.raises(KafkaError, match="raise the limit on open files") as caught:
        open_set(disk)
    assert "\n" not in str(caught.value)
    log = open_set(disk).get(A)
    assert log is not None
    assert log.log_end_offset == 1


def test_a_worker_that_loads_changes_nothing_that_the_loop_reads() -> None:
    """The loop takes the logs when all directories are loaded."""
    disks = SimulatedDisk(), SimulatedDisk()
    logs = open_set(*disks)
    for number in range(4):
        put(make(logs, TopicPartition("t", number)))
    logs.shutdown()
    directories = [LogDirectory(f"/d{number}", disk) for number, disk in enumerate(disks)]
    again = LogSet(directories, config_for=lambda _: SMALL, rng=Random(1))
    loaders = again.loaders(NOW_MS, lambda found: found.topic_partition.partition == 3)
    for loader in loaders:
        loader.run()
        assert len(again) == 0
        assert again.take_jobs(NOW_MS) == again.removals.take_due(NOW_MS) == []
        loader.done(None)
    assert "t-3" in {name for disk in disks for name in disk.list()}
    checkpoints = work.finish(again.take_loaded(loaders, NOW_MS))
    assert len(again) == 3
    assert len(checkpoints) == 1
