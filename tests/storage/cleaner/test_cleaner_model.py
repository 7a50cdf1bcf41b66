"""Random logs of all kinds of batches, cleaned again and again, against a list of their records."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from bisect import bisect_left
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

import ottla
from ottla.records.builder import encode_batch
from ottla.records.compression import Compression
from ottla.records.control import encode_end_txn_marker
from ottla.records.validator import AppendOrigin
from ottla.storage.cleaner import cleaner, key_scan, offset_map
from ottla.storage.cleaner.cleaner import CleanerLimits
from ottla.testing.disk import SimulatedDisk
from tests.records.plain import PLAIN_SCAN
from tests.soaks import with_soaks
from tests.storage.cleaner.cleaning import COMPACT, CleanerBed, batches_of, last_records, records_of
from tests.storage.logs import NOW_MS
from tests.storage.sets import A, make, open_set

if TYPE_CHECKING:
    from ottla.records.record import Record
    from ottla.storage.log.partition_log import PartitionLog

PRODUCERS = 4
RETENTION_MS = COMPACT.delete_retention_ms


def plain_modules() -> dict[str, Any]:
    """Load the inner loops uncompiled, each on top of the ones before."""
    names = (
        "records.scan",
        "records.lz4_frames",
        "storage.cleaner.offset_map",
        "storage.cleaner.key_scan",
    )
    compiled = {name: importlib.import_module(f"ottla.{name}") for name in names}
    source = Path(ottla.__file__).parent
    loaded: dict[str, Any] = {"records.scan": PLAIN_SCAN}
    try:
        for name in names:
            if name not in loaded:
                path = source / f"{name.replace('.', '/')}.py"
                spec = importlib.util.spec_from_file_location(f"plain_{name}", path)
                assert spec is not None
                assert spec.loader is not None
                loaded[name] = importlib.util.module_from_spec(spec)
                spec.loader.exec_module(loaded[name])
            _put(name, loaded[name])
    finally:
        for name, module in compiled.items():
            _put(name, module)
    return loaded


def _put(name: str, module: Any) -> None:
    """Let later imports find a module by this name."""
    package, _, last = name.rpartition(".")
    sys.modules[f"ottla.{name}"] = module
    setattr(sys.modules[f"ottla.{package}"], last, module)


_PLAIN = plain_modules()
PLAIN = _PLAIN["storage.cleaner.key_scan"]
PLAIN_MAP = _PLAIN["storage.cleaner.offset_map"]


@dataclass
class Model:
    """Every record that was appended, and what became of its transaction."""

    records: dict[int, Record] = field(default_factory=dict)
    aborted: set[int] = field(default_factory=set)
    open_offsets: dict[int, list[int]] = field(default_factory=dict)
    sequences: dict[int, int] = field(default_factory=dict)
    first_copied_ms: dict[int, int] = field(default_factory=dict)
    """By offset of a tombstone: when a cleaning may first have copied it."""
    first_cleaned_ms: dict[int, int] = field(default_factory=dict)
    """And when one certainly has."""

    def latest(self, end_offset: int) -> dict[bytes, int]:
        """Return the last offset of each key below an offset, aborted records left out."""
        return {
            record.key: offset
            for offset, record in sorted(self.records.items())
            if offset < end_offset and offset not in self.aborted and record.key is not None
        }


class Script:
    """Appends at random."""

    def __init__(self, log: PartitionLog, rng: Random) -> None:
        self.log = log
        self.rng = rng
        self.model = Model()
        self.now_ms = NOW_MS

    def step(self) -> None:
        """Append one batch or marker, and replicate most of it."""
        rng = self.rng
        self.now_ms += rng.choice([0, 0, 1, 200])
        kind = rng.random()
        producer_id = rng.randrange(PRODUCERS)
        if kind < 0.35:
            self._append(-1)
        elif kind < 0.55 and producer_id not in self.model.open_offsets:
            self._append(producer_id)
        elif kind < 0.8:
            self._append(producer_id, transactional=True)
        elif producer_id in self.model.open_offsets:
            self._end(producer_id)
        if rng.random() < 0.9:
            self.log.update_high_watermark(self.log.log_end_offset)

    def _append(self, producer_id: int, *, transactional: bool = False) -> None:
        rng, model = self.rng, self.model
        rows = [
            (
                self.now_ms - rng.choice([0, 0, 5]),
                b"k%d" % rng.randrange(8),
                None if rng.random() < 0.15 else bytes(rng.choice([0, 3, 40])),
                [("h", b"x")] if rng.random() < 0.1 else [],
            )
            for _ in range(rng.choice([1, 1, 2, 5]))
        ]
        sequence = model.sequences.get(producer_id, 0) if producer_id >= 0 else -1
        batch = encode_batch(
            rows,
            compression=rng.choice([*Compression, *[Compression.NONE] * 5]),
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=sequence,
            transactional=transactional,
        )
        first = self.log.log_end_offset
        self.log.writes.append_as_leader(memoryview(batch), leader_epoch=0, now_ms=self.now_ms)
        if producer_id >= 0:
            model.sequences[producer_id] = sequence + len(rows)
        for record in last_records(self.log):
            model.records[record.offset] = record
        if transactional:
            model.open_offsets.setdefault(producer_id, []).extend(range(first, first + len(rows)))

    def _end(self, producer_id: int) -> None:
        commit = self.rng.random() < 0.5
        offsets = self.model.open_offsets.pop(producer_id)
        if not commit:
            self.model.aborted.update(offsets)
        marker = encode_end_txn_marker(
            commit=commit,
            coordinator_epoch=0,
            producer_id=producer_id,
            producer_epoch=0,
            timestamp=self.now_ms,
        )
        self.log.writes.append_as_leader(
            memoryview(marker),
            leader_epoch=0,
            now_ms=self.now_ms,
            origin=AppendOrigin.COORDINATOR,
        )


def check(script: Script, before: list[Record], end_offset: int, bound: int) -> None:
    """Compare what is left with the model; the log is clean below end_offset."""
    model, log, now_ms = script.model, script.log, script.now_ms
    left = {record.offset: record for record in records_of(log)}
    latest = model.latest(end_offset)
    for record in before:
        offset = record.offset
        assert left.get(offset, record) == record == model.records[offset]
        if record.value is None and offset < bound and offset in left:
            model.first_copied_ms.setdefault(offset, now_ms)
            if offset < end_offset:
                model.first_cleaned_ms.setdefault(offset, now_ms)
        if offset in model.aborted:
            assert offset not in left or offset >= end_offset
            assert offset in left or offset < bound
        elif offset >= end_offset:
            assert offset in left, "above what was cleaned"
        elif latest[record.key] != offset:  # type: ignore[index] # all have keys
            assert offset not in left
        elif record.value is not None:
            assert offset in left, "the last value of its key"
        else:
            due_ms = now_ms - RETENTION_MS
            if model.first_copied_ms.get(offset, now_ms) > due_ms:
                assert offset in left, "a new tombstone"
            if model.first_cleaned_ms.get(offset, now_ms) <= due_ms:
                assert offset not in left, "an old tombstone"
    assert left.keys() <= {record.offset for record in before}


def check_readers(script: Script) -> None:
    """Every offset leads to the next batch, and the aborted ones are told."""
    log, model = script.log, script.model
    batches = batches_of(log)
    ends = [batch.last_offset for batch in batches]
    assert ends == sorted(set(ends))
    for offset in range(log.log_start_offset, log.high_watermark):
        place = bisect_left(ends, offset)
        expected = batches[place] if place < len(batches) else None
        number = log.segments.number_for(offset)
        found = None
        while found is None and number < len(log.segments):
            found = log.segments[number].batch_at(offset)
            number += 1
        assert (found and found.base_offset) == (expected and expected.base_offset)
    listed = {
        (entry.producer_id, offset)
        for segment in log.segments
        for entry in segment.transaction_index.entries()
        for offset in range(entry.first_offset, entry.last_offset)
    }
    for batch in batches:
        if batch.is_transactional and not batch.is_control:
            for record in batch.records():
                if record.offset in model.aborted:
                    assert (batch.producer_id, record.offset) in listed


def check_producers(disk: SimulatedDisk, script: Script) -> None:
    """Compare: a log that lost its snapshots finds each producer's sequence in the batches."""
    for name in disk.list("a-0"):
        if name.endswith(".snapshot"):
            disk.remove(f"a-0/{name}")
    again = open_set(disk, config=COMPACT)
    log = again.get(A)
    assert log is not None
    found = {key: one.last_sequence + 1 for key, one in log.producer_state.producers.items()}
    assert found == script.model.sequences
    assert records_of(log) == records_of(script.log)


