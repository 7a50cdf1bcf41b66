"""The inner loops of compaction, compiled and uncompiled: hashes, the map, lz4, damaged bytes."""

from __future__ import annotations

from contextlib import suppress
from random import Random
from typing import Any

import pytest

from ottla.errors import CorruptMessage
from ottla.records.batch import RecordBatch
from ottla.records.builder import assemble_batch, encode_batch
from ottla.records.compression import Compression, compress, decompress
from ottla.storage.cleaner import key_scan, offset_map
from tests.records.plain import PLAIN_SCAN
from tests.storage.cleaner.test_cleaner_model import PLAIN, PLAIN_MAP

NOW_MS = 1_700_000_000_000
SCANS = pytest.mark.parametrize("scan", [key_scan, PLAIN], ids=["installed", "plain"])


def test_the_hash_is_siphash() -> None:
    """The reference's vectors for 128 bits: key 00…0f, messages of 0, 1, 8 and 15 bytes."""
    seed = int.from_bytes(bytes(range(16)), "little")
    one = PLAIN_MAP.OffsetMap(1000, 0.9, seed)
    expected = {
        0: "a3817f04ba25a8e66df67214c7550293",
        1: "da87c1d86b99af44347659119b22fc45",
        8: "3b62a9ba6258f5610f83e264f31497b4",
        15: "5493e99933b0a8117e08ec0f97cfc3d9",
    }
    for size, text in expected.items():
        cursor = PLAIN_SCAN.cursor_over(bytes(range(size)), 0, size)
        one.hash(cursor, 0, size)
        found = one.low.to_bytes(8, "little") + one.high.to_bytes(8, "little")
        assert found.hex() == text, size


@pytest.mark.parametrize("maps", [offset_map, PLAIN_MAP], ids=["installed", "plain"])
def test_a_map_holds_the_last_offsets_up_to_its_limit(maps: Any) -> None:
    """Known keys may change when it is full, new ones may not come."""
    one = maps.OffsetMap(24 * 10, 0.5, 7)
    keys = [b"%d" % number * (number + 1) for number in range(6)]
    assert [one.note(key, number) for number, key in enumerate(keys)] == [True] * 5 + [False]
    assert one.note(keys[2], 77)
    assert [one.offset_of(key) for key in keys] == [0, 1, 77, 3, 4, -1]
    assert one.utilization == 0.5
    assert maps.OffsetMap(0, 2.0, 7).limit == 1


def _filtered(scan: Any, batch: bytes) -> tuple[int, Any]:
    """Filter one batch with an empty map that is behind it; return why it stopped, and the scan."""
    maps = offset_map if scan is key_scan else PLAIN_MAP
    one = scan.KeyScan(maps.OffsetMap(1000, 0.9, 1), now_ms=NOW_MS, horizon_ms=NOW_MS + 1)
    one.make_room(len(batch))
    return one.filter_batches(memoryview(batch), 0, len(batch)), one


def _payloads(rng: Random) -> list[bytes]:
    return [
        b"",
        b"a",
        bytes(100_000),
        rng.randbytes(100_000),
        b"".join(rng.choice([b"abcd", b"xyz", b"0123456789"]) for _ in range(20_000)),
        rng.randbytes(20) * 9 + bytes(70_000) + rng.randbytes(70_000),
    ]


@SCANS
def test_lz4_is_read_as_elsewhere(scan: Any) -> None:
    """Records of all kinds of bytes, at all levels; a batch of which some go is plain in `out`."""
    rng = Random(1)
    for payload in _payloads(rng) if scan is key_scan else _payloads(rng)[-1:]:
        for level in (1, 9, 12):
            rows = [(NOW_MS, b"k", payload, ()), (NOW_MS + 5, b"gone", None, ())]
            batch = bytes(encode_batch(rows, compression=Compression.LZ4, level=level))
            reason, one = _filtered(scan, batch)
            assert (reason, one.kept) == (scan.PARTIAL, 2), "the tombstone gets a horizon"
            one.copy_plain(2, NOW_MS)
            again = assemble_batch(
                compress(Compression.LZ4, bytes(one.out[: one.filled])),
                attributes=Compression.LZ4 | 0x40,
                record_count=2,
                last_offset_delta=1,
                base_timestamp=NOW_MS + 1,
                max_timestamp=NOW_MS + 5,
            )
            assert RecordBatch(again).records() == RecordBatch(batch).records()


@pytest.mark.parametrize("seed", range(8))
def test_damaged_lz4_is_refused_or_read_as_elsewhere(seed: int) -> None:
    """With a right checksum, as a client may send it: never a byte outside of the buffers."""
    rng = Random(seed)
    records = bytes(encode_batch([(NOW_MS, b"k%d" % n, b"v" * n, ()) for n in range(80)])[61:])
    frame = bytearray(compress(Compression.LZ4, records))
    for _ in range(300):
        broken = bytearray(frame)
        for _ in range(rng.choice([1, 1, 3])):
            broken[rng.randrange(4, len(broken))] = rng.randrange(256)
        del broken[rng.choice([len(broken), len(broken), rng.randrange(len(broken))]) :]
        batch = bytes(
            assemble_batch(
                broken,
                attributes=Compression.LZ4,
                record_count=80,
                last_offset_delta=79,
                base_timestamp=NOW_MS,
                max_timestamp=NOW_MS,
            )
        )
        reason, one = _filtered(key_scan, batch)
        assert reason != key_scan.WHOLE or one.kept == 80
        if reason == key_scan.WHOLE:
            with suppress(CorruptMessage):  # the frame's own checksums are not looked at
                plain = bytes(decompress(Compression.LZ4, memoryview(broken)))
                assert bytes(one.frames.plain[: len(plain)]) == plain


@SCANS
@pytest.mark.parametrize("seed", range(4))
def test_damaged_records_are_refused(scan: Any, seed: int) -> None:
    """With a right checksum: the walk says so or reads whole records, and reads nothing else."""
    rng = Random(seed)
    good = bytes(encode_batch([(NOW_MS, b"key", b"value", ((b"h", b"x"),))] * 20))
    for _ in range(200 if scan is key_scan else 20):
        payload = bytearray(good[61:])
        for _ in range(rng.choice([1, 2, 8])):
            payload[rng.randrange(len(payload))] = rng.randrange(256)
        batch = bytes(
            assemble_batch(
                payload,
                attributes=0,
                record_count=rng.choice([20, 20, 20, 0, -1, 1 << 30]),
                last_offset_delta=19,
                base_timestamp=NOW_MS,
                max_timestamp=NOW_MS,
            )
        )
        reason, one = _filtered(scan, batch)
        assert reason in (scan.WHOLE, scan.DAMAGED)
        one.index_batches(memoryview(batch), 0, len(batch), 0)


@SCANS
def test_damaged_headers_end_the_walk(scan: Any) -> None:
    """A wrong checksum, a length that is none or goes too far."""
    good = bytes(encode_batch([(NOW_MS, b"key", b"value", ())]))
    for position, byte, expected in (
        (70, 1, scan.DAMAGED),
        (17, good[17] ^ 1, scan.DAMAGED),
        (8, 0x80, scan.DAMAGED),
        (8, 0x40, scan.WHOLE),
        (16, 3, scan.UNUSUAL),
        (16, 1, scan.UNUSUAL),
    ):
        batch = bytearray(good)
        batch[position] = byte
        reason, one = _filtered(scan, bytes(batch))
        assert (reason, one.position, one.filled) == (expected, 0, 0)
