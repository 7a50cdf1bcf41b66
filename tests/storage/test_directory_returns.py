"""Log directories that were offline and are read again while the log set is in use."""

from __future__ import annotations

import errno
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from ottla.errors import CorruptMessage, KafkaError
from ottla.purgatory import work
from ottla.storage.directories.log_dir import MetaProperties
from ottla.testing.disk import SimulatedDisk
from ottla.types import TopicPartition, Uuid
from tests.storage.logs import NOW_MS, TOPIC_ID, put
from tests.storage.sets import drain, finish, make, open_set

if TYPE_CHECKING:
    from ottla.storage.log.partition_log import PartitionLog
    from ottla.storage.log_set.log_set import LogSet

CLUSTER, NODE = "cluster", 1
META = MetaProperties(1, CLUSTER, NODE, Uuid(b"directory number"))


def text_of(meta: MetaProperties) -> bytes:
    """Return a meta.properties."""
    return (
        f"version={meta.version}\ncluster.id={meta.cluster_id}\nnode.id={meta.node_id}\n"
        f"directory.id={meta.directory_id}\n"
    ).encode()


def filled() -> tuple[SimulatedDisk, LogSet, PartitionLog]:
    """Return a disk, its set, which has another disk, too, and a log on the first one."""
    disk = SimulatedDisk()
    disk.write_file_atomically("meta.properties", text_of(META))
    logs = open_set(disk, SimulatedDisk(1))
    log = make(logs)
    log_dir = logs.log_dir_of(log.topic_partition)
    assert log_dir is logs.directories[0]
    for _ in range(10):
        put(log)
    drain(logs)
    finish(logs.flushes.take_whole(log, NOW_MS))
    return disk, logs, log


def lose(logs: LogSet) -> None:
    """Let the first directory fail."""
    logs.fail(logs.directories[0], OSError(errno.EIO, "gone"))


def bring_back(logs: LogSet, reserve_bytes: int = 0) -> None:
    """Read the first directory again."""
    log_dir = logs.directories[0]
    loader = logs.loader(log_dir, NOW_MS, lambda _found: False)
    log_dir.check_return(CLUSTER, NODE, reserve_bytes)
    loader.run()
    loader.done(None)
    work.finish(logs.take_returned(loader, NOW_MS, lambda _found: None))


def test_what_a_failed_sync_lost_is_not_there_again() -> None:
    """The log is read from the disk: it ends where the last flush ended that succeeded."""
    disk, logs, log = filled()
    flushed = log.log_end_offset
    for _ in range(5):
        put(log)
    disk.fail(lambda call: call.kind == "sync" and call.path.endswith("10.log"))
    logs.flushes.request(log)
    finish(logs.flushes.take_whole(log, NOW_MS))
    assert not logs.directories[0].is_online
    assert logs.get(log.topic_partition) is None
    bring_back(logs)
    again = logs.get(log.topic_partition)
    assert again is not None
    assert again is not log
    assert again.failure is None
    assert again.log_end_offset == flushed
    assert put(again).first_offset == flushed


def test_a_directory_that_is_offline_has_no_lock() -> None:
    """Its disk can be unmounted, and another process may repair a log in it."""
    disk, logs, _ = filled()
    assert disk.locks == {".lock"}
    lose(logs)
    assert not disk.locks
    held = disk.lock(".lock")
    with pytest.raises(KafkaError, match="Failed to acquire lock"):
        bring_back(logs)
    held.release()
    bring_back(logs)
    assert disk.locks == {".lock"}


@pytest.mark.parametrize(
    ("meta", "text"),
    [
        (META._replace(cluster_id="other"), "cluster.id other"),
        (META._replace(node_id=2), "node.id 2"),
        (META._replace(directory_id=Uuid(b"another director")), "mount the disk that failed"),
    ],
)
def test_another_directory_is_refused(meta: MetaProperties, text: str) -> None:
    """One line says what differs, and nothing in it is changed."""
    disk, logs, _ = filled()
    lose(logs)
    disk.write_file_atomically("meta.properties", text_of(meta))
    calls = disk.calls
    with pytest.raises(KafkaError, match=text) as caught:
        bring_back(logs)
    assert "\n" not in str(caught.value)
    assert (disk.calls, disk.locks) == (calls, set())


def test_an_empty_mount_point_is_refused() -> None:
    """No file is made in it."""
    disk, logs, _ = filled()
    lose(logs)
    content = disk.read_file("meta.properties")
    disk.remove("meta.properties")
    names = disk.list()
    with pytest.raises(KafkaError, match=r"no meta\.properties; mount its disk there"):
        bring_back(logs)
    assert disk.list() == names
    disk.write_file_atomically("meta.properties", b"nonsense")
    with pytest.raises(CorruptMessage):
        bring_back(logs)
    disk.write_file_atomically("meta.properties", content)
    bring_back(logs)


def test_a_directory_that_another_process_used_is_refused() -> None:
    """It left the marker of a clean stop, which the start of this process has removed."""
    disk, logs, _ = filled()
    lose(logs)
    open_set(disk).shutdown()
    with pytest.raises(KafkaError, match="another process has used it since"):
        bring_back(logs)


