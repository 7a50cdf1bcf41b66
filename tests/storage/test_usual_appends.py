"""Usual appends change a producer's entry in place; the careful way gives the same for all others.

Two logs get the same attempts, wrong ones among them. One of them may not take the quick way: the
answers, producers, open transactions, verifications, indexes, snapshots and bytes stay equal.

Run more with OTTLA_HISTORIES=20000; a failure names its seed.
"""

from __future__ import annotations

import os
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from ottla.errors import KafkaError
from ottla.records.builder import encode_batch
from ottla.records.control import encode_end_txn_marker
from ottla.records.validator import AppendOrigin
from ottla.replication.log_copy import append_copied
from ottla.storage.log import writes
from ottla.storage.log.config import LogConfig
from ottla.storage.producers.append import EndTransactionMarker
from tests.soaks import with_soaks
from tests.storage.logs import NOW_MS, content, flush, new_log

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.storage.log.partition_log import PartitionLog

HISTORIES = int(os.environ.get("OTTLA_HISTORIES", "120"))
PRODUCERS = range(1, 5)
OF_COORDINATOR = 4
"""The producer whose offsets a group coordinator writes: its batches have no sequences."""


class _Attempts:
    """Random batches and markers of some producers: most are right, some are not."""

    def __init__(self, rng: Random, log: PartitionLog) -> None:
        """Take the log whose state says what would be right."""
        self._rng = rng
        self._log = log
        self._leader_epoch = 0

    def next(self) -> Callable[[PartitionLog], Any]:
        """Return something to do with a log, by which it changes in the same way each time."""
        rng = self._rng
        kind = rng.random()
        if kind < 0.03:
            self._leader_epoch += 1
        if kind < 0.08:
            return _roll
        if kind < 0.13:
            return flush
        if kind < 0.2:
            offset = rng.randint(self._log.high_watermark, self._log.log_end_offset)
            return lambda log: log.update_high_watermark(offset)
        return self._marker() if kind < 0.45 else self._batch()

    def _wrong(self, right: int) -> int:
        """Return a number that is most often right."""
        return right if self._rng.random() < 0.85 else right + self._rng.choice((-2, -1, 1, 5))

    def _marker(self) -> Callable[[PartitionLog], Any]:
        rng, producer_id = self._rng, self._rng.choice(PRODUCERS)
        entry = self._log.producer_state.producers.get(producer_id)
        version = rng.choice((-1, 0, 1, 2))
        epoch = max(0, self._wrong(0 if entry is None else entry.producer_epoch + (version == 2)))
        coordinator = max(0, self._wrong(max(0, entry.coordinator_epoch) if entry else 0))
        is_commit, time, leader_epoch = rng.random() < 0.5, rng.randint(-9, 9), self._leader_epoch
        known = EndTransactionMarker(not is_commit, coordinator) if rng.random() < 0.5 else None
        data = encode_end_txn_marker(
            commit=is_commit,
            coordinator_epoch=coordinator,
            producer_id=producer_id,
            producer_epoch=epoch,
            timestamp=NOW_MS + time,
        )
        return lambda log: log.writes.append_as_leader(
            memoryview(bytearray(data)),
            leader_epoch,
            NOW_MS,
            AppendOrigin.COORDINATOR,
            transaction_version=version,
            marker=known,
        )

    def _batch(self) -> Callable[[PartitionLog], Any]:
        rng, producer_id = self._rng, self._rng.choice(PRODUCERS)
        entry = self._log.producer_state.producers.get(producer_id)
        known = 0 if entry is None else entry.producer_epoch
        epoch = max(0, self._wrong(known))
        right = 0 if entry is None or epoch != known else entry.last_sequence + 1
        sequence, count = max(0, self._wrong(right)), rng.randint(1, 3)
        is_open = entry is not None and entry.in_transaction
        is_coordinator = producer_id == OF_COORDINATOR
        is_transactional = (is_open or rng.random() < 0.7) ^ (rng.random() < 0.05) | is_coordinator
        is_verified, leader_epoch = rng.random() < 0.8, self._leader_epoch
        supports_epoch_bump = rng.random() < 0.5
        data = encode_batch(
            [(NOW_MS + rng.randint(-9, 9), b"k", b"v" * rng.randint(1, 60), ())] * count,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=-1 if is_coordinator else sequence,
            transactional=is_transactional,
        )

        def append(log: PartitionLog) -> Any:
            guard = None
            if is_transactional and is_verified:
                guard = log.producer_state.start_verification(
                    producer_id,
                    sequence,
                    epoch,
                    now_ms=NOW_MS,
                    supports_epoch_bump=supports_epoch_bump,
                )
            return log.writes.append_as_leader(
                memoryview(bytearray(data)),
                leader_epoch,
                NOW_MS,
                AppendOrigin.COORDINATOR if is_coordinator else AppendOrigin.CLIENT,
                verification=guard,
            )

        return append


