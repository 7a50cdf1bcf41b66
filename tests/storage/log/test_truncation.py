"""Truncations: what they do at once, what a flush does, and what waits meanwhile."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.storage.log.append_info import FetchIsolation
from ottla.storage.log.leader_epochs import EpochEntry, LeaderEpochs
from ottla.storage.log.truncation import RemoteState, write_remote_state
from ottla.storage.producers.snapshot import encode_snapshot
from ottla.testing.disk import SimulatedCrash, SimulatedDisk
from ottla.types import FileSlice
from tests.storage.logs import NOW_MS, SMALL, close, end, flush, new_log, put, send

if TYPE_CHECKING:
    from ottla.storage.log.partition_log import PartitionLog


def code_of(call: object, *args: object, **kwargs: object) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        call(*args, **kwargs)  # type: ignore[operator] # any function of the helpers
    return caught.value.code


def written(disk: SimulatedDisk, count: int = 30) -> PartitionLog:
    """Return a log of one producer's records, which fill some segments."""
    log = new_log(disk)
    for number in range(count):
        send(log, 1, number)
    flush(log)
    return log


def sequence_of(log: PartitionLog, producer_id: int = 1) -> int:
    return log.producer_state.producers[producer_id].last_sequence


def test_a_truncation_replays_nothing_until_its_flush() -> None:
    """Reading the segment takes seconds: that is the worker's part."""
    disk = SimulatedDisk()
    log = written(disk, 200)
    log.reads.read(150, 1000)  # the index page is in memory
    before = disk.reads
    log.truncation.truncate_to(199, now_ms=NOW_MS)
    assert disk.reads - before < 5
    assert log.producer_state.is_stale
    flush(log)
    assert not log.producer_state.is_stale
    assert sequence_of(log) == 198


def test_nothing_is_appended_nor_taken_for_a_duplicate_until_then() -> None:
    """What the state said of the records that are gone holds no longer."""
    log = written(SimulatedDisk())
    log.truncation.truncate_to(28, now_ms=NOW_MS)
    assert code_of(send, log, 1, 29) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    flush(log)
    assert not send(log, 1, 28).is_duplicate
    assert send(log, 1, 27).is_duplicate


def test_a_second_truncation_discards_the_result_of_the_first() -> None:
    """Its worker may still read when the next leader cuts more."""
    log = written(SimulatedDisk())
    log.truncation.truncate_to(25, now_ms=NOW_MS)
    job = log.flushes.start()
    assert job is not None
    job.run()
    log.truncation.truncate_to(20, now_ms=NOW_MS)
    log.flushes.completed(job)
    assert log.producer_state.is_stale
    assert 25 not in log.producer_state.snapshots
    assert not log.directory.exists(log.producer_state.snapshot_path(25))
    flush(log)
    assert sequence_of(log) == 19


def test_a_log_is_closed_with_the_state_of_what_is_left() -> None:
    """A clean start reads the snapshot at the end: it must not be that of a stale state."""
    disk = SimulatedDisk()
    log = written(disk)
    log.truncation.truncate_to(25, now_ms=NOW_MS)
    close(log)
    assert sequence_of(new_log(disk, clean=True)) == 24


def test_retention_leaves_a_truncated_log_alone() -> None:
    """The worker reads its segments."""
    log = written(SimulatedDisk())
    log.update_high_watermark(25)
    log.truncation.delete_records_before(20)
    log.truncation.truncate_to(25, now_ms=NOW_MS)
    assert log.truncation.delete_old_segments(NOW_MS) == 0
    flush(log)
    assert log.truncation.delete_old_segments(NOW_MS) > 0
    assert sequence_of(log) == 24


def test_a_transaction_whose_marker_is_cut_holds_readers_back() -> None:
    """Before the state is rebuilt, and after it."""
    log = new_log()
    send(log, 1, 0, transactional=True)
    end(log, 1, commit=True)
    put(log)
    log.update_high_watermark(1)
    log.truncation.truncate_to(1, now_ms=NOW_MS)
    for _ in range(2):
        assert log.last_stable_offset == 0
        assert log.reads.read(0, 100, FetchIsolation.TXN_COMMITTED).records == b""
        flush(log)
    assert log.producer_state.producers[1].in_transaction


def test_below_the_high_watermark_nothing_is_taken_for_stable() -> None:
    """An unclean leader has less: the transaction that was complete may be open again."""
    log = new_log()
    put(log)
    send(log, 1, 0, transactional=True)
    end(log, 1, commit=True)
    log.update_high_watermark(3)
    assert log.last_stable_offset == 3
    log.truncation.truncate_to(2, now_ms=NOW_MS)
    assert log.last_stable_offset == 0
    flush(log)
    assert log.last_stable_offset == 1


def test_a_snapshot_is_that_of_its_offset() -> None:
    """Producers that go on before a worker has written it change nothing in it."""
    disk = SimulatedDisk()
    log = new_log(disk)
    send(log, 1, 0)
    send(log, 2, 0, transactional=True)
    log.roll(NOW_MS)
    base = log.log_end_offset
    send(log, 1, 1)
    send(log, 3, 0)
    end(log, 2, commit=True)
    flush(log)
    disk.kill()
    disk.open(f"t-0/{base:020d}.log").truncate(0)
    log = new_log(disk, clean=True)
    producers = log.producer_state.producers
    assert {key: entry.last_sequence for key, entry in producers.items()} == {1: 0, 2: 0}
    assert producers[2].in_transaction


