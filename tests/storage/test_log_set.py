"""All logs of a node: start, stop, creation, deletion, failure."""

from __future__ import annotations

import errno
from random import Random
from typing import TYPE_CHECKING

import pytest

from ottla.errors import CorruptMessage, ErrorCode, KafkaError
from ottla.storage.directories.checkpoints import decode_offsets, encode_offsets
from ottla.storage.directories.log_dir import (
    LogDirectory,
    decode_clean_marker,
    decode_meta_properties,
)
from ottla.storage.directories.partition_metadata import (
    decode_partition_metadata,
    encode_partition_metadata,
)
from ottla.storage.log.config import LogConfig
from ottla.storage.log_set.flush_queue import MAX_FLUSHES
from ottla.storage.log_set.log_set import LogSet
from ottla.testing.disk import Call, SimulatedCrash, SimulatedDisk
from ottla.types import TopicPartition, Uuid
from tests.storage.logs import NOW_MS, TOPIC_ID, flush, put
from tests.storage.sets import A, drain, finish, make, open_set

if TYPE_CHECKING:
    from collections.abc import Callable

B = TopicPartition("b", 3)


def run_jobs(logs: LogSet) -> None:
    finish(logs.take_jobs())


def test_a_clean_stop_and_start() -> None:
    """Marker, checkpoints, high watermarks: all is as it was, and the marker is gone."""
    disk = SimulatedDisk()
    logs = open_set(disk)
    for _ in range(9):
        put(make(logs, A))
    make(logs, A).update_high_watermark(7)
    logs.shutdown(42)
    assert disk.read_file(".kafka_cleanshutdown") == b'{"version":0,"brokerEpoch":42}'
    assert disk.read_file("recovery-point-offset-checkpoint") == b"0\n1\na 0 9\n"
    assert disk.read_file("replication-offset-checkpoint") == b"0\n1\na 0 7\n"
    assert disk.read_file("log-start-offset-checkpoint") == b"0\n0\n"
    assert disk.read_file("a-0/partition.metadata") == (
        b"version: 0\ntopic_id: MDEyMzQ1Njc4OWFiY2RlZg"
    )
    logs = open_set(disk)
    assert logs.previous_broker_epoch == 42
    assert not disk.exists(".kafka_cleanshutdown")
    log = logs.get(A)
    assert log is not None
    assert (log.high_watermark, log.log_end_offset, log.topic_id) == (7, 9, TOPIC_ID)


def test_a_stop_before_the_logs_are_loaded_leaves_their_checkpoints() -> None:
    """Nor does it say that they were closed cleanly: nothing was recovered."""
    disk = SimulatedDisk()
    logs = open_set(disk)
    for _ in range(9):
        put(make(logs, A))
    logs.shutdown(42)
    logs = LogSet([LogDirectory("/d0", disk)], config_for=lambda _: LogConfig(), rng=Random(1))
    logs.open()
    logs.shutdown(43)
    assert not disk.exists(".kafka_cleanshutdown")
    assert disk.read_file("recovery-point-offset-checkpoint") == b"0\n1\na 0 9\n"
    log = open_set(disk).get(A)
    assert log is not None
    assert log.log_end_offset == 9


def test_a_crash_while_loading_recovers_again() -> None:
    """KAFKA-10471: the marker goes before anything is loaded."""
    disk = SimulatedDisk()
    logs = open_set(disk)
    put(make(logs, A))
    logs.shutdown(1)
    disk.remove("a-0/00000000000000000000.timeindex")
    disk.fail(lambda call: call.path.endswith("timeindex"), 0)
    with pytest.raises(SimulatedCrash):
        open_set(disk)
    disk.crash()
    logs = open_set(disk)
    assert not logs.directories[0].had_clean_shutdown
    assert logs.get(A) is not None


def test_two_processes_cannot_share_a_directory() -> None:
    """The second one gets an error."""
    disk = SimulatedDisk()
    open_set(disk)
    with pytest.raises(KafkaError, match="Failed to acquire lock"):
        open_set(disk)


def with_checkpoints() -> tuple[SimulatedDisk, LogSet]:
    """Return a set with nine batches in `A`, and with its checkpoints in the files."""
    disk = SimulatedDisk()
    logs = open_set(disk)
    for _ in range(9):
        put(make(logs, A))
    logs.checkpoints.request_all()
    run_jobs(logs)
    return disk, logs


