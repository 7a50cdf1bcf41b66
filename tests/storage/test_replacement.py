"""Segments that are replaced by others: what readers, crashes and truncations find."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import ottla
from ottla.errors import KafkaError
from ottla.storage.batches import whole_batches
from ottla.storage.layout import CLEANED_SUFFIX
from ottla.storage.segments.segment import Segment
from ottla.testing.disk import SimulatedCrash, SimulatedDisk
from ottla.types import FileSlice
from tests.storage.logs import NOW_MS, SMALL, flush, new_log, put, send

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.storage.log.partition_log import PartitionLog

COMPACT = SMALL.__class__(segment_bytes=1000, index_interval_bytes=150, cleanup_policy=("compact",))


def written(disk: SimulatedDisk) -> PartitionLog:
    """Return a log of some durable segments."""
    log = new_log(disk, config=COMPACT)
    for number in range(20):
        put(log)
        send(log, 1, number)
    log.update_high_watermark(log.log_end_offset)
    flush(log)
    return log


def cleaned(log: PartitionLog, old: Sequence[Segment]) -> Segment:
    """Write a segment of every second batch of others, as a cleaner does."""
    new = Segment.create(
        log.directory,
        log.name,
        old[0].base_offset,
        config=log.config,
        now_ms=NOW_MS,
        suffix=CLEANED_SUFFIX,
    )
    for segment in old:
        data = memoryview(segment.file.read(0, segment.size))
        for number, batch in enumerate(whole_batches(data)):
            if number % 2 == 0:
                one = data[batch.position : batch.position + batch.size]
                places = ((batch.last_offset, batch.max_timestamp, batch.size),)
                new.append((one,), batch.size, places)
    new.become_inactive()
    files: list[object] = []
    new.pin_for_sync(files, is_active=False)  # type: ignore[arg-type] # files of the log
    for file in files:
        file.sync()  # type: ignore[attr-defined] # as above
        file.unpin()  # type: ignore[attr-defined] # as above
    return new


def offsets_of(log: PartitionLog) -> list[int]:
    """Return the base offsets of all batches."""
    return [
        header.base_offset
        for segment in log.segments
        for header in whole_batches(memoryview(segment.file.read(0, segment.size)))
    ]


def replace(log: PartitionLog, new: Sequence[Segment] = ()) -> bool:
    """Replace the first three segments by one."""
    old = log.segments.ordered[:3]
    new = new or [cleaned(log, old)]
    return log.replace_segments(old, new, generation=log.generation, now_ms=NOW_MS)


def test_readers_see_the_new_segment() -> None:
    """The old files are renamed and go later; sizes, snapshots and indexes are right."""
    disk = SimulatedDisk()
    log = written(disk)
    before = offsets_of(log)
    found = log.reads.read(0, 10_000).records
    bases = log.segments.base_offsets
    assert replace(log)
    kept = offsets_of(log)
    assert 0 < len(kept) < len(before)
    assert log.segments.base_offsets == [bases[0], *bases[3:]]
    assert log.size_bytes == sum(segment.size for segment in log.segments)
    assert not {*bases[1:3]} & {*log.producer_state.snapshots}
    assert log.reads.read(bases[2], 1000).records
    assert isinstance(found, FileSlice)
    assert found.file.read(found.position, found.size), "a read in flight"
    assert len(log.take_removable(NOW_MS + COMPACT.file_delete_delay_ms)) == 3
    flush(log)
    disk.crash()
    again = new_log(disk, config=COMPACT, recovery_point=log.recovery_point)
    assert offsets_of(again) == kept


def test_a_crash_leaves_the_old_segments_or_the_new_ones() -> None:
    """At every call, when the process ends and when the power fails."""
    for power in (False, True):
        for number in range(1, 200):
            disk = SimulatedDisk(number)
            log = written(disk)
            end, before = log.log_end_offset, offsets_of(log)
            log.directory.sync("t-0")
            old = log.segments.ordered[:3]
            new = cleaned(log, old)
            after = [header.base_offset for header in whole_batches(new.file.read(0, new.size))]
            after += [one for one in before if one >= log.segments.base_offsets[3]]
            disk.crash_at(disk.calls + number)
            try:
                replace(log, [new])
                flush(log)
            except SimulatedCrash:
                disk.crash() if power else disk.kill()
                again = new_log(disk, config=COMPACT, recovery_point=end)
                assert offsets_of(again) in (before, after), (power, number)
            else:
                break
        else:
            pytest.fail("it never ended")


def test_a_truncation_ends_a_replacement() -> None:
    """The worker read what is gone; its files are removed."""
    disk = SimulatedDisk()
    log = written(disk)
    old = log.segments.ordered[:3]
    new, generation = [cleaned(log, old)], log.generation
    target = old[1].base_offset
    log.truncation.truncate_to(target, now_ms=NOW_MS)
    for _ in range(2):
        assert not log.replace_segments(old, new, generation=generation, now_ms=NOW_MS)
        assert not [name for name in disk.list("t-0") if name.endswith((".cleaned", ".swap"))]
        flush(log)
    assert log.log_end_offset == target


def test_a_paused_log_keeps_its_segments() -> None:
    """Those of retention, too; each purpose ends its own pause."""
    log = written(SimulatedDisk())
    log.pause("move")
    log.pause("deletion")
    log.resume("move")
    assert not replace(log)
    log.truncation.delete_records_before(-1)
    assert log.truncation.delete_old_segments(NOW_MS) == 0
    log.resume("deletion")
    assert replace(log)
    assert log.truncation.delete_old_segments(NOW_MS) > 0


def test_a_disk_that_fails_fences_the_log() -> None:
    """The next start finds out which names are durable."""
    disk = SimulatedDisk()
    log = written(disk)
    disk.fail(lambda call: call.kind == "rename")
    with pytest.raises(KafkaError, match="replacing segments of t-0"):
        replace(log)
    assert log.failure is not None


def assigned_attributes(tree: ast.AST) -> list[ast.Attribute]:
    """Return the attributes that statements assign to."""
    targets: list[ast.expr] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            targets += node.targets
        elif isinstance(node, ast.AnnAssign | ast.AugAssign):
            targets.append(node.target)
    return [
        one
        for target in targets
        for one in (target.elts if isinstance(target, ast.Tuple) else [target])
        if isinstance(one, ast.Attribute)
    ]


def test_no_other_module_assigns_to_a_log() -> None:
    """`PartitionLog`'s state is changed by its methods: names of logs are log, future and so on."""
    source = Path(ottla.__file__).parent
    own = source / "storage/log/partition_log.py"
    names = {
        one.attr
        for one in assigned_attributes(ast.parse(own.read_text("utf-8")))
        if isinstance(one.value, ast.Name) and one.value.id in ("self", "log")
    }
    assert {"log_end_offset", "recovery_point", "segments"} <= names
    logs = {"log", "log_of", "_log", "future", "current", "old", "new"}
    used = re.compile(rf"\b({'|'.join(logs)})\.({'|'.join(names)})\b")
    found = [
        f"{path.relative_to(source)}:{one.lineno} {ast.unparse(one)}"
        for path in source.rglob("*.py")
        if path != own
        for text in [path.read_text("utf-8")]
        if used.search(text)  # to parse all of them takes two seconds
        for one in assigned_attributes(ast.parse(text))
        if one.attr in names and getattr(one.value, "id", getattr(one.value, "attr", None)) in logs
    ]
    assert found == []
