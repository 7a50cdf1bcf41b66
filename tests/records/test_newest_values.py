"""The newest value of each key, as installed (compiled if possible) and uncompiled."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from random import Random
from typing import Any

import pytest

import ottla
from ottla.records import newest_values
from ottla.records.batches import iterate_batches
from ottla.records.builder import encode_batch
from ottla.records.compression import Compression
from tests.records.plain import PLAIN_SCAN


def _uncompiled() -> Any:
    path = Path(ottla.__file__).parent / "records" / "newest_values.py"
    spec = importlib.util.spec_from_file_location("plain_newest_values", path)
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.cursor_over = PLAIN_SCAN.cursor_over
    module.scan = PLAIN_SCAN
    return module


BOTH = pytest.mark.parametrize("module", [newest_values, _uncompiled()])


def _batches(rng: Random, count: int) -> bytes:
    made, offset = b"", 0
    for _ in range(count):
        entries = [
            (
                1,
                rng.choice([None, b"", b"a", b"bc", b"def"]),
                rng.choice([None, b"", rng.randbytes(3)]),
                rng.choice([(), ((b"h", b"v"),)]),
            )
            for _ in range(rng.randrange(1, 5))
        ]
        made += encode_batch(entries, base_offset=offset)
        offset += len(entries) + rng.choice([0, 0, 3])
    return made


def _expected(data: bytes, first: int, end: int) -> dict[bytes, tuple[int, bytes | None]]:
    found: dict[bytes, tuple[int, bytes | None]] = {}
    for batch in iterate_batches(data):
        for one in batch.records() if batch.base_offset < end else ():
            if one.key is not None and one.offset >= first:
                found.pop(one.key, None)
                found[one.key] = (one.offset, one.value)
    return found


@BOTH
@pytest.mark.parametrize("seed", range(10))
def test_walks_leave_what_compaction_would_leave(module: Any, seed: int) -> None:
    """In several walks, from an offset within a batch to one before the end."""
    rng = Random(seed)  # repeatable
    data = _batches(rng, 30)
    first, end = rng.randrange(5), rng.randrange(20, 60)
    newest: dict[bytes, tuple[int, bytes | None]] = {}
    position, offset, count = 0, first, 1
    while count:
        walk = module.collect_newest(newest, data, position, offset, end, 3)
        assert not walk.is_unusual
        position, offset, count = walk.position, walk.next_offset, walk.record_count
    expected = _expected(data, first, end)
    assert newest == expected
    assert list(newest) == list(expected)


@BOTH
def test_a_walk_stops_at_what_is_not_ordinary(module: Any) -> None:
    """Batches of transactions, compressed ones and damaged ones; one that is cut is none."""
    plain = bytes(encode_batch([(1, b"a", b"1", ())]))
    transactional = encode_batch(
        [(1, b"b", b"2", ())], producer_id=1, producer_epoch=0, transactional=True
    )
    compressed = encode_batch([(1, b"b", bytes(100), ())], compression=Compression.GZIP)
    damaged = plain[:-1] + b"x"
    tiny = plain[:8] + bytes(4) + plain[12:]
    for other in (transactional, compressed, damaged, tiny):
        newest: dict[bytes, tuple[int, bytes | None]] = {}
        walk = module.collect_newest(newest, plain + bytes(other), 0, 0, 9, 100)
        assert (walk.position, walk.record_count, walk.is_unusual) == (len(plain), 1, True)
        assert newest == {b"a": (0, b"1")}
    for size in (1, 30, len(plain) - 1):
        walk = module.collect_newest({}, plain + plain[:size], 0, 0, 9, 100)
        assert (walk.position, walk.is_unusual) == (len(plain), False)
