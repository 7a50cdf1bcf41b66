"""The short way of plain batches and the long way of all: the same answers, files and state."""

from __future__ import annotations

import errno
from random import Random
from typing import TYPE_CHECKING

import pytest

from ottla.errors import CorruptMessage, KafkaError, OttlaError
from ottla.records.batch import RecordBatch, TimestampType
from ottla.records.builder import encode_batch
from ottla.records.compression import Compression
from ottla.storage.log.config import LogConfig
from ottla.storage.log.plain_append import PlainAppends
from ottla.storage.segments.segment import Segment
from ottla.testing.disk import SimulatedDisk
from tests.storage.logs import NOW_MS, SMALL, new_log, put

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.storage.log.append_info import AppendInfo
    from ottla.storage.log.partition_log import PartitionLog

LAST = 0x7FFF_FFFF
APPEND_PLAIN = PlainAppends.append_plain
CONFIGS = {
    "plain": SMALL,
    "broker's time": LogConfig(message_timestamp_type="LogAppendTime"),
    "compacted": LogConfig(cleanup_policy=("compact",)),
    "lz4": LogConfig(compression_type="lz4"),
    "narrow": LogConfig(max_message_bytes=300, message_timestamp_after_max_ms=10),
    "no end of time": LogConfig(message_timestamp_after_max_ms=(1 << 63) - 1),
    "flushed": LogConfig(flush_messages=3),
}


def _wrong_offset(batch: bytearray, rng: Random) -> None:
    RecordBatch(batch).set_base_offset(rng.randrange(3))


def _wrong_flags(batch: bytearray, rng: Random) -> None:
    RecordBatch(batch).set_attributes(rng.choice((8, 16, 32, 5, 7, 64, -1)))


def _wrong_time(batch: bytearray, rng: Random) -> None:
    RecordBatch(batch).set_max_timestamp(TimestampType.CREATE_TIME, NOW_MS + rng.randrange(20))


def _wrong_byte(batch: bytearray, rng: Random) -> None:
    batch[rng.randrange(len(batch))] ^= 1 << rng.randrange(8)


def _wrong_byte_right_sum(batch: bytearray, rng: Random) -> None:
    batch[rng.randrange(21, len(batch))] ^= 1 << rng.randrange(8)
    view = RecordBatch(batch)
    view.set_attributes(view.attributes)


def _cut(batch: bytearray, rng: Random) -> None:
    del batch[rng.randrange(len(batch)) :]


def _twice(batch: bytearray, _rng: Random) -> None:
    batch[len(batch) :] = bytes(batch)


WRONGS: list[Callable[[bytearray, Random], None]] = [
    _wrong_offset,
    _wrong_flags,
    _wrong_time,
    _wrong_byte,
    _wrong_byte_right_sum,
    _cut,
    _twice,
]


class Producers:
    """Random batches, most of them right: some idempotent, compressed or large."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._next = {-1: -1, 1: LAST - 5, 2: 0}

    def batch(self) -> bytearray:
        """Return the next batch, wrong in one way now and then."""
        rng = self._rng
        producer = rng.choice(list(self._next))
        count = rng.choice((1, 1, 1, 2, 7))
        records = [
            (NOW_MS + rng.choice((0, 0, 0, 5, 20)), rng.choice((b"k", b"k", None)), bytes(40), ())
            for _ in range(count)
        ]
        sequence, epoch = self._next[producer], -1
        if producer > 0:
            self._next[producer] = (sequence + count) & LAST
            sequence = (sequence + rng.choice((0,) * 8 + (-1, 1))) & LAST
            epoch = rng.choice((5,) * 9 + (4,))
        batch = bytearray(
            encode_batch(
                records,
                producer_id=producer,
                producer_epoch=epoch,
                base_sequence=sequence,
                transactional=producer > 0 and rng.random() < 0.02,
                compression=Compression(rng.choice((0, 0, 0, 1, 2, 3, 4))),
            )
        )
        if rng.random() < 0.25:
            rng.choice(WRONGS)(batch, rng)
        return batch


def _files(disk: SimulatedDisk) -> dict[str, bytes]:
    return {name: disk.read_file(f"t-0/{name}") for name in disk.list("t-0")}


def _run(config: LogConfig, seed: int) -> tuple[list[object], object, dict[str, bytes]]:
    """Append some batches, with a failing disk at times; return all that can be seen."""
    rng, disk = Random(seed), SimulatedDisk()
    log, producers = new_log(disk, config=config), Producers(rng)
    overdue: list[int] = []
    log.on_flush_overdue = lambda one: overdue.append(one.log_end_offset)
    answers: list[object] = []
    for number in range(60):
        if rng.random() < 0.03:
            disk.fail(lambda call: call.kind == "append", errno.EMFILE, partial=False)
        try:
            view = memoryview(producers.batch())
            info = log.append_as_leader(view, leader_epoch=number // 30, now_ms=NOW_MS)
        except KafkaError as error:
            answers.append((error.code, str(error), getattr(error, "record_errors", None)))
        except OttlaError as error:
            answers.append((type(error), str(error)))
        else:
            answers.append((tuple(info), bytes(view)))
        disk.heal()
    return answers, (overdue, _state(log)), _files(disk)


def _state(log: PartitionLog) -> object:
    active, producers = log.segments.active, log.producer_state
    return (
        (log.log_end_offset, log.size_bytes, log.latest_epoch, log.failure),
        (active.size, active.max_timestamp, active.max_timestamp_offset, active.first_timestamp),
        (active.offset_index.count, active.time_index.count, len(log.segments)),
        (producers.end_offset, [entry.as_tuple() for entry in producers.producers.values()]),
    )


@pytest.mark.parametrize("name", CONFIGS)
def test_both_ways_are_equal(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Right, wrong, repeated, skipped and fenced batches on all kinds of topics."""
    taken = 0

    def counted(
        log: PlainAppends, view: memoryview, leader_epoch: int, now_ms: int
    ) -> AppendInfo | None:
        nonlocal taken
        info = APPEND_PLAIN(log, view, leader_epoch, now_ms)
        taken += info is not None
        return info

    for seed in range(12):
        monkeypatch.setattr(PlainAppends, "append_plain", counted)
        short = _run(CONFIGS[name], seed)
        monkeypatch.setattr(PlainAppends, "append_plain", lambda *_: None)
        assert short == _run(CONFIGS[name], seed)
    assert (taken > 10) is (name not in {"broker's time", "no end of time"})


def test_a_failed_write_leaves_the_batch_as_it_was() -> None:
    """Whoever tries again finds the client's bytes."""
    disk = SimulatedDisk()
    log = new_log(disk)
    put(log)
    batch = bytearray(encode_batch([(NOW_MS, b"k", b"v", ())]))
    before = bytes(batch)
    disk.fail(lambda call: call.kind == "append", errno.EMFILE, partial=False)
    with pytest.raises(KafkaError):
        log.append_plain(memoryview(batch), 3, NOW_MS)
    assert batch == before
    info = log.append_plain(memoryview(batch), 3, NOW_MS)
    assert info is not None
    assert info.first_offset == 1


def test_a_damaged_end_leaves_the_batch_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """What must be read before the write cannot be: nothing was done to the client's bytes."""
    log = new_log()
    put(log)

    def damaged(*_: object) -> None:
        raise CorruptMessage("noise")

    monkeypatch.setattr(Segment, "append", damaged)
    batch = bytearray(encode_batch([(NOW_MS, b"k", b"v", ())]))
    before = bytes(batch)
    with pytest.raises(CorruptMessage):
        log.append_plain(memoryview(batch), 3, NOW_MS)
    assert batch == before
