"""The checkpoint files of a node's log directories, as jobs.

Kafka: LogManager.{checkpointLogRecoveryOffsets, checkpointLogStartOffsets}.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.errors import LocalDiskError
from ottla.purgatory.pending import Pending, all_done
from ottla.purgatory.work import finish
from ottla.storage.disk_errors import is_exhaustion
from ottla.storage.layout import (
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence

    from ottla.purgatory.work import Work
    from ottla.storage.directories.log_dir import LogDirectory
    from ottla.storage.log.partition_log import PartitionLog
    from ottla.storage.log_set.jobs import RunOnVolume, StorageJob
    from ottla.storage.log_set.table import LogTable
    from ottla.types import TopicPartition


class CheckpointQueue:
    """Directories whose recovery points and log starts are to be written."""

    def __init__(self, table: LogTable) -> None:
        self._table = table
        self._requested: dict[str, LogDirectory] = {}
        self._stored: dict[LogDirectory, Mapping[TopicPartition, int]] = {}
        """The recovery points in the files, perhaps with partitions deleted since."""
        self._starts: dict[LogDirectory, Mapping[TopicPartition, int]] = {}
        """The log starts in the files, likewise."""
        self._high_watermarks: dict[LogDirectory, Mapping[TopicPartition, int]] = {}
        """The high watermarks in the files, likewise."""
        self._under_way: dict[CheckpointJob, None] = {}
        self._lowering: dict[PartitionLog, DurableCheckpoint] = {}
        """Logs whose lowered recovery points are not durable."""

    def request(self, log_dir: LogDirectory) -> None:
        """Request recovery-point and log-start checkpoints of one directory."""
        self._requested[log_dir.path] = log_dir

    def request_all(self) -> None:
        """Request recovery-point and log-start checkpoints of every directory."""
        for log_dir in self._table.online_directories:
            self.request(log_dir)

    def take(self) -> list[StorageJob]:
        """Return the jobs of requested checkpoints."""
        returning, requested = self._table.returning, self._requested
        self._requested = {path: one for path, one in requested.items() if one in returning}
        return [
            self._job(log_dir)
            for path, log_dir in requested.items()
            if log_dir.is_online and path not in self._requested
        ]

    def high_watermark_jobs(self) -> list[StorageJob]:
        """Return the jobs that write `replication-offset-checkpoint` in every directory."""
        return [
            self._high_watermark_job(log_dir)
            for log_dir in self._table.online_directories
            if log_dir not in self._table.returning
        ]

    def _high_watermark_job(self, log_dir: LogDirectory) -> CheckpointJob:
        marks: dict[TopicPartition, int] = {}

        def collect(log: PartitionLog) -> None:
            marks[log.topic_partition] = log.high_watermark

        files = {HIGH_WATERMARK_CHECKPOINT: marks}
        return CheckpointJob(self, self._table, log_dir, files, collect)

    def _job(self, log_dir: LogDirectory) -> CheckpointJob:
        recovery_points: dict[TopicPartition, int] = {}
        starts: dict[TopicPartition, int] = {}
        for partition, broken in self._table.broken.items():
            if broken.log_dir is log_dir:
                recovery_points[partition] = broken.recovery_point
                starts[partition] = broken.log_start_offset

        def collect(log: PartitionLog) -> None:
            partition, start = log.topic_partition, log.log_start_offset
            recovery_points[partition] = log.recovery_point
            if start > log.segments.base_offsets[0] or log.config.is_tiered:
                starts[partition] = start

        files = {RECOVERY_POINT_CHECKPOINT: recovery_points, LOG_START_CHECKPOINT: starts}
        return CheckpointJob(self, self._table, log_dir, files, collect)

    def write_now(self, log_dir: LogDirectory) -> None:
        """Write the recovery-point and log-start checkpoints; waits for the disk."""
        self._requested.pop(log_dir.path, None)
        self._job(log_dir).run_now()

    def write_all_now(self, log_dir: LogDirectory) -> None:
        """Write all checkpoints of a directory; waits for the disk."""
        self.write_now(log_dir)
        self._high_watermark_job(log_dir).run_now()

    def write_gone_now(self, log_dir: LogDirectory, partitions: Iterable[TopicPartition]) -> None:
        """Write the checkpoints when they may have deleted partitions of these names.

        It waits for the disk. New partitions avoid that: `without_gone` returns worker jobs.
        """
        if any(self._is_gone(log_dir, name) for name in partitions):
            self.write_all_now(log_dir)

    def without_gone(self, partitions: Collection[TopicPartition]) -> list[DurableCheckpoint]:
        """Return the checkpoints that must be durable before logs of these names are made.

        Run them in workers; none unless partitions of these names were deleted just before.
        """
        return [
            self._without(log_dir, gone)
            for log_dir in self._table.online_directories
            if (gone := [name for name in partitions if self._is_gone(log_dir, name)])
        ]

    def _without(self, log_dir: LogDirectory, gone: Iterable[TopicPartition]) -> DurableCheckpoint:
        """Return the content of the files without deleted partitions; the rest may be old.

        A later log of the same name would take their offsets for its own after a crash: its high
        watermark could cover what is not committed.
        """
        recovery_points = dict(self._stored.get(log_dir, {}))
        starts = dict(self._starts.get(log_dir, {}))
        high_watermarks = dict(self._high_watermarks.get(log_dir, {}))
        for partition in gone:
            for offsets in (recovery_points, starts, high_watermarks):
                offsets.pop(partition, None)
        for log in self._lowering_in(log_dir):
            recovery_points[log.topic_partition] = log.recovery_point
        files = {
            RECOVERY_POINT_CHECKPOINT: recovery_points,
            LOG_START_CHECKPOINT: starts,
            HIGH_WATERMARK_CHECKPOINT: high_watermarks,
        }
        return DurableCheckpoint(
            self, CheckpointJob(self, self._table, log_dir, files), log_dir, []
        )

    def _lowering_in(self, log_dir: LogDirectory) -> list[PartitionLog]:
        return [log for log in self._lowering if self._table.directory_of(log) is log_dir]

    def _is_gone(self, log_dir: LogDirectory, partition: TopicPartition) -> bool:
        """Whether a file has, or may get, an entry of a partition that the directory has not."""
        table = self._table
        broken = table.broken.get(partition)
        if log_dir in (table.log_dirs.get(partition), table.future_dirs.get(partition)) or (
            broken is not None and broken.log_dir is log_dir
        ):
            return False
        return (
            partition in self._stored.get(log_dir, ())
            or partition in self._high_watermarks.get(log_dir, ())
            or any(job.may_store(log_dir, partition) for job in self._under_way)
        )

    def durable(self, log_dir: LogDirectory) -> DurableCheckpoint:
        """Return the recovery-point and log-start checkpoints, to be made durable in a worker."""
        job = self._job(log_dir)
        finish(job.collect())
        return DurableCheckpoint(self, job, log_dir, [])

    def recovery_point_lowered(self, log: PartitionLog) -> None:
        """Write the checkpoint at once when the stored or pending one is higher.

        KAFKA_STORAGE_ERROR without descriptors: the log must not be truncated then.
        """
        partition = log.topic_partition
        log_dir = self._table.directory_of(log)
        if log_dir is None:
            return
        if self._is_higher(log_dir, log) or log in self._lowering:
            self.write_now(log_dir)
            if log_dir.is_online and log_dir.is_outdated(RECOVERY_POINT_CHECKPOINT):
                raise LocalDiskError(
                    f"no descriptor was left to write a checkpoint in {log_dir.path} before "
                    f"{partition} is truncated",
                )

    def stored_recovery_point(self, log: PartitionLog) -> int:
        """Return the log's recovery point in its directory's file, 0 without any."""
        log_dir = self._table.directory_of(log)
        stored = {} if log_dir is None else self._stored.get(log_dir, {})
        return min(stored.get(log.topic_partition, 0), log.recovery_point)

    def job_of(
        self, log_dir: LogDirectory, name: str, offsets: Mapping[TopicPartition, int]
    ) -> CheckpointJob:
        """Return the job that writes another checkpoint file of a directory."""
        return CheckpointJob(self, self._table, log_dir, {name: offsets})

    def _is_higher(self, log_dir: LogDirectory, log: PartitionLog) -> bool:
        """Whether a recovery point is stored, or about to be, that is higher than the log's."""
        partition, recovery_point = log.topic_partition, log.recovery_point
        return self._stored.get(log_dir, {}).get(partition, 0) > recovery_point or any(
            job.recovery_point_of(log_dir, partition) > recovery_point for job in self._under_way
        )

    def lower(self, cuts: Iterable[tuple[PartitionLog, int]]) -> list[DurableCheckpoint]:
        """Lower the recovery points of logs that are to be truncated, each to an offset.

        Return the checkpoints that must be durable before: run them in workers and truncate when
        the last is done; none when nothing higher is stored. A truncation without it has to wait
        for the disk itself.
        """
        lowered: dict[LogDirectory, list[PartitionLog]] = {}
        for log, offset in cuts:
            log.lower_recovery_point(offset)
            log_dir = self._table.directory_of(log)
            if log_dir is not None and (self._is_higher(log_dir, log) or log in self._lowering):
                lowered.setdefault(log_dir, []).append(log)
        return [self._lowered(log_dir, logs) for log_dir, logs in lowered.items()]

    def is_lowering(self, log: PartitionLog) -> bool:
        """Whether the recovery point of a log, lowered by `lower`, is not durable."""
        return log in self._lowering

    def _lowered(self, log_dir: LogDirectory, logs: list[PartitionLog]) -> DurableCheckpoint:
        """Return the content of the file with lower recovery points; the others may be old."""
        offsets = dict(self._stored.get(log_dir, {}))
        for log in (*self._lowering_in(log_dir), *logs):
            offsets[log.topic_partition] = log.recovery_point
        job = CheckpointJob(self, self._table, log_dir, {RECOVERY_POINT_CHECKPOINT: offsets})
        checkpoint = DurableCheckpoint(self, job, log_dir, logs)
        self._lowering.update(dict.fromkeys(logs, checkpoint))
        return checkpoint

    def synced(
        self, checkpoint: DurableCheckpoint, log_dir: LogDirectory, error: Exception | None
    ) -> None:
        """Record that a lowered checkpoint is durable, or that the directory failed."""
        for log in checkpoint.logs:
            if self._lowering.get(log) is checkpoint:
                del self._lowering[log]
        if error is not None and not is_exhaustion(error):
            self._table.fail(log_dir, error)

    def ended(self, job: CheckpointJob) -> None:
        """Remove a finished job."""
        self._under_way.pop(job, None)

    def begun(self, job: CheckpointJob) -> None:
        """Add a job: it may store recovery points that are lowered before it ends."""
        self._under_way[job] = None

    def loaded(
        self,
        log_dir: LogDirectory,
        recovery_points: Mapping[TopicPartition, int],
        starts: Mapping[TopicPartition, int],
        high_watermarks: Mapping[TopicPartition, int],
    ) -> None:
        """Record what a start found in a directory's files."""
        self._stored[log_dir] = recovery_points
        self._starts[log_dir] = starts
        self._high_watermarks[log_dir] = high_watermarks

    def written(
        self, log_dir: LogDirectory, name: str, offsets: Mapping[TopicPartition, int]
    ) -> None:
        """Record the content of a directory's file that was written."""
        if name == RECOVERY_POINT_CHECKPOINT:
            self._stored[log_dir] = offsets
        elif name == LOG_START_CHECKPOINT:
            self._starts[log_dir] = offsets
        elif name == HIGH_WATERMARK_CHECKPOINT:
            self._high_watermarks[log_dir] = offsets


