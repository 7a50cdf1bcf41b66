"""All logs of a node over all its log directories: start, creation, deletion, upkeep, stop.

What waits for the disk is handed out by `take_jobs`; each job has `run`, for a worker, and `done`,
for the node's loop. A directory whose disk fails goes offline with its partitions; the others live.

Kafka: kafka.log.LogManager.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from ottla.errors import ErrorCode, KafkaError
from ottla.storage.checkpoints import (
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)
from ottla.storage.directory_loader import DirectoryLoader
from ottla.storage.disk_errors import is_exhaustion
from ottla.storage.flush_waits import FlushWaits
from ottla.storage.log_folders import DELETE_SUFFIX, STRAY_SUFFIX, marked_name, marked_topic
from ottla.storage.log_jobs import (
    CheckpointJob,
    LogFlush,
    Removal,
    RemovalJob,
    SegmentRemovalJob,
)
from ottla.storage.partition_log import PartitionLog
from ottla.storage.producer_count import ProducerCount
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from ottla.purgatory.pending import Pending
    from ottla.storage.directory_loader import BrokenLog
    from ottla.storage.log_config import LogConfig
    from ottla.storage.log_dir import LogDirectory
    from ottla.storage.log_folders import RandomBits
    from ottla.storage.log_jobs import StorageJob
    from ottla.storage.log_state import LogState
    from ottla.types import Uuid


MOST_FLUSHES = 128
"""Begun at a time: each holds descriptors, and ten thousand logs may want one at once."""
MOST_REMOVALS = 512
"""Logs that lose deleted segments' files in one call."""