def test_deletion_renames_then_removes() -> None:
    """`a-0.<hex>-delete` for file.delete.delay.ms; a new incarnation starts empty meanwhile."""
    disk, logs = with_checkpoints()
    assert logs.delete(A, now_ms=NOW_MS)
    assert not logs.delete(A, now_ms=NOW_MS)
    assert [name for name in disk.list() if name.endswith("-delete")]
    other = Uuid(b"another incarnat")
    assert make(logs, A, other).log_end_offset == 0
    assert disk.read_file("recovery-point-offset-checkpoint") == b"0\n0\n"
    for job in logs.removals.take_due(NOW_MS + 60_000):
        job.run()
        job.done(None)
    assert not [name for name in disk.list() if name.endswith("-delete")]
    with pytest.raises(KafkaError) as caught:
        make(logs, A)
    assert caught.value.code is ErrorCode.INCONSISTENT_TOPIC_ID


def test_a_new_log_waits_for_no_checkpoint_of_others() -> None:
    """One that is pending lowers nothing: only of a deleted partition a name must not be there."""
    disk = SimulatedDisk()
    logs = open_set(disk)
    put(make(logs, A))
    run_jobs(logs)
    logs.checkpoints.request_all()
    paths: list[str] = []
    disk.on_call = lambda _kind, path, _size: paths.append(path)
    make(logs, B)
    assert paths
    assert not [path for path in paths if "point-offset" in path]


def test_a_name_is_used_again_after_a_worker_wrote_the_checkpoints() -> None:
    """Then the log is made without waiting for the disk."""
    disk, logs = with_checkpoints()
    assert logs.checkpoints.without_gone({A}) == []
    logs.delete(A, now_ms=NOW_MS)
    assert logs.checkpoints.without_gone({B}) == []
    (checkpoint,) = logs.checkpoints.without_gone({A})
    done: list[None] = []
    checkpoint.start(_run_at_once).on_done(lambda _done: done.append(None))
    assert done == [None]
    assert logs.checkpoints.without_gone({A}) == []
    paths: list[str] = []
    disk.on_call = lambda _kind, path, _size: paths.append(path)
    assert make(logs, A, Uuid(b"another incarnat")).log_end_offset == 0
    assert not [path for path in paths if "point-offset" in path]
    assert disk.read_file("recovery-point-offset-checkpoint") == b"0\n0\n"


@pytest.mark.parametrize("in_worker", [False, True])
def test_a_log_takes_no_high_watermark_of_a_deleted_one(*, in_worker: bool) -> None:
    """What it has is not committed: after a crash a follower's would be ahead of its leader's."""
    disk, logs = with_checkpoints()
    make(logs, A).update_high_watermark(7)
    finish(logs.checkpoints.high_watermark_jobs())
    logs.delete(A, now_ms=NOW_MS)
    if in_worker:
        for checkpoint in logs.checkpoints.without_gone({A}):
            checkpoint.start(_run_at_once)
    other = Uuid(b"another incarnat")
    log = make(logs, A, other)
    put(log)
    flush(log)
    drain(logs)
    disk.crash()
    found = open_set(disk).get(A)
    assert found is not None
    assert (found.topic_id, found.high_watermark) == (other, 0)
    assert found.log_end_offset


def _run_at_once(
    _volume: object, job: Callable[[], None], done: Callable[[None, Exception | None], None]
) -> None:
    job()
    done(None, None)


def test_directories_of_deleted_partitions_are_removed_after_a_restart() -> None:
    """A `-delete` directory found at start is removed when its delay is over."""
    disk = SimulatedDisk()
    logs = open_set(disk)
    make(logs, A)
    logs.delete(A, now_ms=NOW_MS)
    logs.shutdown()
    logs = open_set(disk)
    assert logs.get(A) is None
    for job in logs.removals.take_due(NOW_MS + 60_000):
        job.run()
        job.done(None)
    assert not [name for name in disk.list() if name.startswith("a-0")]


def test_long_names_are_cut_when_marked() -> None:
    """A directory name stays within 255 characters."""
    disk = SimulatedDisk()
    logs = open_set(disk)
    long = TopicPartition("x" * 249, 12)
    make(logs, long)
    logs.delete(long, now_ms=NOW_MS)
    (name,) = [name for name in disk.list() if name.endswith("-delete")]
    assert len(name) == 255


