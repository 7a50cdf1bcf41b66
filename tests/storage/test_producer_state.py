"""Idempotence, transactions and their snapshots, rule by rule."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ottla.errors import CorruptMessage, ErrorCode, KafkaError
from ottla.records.batches import iterate_batches
from ottla.records.builder import encode_batch
from ottla.storage.log.append_info import FetchIsolation
from ottla.storage.log.config import LogConfig
from ottla.storage.producers.entry import BatchMetadata, ProducerEntry
from ottla.storage.producers.snapshot import decode_snapshot, encode_snapshot
from ottla.storage.producers.state import MAX_VERIFICATIONS
from ottla.testing.disk import SimulatedDisk
from ottla.types import FileSlice
from tests.storage.logs import NOW_MS, close, content, end, flush, new_log, put, send

if TYPE_CHECKING:
    from ottla.storage.log.append_info import AppendInfo
    from ottla.storage.log.partition_log import PartitionLog
    from ottla.storage.producers.append import Verification

LAST = 0x7FFF_FFFF


def code_of(call: object, *args: object, **kwargs: object) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        call(*args, **kwargs)  # type: ignore[operator] # any function of the helpers
    return caught.value.code


def test_the_last_five_batches_are_recognised() -> None:
    """A repeated batch gets its old offsets; the sixth one back is out of order."""
    log = new_log()
    infos = [send(log, 1, sequence, 2) for sequence in range(0, 14, 2)]
    for number, sequence in enumerate(range(0, 14, 2)):
        if number < 2:
            assert code_of(send, log, 1, sequence, 2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        else:
            again = send(log, 1, sequence, 2)
            assert again.is_duplicate
            assert again[:2] == infos[number][:2]
    assert log.log_end_offset == 14


@pytest.mark.parametrize(
    ("sequence", "epoch", "expected"),
    [
        (3, 5, None),
        (4, 5, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (0, 6, None),
        (1, 6, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (3, 4, ErrorCode.INVALID_PRODUCER_EPOCH),
    ],
)
def test_sequences_and_epochs(sequence: int, epoch: int, expected: ErrorCode | None) -> None:
    """After three records of epoch 5: what follows, what restarts, what is fenced."""
    log = new_log()
    send(log, 1, 0, 3, producer_epoch=5)
    if expected is None:
        assert send(log, 1, sequence, producer_epoch=epoch).first_offset == 3
    else:
        assert code_of(send, log, 1, sequence, producer_epoch=epoch) is expected
        assert log.log_end_offset == 3


def test_an_unknown_producer_may_begin_anywhere() -> None:
    """Without state any sequence is taken (KIP-360)."""
    assert send(new_log(), 1, 77).first_offset == 0


def test_sequences_wrap_at_two_to_the_31() -> None:
    """0 follows 2^31-1, also inside a batch, and its duplicate is known."""
    log = new_log()
    send(log, 1, LAST - 1, 4)
    assert log.producer_state.producers[1].last_sequence == 1
    assert send(log, 1, LAST - 1, 4).is_duplicate
    assert send(log, 1, 2).first_offset == 4


def test_an_open_transaction_holds_the_stable_offset() -> None:
    """The last stable offset waits for the marker and for its replication."""
    log = new_log()
    put(log)
    send(log, 1, 0, 2, transactional=True)
    put(log)
    log.update_high_watermark(4)
    assert log.last_stable_offset == 1
    end(log, 1, commit=True)
    assert log.last_stable_offset == 1
    log.update_high_watermark(5)
    assert log.last_stable_offset == 5


def test_aborted_transactions_are_named_to_readers() -> None:
    """A read_committed read names the aborted transactions that it touches, and only those."""
    log = new_log()
    send(log, 1, 0, transactional=True)
    send(log, 2, 0, transactional=True)
    end(log, 1, commit=False)
    end(log, 2, commit=True)
    put(log)
    send(log, 1, 1, transactional=True)
    end(log, 1, commit=False)
    log.update_high_watermark(log.log_end_offset)
    found = log.reads.read(0, 10_000, isolation=FetchIsolation.TXN_COMMITTED).aborted_transactions
    assert found is not None
    assert [(entry.producer_id, entry.first_offset, entry.last_offset) for entry in found] == [
        (1, 0, 2),
        (1, 5, 6),
    ]
    assert found[0].last_stable_offset == 1
    later = log.reads.read(4, 10_000, isolation=FetchIsolation.TXN_COMMITTED).aborted_transactions
    assert later is not None
    assert [entry.first_offset for entry in later] == [5]


def test_plain_records_inside_a_transaction_are_refused() -> None:
    """A producer with an open transaction may not send without one."""
    log = new_log()
    send(log, 1, 0, transactional=True)
    assert code_of(send, log, 1, 1) is ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize(
    ("version", "epoch", "expected"),
    [
        (0, 3, None),
        (0, 2, ErrorCode.INVALID_PRODUCER_EPOCH),
        (2, 4, None),
        (2, 3, ErrorCode.INVALID_PRODUCER_EPOCH),
    ],
)
def test_markers_carry_the_right_epoch(
    version: int, epoch: int, expected: ErrorCode | None
) -> None:
    """Before transactions v2 the same epoch ends a transaction, with it only a newer (KIP-890)."""
    log = new_log()
    send(log, 1, 0, producer_epoch=3, transactional=True)
    arguments = {"commit": True, "producer_epoch": epoch, "transaction_version": version}
    if expected is None:
        end(log, 1, **arguments)  # type: ignore[arg-type] # values of a table
        assert not log.producer_state.transactions.open
        end(log, 1, **arguments)  # type: ignore[arg-type] # a retry is written again
    else:
        assert code_of(end, log, 1, **arguments) is expected


def test_an_old_coordinator_is_fenced() -> None:
    """A marker of an older coordinator epoch is refused (KAFKA-9144)."""
    log = new_log()
    send(log, 1, 0, transactional=True)
    end(log, 1, commit=True, coordinator_epoch=5)
    found = code_of(end, log, 1, commit=True, coordinator_epoch=4)
    assert found is ErrorCode.TRANSACTION_COORDINATOR_FENCED


def test_transactions_begin_only_when_verified() -> None:
    """With verification on, the first batch needs the guard; later ones do not (KAFKA-14884)."""
    log = new_log(config=LogConfig(transaction_partition_verification_enable=True))
    assert code_of(send, log, 1, 0, transactional=True) is ErrorCode.INVALID_TXN_STATE
    guard = log.producer_state.start_verification(1, 0, 0, now_ms=NOW_MS, supports_epoch_bump=False)
    assert guard is not None
    batch = encode_batch(
        [(NOW_MS, None, b"v", ())],
        producer_id=1,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    log.writes.append_as_leader(
        memoryview(batch), leader_epoch=0, now_ms=NOW_MS, verification=guard
    )
    assert (
        log.producer_state.start_verification(1, 1, 0, now_ms=NOW_MS, supports_epoch_bump=False)
        is None
    )
    send(log, 1, 1, transactional=True)


def test_a_batch_whose_verification_failed_is_not_overtaken() -> None:
    """The second batch may not begin where the first was expected (KAFKA-14920)."""
    log = new_log(config=LogConfig(transaction_partition_verification_enable=True))
    log.producer_state.start_verification(1, 0, 0, now_ms=NOW_MS, supports_epoch_bump=False)
    guard = log.producer_state.start_verification(1, 1, 0, now_ms=NOW_MS, supports_epoch_bump=False)

    def begin(sequence: int) -> AppendInfo:
        batch = encode_batch(
            [(NOW_MS, None, b"v", ())],
            producer_id=1,
            producer_epoch=0,
            base_sequence=sequence,
            transactional=True,
        )
        return log.writes.append_as_leader(
            memoryview(batch), leader_epoch=0, now_ms=NOW_MS, verification=guard
        )

    assert code_of(begin, 1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert begin(0).first_offset == 0
    assert begin(1).first_offset == 1


def test_a_marker_keeps_its_producer_known() -> None:
    """The time of the last marker counts for the expiry of a producer (KAFKA-9144)."""
    log = new_log(config=LogConfig(producer_id_expiration_ms=1000))
    send(log, 1, 0, transactional=True, timestamp=NOW_MS - 900)
    end(log, 1, commit=True)
    log.producer_state.remove_expired(NOW_MS + 500)
    assert set(log.producer_state.producers) == {1}
    log.producer_state.remove_expired(NOW_MS + 1000)
    assert not log.producer_state.producers


def test_a_fenced_producer_is_refused_before_verification() -> None:
    """The coordinator is not even asked for an epoch that is over."""
    log = new_log()
    send(log, 1, 0, producer_epoch=3)
    found = code_of(
        log.producer_state.start_verification, 1, 0, 2, now_ms=1, supports_epoch_bump=False
    )
    assert found is ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize("clean", [True, False])
def test_producers_survive_a_restart(clean: bool) -> None:  # noqa: FBT001 - a parameter of the table
    """After a clean stop from the snapshot, after a crash from the batches: the same state."""
    disk = SimulatedDisk()
    log = new_log(disk)
    for number in range(12):
        send(log, 1, number * 2, 2)
    send(log, 2, 0, transactional=True)
    before = {key: value.as_tuple()[:5] for key, value in log.producer_state.producers.items()}
    if clean:
        close(log)
    log = new_log(disk, clean=clean)
    after = {key: value.as_tuple()[:5] for key, value in log.producer_state.producers.items()}
    assert after == before
    assert log.producer_state.transactions.open == [(24, 2)]
    assert send(log, 1, 22, 2).is_duplicate
    assert send(log, 1, 24, 2).first_offset == 25


def test_silent_producers_expire_but_open_transactions_do_not() -> None:
    """producer.id.expiration.ms frees memory, never a transaction."""
    log = new_log(config=LogConfig(producer_id_expiration_ms=1000))
    send(log, 1, 0)
    send(log, 2, 0, transactional=True)
    log.producer_state.remove_expired(NOW_MS + 1000)
    assert set(log.producer_state.producers) == {2}


def test_a_failed_transaction_index_freezes_the_stable_offset() -> None:
    """Records in, index not: no offset twice, nothing unfilterable shown, fenced (KAFKA-7866)."""
    disk = SimulatedDisk()
    log = new_log(disk)
    send(log, 1, 0, transactional=True)
    disk.fail(lambda call: call.path.endswith(".txnindex"))
    assert code_of(end, log, 1, commit=False) is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.log_end_offset == 2
    log.update_high_watermark(2)
    assert log.last_stable_offset == 0
    assert code_of(put, log) is ErrorCode.KAFKA_STORAGE_ERROR
    disk.heal()
    log = new_log(disk)
    log.update_high_watermark(2)
    assert log.last_stable_offset == 2
    found = log.reads.read(0, 1000, isolation=FetchIsolation.TXN_COMMITTED).aborted_transactions
    assert found is not None
    assert len(found) == 1


def aborted_first_offsets(log: PartitionLog, offset: int) -> list[int]:
    """Return where the aborted transactions begin that a read from an offset on names."""
    log.update_high_watermark(log.log_end_offset)
    found = log.reads.read(offset, 10_000, isolation=FetchIsolation.TXN_COMMITTED)
    assert found.aborted_transactions is not None
    return [entry.first_offset for entry in found.aborted_transactions]


def test_a_follower_that_gets_several_aborts_at_once_names_all_of_them() -> None:
    """Two of one producer in one fetch, before an open transaction of another one.

    Kafka's follower stores the open one's offset as the last stable offset of both aborts
    (ProducerStateManager.findNextIncompleteTxn skips all transactions of the producer): once it
    leads, readers of committed data get the second transaction's records.
    """
    leader, follower = new_log(), new_log()
    for sequence in range(2):
        send(leader, 1, sequence, transactional=True)
        end(leader, 1, commit=False)
    send(leader, 2, 0, transactional=True)
    sent = content(leader.reads.read(0, 10_000).records)
    follower.writes.append_as_follower(sent, leader_epoch=0, now_ms=NOW_MS)
    assert aborted_first_offsets(leader, 0) == [0, 2]
    assert aborted_first_offsets(follower, 0) == [0, 2]
    entries = follower.segments.active.transaction_index.entries()
    assert [entry.last_stable_offset for entry in entries] == [2, 4]


def test_an_abort_s_stable_offset_behind_its_marker_ends_no_search() -> None:
    """As Kafka's followers have stored it, whose files are taken over."""
    log = new_log()
    for sequence in range(2):
        send(log, 1, sequence, transactional=True)
        end(log, 1, commit=False)
    index = log.segments.active.transaction_index
    index.replace([entry._replace(last_stable_offset=4) for entry in index.entries()])
    assert aborted_first_offsets(log, 0) == [0, 2]


