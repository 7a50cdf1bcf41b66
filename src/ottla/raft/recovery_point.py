"""Two offsets of the metadata log: the recovery point, and where a truncation has to cut.

Everything below the recovery point was flushed. Its file has the name and format of Kafka's
checkpoint but lies in the partition's directory, where Kafka ignores it: Kafka keeps no recovery
point for this log.

A truncation removes segments and cuts the one before them. After a power cut some of the segments
may be back although the cut was kept: a gap that looks like lost records. The offset of the
truncation is therefore stored before, and removed after its flush; a start in between removes these
segments again. Where that removal is lost in a power cut, no later record was flushed.

Kafka: none; org.apache.kafka.storage.internals.checkpoint.OffsetCheckpointFile for other logs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.errors import CorruptMessage
from ottla.storage.directories.checkpoints import decode_offsets, encode_offsets
from ottla.storage.directory import join
from ottla.storage.layout import (
    METADATA_LOG,
    RECOVERY_POINT_CHECKPOINT,
    SEGMENT_SUFFIXES,
    TRUNCATION_CHECKPOINT,
    base_offset_of,
)
from ottla.types import METADATA_TOPIC, TopicPartition

if TYPE_CHECKING:
    from ottla.storage.directory import Directory

_PARTITION: Final = TopicPartition(METADATA_TOPIC, 0)
RECOVERY_POINT_PATH: Final = join(METADATA_LOG, RECOVERY_POINT_CHECKPOINT)
TRUNCATION_PATH: Final = join(METADATA_LOG, TRUNCATION_CHECKPOINT)


def read_recovery_point(directory: Directory) -> int:
    """Return the stored recovery point; 0 when the file is missing or cannot be read."""
    return _read(directory, RECOVERY_POINT_PATH, 0)


def _read(directory: Directory, path: str, default: int) -> int:
    if not directory.exists(path):
        return default
    try:
        return decode_offsets(directory.read_file(path)).get(_PARTITION, default)
    except CorruptMessage:
        return default


def write_recovery_point(directory: Directory, offset: int) -> None:
    """Store the recovery point; durable on return."""
    directory.write_file_atomically(RECOVERY_POINT_PATH, encode_offsets({_PARTITION: offset}))


def begin_truncation(directory: Directory, offset: int) -> None:
    """Store that the log is cut at offset; durable on return."""
    directory.write_file_atomically(TRUNCATION_PATH, encode_offsets({_PARTITION: offset}))


def end_truncation(directory: Directory) -> None:
    """Remove the stored offset, after the truncation is durable."""
    directory.remove(TRUNCATION_PATH)


def finish_truncation(directory: Directory) -> None:
    """Remove the segments that an interrupted truncation has left; the stored offset goes last.

    The names of a directory change in order, also over a power cut, so that no sync is needed.
    """
    cut = _read(directory, TRUNCATION_PATH, -1)
    if cut < 0:
        return
    for name in directory.list(METADATA_LOG):
        _, dot, suffix = name.partition(".")
        offset = base_offset_of(name, dot + suffix)
        if offset is not None and offset > cut and dot + suffix in SEGMENT_SUFFIXES:
            directory.remove(join(METADATA_LOG, name))
    end_truncation(directory)
