"""The replacement of closed segments by others, and its completion after a crash.

A worker writes the new segments with the suffix `.cleaned` and syncs them. The replacement renames
them to `.swap`, marks the old segments as deleted and removes the suffix. After a crash the log has
the old segments or the new ones: `.cleaned` files are removed and `.swap` files are completed.
Producer snapshots stay: the records that they count may be compacted away (KAFKA-12520).

Kafka: LocalLog.replaceSegments, LogLoader.removeTempFilesAndCollectSwapFiles.
"""

from __future__ import annotations

import re
from contextlib import closing
from typing import TYPE_CHECKING, Final

from ottla.storage.batches import walk_file
from ottla.storage.directory import join
from ottla.storage.layout import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TEMPORARY_SUFFIX,
    Folder,
    file_names,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.storage.directory import Directory
    from ottla.storage.log.partition_log import PartitionLog
    from ottla.storage.segments.segment import Segment

_LOG_SWAP_SUFFIX = LOG_SUFFIX + SWAP_SUFFIX
_SEGMENT_FILE: Final = re.compile(r"[0-9]{20}\.[a-z]+(\.[a-z]+)?")
_LEFTOVER: Final = file_names(Folder.PARTITION, DELETED_SUFFIX, CLEANED_SUFFIX, TEMPORARY_SUFFIX)
_SWAP: Final = file_names(Folder.PARTITION, SWAP_SUFFIX)
"""By their whole names: nothing else in the directory is a log's to remove or rename."""


def replace_segments(
    log: PartitionLog, old: Sequence[Segment], new: Sequence[Segment], now_ms: int
) -> None:
    """Put new segments in the place of old ones; OSError leaves the log to be recovered.

    The new ones are renamed from the last to the first: while one has the suffix `.cleaned`, a
    start removes all after it.
    """
    for segment in sorted(new, key=lambda one: -one.base_offset):
        segment.change_suffix(SWAP_SUFFIX)
    log.retire_segments(old, now_ms, kept_snapshots={segment.base_offset for segment in new})
    for segment in new:
        segment.change_suffix("")


def finish_swaps(directory: Directory, subdirectory: str, names: list[str]) -> list[str]:
    """Restore the state before or after the compaction; return the remaining names."""
    leftovers = {name for name in names if _LEFTOVER.fullmatch(name)}
    found_swaps = {name for name in names if _SWAP.fullmatch(name)}
    if not leftovers and not found_swaps:
        return names
    cleaned = [_offset_of(name) for name in leftovers if name.endswith(CLEANED_SUFFIX)]
    undone_from = min(cleaned, default=None)
    kept = []
    for name in names:
        undone = name in found_swaps and undone_from is not None and _offset_of(name) >= undone_from
        if undone or name in leftovers:
            directory.remove(join(subdirectory, name))
        else:
            kept.append(name)
    swaps = [name for name in kept if name in found_swaps]
    if not swaps:
        return kept
    first, end = _replaced_range(directory, subdirectory, swaps)
    for name in kept:
        offset = _offset_of(name)
        is_kept = name in found_swaps or name.endswith(SNAPSHOT_SUFFIX)
        if not is_kept and first <= offset < end:
            directory.remove(join(subdirectory, name))
    for name in swaps:
        directory.rename(join(subdirectory, name), join(subdirectory, name[: -len(SWAP_SUFFIX)]))
    return directory.list(subdirectory)


def _replaced_range(directory: Directory, subdirectory: str, swaps: list[str]) -> tuple[int, int]:
    """Return the offsets from which and up to which the swap segments replace others."""
    first, end = 1 << 63, -1
    for name in swaps:
        if not name.endswith(_LOG_SWAP_SUFFIX):
            continue
        offset = _offset_of(name)
        next_offset = offset
        with closing(directory.open(join(subdirectory, name))) as file:
            for header in walk_file(file, 0, file.size()):
                next_offset = header.last_offset + 1
        first, end = min(first, offset), max(end, next_offset)
    return first, end


def _offset_of(name: str) -> int:
    """Return the base offset in a segment file's name, -1 for every other file."""
    return int(name[:20]) if _SEGMENT_FILE.fullmatch(name) else -1