def test_a_read_names_the_aborted_transactions_of_what_it_returns() -> None:
    """Not those of the rest of the segment, of which each read would carry thousands."""
    log = new_log(config=LogConfig(segment_bytes=1 << 20))
    for sequence in range(400):
        send(log, 1, sequence, transactional=True)
        end(log, 1, commit=False)
    log.update_high_watermark(log.log_end_offset)
    for offset in (0, 300, 799):
        data = log.reads.read(offset, 1000, isolation=FetchIsolation.TXN_COMMITTED)
        assert isinstance(data.records, FileSlice)
        view = memoryview(data.records.read())
        returned = [batch.base_offset for batch in iterate_batches(view, partial_tail=True)]
        assert data.aborted_transactions is not None
        named = [entry.first_offset for entry in data.aborted_transactions]
        touched = {first - first % 2 for first in returned}
        assert touched <= set(named)
        assert len(named) <= len(returned) + 100  # an entry of the index each 4,096 bytes
    whole = log.reads.read(0, 1 << 20, isolation=FetchIsolation.TXN_COMMITTED)
    assert whole.aborted_transactions is not None
    assert len(whole.aborted_transactions) == 400


def test_verifications_are_bounded() -> None:
    """A client may name any number of producers; the first batch of the oldest is refused."""
    state = new_log().producer_state
    guards = [
        state.start_verification(producer_id, 0, 0, now_ms=NOW_MS, supports_epoch_bump=True)
        for producer_id in range(MAX_VERIFICATIONS + 5)
    ]
    assert len(state.verifications) == MAX_VERIFICATIONS
    assert state.verification(4) is None
    assert state.verification(5) is guards[5]
    assert state.verification(MAX_VERIFICATIONS + 4) is guards[-1]


