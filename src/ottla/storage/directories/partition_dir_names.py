"""Names of partition directories, with the suffixes of deleted, stray and future ones.

A log directory may hold directories of others whose names look like those of partitions: backups
with a date, `.Trash-1000` of a desktop, a copy of a log. What is a log is decided by its files, and
nothing else is opened, renamed or removed.

Kafka: UnifiedLog.{logDirName, logDeleteDirName, logStrayDirName, parseTopicPartitionName}.
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Final, Protocol

from ottla.errors import CorruptMessage
from ottla.storage.directories.partition_metadata import decode_partition_metadata
from ottla.storage.directory import join
from ottla.storage.layout import (
    DELETE_SUFFIX,
    FILE_OF_LOG,
    FUTURE_SUFFIX,
    PARTITION_METADATA,
    STRAY_SUFFIX,
)
from ottla.storage.log.partition_log import parse_partition_name
from ottla.types import is_topic_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.storage.directory import Directory
    from ottla.types import TopicPartition, Uuid

log = logging.getLogger("ottla.storage")
_LONGEST_NAME = 255
_RANDOM_DIGITS = 32
_MARKED: Final = re.compile(
    rf".+-[0-9]+\.[0-9a-f]{{{_RANDOM_DIGITS}}}({DELETE_SUFFIX}|{FUTURE_SUFFIX})"
)
_MAX_PARTITION: Final = 0x7FFF_FFFF


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
    if not name.endswith(FUTURE_SUFFIX) or not _MARKED.fullmatch(name):
        return None
    return partition_of(name.removesuffix(FUTURE_SUFFIX).rpartition(".")[0])


def is_deleted_log(name: str) -> bool:
    """Whether a directory's name is that of a deleted log, which a process marked so."""
    return name.endswith(DELETE_SUFFIX) and _MARKED.fullmatch(name) is not None


def is_log(directory: Directory, path: str) -> bool:
    """Whether a directory holds the files of a log; an empty one only when its name is marked.

    With `partition.metadata`, or with nothing but files of logs for a topic that can be.
    """
    name = path.rpartition("/")[2]
    names, future = directory.list(path), future_partition_of(name)
    if PARTITION_METADATA in names:
        return True
    partition = partition_of(name) or future
    if partition is None or not is_topic_name(partition.topic):
        return False
    return has_only_files_of_logs(names) if names else future is not None


def has_only_files_of_logs(names: Iterable[str]) -> bool:
    """Whether all files are those of a log."""
    return all(map(FILE_OF_LOG.fullmatch, names))


def set_aside_others(directory: Directory, partition: TopicPartition, topic_id: Uuid) -> None:
    """Rename a directory of others that has the name of a log to be created: its files stay."""
    name = str(partition)
    if not directory.exists(name) or not directory.list(name) or is_log(directory, name):
        return
    tail = f"-{partition.partition}.{topic_id.hex()}{STRAY_SUFFIX}"
    new_name = partition.topic[: _LONGEST_NAME - len(tail)] + tail
    directory.rename(name, new_name)
    log.warning(
        "the directory %s, which held no log, is called %s now: its name is that of a partition "
        "that was created; move it out of the log directory",
        name,
        new_name,
        extra={"event": "directory.set_aside"},
    )


def partition_of(name: str) -> TopicPartition | None:
    """Return the partition of a directory name; None for stray, future and other directories."""
    if name.endswith((STRAY_SUFFIX, FUTURE_SUFFIX)):
        return None
    try:
        found = parse_partition_name(name)
    except ValueError:
        return None
    # `t-007` is no name that a log gets
    return found if str(found) == name and found.partition <= _MAX_PARTITION else None


def read_topic_id(directory: Directory, subdirectory: str) -> Uuid | None:
    """Return the topic id in a partition's directory, None when it is missing or corrupt."""
    path = join(subdirectory, PARTITION_METADATA)
    if not directory.exists(path):
        return None
    try:
        return decode_partition_metadata(directory.read_file(path))
    except CorruptMessage:
        return None
