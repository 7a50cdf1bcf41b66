"""The recovery point of the metadata log: everything below it was flushed.

The file has the name and format of Kafka's checkpoint but lies in the partition's directory, where
Kafka ignores it: Kafka keeps no recovery point for this log.

Kafka: none; org.apache.kafka.storage.internals.checkpoint.OffsetCheckpointFile for other logs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.errors import CorruptMessage
from ottla.storage.directories.checkpoints import (
    RECOVERY_POINT_CHECKPOINT,
    decode_offsets,
    encode_offsets,
)
from ottla.storage.directory import join
from ottla.types import METADATA_TOPIC, TopicPartition

if TYPE_CHECKING:
    from ottla.storage.directory import Directory

_PARTITION: Final = TopicPartition(METADATA_TOPIC, 0)
RECOVERY_POINT_PATH: Final = join(str(_PARTITION), RECOVERY_POINT_CHECKPOINT)


def read_recovery_point(directory: Directory) -> int:
    """Return the stored recovery point; 0 when the file is missing or cannot be read."""
    if not directory.exists(RECOVERY_POINT_PATH):
        return 0
    try:
        return decode_offsets(directory.read_file(RECOVERY_POINT_PATH)).get(_PARTITION, 0)
    except CorruptMessage:
        return 0


def write_recovery_point(directory: Directory, offset: int) -> None:
    """Store the recovery point; durable on return."""
    directory.write_file_atomically(RECOVERY_POINT_PATH, encode_offsets({_PARTITION: offset}))