class CheckpointJob:
    """Writes checkpoint files of one directory.

    The worker writes temporary files; `done` renames them on the owner's thread, unless a newer job
    of the directory did so before: a recovery point that was lowered must not rise again. Offsets
    of all logs are collected before, by a work of the loop.
    """

    __slots__ = ("_collect", "_files", "_log_dir", "_queue", "_remaining", "_sequence", "_table")

    def __init__(
        self,
        queue: CheckpointQueue,
        table: LogTable,
        log_dir: LogDirectory,
        files: Mapping[str, Mapping[TopicPartition, int]],
        collect: Callable[[PartitionLog], None] | None = None,
    ) -> None:
        """collect(log) adds the offsets of a log to the files; without it they are complete."""
        self._queue = queue
        self._table = table
        self._log_dir = log_dir
        self._files = files
        self._collect = collect
        self._remaining = iter(() if collect is None else table.logs_in(log_dir))
        self._sequence = log_dir.begin_checkpoint(files)
        queue.begun(self)

    @property
    def volume(self) -> Hashable:
        """The volume whose disk it waits for."""
        return self._log_dir.directory.volume

    def recovery_point_of(self, log_dir: LogDirectory, partition: TopicPartition) -> int:
        """Return what the job may store; -1 for nothing, or when newer content is in place."""
        if log_dir is not self._log_dir or log_dir.has_newer(
            RECOVERY_POINT_CHECKPOINT, self._sequence
        ):
            return -1
        return self._files.get(RECOVERY_POINT_CHECKPOINT, {}).get(partition, -1)

    def may_store(self, log_dir: LogDirectory, partition: TopicPartition) -> bool:
        """Whether the job may store an offset of a partition in a file without newer content."""
        return log_dir is self._log_dir and any(
            partition in offsets and not log_dir.has_newer(name, self._sequence)
            for name, offsets in self._files.items()
        )

    def collect(self) -> Work[None]:
        """Collect the offsets of the logs.

        A recovery point that is lowered before its log's turn is collected as such, and
        `recovery_point_of` has it after.
        """
        for log in self._remaining:
            if self._collect is not None and not log.is_deleted:
                self._collect(log)
            yield

    def run(self) -> None:
        """Write the temporary files durably; the caller of a worker has run `collect`."""
        finish(self.collect())
        for name, offsets in self._files.items():
            self._log_dir.write_offsets_to_new_file(name, offsets, self._sequence)

    def done(self, error: BaseException | None) -> None:
        """Rename the files, or put the directory offline; without descriptors retry later."""
        self._queue.ended(self)
        if self._log_dir.failure is not None:
            return
        placed: list[str] = []
        if error is None:
            try:
                placed = [name for name in self._files if self._put_in_place(name)]
            except OSError as failure:
                error = failure
        if is_exhaustion(error):
            self._queue.request(self._log_dir)
        elif error is not None:
            self._table.fail(self._log_dir, error)
        for name in placed:
            self._queue.written(self._log_dir, name, self._files[name])

    def _put_in_place(self, name: str) -> bool:
        return self._log_dir.put_in_place(name, self._sequence)

    def run_now(self) -> None:
        """Run the job on this thread; durable on return. Waits for the disk."""
        error: BaseException | None = None
        try:
            self.run()
        except OSError as failure:
            error = failure
        self.done(error)
        if self._log_dir.failure is None:
            try:
                self._log_dir.directory.sync()
            except OSError as failure:
                self._table.fail(self._log_dir, failure)