def test_a_verification_under_way_is_not_forgotten() -> None:
    """Another producer makes room, or is refused for now: the coordinator is asked already."""
    state = new_log().producer_state

    def start(producer_id: int) -> Verification:
        guard = state.start_verification(producer_id, 0, 0, now_ms=NOW_MS, supports_epoch_bump=True)
        assert guard is not None
        return guard

    guards = [start(producer_id) for producer_id in range(MAX_VERIFICATIONS)]
    for guard in guards:
        guard.waiting += 1
    with pytest.raises(KafkaError) as refused:
        start(MAX_VERIFICATIONS)
    assert refused.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
    guards[7].waiting -= 1
    start(MAX_VERIFICATIONS)
    assert state.verification(7) is None
    assert state.verification(0) is guards[0]


def test_truncation_takes_producers_back() -> None:
    """After a truncation the state is that of the batches that are left (KAFKA-12153)."""
    disk = SimulatedDisk()
    log = new_log(disk)
    for number in range(10):
        send(log, 1, number)
        put(log)
    close(log)  # leaves a snapshot of the end, which is about to be cut
    log = new_log(disk, clean=True)
    log.truncation.truncate_to(8, now_ms=NOW_MS)
    flush(log)
    assert log.producer_state.producers[1].last_sequence == 3
    assert send(log, 1, 4).first_offset == 8
    send(log, 2, 0, transactional=True)
    log.truncation.truncate_to(9, now_ms=NOW_MS)
    flush(log)
    for _ in range(3):
        put(log)
    log.update_high_watermark(12)
    assert log.last_stable_offset == 12


