"""Truncates a damaged log at its first damage, on an operator's request; no node may run.

Kafka: none.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from ottla.storage.directories.checkpoints import encode_offsets
from ottla.storage.directory import join
from ottla.storage.layout import (
    CLEAN_MARKER,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_CHECKPOINT,
    LOG_SUFFIX,
    RECOVERY_POINT_CHECKPOINT,
    SEGMENT_SUFFIXES,
    SNAPSHOT_SUFFIX,
    base_offset_of,
)

if TYPE_CHECKING:
    from ottla.storage.directories.log_dir import LogDirectory
    from ottla.storage.directory import Directory
    from ottla.storage.log.inspection import LogInspection
    from ottla.types import TopicPartition


def lower_checkpoints(log_dir: LogDirectory, partition: TopicPartition, offset: int) -> None:
    """Let no checkpoint of the directory exceed offset for the partition; durable on return.

    The marker of a clean shutdown is removed: the next start must recover the log.
    """
    directory = log_dir.directory
    for name in (RECOVERY_POINT_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT, LOG_START_CHECKPOINT):
        offsets = log_dir.read_offsets(name)
        if offsets.get(partition, 0) > offset:
            offsets[partition] = offset
            directory.write_file_atomically(name, encode_offsets(offsets))
    if directory.exists(CLEAN_MARKER):
        directory.remove(CLEAN_MARKER)
        directory.sync()


def truncate_log(directory: Directory, subdirectory: str, found: LogInspection) -> None:
    """Remove everything from the first damage on; durable on return.

    Lower the checkpoints first: bytes written there later are not flushed ones.
    """
    damage = found.damage
    if damage is None:
        return
    damaged = int(damage.path.rpartition("/")[2].partition(".")[0])
    for name in reversed(directory.list(subdirectory)):
        stem, dot, suffix = name.partition(".")
        if base_offset_of(name, dot + suffix) is None or dot + suffix not in SEGMENT_SUFFIXES:
            continue
        is_after = int(stem) > damaged and dot + suffix != SNAPSHOT_SUFFIX
        is_snapshot_after = dot + suffix == SNAPSHOT_SUFFIX and int(stem) > damage.offset
        is_index = int(stem) == damaged and dot + suffix not in {LOG_SUFFIX, SNAPSHOT_SUFFIX}
        if is_after or is_snapshot_after or is_index:  # the start makes the indexes again
            directory.remove(join(subdirectory, name))
    with closing(directory.open(damage.path)) as file:
        file.truncate(damage.position)
        file.sync()
    directory.sync(subdirectory)