class DurableCheckpoint:
    """A checkpoint that is durable, with its name, when its second job is done."""

    def __init__(
        self,
        queue: CheckpointQueue,
        job: CheckpointJob,
        log_dir: LogDirectory,
        logs: list[PartitionLog],
    ) -> None:
        self.logs = logs
        self._queue = queue
        self._job = job
        self._log_dir = log_dir

    def start(self, run_on_volume: RunOnVolume) -> Pending[None]:
        """Write it in a worker; complete when it is durable or the disk failed."""
        written: Pending[None] = Pending()

        def placed(_none: object, error: Exception | None) -> None:
            self._job.done(error)
            run_on_volume(self._job.volume, self._make_durable, durable)

        def durable(_none: object, error: Exception | None) -> None:
            self._queue.synced(self, self._log_dir, error)
            written.complete(None)

        run_on_volume(self._job.volume, self._job.run, placed)
        return written

    def run_now(self) -> None:
        """Write it on this thread, which waits for the disk."""
        self._job.run_now()

    def _make_durable(self) -> None:
        self._log_dir.directory.sync()


def write_all(
    checkpoints: Sequence[DurableCheckpoint], run_on_volume: RunOnVolume
) -> Pending[None]:
    """Write checkpoints in workers; complete when the last is done, whether or not some failed."""
    return all_done(checkpoint.start(run_on_volume) for checkpoint in checkpoints)
