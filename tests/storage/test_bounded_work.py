"""Work that must not grow with the size of a batch, a segment or a log in one turn of the loop."""

from __future__ import annotations

import tracemalloc
from random import Random

from ottla.records.builder import encode_batch
from ottla.records.compression import Compression
from ottla.storage.batches import whole_batches
from ottla.storage.indexes.transaction_index import AbortedTransaction, TransactionIndex
from ottla.storage.log.config import LogConfig
from ottla.storage.log.inspection import inspect_log
from ottla.storage.log_set.retention_check import MAX_SEGMENTS_DELETED, RetentionCheck
from ottla.testing.disk import SimulatedDisk
from ottla.types import TopicPartition
from tests.storage.logs import NOW_MS, new_log, put
from tests.storage.sets import make, open_set

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
    first = next(index.entries_from(10 * 1234 + 6))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert first == aborted[1235]
    assert peak < 100 * RECORDS
    assert index.entries() == aborted
