"""Bugs that other logs had, on the simulated disk: scenarios of docs/reliability.md by number."""

from __future__ import annotations

from random import Random

import pytest

from ottla.config.broker import parse_broker_config
from ottla.errors import ErrorCode, KafkaError
from ottla.purgatory.timing_wheel import TimingWheel
from ottla.records.batches import iterate_batches
from ottla.replication.partition import Partition
from ottla.replication.replica_set import ReplicaSet
from ottla.server.broker.maintenance import Maintenance
from ottla.storage.directories.log_dir import LogDirectory
from ottla.storage.indexes import entry_index
from ottla.storage.log.append_info import FetchIsolation
from ottla.storage.log.config import LogConfig
from ottla.storage.log.leader_epochs import decode_leader_epochs
from ottla.storage.log_set.log_set import LogSet
from ottla.storage.log_set.retention_check import RetentionCheck
from ottla.testing.disk import SimulatedCrash, SimulatedDisk
from ottla.types import TopicPartition
from tests.controller.harness import PROPERTIES
from tests.coordinator.harness import VirtualClock, loop_of
from tests.server.broker.no_cleaning import no_cleaning
from tests.storage.logs import NOW_MS, SMALL, TOPIC_ID, close, content, flush, new_log, put

HOUR_MS = 3_600_000
AGED = LogConfig(segment_bytes=300, retention_ms=HOUR_MS)


def open_set(disk: SimulatedDisk, config: LogConfig = AGED) -> LogSet:
    """Open all logs of a disk."""
    logs = LogSet(
        [LogDirectory("/disk", disk)],
        config_for=lambda _: config,
        rng=Random(1),
    )
    logs.load(NOW_MS)
    return logs


@pytest.mark.parametrize("count", range(0, 40, 3))
def test_02_a_crash_at_any_write_of_a_stop_leaves_no_false_marker(count: int) -> None:
    """Retention ran, then the stop: the clean marker is there only when all was flushed."""
    disk = SimulatedDisk(count)
    logs = open_set(disk)
    log = logs.get_or_create(TopicPartition("a", 0), topic_id=TOPIC_ID, now_ms=NOW_MS)
    for _ in range(12):
        put(log)
    log.update_high_watermark(log.log_end_offset)
    check = RetentionCheck(logs)
    check.step(NOW_MS + 2 * HOUR_MS)
    assert check.deleted > 0
    disk.crash_at(disk.calls + count)
    try:
        logs.shutdown(7)
        disk.heal()
    except SimulatedCrash:
        disk.crash()
        assert not open_set(disk).directories[0].had_clean_shutdown
        return
    disk.kill()
    again = open_set(disk)
    assert again.directories[0].had_clean_shutdown
    assert again.directories[0].is_online
    found = again.get(TopicPartition("a", 0))
    assert found is not None
    assert found.log_end_offset == 12


def test_02_no_timer_touches_the_logs_after_the_stop() -> None:
    """Retention that becomes due between the stop of the timers and the end changes no file."""
    disk, clock, timer = SimulatedDisk(), VirtualClock(), TimingWheel(0)
    logs = open_set(disk)
    log = logs.get_or_create(TopicPartition("a", 0), topic_id=TOPIC_ID, now_ms=NOW_MS)
    for _ in range(12):
        put(log)
    log.update_high_watermark(log.log_end_offset)
    failures: list[Exception] = []
    maintenance = Maintenance(
        ReplicaSet(1, logs),
        parse_broker_config(PROPERTIES),
        no_cleaning(),
        loop=loop_of(timer, clock),
        run_on_volume=lambda _volume, job, done: done(job(), None),
        on_failure=failures.append,
    )
    maintenance.start()
    maintenance.close()
    logs.shutdown(7)
    before = disk.list("a-0")
    clock.time_ms = HOUR_MS
    timer.advance(HOUR_MS)
    assert disk.list("a-0") == before
    assert not failures
    disk.kill()
    assert open_set(disk).directories[0].had_clean_shutdown


def test_07_readers_at_the_end_never_see_above_the_watermark() -> None:
    """Between appends, truncations and moves of the watermark: nothing above it, ever."""
    rng, log = Random(4), new_log()
    for _ in range(300):
        step = rng.random()
        if step < 0.6:
            put(log, rng.randrange(1, 4))
        elif step < 0.8:
            log.update_high_watermark(rng.randrange(log.high_watermark, log.log_end_offset + 1))
        elif log.log_end_offset > log.high_watermark:
            log.truncation.truncate_to(
                rng.randrange(log.high_watermark, log.log_end_offset), now_ms=NOW_MS
            )
            flush(log)
        offset = rng.randrange(log.high_watermark + 1)
        data = log.reads.read(
            offset, 2000, isolation=FetchIsolation.HIGH_WATERMARK, min_one_message=True
        )
        for batch in iterate_batches(memoryview(content(data.records)), partial_tail=True):
            assert batch.next_offset <= log.high_watermark


