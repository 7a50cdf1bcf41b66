"""Checks the files of the metadata log before recovery changes any of them.

A batch is only appended after the flush of the batches before it, so a valid batch proves that
everything before it was flushed. Damage that a valid batch follows, or below the recovery point, is
therefore no torn write: records that were acknowledged are lost, and the start is refused. Damage
at the very end is a torn write and is cut off.

Everything below the recovery point was flushed. Its file has the name and format of Kafka's
checkpoint but lies in the partition's directory, where Kafka ignores it: Kafka keeps no recovery
point for this log.

A truncation removes segments and cuts the one before them. After a power cut some of the segments
may be back although the cut was kept: a gap that looks like lost records. The offset of the
truncation is therefore stored before, and removed after its flush; a start in between removes these
segments again. Where that removal is lost in a power cut, no later record was flushed.

Kafka: org.apache.kafka.raft.internals.KafkaRaftLog.truncateToLatestSnapshot, which trusts the
snapshot's name and truncates the log; no recovery point of this log, for other logs
org.apache.kafka.storage.internals.checkpoint.OffsetCheckpointFile.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

from ottla.errors import CorruptMessage, LocalDiskError
from ottla.raft.snapshot import SnapshotReader, parse_snapshot_name, snapshot_name
from ottla.storage.directories.checkpoints import encode_offsets, read_offsets
from ottla.storage.directory import join
from ottla.storage.layout import (
    METADATA_LOG,
    RECOVERY_POINT_CHECKPOINT,
    SEGMENT_SUFFIXES,
    TRUNCATION_CHECKPOINT,
    base_offset_of,
)
from ottla.storage.log.inspection import inspect_log
from ottla.types import METADATA_TOPIC, TopicPartition

if TYPE_CHECKING:
    from ottla.storage.directory import Directory
    from ottla.storage.log.inspection import LogInspection
    from ottla.types import OffsetAndEpoch


_PARTITION: Final = TopicPartition(METADATA_TOPIC, 0)
_RECOVERY_POINT_PATH: Final = join(METADATA_LOG, RECOVERY_POINT_CHECKPOINT)
_TRUNCATION_PATH: Final = join(METADATA_LOG, TRUNCATION_CHECKPOINT)


def read_recovery_point(directory: Directory) -> int:
    """Return the stored recovery point; 0 when the file is missing or cannot be read."""
    return _read(directory, _RECOVERY_POINT_PATH, 0)


def _read(directory: Directory, path: str, default: int) -> int:
    try:
        return read_offsets(directory, path).get(_PARTITION, default)
    except CorruptMessage:
        return default


def write_recovery_point(directory: Directory, offset: int) -> None:
    """Store the recovery point; durable on return."""
    directory.write_file_atomically(_RECOVERY_POINT_PATH, encode_offsets({_PARTITION: offset}))


def begin_truncation(directory: Directory, offset: int) -> None:
    """Store that the log is cut at offset; durable on return."""
    directory.write_file_atomically(_TRUNCATION_PATH, encode_offsets({_PARTITION: offset}))


def end_truncation(directory: Directory) -> None:
    """Remove the stored offset, after the truncation is durable."""
    directory.remove(_TRUNCATION_PATH)


def finish_truncation(directory: Directory) -> None:
    """Remove the segments that an interrupted truncation has left; the stored offset goes last.

    The names of a directory change in order, also over a power cut, so that no sync is needed.
    """
    cut = _read(directory, _TRUNCATION_PATH, -1)
    if cut < 0:
        return
    for name in directory.list(METADATA_LOG):
        _, dot, suffix = name.partition(".")
        offset = base_offset_of(name, dot + suffix)
        if offset is not None and offset > cut and dot + suffix in SEGMENT_SUFFIXES:
            directory.remove(join(METADATA_LOG, name))
    end_truncation(directory)


log = logging.getLogger("ottla.raft")


class LogCheck(NamedTuple):
    """The result of a check that found nothing missing."""

    snapshots: list[OffsetAndEpoch]
    """Oldest first; the newest one was read through, damaged newer ones are left out."""
    end_offset: int
    """The end of the valid batches."""
    begins_at_snapshot: bool
    """Whether the newest snapshot is newer than the log, which restarts at its end."""
    newest: SnapshotReader | None
    """What was read of the newest snapshot."""

    @property
    def snapshot_offset(self) -> int:
        """The end of the newest snapshot within the log, 0 without any."""
        return min(self.snapshots[-1].offset, self.end_offset) if self.snapshots else 0


def check_log(directory: Directory, path: str) -> LogCheck:
    """Check log and snapshots; KAFKA_STORAGE_ERROR when acknowledged records are missing.

    path is the log directory's name for the error's text.
    """
    snapshots = find_snapshots(directory)
    recovery_point = read_recovery_point(directory)
    while True:
        found, reader, problem = _inspect(directory, snapshots)
        if not problem:
            break
        damaged = snapshots.pop()
        log.warning(
            "snapshot %s is not used: %s; an older one or the log is, check the disk",
            snapshot_name(damaged),
            problem,
        )
    checker = _Checker(path, found, snapshots[-1] if snapshots else None, recovery_point)
    return LogCheck(snapshots, found.end_offset, checker.begins_at_snapshot(), reader)


def find_snapshots(directory: Directory) -> list[OffsetAndEpoch]:
    """Return the ids of the snapshots' files, oldest first."""
    found = map(parse_snapshot_name, directory.list(METADATA_LOG))
    return sorted(snapshot_id for snapshot_id in found if snapshot_id is not None)