def test_strays_are_set_aside() -> None:
    """Logs without a topic id, or not ours any more, are renamed and not served."""
    disk = SimulatedDisk()
    logs = open_set(disk)
    put(make(logs, A))
    put(make(logs, B))
    logs.shutdown()
    disk.remove("b-3/partition.metadata")
    logs = open_set(disk, is_stray=lambda log: log.topic_partition == A)
    assert len(logs) == 0
    assert sum(name.endswith("-stray") for name in disk.list()) == 2


def test_a_failing_disk_takes_only_its_partitions() -> None:
    """The others stay online; startup fails when the last one fails."""
    first, second = SimulatedDisk(), SimulatedDisk()
    logs = open_set(first, second)
    log_dirs = {}
    for number in range(4):
        partition = TopicPartition("t", number)
        put(make(logs, partition))
        log_dir = logs.log_dir_of(partition)
        assert log_dir is not None
        log_dirs[partition] = log_dir.path
    assert sorted(log_dirs.values()) == ["/d0", "/d0", "/d1", "/d1"]
    first.fail(lambda call: call.kind == "sync", times=99)
    run_jobs(logs)
    assert [log_dir.path for log_dir in logs.online_directories] == ["/d1"]
    assert {log.topic_partition for log in logs} == {
        partition for partition, log_dir in log_dirs.items() if log_dir == "/d1"
    }
    logs.shutdown()
    assert not first.exists(".kafka_cleanshutdown")
    assert second.exists(".kafka_cleanshutdown")
    broken = SimulatedDisk()
    broken.fail(lambda call: call.kind == "create", times=9)
    with pytest.raises(KafkaError, match="log dirs"):
        open_set(broken)


def test_a_new_log_is_made_in_another_directory_when_one_fails() -> None:
    """The failing one goes offline; without another one the error is reported."""
    first, second = SimulatedDisk(), SimulatedDisk()
    logs = open_set(first, second)
    first.fail(lambda call: call.kind == "create", times=99)
    put(make(logs))
    log_dir = logs.log_dir_of(A)
    assert log_dir is not None
    assert log_dir.path == "/d1"
    assert [one.path for one in logs.online_directories] == ["/d1"]
    second.fail(lambda call: call.kind == "create", times=99)
    with pytest.raises(KafkaError, match="creating log for b-3"):
        make(logs, B)


def test_a_truncation_lowers_the_checkpoint_first() -> None:
    """No file is cut before the durable recovery point is below the cut."""
    disk = SimulatedDisk()
    logs = open_set(disk)
    log = make(logs, A)
    for _ in range(9):
        put(log)
    run_jobs(logs)
    logs.checkpoints.request_all()
    (late,) = logs.take_jobs()
    late.run()
    disk.trace = []
    log.truncation.truncate_to(4, now_ms=NOW_MS)
    assert disk.trace[0].path.startswith("recovery-point")
    late.done(None)
    assert disk.read_file("recovery-point-offset-checkpoint") != b"0\n1\na 0 9\n"


def test_stopping_waits_for_no_job_of_others() -> None:
    """A flush under way in a worker does not keep the stop from flushing."""
    disk = SimulatedDisk()
    logs = open_set(disk)
    put(make(logs, A))
    assert logs.take_jobs()
    put(make(logs, A))
    logs.shutdown(1)
    assert disk.read_file("recovery-point-offset-checkpoint") == b"0\n1\na 0 2\n"
    disk.crash()
    assert make(open_set(disk), A).log_end_offset == 2


def test_ten_thousand_idle_partitions_cost_no_reads_of_indexes() -> None:
    """A few hundred stand in: a clean start reads four small files a partition."""
    disk = SimulatedDisk()
    logs = open_set(disk)
    for number in range(300):
        put(make(logs, TopicPartition("t", number)))
    logs.shutdown()
    reads: list[str] = []

    def spy(call: Call) -> bool:
        if call.kind == "read":
            reads.append(call.path)
        return False

    disk.fail(spy)
    logs = open_set(disk)
    assert len(logs) == 300
    assert len(reads) <= 300 * 5 + 10


def test_damage_in_flushed_bytes_is_loud_and_local() -> None:
    """After a clean stop a damaged log is neither served nor cut; the others are there."""
    disk = SimulatedDisk()
    logs = open_set(disk)
    for partition in (A, B):
        for _ in range(3):
            put(make(logs, partition))
    logs.shutdown()
    path = "a-0/00000000000000000000.log"
    disk.open(path).write_at(350, bytes(60))
    before = disk.read_file(path)
    logs = open_set(disk)
    assert set(logs.broken) == {A}
    assert [log.topic_partition for log in logs] == [B]
    with pytest.raises(KafkaError, match="damaged"):
        make(logs, A)
    logs.shutdown()
    assert disk.read_file(path) == before


