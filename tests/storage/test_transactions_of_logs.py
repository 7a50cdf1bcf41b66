"""Open transactions, aborts and their order: in memory, in snapshots and in transaction indexes."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from ottla.storage.indexes.transaction_index import AbortedTransaction, TransactionIndex
from ottla.storage.log.append_info import FetchIsolation
from ottla.storage.log.config import LogConfig
from ottla.storage.producers.snapshot import decode_snapshot
from ottla.storage.producers.transactions import SortedMap
from ottla.testing.disk import SimulatedDisk
from tests.storage.histories import committed_reads
from tests.storage.logs import NOW_MS, close, content, end, flush, new_log, send

if TYPE_CHECKING:
    from ottla.storage.log.partition_log import PartitionLog

FINE = LogConfig(segment_bytes=1 << 20, index_interval_bytes=150)
INDEX = "t-0/00000000000000000000.txnindex"


def copy_at_once(leader: PartitionLog, disk: SimulatedDisk | None = None) -> PartitionLog:
    """Return a follower that got all of a leader's batches with one fetch."""
    follower = new_log(disk, config=leader.config)
    sent = content(leader.reads.read(0, 1 << 20).records)
    follower.writes.append_as_follower(sent, leader_epoch=0, now_ms=NOW_MS)
    return follower


def long_transaction(disk: SimulatedDisk | None = None) -> PartitionLog:
    """Return a log in which producer 1 aborts while 2, open for longer, is not; 1 begins again."""
    log = new_log(disk, config=FINE)
    send(log, 1, 0, transactional=True)  # 0
    send(log, 2, 0, transactional=True)  # 1
    for number in range(20):  # 2-21
        send(log, 3, number, transactional=True)
    end(log, 3, commit=True)  # 22
    end(log, 1, commit=False)  # 23
    send(log, 1, 1, transactional=True)  # 24
    return log


def finish(log: PartitionLog) -> None:
    """Abort the transactions of `long_transaction`, and let all of it be replicated."""
    end(log, 2, commit=False)
    end(log, 1, commit=False)
    log.update_high_watermark(log.log_end_offset)


def test_a_sorted_map_is_sorted_whatever_the_order_of_changes() -> None:
    """The same random changes as to a dict give its keys in order, and its values."""
    rng = Random(1)
    found: SortedMap[int] = SortedMap()
    expected: dict[int, int] = {}
    for number in range(5000):
        key = rng.randrange(400)
        if key not in expected or rng.random() < 0.4:
            found[key] = expected[key] = number
        elif rng.random() < 0.9:
            del found[key], expected[key]
        else:
            removed = rng.sample(sorted(expected), min(len(expected), rng.choice((3, 100))))
            found.remove(removed)
            for one in removed:
                del expected[one]
        ordered = sorted(expected)
        assert [(one, found[one]) for one in found] == [(one, expected[one]) for one in ordered]
        assert (len(found), found.first_key()) == (len(expected), next(iter(ordered), None))
        first_other = next((one for one in ordered if one != key), None)
        assert found.first_key(other_than=key) == first_other
        assert (key in found) == (key in expected)


def test_a_follower_that_gets_many_transactions_at_once_knows_the_first_open_one() -> None:
    """A commits and begins again after B began: B's first record is the first unstable one."""
    leader = new_log()
    send(leader, 1, 0, transactional=True)
    send(leader, 2, 0, transactional=True)
    end(leader, 1, commit=True)
    send(leader, 1, 1, transactional=True)
    follower = copy_at_once(leader)
    for log in (leader, follower):
        log.update_high_watermark(log.log_end_offset)
        assert log.last_stable_offset == 1
        assert log.producer_state.transactions.open == [(1, 2), (3, 1)]


def test_a_follower_indexes_aborts_as_its_leader() -> None:
    """The last stable offset at an abort, where the readers' search ends."""
    leader = long_transaction()
    follower = copy_at_once(leader)
    for log in (leader, follower):
        finish(log)
        assert committed_reads(log, 0, 300) == set(range(2, 22))
    found = follower.segments.active.transaction_index.entries()
    assert found == leader.segments.active.transaction_index.entries()
    assert found[0] == (1, 0, 23, 1)


