"""Names of partition directories, with the suffixes of deleted, stray and future ones.

Kafka: UnifiedLog.{logDirName, logDeleteDirName, logStrayDirName, parseTopicPartitionName}.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ottla.errors import CorruptMessage
from ottla.storage.directories.partition_metadata import (
    PARTITION_METADATA,
    decode_partition_metadata,
)
from ottla.storage.directory import join
from ottla.storage.log.partition_log import FUTURE_SUFFIX, parse_partition_name

if TYPE_CHECKING:
    from ottla.storage.directory import Directory
    from ottla.types import TopicPartition, Uuid

DELETE_SUFFIX = "-delete"
STRAY_SUFFIX = "-stray"
_LONGEST_NAME = 255
_RANDOM_DIGITS = 32


class RandomBits(Protocol):
    """A source of randomness, as `random.Random`."""

    def getrandbits(self, bits: int, /) -> int:
        """Return that many random bits."""


def marked_name(partition: TopicPartition, suffix: str, rng: RandomBits) -> str:
    """Return `topic-N.<32 hex digits>suffix`, the topic truncated when the name is too long."""
    tail = f"-{partition.partition}.{rng.getrandbits(128):032x}{suffix}"
    return partition.topic[: _LONGEST_NAME - len(tail)] + tail


def marked_topic(name: str) -> str:
    """Return the topic in a marked name."""
    return name.rpartition("-")[0].rpartition("-")[0]


def future_name(partition: TopicPartition, rng: RandomBits) -> str:
    """Return the directory name of a future log; ValueError when the topic's name is too long.

    Unlike other marked names it is never truncated: it has to name the topic.
    """
    check_future_name(partition)
    return f"{partition}.{rng.getrandbits(128):032x}{FUTURE_SUFFIX}"


def check_future_name(partition: TopicPartition) -> None:
    """Raise ValueError when the topic's name is too long for a future log."""
    if len(f"{partition}.") + _RANDOM_DIGITS + len(FUTURE_SUFFIX) > _LONGEST_NAME:
        raise ValueError("The topic name is too long.")


def future_partition_of(name: str) -> TopicPartition | None:
    """Return the partition of the directory of a future log; None for other directories."""
    marked, is_future = name.removesuffix(FUTURE_SUFFIX), name.endswith(FUTURE_SUFFIX)
    partition, dot, _ = marked.rpartition(".")
    try:
        return parse_partition_name(partition) if is_future and dot else None
    except ValueError:
        return None


def partition_of(name: str) -> TopicPartition | None:
    """Return the partition of a directory name; None for stray, future and other directories."""
    if name.endswith((STRAY_SUFFIX, FUTURE_SUFFIX)):
        return None
    try:
        return parse_partition_name(name)
    except ValueError:
        return None


def read_topic_id(directory: Directory, subdirectory: str) -> Uuid | None:
    """Return the topic id in a partition's directory, None when it is missing or corrupt."""
    path = join(subdirectory, PARTITION_METADATA)
    if not directory.exists(path):
        return None
    try:
        return decode_partition_metadata(directory.read_file(path))
    except CorruptMessage:
        return None