def test_checkpoints_round_trip_and_lies_are_found() -> None:
    """The text is Kafka's; torn text is refused; the cleaner's empty file is no lie."""
    offsets = {A: 5, B: 7}
    assert encode_offsets(offsets) == b"0\n2\na 0 5\nb 3 7\n"
    assert decode_offsets(encode_offsets(offsets)) == offsets
    assert decode_offsets(b"") == {}
    for text in (b"0\n2\na 0 5\n", b"1\n0\n", b"x", b"0\n1\na 0\n", b"0\n1\na 0 x\n"):
        with pytest.raises(CorruptMessage):
            decode_offsets(text)


def test_identity_files() -> None:
    """meta.properties, the clean marker and partition.metadata, right and wrong."""
    text = b"#\n#Mon\ncluster.id=c\nversion=1\nnode.id=3\ndirectory.id=MDEyMzQ1Njc4OWFiY2RlZg\n"
    assert decode_meta_properties(text) == (1, "c", 3, TOPIC_ID)
    assert decode_meta_properties(b"version=1\ncluster.id=c\nnode.id=3").directory_id is None
    with pytest.raises(CorruptMessage):
        decode_meta_properties(b"version=1")
    assert decode_clean_marker(b'{"version":0,"brokerEpoch":15}') == 15
    for marker in (b"", b"[]", b"{}", b'{"brokerEpoch":null}'):
        assert decode_clean_marker(marker) == -1
    assert decode_partition_metadata(encode_partition_metadata(TOPIC_ID)) == TOPIC_ID
    for text in (b"", b"version: 1\ntopic_id: x", b"version: 0\n", b"\xff", b"x" * 2000):
        with pytest.raises(CorruptMessage):
            decode_partition_metadata(text)


def test_only_so_many_flushes_are_begun_at_a_time() -> None:
    """Logs that want one wait for their turn; all have had it after enough rounds."""
    logs = open_set(SimulatedDisk())
    made = [make(logs, TopicPartition("many", number)) for number in range(MAX_FLUSHES + 5)]
    for log in made:
        put(log)
        log.roll(NOW_MS)
    begun = logs.flushes.take(NOW_MS)
    assert len(begun) == MAX_FLUSHES
    assert logs.flushes.take(NOW_MS) == []
    for job in begun[:3]:
        job.run()
        job.done(None)
    following = logs.flushes.take(NOW_MS)
    assert len(following) == 3
    for job in [*begun[3:], *following]:
        job.run()
        job.done(OSError(errno.EMFILE, "Too many open files"))
    for _ in range(3):
        run_jobs(logs)
    assert all(log.recovery_point == log.log_end_offset for log in made)


def test_a_roll_makes_durable_what_lies_before_the_active_segment() -> None:
    """As in Kafka: the records that came after it are for the next one, flush.ms or the stop."""
    disk = SimulatedDisk()
    logs = open_set(disk)
    log = make(logs, A)
    run_jobs(logs)
    put(log)
    log.roll(NOW_MS)
    put(log)
    seen: list[str] = []

    def note(call: Call) -> bool:
        if call.kind == "sync":
            seen.append(call.path)
        return False

    disk.fail(note, 0)
    run_jobs(logs)
    assert (log.recovery_point, log.log_end_offset) == (1, 2)
    assert log.segments[0].path(".log") in seen
    assert log.segments.active.path(".log") not in seen
    assert logs.take_jobs() == []


@pytest.mark.parametrize(
    "config", [LogConfig(flush_ms=500), LogConfig(flush_messages=2)], ids=["ms", "messages"]
)
def test_flush_settings_reach_into_the_active_segment(config: LogConfig) -> None:
    """What they make due is flushed to the end of the log, also when no response waits for it."""
    logs = open_set(SimulatedDisk())
    log = make(logs, A)
    put(log)
    run_jobs(logs)
    assert log.recovery_point == 0
    log.reconfigure(config)
    logs.flushes.request_due(NOW_MS + 499)
    assert logs.flushes.take(NOW_MS + 499) == []
    put(log)
    logs.flushes.request_due(NOW_MS + 500)
    for job in logs.take_jobs(NOW_MS + 500):
        job.run()
        job.done(None)
    assert log.recovery_point == 2