def test_last_stable_offsets_that_are_too_high_are_corrected_at_start(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Also where the older transaction is still open; what is right is not written again."""
    disk = SimulatedDisk()
    log = long_transaction(disk)
    index = log.segments.active.transaction_index
    assert index.entries() == [(1, 0, 23, 1)]
    index.replace([AbortedTransaction(1, 0, 23, 24)])
    close(log)
    log = new_log(disk, config=FINE, clean=True, recovery_point=log.recovery_point)
    assert [one.msg for one in caplog.records if "too high" in one.msg]
    finish(log)
    assert log.segments.active.transaction_index.entries()[0] == (1, 0, 23, 1)
    assert committed_reads(log, 0, 300) == set(range(2, 22))
    close(log)
    written = disk.read_file(INDEX)
    caplog.clear()
    disk.on_call = lambda kind, path, _size: _refuse_writes(kind, path)
    log = new_log(disk, config=FINE, clean=True, recovery_point=log.recovery_point)
    assert not caplog.records
    assert disk.read_file(INDEX) == written


def _refuse_writes(kind: str, path: str) -> None:
    assert kind == "read" or not path.endswith(".txnindex"), (kind, path)


@pytest.mark.parametrize(
    "wrong",
    [
        [(1, 0, 23, 1), (2, 1, 25, 24), (1, 20, 26, 27)],  # begins before its last one ended
        [(2, 1, 25, 24), (1, 0, 23, 1), (1, 24, 26, 27)],
        [(1, 0, 23, 1), (1, 0, 23, 1)],
    ],
)
def test_an_index_that_contradicts_itself_is_rebuilt_at_start(
    wrong: list[tuple[int, int, int, int]],
) -> None:
    """From the segment's records, after a clean stop too."""
    disk = SimulatedDisk()
    log = long_transaction(disk)
    finish(log)
    index = log.segments.active.transaction_index
    right = index.entries()
    index.replace([AbortedTransaction(*one) for one in wrong])
    close(log)
    log = new_log(disk, config=FINE, clean=True, recovery_point=log.recovery_point)
    assert log.segments.active.transaction_index.entries() == right


def test_a_snapshot_that_waits_for_its_flush_is_not_changed_by_a_rebuild() -> None:
    """The state rebuilt after a truncation begins with the snapshot's entries, and copies them."""
    disk = SimulatedDisk()
    log = new_log(disk)
    send(log, 1, 0, 2)
    close(log)
    log = new_log(disk, clean=True, recovery_point=2)
    send(log, 1, 2, 2)
    log.roll(NOW_MS)
    for sequence in (4, 6, 8):
        send(log, 1, sequence, 2)
    log.truncation.truncate_to(8, now_ms=NOW_MS)
    flush(log)
    (entry,) = decode_snapshot(disk.read_file("t-0/00000000000000000004.snapshot"))
    assert (entry.last_sequence, entry.last_data_offset) == (3, 3)
    log.truncation.truncate_to(4, now_ms=NOW_MS)
    flush(log)
    assert not send(log, 1, 4, 2).is_duplicate


def test_a_truncation_below_a_loaded_snapshot_shows_no_decided_transaction() -> None:
    """Its marker, which was not replicated, is cut; until the flush readers must not pass it."""
    disk = SimulatedDisk()
    log = new_log(disk)
    send(log, 1, 0, transactional=True)
    for sequence in range(3):
        send(log, 2, sequence)
    end(log, 1, commit=False)
    close(log)
    log = new_log(disk, clean=True, recovery_point=5)
    log.update_high_watermark(3)
    log.truncation.truncate_to(4, now_ms=NOW_MS)
    assert log.last_stable_offset == 0
    flush(log)
    assert log.last_stable_offset == 0


@pytest.mark.parametrize("is_opened_again", [False, True])
def test_a_search_for_aborts_decodes_what_it_returns(
    monkeypatch: pytest.MonkeyPatch,
    is_opened_again: bool,  # noqa: FBT001 - a parameter of the table
) -> None:
    """However many transactions were aborted while one long one was open."""
    disk = SimulatedDisk()
    index = TransactionIndex(disk, "0.txnindex")
    aborted = [AbortedTransaction(1, 2 * at + 1, 2 * at + 2, 0) for at in range(20_000)]
    aborted.append(AbortedTransaction(9, 0, 50_000, 50_001))
    index.replace(aborted)
    if is_opened_again:
        index = TransactionIndex(disk, "0.txnindex")
        assert index.is_consistent(0)
    index.overlapping(0, 1)
    decoded: list[object] = []
    original = TransactionIndex._decoded

    def count(self: TransactionIndex, fields: tuple[int, ...]) -> AbortedTransaction:
        decoded.append(fields)
        return original(self, fields)

    monkeypatch.setattr(TransactionIndex, "_decoded", count)
    for offset in (1, 20_001, 39_000):
        decoded.clear()
        found = index.overlapping(offset, offset + 60)
        expected = [one for one in aborted if one[2] >= offset and one[1] < offset + 60]
        assert found == expected
        assert len(decoded) == len(found)


def test_a_search_for_aborts_agrees_with_a_scan() -> None:
    """In random indexes of many segments, with appends, truncations and released content."""
    rng = Random(7)
    for _ in range(30):
        index = TransactionIndex(SimulatedDisk(), "0.txnindex")
        entries: list[AbortedTransaction] = []
        marker = 0
        for _ in range(rng.randint(1, 400)):
            marker += rng.randint(1, 4)
            first = rng.randint(max(0, marker - rng.choice((5, 1000))), marker)
            entries.append(AbortedTransaction(rng.randint(1, 9), first, marker, first))
            index.append(entries[-1])
            if rng.random() < 0.02:
                cut = rng.randint(0, marker)
                index.truncate_to(cut)
                entries = [one for one in entries if one.last_offset < cut]
            if rng.random() < 0.05:
                index.release()
            offset, limit = rng.randint(0, marker), rng.randint(0, marker + 5)
            expected = [
                one for one in entries if one.last_offset >= offset and one.first_offset < limit
            ]
            assert index.overlapping(offset, limit) == expected


def test_aborts_in_later_segments_are_found() -> None:
    """A transaction that began in this segment may be aborted many segments later."""
    log = new_log(config=LogConfig(segment_bytes=400, index_interval_bytes=100))
    send(log, 9, 0, transactional=True)
    for number in range(30):
        send(log, 1, number, transactional=True)
        end(log, 1, commit=number % 2 == 0)
    end(log, 9, commit=False)
    log.update_high_watermark(log.log_end_offset)
    assert len(log.segments) > 5
    found = log.reads.read(0, 1, isolation=FetchIsolation.TXN_COMMITTED).aborted_transactions
    assert [one.producer_id for one in found or ()] == [9]