class LogSet:
    """The logs of one node; made by `open`."""

    def __init__(
        self,
        directories: list[LogDirectory],
        *,
        config_for: Callable[[str], LogConfig],
        rng: RandomBits,
    ) -> None:
        self.directories = directories
        self.is_closed = False
        self.cordoned: Collection[str] = frozenset()
        """Paths of directories that get no new logs, while another one can take them."""
        self.broken: dict[TopicPartition, BrokenLog] = {}
        """Logs whose flushed bytes are damaged: neither served nor cut; an operator decides."""
        self.withheld: set[TopicPartition] = set()
        """Partitions that got no log because theirs may lie in a directory that is offline."""
        self.flush_waits = FlushWaits()
        self.on_flush_awaited: Callable[[LogState], None] = _nobody
        """Called when an answer waits for a log's flush: run what `take_flush` returns soon."""
        self._config_for = config_for
        self._rng = rng
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self._homes: dict[TopicPartition, LogDirectory] = {}
        self._wanting_flush: dict[TopicPartition, PartitionLog] = {}
        self.flushes_under_way = 0
        self._wanting_checkpoint: dict[str, LogDirectory] = {}
        self._removals: list[Removal] = []
        self._with_deleted_segments: dict[TopicPartition, PartitionLog] = {}
        self._checkpointed: dict[TopicPartition, int] = {}
        self.producers = ProducerCount()
        """The producers of all these logs together."""

    @classmethod
    def open(
        cls,
        directories: Sequence[LogDirectory],
        *,
        config_for: Callable[[str], LogConfig],
        now_ms: int,
        rng: RandomBits,
        is_stray: Callable[[PartitionLog], bool] | None = None,
    ) -> LogSet:
        """Lock and load every directory; those that fail are offline, not fatal.

        `is_stray` says which logs are not ours any more; logs without a topic id never are.
        KafkaError when a directory is locked by somebody else, when none is left, or when there are
        too few descriptors: that says nothing about a disk, but logs would be missing.
        """
        self = cls(
            list(directories),
            config_for=config_for,
            rng=rng,
        )
        for home in self.directories:
            try:
                home.open()
                self._load(home, now_ms, is_stray)
            except OSError as error:
                if is_exhaustion(error):
                    self._give_up(home, error)
                self.fail(home, error)
        if not self.online_directories:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                "Shutdown broker because none of the specified log dirs from "
                + ", ".join(home.path for home in directories)
                + " can be created or validated",
            )
        return self

    # Loading

    def _give_up(self, home: LogDirectory, error: OSError) -> NoReturn:
        """End a start that has no descriptors: logs that are not loaded would begin anew, empty."""
        for log in self:
            log.release()
        for one in self.directories:
            one.release()
        raise KafkaError(
            ErrorCode.KAFKA_STORAGE_ERROR,
            f"no descriptor was left to load the logs in {home.path}: {error}; raise the limit on "
            "open files (ulimit -n), then start again",
        ) from error

    def _load(
        self, home: LogDirectory, now_ms: int, is_stray: Callable[[PartitionLog], bool] | None
    ) -> None:
        loader = DirectoryLoader(home, self._config_for, now_ms)
        has_strays = False
        for log in loader.logs():
            if log.topic_id is None or (is_stray is not None and is_stray(log)):
                self._set_aside(home, log)
                has_strays = True
            else:
                self._add(home, log)
        self.broken.update(loader.broken)
        for name in loader.deleted:
            delay_ms = self._config_for(marked_topic(name)).file_delete_delay_ms
            self._removals.append(Removal(now_ms + delay_ms, home, name))
        self._checkpointed.update(loader.recovery_points)
        # bytes written from now on are not flushed ones, nor are those of a stray's successor
        if has_strays or any(
            log.recovery_point < loader.recovery_points.get(log.topic_partition, 0)
            for log in self._logs_in(home)
        ):
            self._checkpoint_now(home)

    def _set_aside(self, home: LogDirectory, log: PartitionLog) -> None:
        """Rename a log that is not ours: never deleted, never served."""
        log.release()
        new_name = marked_name(log.topic_partition, STRAY_SUFFIX, self._rng)
        home.directory.rename(log.name, new_name)

    def _add(self, home: LogDirectory, log: PartitionLog) -> None:
        partition = log.topic_partition
        if partition in self._logs:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"Duplicate log directories found for {partition}: {self._homes[partition].path} "
                f"and {home.path}",
            )
        self._logs[partition] = log
        log.producer_state.count_in(self.producers)
        self._homes[partition] = home
        log.on_flush_wanted = self._want_flush
        log.on_flush_overdue = self._flush_overdue
        log.on_recovery_point_lowered = self._recovery_point_lowered

    # Questions

    def __iter__(self) -> Iterator[PartitionLog]:
        return iter(list(self._logs.values()))

    def __len__(self) -> int:
        return len(self._logs)

    def get(self, partition: TopicPartition) -> PartitionLog | None:
        """Return the log, None when it is not here or its directory is offline."""
        return self._logs.get(partition)

    def home_of(self, partition: TopicPartition) -> LogDirectory | None:
        """Return the log directory that holds the partition."""
        return self._homes.get(partition)

    @property
    def online_directories(self) -> list[LogDirectory]:
        """The directories without a disk error."""
        return [home for home in self.directories if home.is_online]

    @property
    def previous_broker_epoch(self) -> int:
        """The epoch of the last clean stop, -1 unless all directories agree (KIP-966)."""
        epochs = {home.previous_broker_epoch for home in self.directories}
        return epochs.pop() if len(epochs) == 1 else -1

    # Creation and deletion

    def get_or_create(
        self,
        partition: TopicPartition,
        *,
        topic_id: Uuid,
        now_ms: int,
        directory_id: Uuid | None = None,
        is_new: bool = True,
    ) -> PartitionLog:
        """Return the log, made when missing, in the directory asked for or the emptiest one.

        INCONSISTENT_TOPIC_ID when another incarnation is here, KAFKA_STORAGE_ERROR when the disk
        fails, no directory is online, or the log of a partition that is not new may lie in one
        that is offline.
        """
        log = self._logs.get(partition)
        if log is not None:
            log.assign_topic_id(topic_id)
            return log
        if partition in self.broken:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"The log of {partition} is damaged: {self.broken[partition].error}",
            ) from self.broken[partition].error
        self._refuse_second(partition, is_new=is_new)
        home = self._choose(directory_id)
        if home.path in self._wanting_checkpoint or home.is_behind(RECOVERY_POINT_CHECKPOINT):
            # the last incarnation's offsets must not come back after a crash (KAFKA-12257)
            self._checkpoint_now(home)
        try:
            log = PartitionLog.open(
                home.directory,
                str(partition),
                topic_partition=partition,
                topic_id=topic_id,
                config=self._config_for(partition.topic),
                now_ms=now_ms,
                clean=True,
            )
        except OSError as error:
            self.fail(home, error)
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"Error while creating log for {partition} in dir {home.path}: {error}",
            ) from error
        self._add(home, log)
        self._want_flush(log)
        return log

    def _refuse_second(self, partition: TopicPartition, *, is_new: bool) -> None:
        offline = [home.path for home in self.directories if not home.is_online]
        if offline and not is_new:
            self.withheld.add(partition)
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"Can not create log for {partition} because log directories "
                f"{', '.join(offline)} are offline",
            )

    def _choose(self, directory_id: Uuid | None) -> LogDirectory:
        online = self.online_directories
        if directory_id is not None:
            online = [home for home in online if home.directory_id == directory_id] or online
        if not online:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "all log directories are offline")
        online = [home for home in online if home.path not in self.cordoned] or online
        online = [home for home in online if not home.is_short_of_space] or online
        if len(online) == 1:
            return online[0]
        counts = {home.path: 0 for home in online}
        for home in self._homes.values():
            if home.path in counts:
                counts[home.path] += 1
        return min(online, key=lambda home: counts[home.path])

    def delete(self, partition: TopicPartition, *, now_ms: int) -> bool:
        """Take a log away: renamed now, removed after file.delete.delay.ms. False when not here."""
        self.withheld.discard(partition)
        log = self._logs.pop(partition, None)
        if log is None:
            broken = self.broken.pop(partition, None)
            if broken is not None and broken.home.is_online:
                self._take_away(partition, broken.home, now_ms)
            return broken is not None
        home = self._homes.pop(partition)
        self._forget(partition)
        log.producer_state.count_in(ProducerCount())
        log.is_deleted = True
        log.release()
        try:
            self._take_away(partition, home, now_ms, log)
        finally:
            self.flush_waits.settle(log)
        return True

    def _take_away(
        self,
        partition: TopicPartition,
        home: LogDirectory,
        now_ms: int,
        log: PartitionLog | None = None,
    ) -> None:
        new_name = marked_name(partition, DELETE_SUFFIX, self._rng)
        try:
            home.directory.rename(str(partition), new_name)
        except OSError as error:
            self.fail(home, error)
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"Error while renaming dir for {partition} in log dir {home.path}: {error}",
            ) from error
        config = self._config_for(partition.topic)
        if log is not None:
            log.renamed(new_name)
            config = log.config
        due_ms = now_ms + config.file_delete_delay_ms
        self._removals.append(Removal(due_ms, home, new_name, log))
        self._wanting_checkpoint[home.path] = home

    def _forget(self, partition: TopicPartition) -> None:
        self._wanting_flush.pop(partition, None)
        self._with_deleted_segments.pop(partition, None)
        self._checkpointed.pop(partition, None)

    def reconfigure(self, topic: str, indexes: Iterable[int]) -> None:
        """Hand a topic's new settings to the logs of these partitions that are here."""
        config = self._config_for(topic)
        for index in indexes:
            log = self._logs.get(TopicPartition(topic, index))
            if log is not None:
                log.reconfigure(config)

    # Upkeep

    def _want_flush(self, log: LogState) -> None:
        partition = log.topic_partition
        if self._logs.get(partition) is not log:
            return
        self._wanting_flush[partition] = self._logs[partition]
        if log.log_start_offset > log.segments[0].base_offset:
            self._wanting_checkpoint[self._homes[partition].path] = self._homes[partition]

    def _flush_overdue(self, log: LogState) -> None:
        self._want_flush(log)
        self.flush_waits.overdue.append(log)

    def await_flushes(self) -> dict[TopicPartition, Pending[None]]:
        """Have the logs flushed that reached flush.messages since the last call, and tell when.

        The Pending of a log fails with KAFKA_STORAGE_ERROR when its disk does.
        """
        logs = list(self.flush_waits.overdue)
        waits = self.flush_waits.take()
        for log in logs:
            self.on_flush_awaited(log)
        return waits

    def take_flush(self, log: LogState, now_ms: int) -> list[StorageJob]:
        """Return the job that makes a log durable; nothing while one runs or when it is."""
        found = self._logs.get(log.topic_partition)
        if found is not log:
            self.flush_waits.settle(log)
        elif not found.is_flushing:
            self._wanting_flush.pop(found.topic_partition, None)
            return self._begin_flush(found, now_ms)
        return []

    def _begin_flush(self, log: PartitionLog, now_ms: int) -> list[StorageJob]:
        try:
            is_whole = log in self.flush_waits or log.is_flush_due(now_ms)
            job = log.start_flush(now_ms, is_whole=is_whole)
        except KafkaError as error:
            self.fail(self._homes[log.topic_partition], error.__cause__)
            return []
        if job is not None:
            return [LogFlush(self, log, job)]
        self.flush_waits.settle(log)
        return []

    def flush_done(self, log: LogState, *, may_go_on: bool) -> None:
        """Tell who waited for it, and go on for those who appended meanwhile."""
        self.flush_waits.settle(log)
        if may_go_on and log in self.flush_waits:
            self.on_flush_awaited(log)

    def _recovery_point_lowered(self, log: LogState) -> None:
        """Write the checkpoint at once when the one on the disk, or under way, says more.

        KAFKA_STORAGE_ERROR when there is no descriptor for that: nothing may be cut then.
        """
        partition = log.topic_partition
        home = self._homes.get(partition)
        if home is None:
            return
        said = self._checkpointed.get(partition, 0)
        if log.recovery_point < said or home.checkpoints_under_way:
            self._checkpoint_now(home)
            if home.is_online and home.is_behind(RECOVERY_POINT_CHECKPOINT):
                raise KafkaError(
                    ErrorCode.KAFKA_STORAGE_ERROR,
                    f"no descriptor was left to write a checkpoint in {home.path} before "
                    f"{partition} is truncated",
                )

    def _checkpoint_now(self, home: LogDirectory) -> None:
        self._wanting_checkpoint.pop(home.path, None)
        self._checkpoint_job(home).run_now()

    def want_checkpoint(self, home: LogDirectory) -> None:
        """Ask for recovery-point and log-start checkpoints of one directory."""
        self._wanting_checkpoint[home.path] = home

    def take_jobs(self, now_ms: int = 0) -> list[StorageJob]:
        """Return the work for the disk that has come up: run each in a worker, then `done`.

        Some flushes may be left for the next call. flush.ms counts from now_ms on.
        """
        jobs: list[StorageJob] = []
        for partition, log in list(self._wanting_flush.items()):
            if self.flushes_under_way >= MOST_FLUSHES:
                break
            if log.is_flushing or self._wanting_flush.pop(partition, None) is None:
                continue  # or its directory went offline with a log before it
            jobs.extend(self._begin_flush(log, now_ms))
        jobs.extend(self._checkpoint_job(home) for home in self._wanting_checkpoint.values())
        self._wanting_checkpoint.clear()
        return jobs

    def checkpoint_recovery_points(self) -> None:
        """Ask for recovery-point and log-start checkpoints of every directory."""
        for home in self.online_directories:
            self._wanting_checkpoint[home.path] = home

    def _logs_in(self, home: LogDirectory) -> list[PartitionLog]:
        return [log for partition, log in self._logs.items() if self._homes[partition] is home]

    def _checkpoint_job(self, home: LogDirectory) -> CheckpointJob:
        logs = self._logs_in(home)
        recovery_points = {log.topic_partition: log.recovery_point for log in logs}
        starts = {
            log.topic_partition: log.log_start_offset
            for log in logs
            if log.log_start_offset > log.segments[0].base_offset
        }
        for partition, broken in self.broken.items():
            if broken.home is home:
                recovery_points[partition] = broken.recovery_point
                starts[partition] = broken.log_start_offset
        return CheckpointJob(
            self,
            home,
            {RECOVERY_POINT_CHECKPOINT: recovery_points, LOG_START_CHECKPOINT: starts},
        )

    def high_watermark_jobs(self) -> list[StorageJob]:
        """Return the jobs that write `replication-offset-checkpoint` everywhere."""
        return [self._high_watermark_job(home) for home in self.online_directories]

    def _high_watermark_job(self, home: LogDirectory) -> CheckpointJob:
        marks = {log.topic_partition: log.high_watermark for log in self._logs_in(home)}
        return CheckpointJob(self, home, {HIGH_WATERMARK_CHECKPOINT: marks})

    def checkpoint_written(self, recovery_points: Mapping[TopicPartition, int]) -> None:
        """Take note of what the recovery-point checkpoint says now."""
        for partition, offset in recovery_points.items():
            if partition in self._logs:
                self._checkpointed[partition] = offset

    def segments_deleted(self, log: PartitionLog) -> None:
        """Take note that a log has segments whose files are to be removed."""
        if self._logs.get(log.topic_partition) is log:
            self._with_deleted_segments[log.topic_partition] = log

    @property
    def is_holding_back(self) -> bool:
        """Whether the last check left segments that only a step of the clock makes due."""
        return any(log.held_back_count for log in self._logs.values())

    def remove_due(self, now_ms: int) -> list[StorageJob]:
        """Return the jobs that remove what was deleted long enough ago.

        Some segments may be left for the next call.
        """
        due = [entry for entry in self._removals if entry.is_due(now_ms)]
        self._removals = [entry for entry in self._removals if not entry.is_due(now_ms)]
        jobs: list[StorageJob] = [RemovalJob(self, one) for one in due if one.home.is_online]
        return jobs + self._remove_due_segments(now_ms)

    def remove_later(self, removal: Removal) -> None:
        """Take up a removal that could not be done."""
        self._removals.append(removal)

    def _remove_due_segments(self, now_ms: int) -> list[StorageJob]:
        jobs: list[StorageJob] = []
        for partition, log in list(self._with_deleted_segments.items()):
            if len(jobs) >= MOST_REMOVALS:
                break
            paths = [path for segment in log.take_removable(now_ms) for path in segment.let_go()]
            if paths:
                jobs.append(SegmentRemovalJob(self, self._homes[partition], paths))
            if not log.has_deleted_segments:
                del self._with_deleted_segments[partition]
        return jobs

    def want_due_flushes(self, now_ms: int) -> None:
        """Ask for the flushes that flush.ms or flush.messages make due."""
        for log in self._logs.values():
            if log.is_flush_due(now_ms):
                self._want_flush(log)

    def fail(self, home: LogDirectory, error: BaseException | None) -> list[TopicPartition]:
        """Put a directory offline; return the partitions that went with it.

        Nothing happens when only descriptors ran out.
        """
        if is_exhaustion(error):
            return []
        if home.failure is None:
            home.failure = error if isinstance(error, OSError) else OSError(str(error))
        gone = [partition for partition, place in self._homes.items() if place is home]
        lost = [self._logs.pop(partition) for partition in gone]
        for log in lost:
            log.producer_state.count_in(ProducerCount())
            log.failure = log.failure or home.failure
            log.release()
            del self._homes[log.topic_partition]
            self._forget(log.topic_partition)
        self._removals = [entry for entry in self._removals if entry.home is not home]
        self._wanting_checkpoint.pop(home.path, None)
        for log in lost:
            self.flush_waits.settle(log)
        return gone

    # Stop

    def shutdown(self, broker_epoch: int = -1) -> None:
        """Flush and close everything; leave a clean marker where all is durable.

        Waits for the disk: the node's loop has nothing else to do by then. A
        `RetentionCheck` under way must have stopped (KAFKA-13315).
        """
        if self.is_closed:
            return
        self.is_closed = True
        for home in self.online_directories:
            try:
                self._close_logs(home)
                self._checkpoint_now(home)
                self._high_watermark_job(home).run_now()
                if home.is_online and self._is_settled(home):
                    home.mark_clean(broker_epoch)
            except (OSError, KafkaError) as error:
                self.fail(home, error.__cause__ if isinstance(error, KafkaError) else error)
        for home in self.directories:
            home.release()

    def _is_settled(self, home: LogDirectory) -> bool:
        """Whether the next start may trust all it finds; without descriptors it may not."""
        names = (RECOVERY_POINT_CHECKPOINT, LOG_START_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT)
        is_behind = any(map(home.is_behind, names))
        return not is_behind and all(log.is_durable for log in self._logs_in(home))

    def _close_logs(self, home: LogDirectory) -> None:
        for log in self._logs_in(home):
            log.close_now()
            if log.failure is not None:
                raise log.failure
            log.release()


def _nobody(_log: LogState) -> None:
    """Stand in for an owner who asks `take_jobs` now and then."""
