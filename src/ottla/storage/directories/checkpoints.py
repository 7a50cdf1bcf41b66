"""Offset checkpoint files: one offset per partition, one file of each kind per log directory.

Kafka: org.apache.kafka.storage.internals.checkpoint.{CheckpointFile, OffsetCheckpointFile}.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.errors import CorruptMessage
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
HIGH_WATERMARK_CHECKPOINT = "replication-offset-checkpoint"
LOG_START_CHECKPOINT = "log-start-offset-checkpoint"
CLEANER_CHECKPOINT = "cleaner-offset-checkpoint"


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """Return the file's text: version 0, the number of entries, `topic partition offset` lines."""
    lines = [
        f"{topic} {partition} {offset}\n" for (topic, partition), offset in sorted(offsets.items())
    ]
    return f"0\n{len(lines)}\n{''.join(lines)}".encode()


def decode_offsets(data: bytes) -> dict[TopicPartition, int]:
    """Parse the text; CorruptMessage when it is incomplete. An empty file has no entries."""
    offsets: dict[TopicPartition, int] = {}
    if not data:
        return offsets
    try:
        version, count, *lines = data.decode("utf-8").splitlines()
        for line in lines:
            topic, partition, offset = line.split(" ")
            offsets[TopicPartition(topic, int(partition))] = int(offset)
        is_complete = int(version) == 0 and int(count) == len(lines)
    except ValueError as error:
        raise CorruptMessage(f"malformed checkpoint: {data[:80]!r}") from error
    if not is_complete:
        raise CorruptMessage(f"malformed checkpoint: {data[:80]!r}")
    return offsets