def _inspect(
    directory: Directory, snapshots: list[OffsetAndEpoch]
) -> tuple[LogInspection, SnapshotReader | None, str]:
    """Inspect the log from the newest snapshot on; return what is wrong with that snapshot too."""
    if not snapshots:
        return inspect_log(directory, METADATA_LOG, may_have_gaps=False), None, ""
    latest = snapshots[-1]
    problem = ""
    path = join(METADATA_LOG, snapshot_name(latest))
    reader = SnapshotReader(directory.read_file(path), latest)
    try:
        reader.check()
    except CorruptMessage as error:
        problem = str(error)
    last_offset = max(latest.offset - 1, 0)
    found = inspect_log(directory, METADATA_LOG, from_offset=last_offset, may_have_gaps=False)
    epoch = found.epoch_at(last_offset)
    if not problem and latest.offset > 0 and epoch not in (-1, latest.leader_epoch):
        problem = f"the log has epoch {epoch} at offset {last_offset}"
    return found, reader, problem


class _Checker(NamedTuple):
    path: str
    found: LogInspection
    latest: OffsetAndEpoch | None
    recovery_point: int

    def begins_at_snapshot(self) -> bool:
        """Whether the log is to be replaced by the newest snapshot; raises for lost records."""
        found, latest = self.found, self.latest
        if found.start_offset > (latest.offset if latest else 0):
            self._refuse(
                f"the log begins at offset {found.start_offset}, and no valid snapshot holds the "
                "records before it"
            )
        if latest is not None and found.end_offset < latest.offset:
            if max(self.recovery_point, found.reach) > latest.offset:
                self._refuse(self._loss())
            if found.last_epoch > latest.leader_epoch:
                self._refuse(
                    f"the log ends at offset {found.end_offset} in epoch {found.last_epoch}, below "
                    f"snapshot {snapshot_name(latest)} of an older epoch"
                )
            return True
        if found.end_offset < max(self.recovery_point, found.reach):
            self._refuse(self._loss())
        return False

    def _loss(self) -> str:
        found, damage = self.found, self.found.damage
        if damage is None:
            return (
                f"the log ends at offset {found.end_offset}, but everything below offset "
                f"{self.recovery_point} was flushed ({_RECOVERY_POINT_PATH})"
            )
        if damage.following_batches:
            return (
                f"{damage}, and {damage.following_batches} valid batches up to offset "
                f"{damage.end_offset} follow"
            )
        return f"{damage}, below the recovery point {self.recovery_point}"

    def _refuse(self, reason: str) -> NoReturn:
        directory = self.path or "DIR"
        raise LocalDiskError(
            f"The metadata log in {directory} is damaged and was not changed: {reason}. Restore "
            f"{METADATA_LOG} from a backup, or see what can be kept: ottla log-repair --log-dir "
            f"{directory} --partition {METADATA_LOG}",
        )
