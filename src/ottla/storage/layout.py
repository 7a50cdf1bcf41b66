"""Every file of a node on disk in one table, and the names of files and directories.

All modules of a node take names and suffixes from here. A file in a log directory that no row knows
is not a node's: it is never opened, renamed or removed.

Kafka: UnifiedLog, LogFileUtils, LogManager, OffsetCheckpointFile, MetaPropertiesEnsemble and other
classes, each with the names of its own.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Final, NamedTuple

from ottla.types import METADATA_TOPIC

LOCK_FILE: Final = ".lock"
CLEAN_MARKER: Final = ".kafka_cleanshutdown"
META_PROPERTIES: Final = "meta.properties"
BOOTSTRAP_CHECKPOINT: Final = "bootstrap.checkpoint"
RECOVERY_POINT_CHECKPOINT: Final = "recovery-point-offset-checkpoint"
HIGH_WATERMARK_CHECKPOINT: Final = "replication-offset-checkpoint"
LOG_START_CHECKPOINT: Final = "log-start-offset-checkpoint"
CLEANER_CHECKPOINT: Final = "cleaner-offset-checkpoint"
OFFSET_CHECKPOINTS: Final = (
    RECOVERY_POINT_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_CHECKPOINT,
    CLEANER_CHECKPOINT,
)
"""Each has an offset of every partition."""

LOG_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
TRANSACTION_INDEX_SUFFIX: Final = ".txnindex"
SNAPSHOT_SUFFIX: Final = ".snapshot"
SEGMENT_SUFFIXES: Final = (
    LOG_SUFFIX,
    INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    SNAPSHOT_SUFFIX,
)
LEADER_EPOCH_CHECKPOINT: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"

INDEX_CACHE: Final = "remote-log-index-cache"
"""A directory in the first log directory."""

METADATA_LOG: Final = f"{METADATA_TOPIC}-0"
QUORUM_STATE: Final = "quorum-state"
TRUNCATION_CHECKPOINT: Final = "truncation-offset-checkpoint"
METADATA_SNAPSHOT_SUFFIX: Final = ".checkpoint"

DELETED_SUFFIX: Final = ".deleted"
CLEANED_SUFFIX: Final = ".cleaned"
SWAP_SUFFIX: Final = ".swap"
TEMPORARY_SUFFIX: Final = ".tmp"
PART_SUFFIX: Final = ".part"

DELETE_SUFFIX: Final = "-delete"
FUTURE_SUFFIX: Final = "-future"
STRAY_SUFFIX: Final = "-stray"

_OFFSET_DIGITS: Final = 20
_OFFSET: Final = rf"[0-9]{{{_OFFSET_DIGITS}}}"
_SEGMENT_STATES: Final = (DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX, TEMPORARY_SUFFIX)
_SNAPSHOT_STATES: Final = (PART_SUFFIX, DELETED_SUFFIX, TEMPORARY_SUFFIX)


class Folder(Enum):
    """A kind of directory that holds files of a node."""

    LOG_DIRECTORY = "log directory"
    PARTITION = "partition"
    """`topic-N`; also with the suffix of a deleted, future or stray one."""
    METADATA_LOG = METADATA_LOG
    """Has the files of a partition, too."""
    INDEX_CACHE = INDEX_CACHE


class FileKind(NamedTuple):
    """One row: the files of one kind."""

    folder: Folder
    name: str
    """As documents show it: N is an offset of twenty digits."""
    owner: str
    """The module that reads and writes it."""
    content: str
    if_lost: str
    """What a node does without it."""
    suffixes: tuple[str, ...] = ()
    """Of files that are being written, replaced or deleted."""
    is_kafkas: bool = True
    """Whether Kafka has the file, too; it ignores the others."""

    @property
    def pattern(self) -> str:
        """A regular expression of its names, without the suffixes of unfinished states."""
        name = re.escape(self.name)
        name = re.sub("^N", _OFFSET, name).replace("<epoch>", "[0-9]{10}")
        return name.replace("<offset>", "[0-9]+").replace("<segment>", "[A-Za-z0-9_-]{22}")


def _checkpoint(name: str, owner: str, content: str, if_lost: str) -> FileKind:
    return FileKind(Folder.LOG_DIRECTORY, name, owner, content, if_lost, (TEMPORARY_SUFFIX,))


def _segment(suffix: str, owner: str, content: str, if_lost: str) -> FileKind:
    name = f"N{suffix}"
    return FileKind(Folder.PARTITION, name, owner, content, if_lost, _SEGMENT_STATES)


_FROM_BATCHES: Final = "rebuilt from the batches at the start"
FILES: Final = (
    FileKind(
        Folder.LOG_DIRECTORY,
        LOCK_FILE,
        "storage/directories/log_dir.py",
        "nothing: the lock on it keeps a second process out",
        "made at the start",
    ),
    _checkpoint(
        META_PROPERTIES,
        "server/node/identity.py",
        "cluster id, node id, directory id",
        "the start is refused; format the directory again with the cluster's id",
    ),
    _checkpoint(
        CLEAN_MARKER,
        "storage/directories/log_dir.py",
        "broker epoch of a clean stop; removed by the start",
        "the start reads all logs from their recovery points on",
    ),
    _checkpoint(
        BOOTSTRAP_CHECKPOINT,
        "metadata/bootstrap.py",
        "feature levels and SCRAM users of a new cluster",
        "a new cluster gets the default levels; an old one does not need it",
    ),
    _checkpoint(
        RECOVERY_POINT_CHECKPOINT,
        "storage/log_set/checkpoint_queue.py",
        "the offset up to which each log was flushed",
        "logs are read from their start; damage there is not told from a torn write",
    ),
    _checkpoint(
        HIGH_WATERMARK_CHECKPOINT,
        "storage/log_set/checkpoint_queue.py",
        "high watermark of each partition",
        "it begins at the log's start and rises with the replicas' next fetches",
    ),
    _checkpoint(
        LOG_START_CHECKPOINT,
        "storage/log_set/checkpoint_queue.py",
        "log start offset of each partition, where it is above the first segment's",
        "records that were deleted from the first segment can be read again",
    ),
    _checkpoint(
        CLEANER_CHECKPOINT,
        "storage/log_set/cleaner_offsets.py",
        "the offset up to which each log is compacted",
        "logs are compacted from their start",
    ),
    _segment(
        LOG_SUFFIX,
        "storage/segments/segment.py",
        "batches of records from offset N on",
        "not rebuilt: a follower fetches the records again, of the only replica they are gone",
    ),
    _segment(
        INDEX_SUFFIX,
        "storage/indexes/offset_index.py",
        "positions of some offsets",
        _FROM_BATCHES,
    ),
    _segment(
        TIME_INDEX_SUFFIX,
        "storage/indexes/time_index.py",
        "offsets of some timestamps",
        _FROM_BATCHES,
    ),
    _segment(
        TRANSACTION_INDEX_SUFFIX,
        "storage/indexes/transaction_index.py",
        "aborted transactions; only where there are some",
        "not noticed; `ottla log-repair --rebuild-transaction-indexes`",
    ),
    _segment(
        SNAPSHOT_SUFFIX,
        "storage/producers/snapshot.py",
        "idempotent producers and open transactions as of offset N",
        "rebuilt from an older one and the batches after it",
    ),
    FileKind(
        Folder.PARTITION,
        LEADER_EPOCH_CHECKPOINT,
        "storage/log/leader_epochs.py",
        "first offset of each leader epoch",
        _FROM_BATCHES,
        (TEMPORARY_SUFFIX,),
    ),
    FileKind(
        Folder.PARTITION,
        PARTITION_METADATA,
        "storage/directories/partition_metadata.py",
        "topic id",
        "a log with records is set aside as stray, as in Kafka",
        (TEMPORARY_SUFFIX,),
    ),
    FileKind(
        Folder.METADATA_LOG,
        f"N-<epoch>{METADATA_SNAPSHOT_SUFFIX}",
        "raft/snapshot.py",
        "all metadata up to offset N",
        "an older one and the log are read, or the leader's is fetched",
        _SNAPSHOT_STATES,
    ),
    FileKind(
        Folder.METADATA_LOG,
        QUORUM_STATE,
        "raft/quorum_state.py",
        "epoch, vote, leader",
        "the start is refused; `ottla log-repair --new-quorum-state` for an only voter",
        (TEMPORARY_SUFFIX,),
    ),
    FileKind(
        Folder.METADATA_LOG,
        RECOVERY_POINT_CHECKPOINT,
        "raft/log_check.py",
        "the offset up to which the metadata log was flushed",
        "0: only batches that follow damage tell it from a torn write",
        (TEMPORARY_SUFFIX,),
        is_kafkas=False,
    ),
    FileKind(
        Folder.METADATA_LOG,
        TRUNCATION_CHECKPOINT,
        "raft/log_check.py",
        "the offset of a truncation that is under way",
        "none is under way",
        (TEMPORARY_SUFFIX,),
        is_kafkas=False,
    ),
    *(
        FileKind(
            Folder.INDEX_CACHE,
            f"<offset>_<segment>{suffix}",
            "storage/remote/index_cache.py",
            f"copy of an index of a segment in remote storage: {content}",
            "fetched again",
            (DELETED_SUFFIX, TEMPORARY_SUFFIX),
        )
        for suffix, content in (
            (INDEX_SUFFIX, "positions"),
            (TIME_INDEX_SUFFIX, "timestamps"),
            (TRANSACTION_INDEX_SUFFIX, "aborted transactions, often none"),
        )
    ),
)


def file_names(folder: Folder, *states: str) -> re.Pattern[str]:
    """Compile the names of a folder's files in these states ("": whole), without any in all."""
    patterns = []
    for kind in FILES:
        found = [state for state in ("", *kind.suffixes) if not states or state in states]
        if kind.folder is folder and found:
            endings = "|".join(_ending(folder, state) for state in found)
            patterns.append(f"{kind.pattern}({endings})")
    return re.compile("|".join(patterns))


def _ending(folder: Folder, state: str) -> str:
    # several contents of one checkpoint may be on their way: each has a number
    is_numbered = folder is Folder.LOG_DIRECTORY and state == TEMPORARY_SUFFIX
    return (r"(\.[0-9]+)?" if is_numbered else "") + re.escape(state)


FILE_OF_LOG: Final = file_names(Folder.PARTITION)
"""What a log's directory may hold, and no more when it lost its `partition.metadata`."""


def segment_file_name(base_offset: int, suffix: str) -> str:
    """Return a segment file's name: twenty digits and the suffix."""
    return f"{base_offset:020d}{suffix}"


def base_offset_of(name: str, suffix: str) -> int | None:
    """Return the offset in a segment file's name with this suffix; None for every other file."""
    stem = name[: -len(suffix)]
    is_offset = len(stem) == _OFFSET_DIGITS and stem.isascii() and stem.isdecimal()
    return int(stem) if is_offset and name.endswith(suffix) else None