def _roll(log: PartitionLog) -> None:
    if log.segments.active.size:
        log.roll(NOW_MS)


def _outcome(attempt: Callable[[PartitionLog], Any], log: PartitionLog) -> object:
    try:
        return attempt(log)
    except KafkaError as error:
        return error.code, str(error)


def _state(log: PartitionLog) -> list[object]:
    """Return everything that an append changes."""
    state = log.producer_state
    snapshots = state.unflushed_snapshots
    return [
        {key: entry.as_tuple() for key, entry in state.producers.items()},
        state.transactions.open,
        state.transactions.unreplicated,
        {
            key: (one.lowest_sequence, one.producer_epoch, one.supports_epoch_bump)
            for key, one in state.verifications.items()
        },
        log.first_unstable_offset,
        log.log_end_offset,
        log.last_stable_offset,
        [(one.epoch, one.start_offset) for one in log.leader_epochs.entries],
        [list(segment.transaction_index.entries()) for segment in log.segments],
        {offset: [one.as_tuple() for one in snapshots[offset] or ()] for offset in snapshots},
        state.snapshots,
    ]


def _bytes(log: PartitionLog) -> bytes:
    data = b""
    for segment in log.segments:
        if segment.size:
            data += content(log.reads.read(segment.base_offset, segment.size).records)
    return data


def _without_the_quick_way(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(writes, "_usual_producer", lambda *_: None)
    patch.setattr(writes, "_usual_batches", lambda *_: None)


def _replay(seed: int) -> None:
    """Run one history."""
    rng = Random(seed)
    config = LogConfig(
        segment_bytes=2000,
        index_interval_bytes=150,
        segment_index_bytes=4000,
        transaction_partition_verification_enable=rng.random() < 0.5,
    )
    quick, careful = new_log(config=config), new_log(config=config)
    attempts = _Attempts(rng, quick)
    with pytest.MonkeyPatch.context() as patch:
        for _ in range(rng.randint(10, 80)):
            attempt = attempts.next()
            outcome = _outcome(attempt, quick)
            with patch.context() as inner:
                _without_the_quick_way(inner)
                assert outcome == _outcome(attempt, careful), seed
            assert _state(quick) == _state(careful), seed
    data = _bytes(quick)
    assert data == _bytes(careful), seed
    _follow(rng, quick, config, seed)


def _follow(rng: Random, leader: PartitionLog, config: LogConfig, seed: int) -> None:
    """Let two followers copy a log in equal random chunks."""
    quick, careful = new_log(config=config), new_log(config=config)
    while quick.log_end_offset < leader.log_end_offset:
        size = rng.choice((1, 300, 1000, 1900))
        chunk = content(leader.reads.read(quick.log_end_offset, size).records)
        append_copied(quick, chunk, leader_epoch=1 << 30, now_ms=NOW_MS)
        with pytest.MonkeyPatch.context() as patch:
            _without_the_quick_way(patch)
            append_copied(careful, chunk, leader_epoch=1 << 30, now_ms=NOW_MS)
        assert _state(quick) == _state(careful), seed
        if rng.random() < 0.3:
            for log in (quick, careful):
                flush(log)
        high_watermark = rng.randint(quick.high_watermark, quick.log_end_offset)
        for log in (quick, careful):
            log.update_high_watermark(high_watermark)
    assert _bytes(quick) == _bytes(careful) == _bytes(leader), seed


@pytest.mark.parametrize("group", with_soaks(range(4)))
def test_both_ways_give_the_same(group: int) -> None:
    """Random histories of a leader and two followers."""
    for seed in range(group, HISTORIES, 4):
        _replay(seed)


def test_usual_transactions_take_the_quick_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """No second validation of the batches and markers of a known producer, on followers either."""
    log, follower = new_log(), new_log()

    def transact(sequence: int, *, is_commit: bool) -> None:
        for batch in range(2):
            data = encode_batch(
                [(NOW_MS, b"k", b"v", ())],
                producer_id=1,
                producer_epoch=0,
                base_sequence=sequence + batch,
                transactional=True,
            )
            log.writes.append_as_leader(memoryview(data), 0, NOW_MS)
        marker = encode_end_txn_marker(
            commit=is_commit, coordinator_epoch=0, producer_id=1, producer_epoch=0, timestamp=NOW_MS
        )
        log.writes.append_as_leader(memoryview(marker), 0, NOW_MS, AppendOrigin.COORDINATOR)
        sent = content(log.reads.read(follower.log_end_offset, 10_000).records)
        append_copied(follower, sent, leader_epoch=0, now_ms=NOW_MS)

    transact(0, is_commit=True)
    monkeypatch.setattr(writes, "validate_producers", None)
    transact(2, is_commit=True)
    transact(4, is_commit=False)
    assert follower.producer_state.transactions.unreplicated == [(0, 2), (3, 5), (6, 8)]
    assert _state(follower)[:3] == _state(log)[:3]