@pytest.mark.parametrize(
    ("seed", "scan"),
    [
        *with_soaks([(seed, key_scan) for seed in range(12)], count=2),
        *with_soaks((seed, PLAIN) for seed in range(12, 15)),
    ],
)
def test_random_logs_against_a_list(seed: int, scan: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What must stay stays, what must go goes, and producers keep their sequences."""
    monkeypatch.setattr(cleaner, "KeyScan", scan.KeyScan)
    maps = offset_map if scan is key_scan else PLAIN_MAP
    monkeypatch.setattr(cleaner, "OffsetMap", maps.OffsetMap)
    rng = Random(seed)
    disk = SimulatedDisk(seed)
    limits = CleanerLimits(rng.choice([48, 120, 1 << 16]), 0.9, rng.choice([100, 700, 1 << 16]))
    bed = CleanerBed(open_set(disk, config=COMPACT), limits)
    monkeypatch.setattr(cleaner, "SMALLEST_BUFFER_BYTES", 0)
    script = Script(make(bed.logs), rng)
    for _ in range(6):
        for _ in range(rng.randrange(60)):
            script.step()
        bed.make_durable(script.now_ms)
        for _ in range(20):
            before = records_of(script.log)
            one = bed.choose(script.now_ms)
            if one is None:
                break
            bed.run(one, script.now_ms)
            bound = one.candidate.first_uncleanable
            check(script, before, one.end_offset, bound)
            check_readers(script)
            bed.make_durable(script.now_ms)
        script.now_ms += rng.choice([0, 10, 2 * RETENTION_MS])
    bed.logs.shutdown()
    check_producers(disk, script)
