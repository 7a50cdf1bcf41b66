"""Checkpoint files; of offsets there is one file of each kind in a log directory.

Kafka: org.apache.kafka.storage.internals.checkpoint.{CheckpointFile, OffsetCheckpointFile}.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from ottla.errors import CorruptMessage
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from ottla.storage.directory import Directory

T = TypeVar("T")


def encode_lines(lines: Collection[str]) -> bytes:
    """Return the text of a checkpoint: version 0, the number of lines, the lines."""
    return "\n".join(("0", str(len(lines)), *lines, "")).encode()


def decode_lines(data: bytes, parse: Callable[[str], T]) -> list[T]:
    """Return the parsed lines of a checkpoint; CorruptMessage when it is incomplete.

    parse raises ValueError for an invalid line.
    """
    try:
        version, count, *lines = data.decode("utf-8").splitlines()
        if int(version) == 0 and int(count) == len(lines):
            return [parse(line) for line in lines]
    except ValueError as error:
        raise malformed(data) from error
    raise malformed(data)


def malformed(data: bytes) -> CorruptMessage:
    """Return the error of a checkpoint, to be raised."""
    return CorruptMessage(f"malformed checkpoint: {data[:80]!r}")


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """Return the file's text, with `topic partition offset` lines."""
    return encode_lines(
        [f"{topic} {partition} {offset}" for (topic, partition), offset in sorted(offsets.items())]
    )


def decode_offsets(data: bytes) -> dict[TopicPartition, int]:
    """Parse the text; CorruptMessage when it is incomplete. An empty file has no entries."""
    return dict(decode_lines(data, _parse_offset)) if data else {}


def read_offsets(directory: Directory, path: str) -> dict[TopicPartition, int]:
    """Read a checkpoint; a missing one has no entries. CorruptMessage when it is incomplete."""
    return decode_offsets(directory.read_file(path)) if directory.exists(path) else {}


def _parse_offset(line: str) -> tuple[TopicPartition, int]:
    topic, partition, offset = line.split(" ")
    return TopicPartition(topic, int(partition)), int(offset)