def test_snapshots_are_kept_with_their_segments() -> None:
    """One snapshot a roll, removed with the segment's deletion."""
    log = new_log()
    for number in range(40):
        send(log, 1, number)
        put(log)
    flush(log)
    bases = log.segments.base_offsets
    assert log.producer_state.snapshots == bases[1:]
    log.update_high_watermark(log.log_end_offset)
    log.truncation.delete_records_before(bases[3])
    log.truncation.delete_old_segments(NOW_MS)
    assert log.producer_state.snapshots == bases[3:]


def test_a_snapshot_round_trips_and_lies_are_found() -> None:
    """Encoding keeps the last batch of each producer; any changed byte is noticed."""
    entries = [
        ProducerEntry(7, producer_epoch=2, last_timestamp=9, batches=(BatchMetadata(5, 10, 3, 9),)),
        ProducerEntry(8, producer_epoch=0, coordinator_epoch=4, transaction_first_offset=3),
    ]
    data = encode_snapshot(entries)
    assert len(data) == 10 + 2 * 46
    assert len(encode_snapshot([])) == 10
    assert [entry.as_tuple() for entry in decode_snapshot(data)] == [
        entry.as_tuple() for entry in entries
    ]
    for position in range(len(data)):
        broken = bytearray(data)
        broken[position] ^= 0xFF
        with pytest.raises(CorruptMessage):
            decode_snapshot(bytes(broken))
        with pytest.raises(CorruptMessage):
            decode_snapshot(data[:position])


def test_a_broken_snapshot_is_skipped() -> None:
    """The one before it is taken and the rest replayed."""
    disk = SimulatedDisk()
    log = new_log(disk)
    for number in range(30):
        send(log, 1, number)
        put(log)
    close(log)
    newest = log.producer_state.snapshots[-1]
    disk.open(log.producer_state.snapshot_path(newest)).write_at(8, b"\xff")
    log = new_log(disk, clean=True)
    assert log.producer_state.producers[1].last_sequence == 29


def test_the_oldest_open_transaction_may_be_late() -> None:
    """By the time of its producer's last batch; nothing is late once it is ended."""
    log = new_log()
    state = log.producer_state
    assert not state.has_transaction_since_before(NOW_MS + 1)
    send(log, 1, 0, transactional=True)
    assert not state.has_transaction_since_before(NOW_MS)
    assert state.has_transaction_since_before(NOW_MS + 1)
    end(log, 1, commit=True)
    assert not state.has_transaction_since_before(NOW_MS + 1)
