"""Work that must not grow with the size of a batch, a segment or a log in one turn of the loop."""

from __future__ import annotations

import tracemalloc
from random import Random
from typing import TYPE_CHECKING

from ottla.records.builder import encode_batch
from ottla.records.compression import Compression
from ottla.storage.batches import whole_batches
from ottla.storage.cleaner.candidates import candidate_of
from ottla.storage.cleaner.cleaner import Cleaner, CleanerLimits
from ottla.storage.indexes.transaction_index import AbortedTransaction, TransactionIndex
from ottla.storage.log.config import LogConfig
from ottla.storage.log.inspection import inspect_log
from ottla.storage.log_set.retention_check import MAX_SEGMENTS_DELETED, RetentionCheck
from ottla.testing.disk import SimulatedDisk
from ottla.types import TopicPartition
from tests.storage.logs import NOW_MS, new_log, put
from tests.storage.sets import make, open_set

if TYPE_CHECKING:
    import pytest

RECORDS = 50_000


def test_a_search_by_time_makes_no_object_of_each_record() -> None:
    """A batch of 1 MiB may hold millions of records, which took the loop for seconds."""
    log = new_log(config=LogConfig())
    values = [(NOW_MS + number // 100, None, b"", ()) for number in range(RECORDS)]
    batch = encode_batch(values, compression=Compression.ZSTD)
    log.writes.append_as_follower(batch, leader_epoch=0, now_ms=NOW_MS)
    for number in (0, RECORDS // 2, RECORDS - 1):
        tracemalloc.start()
        found = log.reads.offset_for_timestamp(NOW_MS + number // 100)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert found is not None
        assert found[:2] == (NOW_MS + number // 100, number // 100 * 100)
        assert peak < 20 * RECORDS


def test_retention_deletes_a_limited_number_of_segments_in_a_slice() -> None:
    """Each takes several calls of the file system; the rest is deleted in the next slices."""
    logs = open_set(SimulatedDisk(), config=LogConfig(segment_bytes=200, retention_ms=1))
    log = make(logs, TopicPartition("t", 0))
    count = 2 * MAX_SEGMENTS_DELETED + 5
    for _ in range(count):
        put(log)
    log.update_high_watermark(log.log_end_offset)
    assert len(log.segments) == count
    check = RetentionCheck(logs)
    deleted = []
    is_unfinished = True
    while is_unfinished:
        before = check.deleted
        is_unfinished = check.step(NOW_MS + 10, None, 1)
        deleted.append(check.deleted - before)
    assert deleted == [MAX_SEGMENTS_DELETED, MAX_SEGMENTS_DELETED, 5]
    assert log.log_start_offset == log.log_end_offset == count


def reads_of_a_slice(count: int) -> int:
    """Return how often the first slice reads, of a log with expired segments after a start."""
    disk, config = SimulatedDisk(), LogConfig(segment_bytes=200, retention_ms=1)
    logs = open_set(disk, config=config)
    log = make(logs, TopicPartition("t", 0))
    for _ in range(count):
        put(log)
    logs.shutdown()
    logs = open_set(disk, config=config)
    log = make(logs, TopicPartition("t", 0))
    log.update_high_watermark(log.log_end_offset)
    check = RetentionCheck(logs)
    before = disk.reads
    assert check.step(NOW_MS + 10, None, 1)
    assert check.deleted == MAX_SEGMENTS_DELETED
    return disk.reads - before


def test_a_retention_slice_reads_no_segment_that_it_leaves() -> None:
    """The age of an old segment is on the disk only, and a log may have thousands of them."""
    assert reads_of_a_slice(4 * MAX_SEGMENTS_DELETED) == reads_of_a_slice(2 * MAX_SEGMENTS_DELETED)


def test_the_search_for_batches_after_damage_reads_the_log_once() -> None:
    """Random bytes look like the header of a long batch often enough to read it all each time."""
    disk = SimulatedDisk()
    log = new_log(disk, config=LogConfig())
    rng = Random(1)
    for _ in range(20):
        batch = encode_batch([(NOW_MS, None, rng.randbytes(50_000), ())])
        log.writes.append_as_leader(memoryview(batch), leader_epoch=0, now_ms=NOW_MS)
    path = "t-0/00000000000000000000.log"
    data = disk.read_file(path)
    disk.open(path).write_at(whole_batches(data)[1].position + 100, b"damage")
    read_bytes = 0

    def count(kind: str, _path: str, size: int) -> None:
        nonlocal read_bytes
        read_bytes += size if kind == "read" else 0

    disk.on_call = count
    found = inspect_log(disk, "t-0", may_have_gaps=False)
    assert found.damage is not None
    assert (found.damage.offset, found.damage.following_batches) == (1, 18)
    assert read_bytes < 4 * len(data)


def test_a_transaction_index_decodes_the_requested_entries_only() -> None:
    """A segment may hold the aborts of 100,000 producers, and a fetch needs few of them."""
    disk = SimulatedDisk()
    index = TransactionIndex(disk, "0.txnindex")
    aborted = [AbortedTransaction(7, 10 * one, 10 * one + 5, 10 * one) for one in range(RECORDS)]
    index.replace(aborted)
    index = TransactionIndex(disk, "0.txnindex")
    tracemalloc.start()
    found = index.overlapping(10 * 1234 + 6, 10 * 1236)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found == [aborted[1235]]
    assert peak < 100 * RECORDS
    assert index.entries() == aborted


def test_a_copied_transaction_index_has_the_entries_of_its_time() -> None:
    """A worker decodes it while the loop appends to the other one."""
    index = TransactionIndex(SimulatedDisk(), "0.txnindex")
    first, second = AbortedTransaction(7, 1, 5, 1), AbortedTransaction(7, 6, 9, 6)
    index.append(first)
    copy = index.copied()
    index.append(second)
    assert (copy.entries(), index.entries()) == ([first], [first, second])


def test_a_cleaning_and_a_truncation_decode_no_aborted_transactions_on_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An active segment may have 100,000: that took the loop 0.1 s."""
    disk = SimulatedDisk()
    logs = open_set(disk, config=LogConfig(cleanup_policy=("compact",), segment_bytes=200))
    log = make(logs, TopicPartition("t", 0))
    for _ in range(5):
        put(log)
    log.segments.active.transaction_index.append(AbortedTransaction(7, 1, 3, 1))

    def decoded(_index: TransactionIndex) -> list[AbortedTransaction]:
        raise AssertionError

    monkeypatch.setattr(TransactionIndex, "entries", decoded)
    candidate = candidate_of(log, None, log.log_end_offset, NOW_MS)
    Cleaner(candidate, CleanerLimits(1 << 20, 0.9, 1 << 16), now_ms=NOW_MS, seed=1)
    assert log.segments.active.find_cut(log.log_end_offset - 1) is not None