def test_08_an_index_that_grows_is_never_read_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each offset is found at once after each append, while the index gets its entries.

    Little of it is kept in memory, so that old offsets are looked up in what was read of the file.
    """
    monkeypatch.setattr(entry_index, "TAIL_ENTRIES", 32)
    monkeypatch.setattr(entry_index, "WRITE_GROUP_ENTRIES", 4)
    monkeypatch.setattr(entry_index, "PAGE_ENTRIES", 16)
    log = new_log(config=LogConfig(index_interval_bytes=1, segment_index_bytes=4000))
    for number in range(400):
        put(log)
        log.update_high_watermark(log.log_end_offset)
        oldest = min(5, number)  # not in the page that begins at the first entry
        for offset in (oldest, number // 2, max(oldest, number - 150), number):
            data = log.reads.read(
                offset, 1, isolation=FetchIsolation.HIGH_WATERMARK, min_one_message=True
            )
            first = next(iterate_batches(memoryview(content(data.records))))
            assert first.base_offset == offset


@pytest.mark.parametrize("block", range(4))
def test_09_a_power_cut_while_epochs_are_written_leaves_the_old_or_the_new_file(
    block: int,
) -> None:
    """At every call of the disk: the file is whole, and the cache agrees with the batches."""
    for count in range(block, 60, 4):
        disk = SimulatedDisk(count)
        log = new_log(disk)
        disk.crash_at(disk.calls + count)
        try:
            for epoch in range(6):
                log.assign_epoch(epoch)
                put(log, epoch=epoch)
                flush(log)
        except SimulatedCrash:
            pass
        disk.heal()
        disk.crash()
        if disk.exists("t-0/leader-epoch-checkpoint"):
            decode_leader_epochs(disk.read_file("t-0/leader-epoch-checkpoint"))
        found = new_log(disk, recovery_point=0)
        epochs = [entry.epoch for entry in found.leader_epochs.entries]
        assert epochs == sorted(set(epochs))
        assert all(
            entry.start_offset <= found.log_end_offset for entry in found.leader_epochs.entries
        )
        if found.log_end_offset:
            assert found.leader_epochs.latest_epoch >= found.log_end_offset - 1


def test_15_a_leader_that_never_wrote_is_known_after_a_restart() -> None:
    """Taking the lead notes the epoch in the log, not the first write (KAFKA-7415)."""
    disk = SimulatedDisk()
    log = new_log(disk)
    put(log, epoch=1)
    held = Partition(TopicPartition("t", 0), TOPIC_ID, log)
    held.replicas = held.isr = (1,)
    held.become_leader(1, 7)
    flush(log)
    log = new_log(disk)
    assert (log.latest_epoch, tuple(log.epoch_end_offset(1))) == (7, (1, 1))


def test_22_a_smaller_limit_does_not_hide_larger_older_batches() -> None:
    """max.message.bytes shrinks: what is stored is read, and taken from a leader (KAFKA-9617)."""
    disk = SimulatedDisk()
    log = new_log(disk)
    put(log, size=600)
    log.update_high_watermark(1)
    data = log.reads.read(0, 1 << 20, isolation=FetchIsolation.LOG_END)
    batch = content(data.records)
    close(log)
    small = LogConfig(segment_bytes=1000, max_message_bytes=200)
    log = new_log(disk, config=small, clean=True)
    with pytest.raises(KafkaError) as caught:
        put(log, size=600)
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
    assert content(log.reads.read(0, 1 << 20, isolation=FetchIsolation.LOG_END).records) == batch
    follower = new_log(config=small)
    assert follower.writes.append_as_follower(batch, leader_epoch=0, now_ms=NOW_MS) is not None
    assert follower.log_end_offset == 1


def test_43_another_incarnation_of_a_topic_starts_at_nothing() -> None:
    """Deleted and created again under one name: no record, epoch or producer is inherited."""
    disk = SimulatedDisk()
    logs = open_set(disk)
    partition = TopicPartition("a", 0)
    log = logs.get_or_create(partition, topic_id=TOPIC_ID, now_ms=NOW_MS)
    put(log, epoch=4)
    assert logs.delete(partition, now_ms=NOW_MS)
    other = type(TOPIC_ID)(b"fedcba9876543210")
    again = logs.get_or_create(partition, topic_id=other, now_ms=NOW_MS)
    assert (again.log_end_offset, again.leader_epochs.latest_epoch, again.topic_id) == (
        0,
        -1,
        other,
    )
    with pytest.raises(KafkaError):
        put(log)


def test_78_a_record_from_the_future_is_refused_and_holds_no_segment() -> None:
    """By default an hour ahead is the most, so that retention is late by an hour at the most."""
    config = LogConfig(segment_bytes=300, retention_ms=HOUR_MS)
    log = new_log(config=config)
    with pytest.raises(KafkaError) as caught:
        put(log, timestamp=NOW_MS + HOUR_MS + 1)
    assert caught.value.code is ErrorCode.INVALID_TIMESTAMP
    for _ in range(6):
        put(log, timestamp=NOW_MS + HOUR_MS)
    log.update_high_watermark(log.log_end_offset)
    logs = len(log.segments)
    assert logs > 1
    assert log.truncation.delete_old_segments(NOW_MS + HOUR_MS) == 0
    assert log.truncation.delete_old_segments(NOW_MS + 2 * HOUR_MS + 1) >= logs - 1


def test_82_an_offset_below_the_start_is_out_of_range_whatever_its_epoch() -> None:
    """Also when the fetcher's epoch would say that the logs diverge."""
    log = new_log(config=SMALL)
    for epoch in (0, 0, 3, 3, 3):
        put(log, epoch=epoch)
    log.update_high_watermark(5)
    log.truncation.delete_records_before(4)
    held = Partition(TopicPartition("t", 0), TOPIC_ID, log)
    held.replicas = held.isr = (1,)
    held.become_leader(1, 3)
    with pytest.raises(KafkaError) as caught:
        held.diverging_epoch(last_fetched_epoch=0, fetch_offset=1)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