def test_a_full_disk_is_refused_until_its_reserve_is_free() -> None:
    """Else the next follower's fetch would fill it again."""
    disk, logs, _ = filled()
    lose(logs)
    disk.capacity_bytes = disk.used_bytes() + 1000
    with pytest.raises(KafkaError, match="less than its reserve of 100000; free some space"):
        bring_back(logs, 100_000)
    with pytest.raises(OSError, match="ENOSPC"):
        bring_back(logs)
    disk.capacity_bytes = 1 << 30
    bring_back(logs, 100_000)


def test_a_replica_that_got_another_log_meanwhile_keeps_it() -> None:
    """It was moved away from this broker and back while the directory was offline."""
    disk, logs, log = filled()
    lose(logs)
    second = make(logs)
    assert logs.log_dir_of(second.topic_partition) is logs.directories[1]
    bring_back(logs)
    assert logs.get(log.topic_partition) is second
    assert [name for name in disk.list() if name.endswith("-delete")]


def test_a_second_failure_while_its_logs_are_taken_deletes_none() -> None:
    """Logs that were not taken yet stay out of the set, and the next return finds all of them."""
    disk, logs, log = filled()
    log_dir = logs.directories[0]
    names = {log.topic_partition, *(TopicPartition("b", number) for number in range(3))}
    for name in names - {log.topic_partition}:
        logs.preferred[name] = log_dir
        put(make(logs, name))
    drain(logs)
    lose(logs)
    loader = logs.loader(log_dir, NOW_MS, lambda _found: False)
    log_dir.check_return(CLUSTER, NODE, 0)
    loader.run()
    loader.done(None)
    taking = logs.take_returned(loader, NOW_MS, lambda _found: None)
    next(taking)
    lose(logs)
    work.finish(taking)
    assert not logs.table.logs_in(log_dir)
    bring_back(logs)
    assert {one.topic_partition for one in logs.table.logs_in(log_dir)} == names
    assert not [name for name in disk.list() if name.endswith("-delete")]


@pytest.mark.parametrize("taken", [0, 1])
@pytest.mark.parametrize("is_stop", [False, True])
def test_checkpoints_while_its_logs_are_taken_do_not_lose_the_rest(
    taken: int,
    is_stop: bool,  # noqa: FBT001 - parametrized
) -> None:
    """A stop then is not a clean one: the rest of the logs was never flushed."""
    disk, logs, log = filled()
    other = make(logs, TopicPartition("a", 1))
    assert logs.log_dir_of(other.topic_partition) is logs.directories[1]
    logs.preferred[TopicPartition("a", 2)] = log_dir = logs.directories[0]
    make(logs, TopicPartition("a", 2))
    log.update_high_watermark(10)
    log.advance_start(5)
    finish(logs.checkpoints.high_watermark_jobs())
    logs.checkpoints.request(log_dir)
    drain(logs)
    lose(logs)
    loader = logs.loader(log_dir, NOW_MS, lambda _found: False)
    log_dir.check_return(CLUSTER, NODE, 0)
    loader.run()
    loader.done(None)
    loader.logs.reverse()
    taking = logs.take_returned(loader, NOW_MS, lambda _found: None)
    for _ in range(taken):
        next(taking)
    if is_stop:
        logs.shutdown(7)
    else:
        logs.checkpoints.request_all()
        finish([*logs.take_jobs(), *logs.checkpoints.high_watermark_jobs()])
        disk.kill()
    again = open_set(disk)
    assert not again.directories[0].had_clean_shutdown
    found = again.get(log.topic_partition)
    assert found is not None
    assert (found.log_start_offset, found.high_watermark) == (5, 10)


@pytest.mark.parametrize("after", ["", "a-0/00000000000000000000.log"])
def test_a_load_ends_soon_when_it_is_cancelled(after: str) -> None:
    """Between two logs, or between two segments that are recovered."""
    disk, logs, log = filled()
    for _ in range(300):
        put(log)
    assert len(log.segments) > 2
    drain(logs)
    lose(logs)
    loader = logs.loader(logs.directories[0], NOW_MS, lambda _found: False)
    logs.directories[0].check_return(CLUSTER, NODE, 0)

    def cancel(kind: str, path: str, _size: int) -> None:
        if kind == "read" and path.startswith(after):
            loader.cancel()

    disk.on_call = cancel
    with pytest.raises(KafkaError, match="was cancelled"):
        loader.run()
    assert not loader.logs


def test_deleted_logs_are_removed_once() -> None:
    """Those that waited for file.delete.delay.ms when the directory failed are found again."""
    disk, logs, log = filled()
    logs.delete(log.topic_partition, now_ms=NOW_MS)
    lose(logs)
    bring_back(logs)
    due_ms = NOW_MS + log.config.file_delete_delay_ms
    jobs = logs.removals.take_due(due_ms)
    assert len(jobs) == 1
    finish(jobs)
    assert not [name for name in disk.list() if name.endswith("-delete")]
    assert logs.directories[0].is_online


def test_no_descriptors_end_the_return_and_no_other_log() -> None:
    """A start would end; a node that runs tries again later."""
    _, logs, _ = filled()
    other = make(logs, TopicPartition("b", 0), TOPIC_ID)
    lose(logs)
    logs.fail_at_start(logs.directories[0], OSError(errno.EMFILE, "Too many open files"))
    assert logs.get(other.topic_partition) is other
    assert put(other).first_offset == 0
    with suppress(KafkaError):
        bring_back(logs)
    assert logs.directories[0].is_online