def test_an_append_of_several_batches_after_a_snapshot_counts_them_all() -> None:
    """A follower's append may hold two batches of one producer."""
    log, leader = new_log(), new_log()
    for number in range(5):
        send(leader, 1, number)
    data = leader.reads.read(0, 10_000).records
    assert isinstance(data, FileSlice)
    whole = data.file.read(0, data.size)
    first = len(whole) // 5
    log.writes.append_as_follower(whole[:first], leader_epoch=0, now_ms=NOW_MS)
    log.roll(NOW_MS)
    log.writes.append_as_follower(whole[first:], leader_epoch=0, now_ms=NOW_MS)
    assert len(log.producer_state.producers[1].batches) == 5


@pytest.mark.parametrize("suffix", [".timeindex", ".index"])
def test_a_damaged_index_does_not_stop_a_truncation_half_way(suffix: str) -> None:
    """It is rebuilt before anything is removed, also for the second time."""
    disk = SimulatedDisk()
    log = written(disk)
    close(log)
    log = new_log(disk, clean=True)
    target = log.segments[2]
    target.indexes_rebuilt = True
    disk.open(target.path(suffix)).truncate(5)
    offset = target.base_offset + 1
    log.truncation.truncate_to(offset, now_ms=NOW_MS)
    assert log.log_end_offset == offset
    flush(log)
    assert send(log, 1, offset).first_offset == offset


def test_a_segment_that_cannot_be_read_is_not_cut() -> None:
    """Damaged aborts: nothing is removed, and the end stays that of the data."""
    disk = SimulatedDisk()
    log = written(disk)
    target = log.segments[2]
    disk.open(target.path(".txnindex"), create=True).write_at(0, b"lies")
    before = len(log.segments), log.log_end_offset
    target.transaction_index.release()
    assert code_of(log.truncation.truncate_to, target.base_offset + 1, now_ms=NOW_MS) is (
        ErrorCode.CORRUPT_MESSAGE
    )
    assert (len(log.segments), log.log_end_offset) == before
    assert send(log, 1, 30).first_offset == 30


def test_a_disk_that_fails_in_a_truncation_leaves_no_end_above_the_data() -> None:
    """The log is fenced; its end offset is never higher than what may be there."""
    disk = SimulatedDisk()
    log = written(disk)
    offset = log.segments[1].base_offset + 1
    disk.fail(lambda call: call.kind == "rename")
    assert code_of(log.truncation.truncate_to, offset, now_ms=NOW_MS) is (
        ErrorCode.KAFKA_STORAGE_ERROR
    )
    assert log.log_end_offset == offset
    assert code_of(put, log) is ErrorCode.KAFKA_STORAGE_ERROR


def test_a_restarted_log_renames_its_segments() -> None:
    """Unlinking gigabytes takes long: a worker removes them later."""
    disk = SimulatedDisk()
    log = written(disk)
    count = len(log.segments)
    disk.trace = []
    log.truncation.truncate_fully_and_start_at(12, now_ms=NOW_MS)
    removed = [call.path for call in disk.trace if call.kind == "remove"]
    assert not [path for path in removed if not path.endswith(".snapshot")]
    assert len(log.take_removable(NOW_MS + log.config.file_delete_delay_ms)) == count
    assert send(log, 1, 0).first_offset == 12
    flush(log)
    disk.kill()
    assert new_log(disk, recovery_point=13).log_end_offset == 13


def test_a_cut_below_the_disk_does_not_move_the_start_of_what_is_remote() -> None:
    """The log begins again at its start: else its leader would delete what is remote before it."""
    log = new_log()
    before = RemoteState(3, [EpochEntry(1, 3)], [])
    log.truncation.truncate_fully_and_start_at(12, now_ms=NOW_MS, before=before)
    assert (log.log_start_offset, log.highest_remote_offset) == (3, 11)
    log.truncation.truncate_to(8, now_ms=NOW_MS)
    assert (log.log_start_offset, log.log_end_offset, log.highest_remote_offset) == (3, 3, 2)


def test_a_cut_lowers_the_highest_remote_offset() -> None:
    """Other records follow there, which are not in remote storage: they must stay on the disk."""
    log = written(SimulatedDisk())
    log.copied_to_tier(19)
    log.truncation.truncate_to(10, now_ms=NOW_MS)
    assert log.highest_remote_offset == 9


@pytest.mark.parametrize("seed", range(4))
def test_a_crash_leaves_a_log_before_or_behind_the_tier(seed: int) -> None:
    """At each change of the disk: it begins behind with all that it must know there, or not."""
    behind = 0
    for count in range(1, CRASHES):
        disk = SimulatedDisk(seed)
        log = written(disk, 6)
        producers = log.producer_state.entries_for_worker()
        epochs = LeaderEpochs([EpochEntry(0, 0), EpochEntry(2, 15)])
        disk.crash_at(disk.calls + count)
        is_over = False
        try:
            held = disk.open_directory("t-0")
            write_remote_state(held, 20, encode_snapshot(producers), epochs)
            held.close()
            before = RemoteState(0, epochs.entries, producers, is_written=True)
            log.truncation.truncate_fully_and_start_at(20, now_ms=NOW_MS, before=before)
            flush(log)
            is_over = True
        except SimulatedCrash:
            pass
        disk.crash()
        again = new_log(disk, config=replace(SMALL, remote_storage_enable=True))
        assert again.log_start_offset == 0
        if again.log_end_offset == 20:
            behind += 1
            assert again.local_log_start_offset == 20
            assert again.leader_epochs.entries == epochs.entries
            assert encode_snapshot(again.producer_state.producers.values()) == encode_snapshot(
                producers
            )
        else:
            assert not is_over
            assert again.log_end_offset <= 6
    assert is_over
    assert behind > 1


CRASHES = 40
"""More than the changes of the disk."""
