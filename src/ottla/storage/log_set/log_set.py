"""All logs of a node in all its log directories: startup, creation, deletion, shutdown.

Its parts share one table (`table.py`) and hand out disk work as jobs: flushes, checkpoints and
removals. A directory whose disk fails goes offline with its partitions; the others stay online.

Kafka: kafka.log.LogManager.
"""

from __future__ import annotations

import logging
from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING, Final, NoReturn

from ottla.errors import KafkaError, LocalDiskError
from ottla.purgatory.work import finish
from ottla.storage.directories.loader import DirectoryLoader
from ottla.storage.directories.partition_dir_names import marked_name, set_aside_others
from ottla.storage.disk_errors import is_exhaustion
from ottla.storage.layout import (
    DELETE_SUFFIX,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    STRAY_SUFFIX,
)
from ottla.storage.log.events import LogEvents
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log_set.checkpoint_queue import CheckpointQueue
from ottla.storage.log_set.cleaner_offsets import CleanerOffsets
from ottla.storage.log_set.epoch_files import EpochFiles
from ottla.storage.log_set.flush_queue import FlushQueue, LogClosing
from ottla.storage.log_set.future_logs import FutureLogs
from ottla.storage.log_set.jobs import run_now
from ottla.storage.log_set.loading import LoadedLogs
from ottla.storage.log_set.removal_queue import Removal, RemovalQueue
from ottla.storage.log_set.table import LogTable
from ottla.storage.producers.count import DEFAULT_MAX_PRODUCERS
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Iterable, Iterator

    from ottla.purgatory.work import Work
    from ottla.storage.directories.loader import FoundLog
    from ottla.storage.directories.log_dir import LogDirectory
    from ottla.storage.directories.partition_dir_names import RandomBits
    from ottla.storage.log.config import LogConfig
    from ottla.storage.log_set.checkpoint_queue import DurableCheckpoint
    from ottla.storage.log_set.jobs import StorageJob
    from ottla.types import Uuid


_log = logging.getLogger("ottla.storage")
LOGS_IN_A_JOB: Final = 25
"""Logs that a worker makes at a time: some milliseconds."""


class LogSet:
    """The logs of one node; empty until they are loaded."""

    def __init__(
        self,
        directories: list[LogDirectory],
        *,
        config_for: Callable[[str], LogConfig],
        rng: RandomBits,
        cordoned: Collection[str] = (),
        max_producers: int = DEFAULT_MAX_PRODUCERS,
    ) -> None:
        """Take the settings of logs by topic; `cordoned` are paths, see `cordon`."""
        self.table = LogTable(directories, max_producers)
        self.checkpoints = CheckpointQueue(self.table)
        self.cleaner_offsets = CleanerOffsets(self.table, self.checkpoints)
        self.flushes = FlushQueue(self.table, self.checkpoints)
        self.epoch_files = EpochFiles(self.table, self.flushes)
        self.removals = RemovalQueue(self.table)
        self.futures = FutureLogs(self)
        self._closing = LogClosing(self.table)
        self.events = LogEvents(
            self.flushes.request,
            self.flushes.request_overdue,
            self._recovery_point_lowered,
            self.removals.segments_deleted,
            self.epoch_files.request,
        )
        self.directories = directories
        self.is_closed = False
        self.cordoned = cordoned
        self.broken = self.table.broken
        self.withheld: set[TopicPartition] = set()
        """Partitions without a log because theirs may be in an offline directory."""
        self.producers = self.table.producers
        self.preferred: dict[TopicPartition, LogDirectory] = {}
        """Directories requested for replicas that do not exist yet."""
        self.config_for = config_for
        self.rng = rng
        self.is_loaded = False
        """Whether the logs of all directories were taken."""

    def open(self) -> None:
        """Lock every directory and read how its last run ended; opening twice has no effect.

        Directories that fail are offline. KafkaError as `load`.
        """
        for log_dir in self.online_directories:
            try:
                log_dir.open()
            except OSError as error:
                self.fail_at_start(log_dir, error)

    def fail_at_start(self, log_dir: LogDirectory, error: OSError) -> None:
        """Put a directory offline; KafkaError when descriptors ran out."""
        if is_exhaustion(error):
            if not self.is_loaded:
                self._abort_start(log_dir, error)
            error = OSError(str(error))  # a directory that returns: it is tried again
        self.fail(log_dir, error)

    def load(
        self,
        now_ms: int,
        is_stray: Callable[[FoundLog], bool] | None = None,
        assigned: Callable[[FoundLog], Uuid | None] = lambda _found: None,
    ) -> None:
        """Lock and load every directory on this thread; see `loaders` and `take_loaded`."""
        loaders = self.loaders(now_ms, is_stray)
        for loader in loaders:
            run_now(loader)
        for checkpoint in finish(self.take_loaded(loaders, now_ms, assigned)):
            checkpoint.run_now()

    def loaders(
        self, now_ms: int, is_stray: Callable[[FoundLog], bool] | None = None
    ) -> list[DirectoryLoader]:
        """Return the jobs that load the directories: run them in workers, then `take_loaded`.

        `is_stray` selects the logs that no longer belong to this node; logs without a topic id
        never do.
        """
        is_stray = is_stray or (lambda _found: False)
        return [self.loader(log_dir, now_ms, is_stray) for log_dir in self.online_directories]

    def loader(
        self, log_dir: LogDirectory, now_ms: int, is_stray: Callable[[FoundLog], bool]
    ) -> DirectoryLoader:
        """Return the job that loads one directory."""
        return DirectoryLoader(log_dir, self.config_for, now_ms, self.events, is_stray)

    def take_returned(
        self, loader: DirectoryLoader, now_ms: int, assigned: Callable[[FoundLog], Uuid | None]
    ) -> Work[list[DurableCheckpoint]]:
        """Put a directory online that was offline, as `take_loaded` with its logs.

        Nothing of the time before its failure may be under way.
        """
        log_dir = loader.log_dir
        self.removals.forget(log_dir)
        for partition, broken in list(self.broken.items()):
            if broken.log_dir is log_dir:
                del self.broken[partition]
        log_dir.failure = None
        self.table.returning.add(log_dir)
        return self.take_loaded([loader], now_ms, assigned)

    def take_loaded(
        self,
        loaders: Iterable[DirectoryLoader],
        now_ms: int,
        assigned: Callable[[FoundLog], Uuid | None] = lambda _found: None,
    ) -> Work[list[DurableCheckpoint]]:
        """Take the loaded logs; return checkpoints to be written before appends.

        Directories that failed are offline. `assigned` returns the id of the directory in which the
        metadata have a log: it decides between two logs that a crash left. KafkaError when another
        process holds a directory's lock, when no directory is online, or when there are too few
        descriptors to load every log.
        """
        taking = LoadedLogs(self, now_ms, assigned)
        for loader in loaders:
            if isinstance(loader.error, OSError):
                self.fail_at_start(loader.log_dir, loader.error)
            elif loader.error is not None:
                raise loader.error
            else:
                yield from taking.take(loader)
                self.table.returning.discard(loader.log_dir)
        self.futures.settle(now_ms, assigned)
        self.is_loaded = True
        self._check_online()
        return [self.checkpoints.durable(log_dir) for log_dir in taking.outdated]

    def _check_online(self) -> None:
        if not self.online_directories:
            raise LocalDiskError(
                "Shutdown broker because none of the specified log dirs from "
                + ", ".join(log_dir.path for log_dir in self.directories)
                + " can be created or validated",
            )

    # Lookup

    def __iter__(self) -> Iterator[PartitionLog]:
        return iter(self.table)

    def __len__(self) -> int:
        return len(self.table.logs)

    def get(self, partition: TopicPartition) -> PartitionLog | None:
        """Return the log; None when it does not exist or its directory is offline."""
        return self.table.logs.get(partition)

    def log_dir_of(self, partition: TopicPartition) -> LogDirectory | None:
        """Return the log directory that holds the partition."""
        return self.table.log_dirs.get(partition)

    @property
    def online_directories(self) -> list[LogDirectory]:
        """The directories without a disk error."""
        return self.table.online_directories

    @property
    def previous_broker_epoch(self) -> int:
        """The epoch of the last clean shutdown, -1 unless all directories agree (KIP-966)."""
        epochs = {log_dir.previous_broker_epoch for log_dir in self.directories}
        return epochs.pop() if len(epochs) == 1 else -1

    @property
    def is_holding_back(self) -> bool:
        """Whether the last check left segments that are due only because of a clock jump."""
        return any(log.held_back_count for log in self)

    def fail(self, log_dir: LogDirectory, error: BaseException | None) -> list[TopicPartition]:
        """Put a directory offline; return its partitions.

        Does nothing when only file descriptors ran out.
        """
        return self.table.fail(log_dir, error)

    def take_jobs(self, now_ms: int = 0) -> list[StorageJob]:
        """Return the pending flushes, epochs and checkpoints: run each in a worker, then `done`.

        Some may be left for the next call. flush.ms counts from now_ms on.
        """
        return self.flushes.take(now_ms) + self.epoch_files.take() + self.checkpoints.take()

    def _recovery_point_lowered(self, log: PartitionLog) -> None:
        self.cleaner_offsets.truncated(log)
        self.checkpoints.recovery_point_lowered(log)

    def _abort_start(self, log_dir: LogDirectory, error: OSError) -> NoReturn:
        """Abort a startup without descriptors: missing logs would be recreated empty."""
        for log in self:
            log.release()
        for directory in self.directories:
            directory.release()
        raise LocalDiskError(
            f"no descriptor was left to load the logs in {log_dir.path}: {error}; raise the "
            "limit on open files (ulimit -n), then start again",
        ) from error

    def mark_stray(self, log: FoundLog) -> None:
        """Rename a stray log: it is neither deleted nor served."""
        new_name = marked_name(log.topic_partition, STRAY_SUFFIX, self.rng)
        log.directory.rename(log.name, new_name)
        _log.warning(
            "the log %s belongs to no partition of this node: it is called %s now and keeps all "
            "its files; remove it when they are not needed",
            log.name,
            new_name,
            extra={"event": "log.stray"},
        )

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
        """Return the log, created when missing, in the requested directory or the emptiest one.

        INCONSISTENT_TOPIC_ID when the log has another topic id, KAFKA_STORAGE_ERROR when the disk
        fails, no directory is online, or the log of an existing partition may be in one that is
        offline.
        """
        log = self.get(partition)
        if log is not None:
            self.withheld.discard(partition)
            log.assign_topic_id(topic_id)
            return log
        if partition in self.broken:
            broken = self.broken[partition]
            raise LocalDiskError(str(broken)) from broken.error
        self._refuse_second(partition, is_new=is_new)
        self.withheld.discard(partition)
        log_dir, log = self._make(partition, topic_id, now_ms, directory_id)
        self.table.add(log_dir, log)
        self.flushes.request(log)
        return log

    def _make(
        self, partition: TopicPartition, topic_id: Uuid, now_ms: int, directory_id: Uuid | None
    ) -> tuple[LogDirectory, PartitionLog]:
        """Create a log; in another directory when the first one fails."""
        name = str(partition)
        while True:
            log_dir = self.preferred.get(partition)
            if log_dir is None or not log_dir.is_online:
                log_dir = self._choose(directory_id)
            try:
                log = self.open_new(log_dir, name, partition, topic_id=topic_id, now_ms=now_ms)
            except KafkaError:
                if log_dir.is_online or not self.online_directories:
                    raise
            else:
                return log_dir, log

    def open_new(
        self,
        log_dir: LogDirectory,
        name: str,
        partition: TopicPartition,
        *,
        topic_id: Uuid,
        now_ms: int,
    ) -> PartitionLog:
        """Return a new log in a directory of this name; the caller adds it to the table.

        KAFKA_STORAGE_ERROR when the disk fails.
        """
        # The previous topic's offsets must not come back after a crash (KAFKA-12257). A worker has
        # written the checkpoint, except for internal topics and for moves of replicas.
        self.checkpoints.write_gone_now(log_dir, [partition])
        try:
            set_aside_others(log_dir.directory, partition, topic_id)
            log = PartitionLog.open(
                log_dir.directory,
                name,
                topic_partition=partition,
                topic_id=topic_id,
                config=self.config_for(partition.topic),
                now_ms=now_ms,
                clean=True,
                events=self.events,
            )
        except OSError as error:
            self.fail(log_dir, error)
            raise LocalDiskError(
                f"Error while creating log for {partition} in dir {log_dir.path}: {error}",
            ) from error
        self.preferred.pop(partition, None)
        return log

    def creation_jobs(
        self, partitions: Iterable[tuple[TopicPartition, Uuid]], *, now_ms: int
    ) -> list[StorageJob]:
        """Return the jobs that make the logs of new partitions: run them in workers.

        None of the partitions may have a log, nor get one before the jobs are done. A partition
        whose log could not be made has none then; `get_or_create` raises the reason.
        """
        counts = self._log_counts()
        planned: dict[LogDirectory, list[tuple[TopicPartition, Uuid]]] = {}
        for partition, topic_id in partitions:
            log_dir = self.preferred.pop(partition, None)
            if log_dir is None or not log_dir.is_online:
                log_dir = min(self._candidates(None), key=lambda one: counts[one.path])
            counts[log_dir.path] += 1
            planned.setdefault(log_dir, []).append((partition, topic_id))
        for log_dir, of in planned.items():
            self.checkpoints.write_gone_now(log_dir, [name for name, _ in of])  # as in `open_new`
        return [
            LogCreation(
                self.table,
                log_dir,
                of[start : start + LOGS_IN_A_JOB],
                config_for=self.config_for,
                events=self.events,
                now_ms=now_ms,
            )
            for log_dir, of in planned.items()
            for start in range(0, len(of), LOGS_IN_A_JOB)
        ]

    def is_missing(self, partition: TopicPartition) -> bool:
        """Whether a partition has neither a log nor one that cannot be opened."""
        return partition not in self.table.logs and partition not in self.broken

    def _refuse_second(self, partition: TopicPartition, *, is_new: bool) -> None:
        if not is_new and len(self.online_directories) < len(self.directories):
            self.withheld.add(partition)
            self.check_all_online(partition)

    def check_all_online(self, partition: TopicPartition) -> None:
        """Raise KAFKA_STORAGE_ERROR while a directory is offline: it may hold such a log."""
        offline = [log_dir.path for log_dir in self.directories if not log_dir.is_online]
        if offline:
            raise LocalDiskError(
                f"Can not create log for {partition} because log directories "
                f"{', '.join(offline)} are offline",
            )

    def _choose(self, directory_id: Uuid | None) -> LogDirectory:
        candidates = self._candidates(directory_id)
        if len(candidates) == 1:
            return candidates[0]
        counts = self._log_counts()
        return min(candidates, key=lambda log_dir: counts[log_dir.path])

    def _log_counts(self) -> Counter[str]:
        return Counter(
            {log_dir.path: len(self.table.logs_in(log_dir)) for log_dir in self.directories}
        )

    def _candidates(self, directory_id: Uuid | None) -> list[LogDirectory]:
        """Return the directories that may hold a new log."""
        online = self.online_directories
        if directory_id is not None:
            online = [
                log_dir for log_dir in online if log_dir.directory_id == directory_id
            ] or online
        if not online:
            raise LocalDiskError("all log directories are offline")
        online = [log_dir for log_dir in online if log_dir.path not in self.cordoned] or online
        return [log_dir for log_dir in online if not log_dir.is_short_of_space] or online

    def delete(self, partition: TopicPartition, *, now_ms: int) -> bool:
        """Delete a log: renamed now, removed after file.delete.delay.ms. False when not found.

        Also its copy in another directory.
        """
        self.withheld.discard(partition)
        try:
            self.futures.discard(partition, now_ms=now_ms)
        finally:
            is_found = self._delete(partition, now_ms)
        return is_found

    def _delete(self, partition: TopicPartition, now_ms: int) -> bool:
        log = self.get(partition)
        if log is None:
            broken = self.broken.pop(partition, None)
            if broken is not None and broken.log_dir.is_online:
                self._mark_deleted(partition, broken.log_dir, now_ms)
            return broken is not None
        log_dir = self.table.remove(log)
        self.retire(log, log_dir, now_ms)
        return True

    def retire(self, log: PartitionLog, log_dir: LogDirectory, now_ms: int) -> None:
        """Delete a log that was removed from the table, as `delete`."""
        log.delete()
        try:
            self._mark_deleted(log.topic_partition, log_dir, now_ms, log)
        finally:
            self.flushes.waits.settle(log)

    def _mark_deleted(
        self,
        partition: TopicPartition,
        log_dir: LogDirectory,
        now_ms: int,
        log: PartitionLog | None = None,
    ) -> None:
        new_name = marked_name(partition, DELETE_SUFFIX, self.rng)
        old_name = str(partition) if log is None else log.name
        try:
            log_dir.directory.rename(old_name, new_name)
        except OSError as error:
            self.fail(log_dir, error)
            raise LocalDiskError(
                f"Error while renaming dir for {partition} in log dir {log_dir.path}: {error}",
            ) from error
        if log is not None:
            self.renamed_for_removal(log, log_dir, new_name, now_ms)
            return
        due_ms = now_ms + self.config_for(partition.topic).file_delete_delay_ms
        self.removals.add(Removal(due_ms, log_dir, new_name))
        self.checkpoints.request(log_dir)

    def renamed_for_removal(
        self, log: PartitionLog, log_dir: LogDirectory, name: str, now_ms: int
    ) -> None:
        """Remove the directory of a log, which was renamed, after file.delete.delay.ms."""
        log.renamed(name)
        due_ms = now_ms + log.config.file_delete_delay_ms
        self.removals.add(Removal(due_ms, log_dir, name, log))
        self.checkpoints.request(log_dir)

    def remove_soon(self, log_dir: LogDirectory, name: str) -> None:
        """Remove a directory without delay."""
        self.removals.add(Removal(0, log_dir, name))

    def cordon(self, paths: Collection[str]) -> None:
        """Give these directories no new logs while another one is available (KIP-1066)."""
        self.cordoned = paths

    def reconfigure(self, topic: str, indexes: Iterable[int]) -> None:
        """Apply a topic's new settings to the logs of these partitions."""
        config = self.config_for(topic)
        logs, futures = self.table.logs, self.table.futures
        for index in indexes:
            name = TopicPartition(topic, index)
            if name in logs:
                logs[name].reconfigure(config)
            if name in futures:
                futures[name].reconfigure(config)

    # Stop

    def closing_jobs(self) -> list[Iterator[list[StorageJob]]]:
        """Close the logs as `shutdown` does, but let the caller run what waits for the disk.

        There is an iterator for each directory; a list of it must be done before the next is taken.
        """
        online = self.online_directories if self.is_loaded else ()
        return [self._closing.batches(log_dir) for log_dir in online]

    def shutdown(self, broker_epoch: int = -1) -> None:
        """Flush and close all logs; write the clean shutdown marker where all is durable.

        Waits for the disk; `closing_jobs` may have run in workers before. A running
        `RetentionCheck` must have stopped (KAFKA-13315). Logs that were never loaded are not
        recovered: their checkpoints stay, and the next start recovers them. So it is in a directory
        that returns, until all its logs are taken.
        """
        if self.is_closed:
            return
        self.is_closed = True
        for jobs in chain.from_iterable(self.closing_jobs()):
            for job in jobs:
                run_now(job)
        for log_dir in self.online_directories if self.is_loaded else ():
            if log_dir in self.table.returning:
                continue
            try:
                self.checkpoints.write_all_now(log_dir)
                if log_dir.is_online and self._is_settled(log_dir):
                    log_dir.mark_clean(broker_epoch)
            except (OSError, KafkaError) as error:
                self.fail(log_dir, error.__cause__ if isinstance(error, KafkaError) else error)
        for log_dir in self.directories:
            log_dir.release()

    def _is_settled(self, log_dir: LogDirectory) -> bool:
        """Whether the next start may trust all files; not after descriptors ran out."""
        names = (RECOVERY_POINT_CHECKPOINT, LOG_START_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT)
        if any(broken.log_dir is log_dir for broken in self.broken.values()):
            return False  # a clean start would not search for the damage again
        return not any(map(log_dir.is_outdated, names)) and all(
            log.failure is None and log.flushes.is_durable for log in self.table.logs_in(log_dir)
        )


class LogCreation:
    """Creates logs in one directory, in a worker: each new file may wait for the disk.

    Logs that fail are left to the caller. Kafka: LogManager.getOrCreateLog, which waits in the
    thread that applies metadata.
    """

    def __init__(
        self,
        table: LogTable,
        log_dir: LogDirectory,
        partitions: list[tuple[TopicPartition, Uuid]],
        *,
        config_for: Callable[[str], LogConfig],
        events: LogEvents,
        now_ms: int,
    ) -> None:
        self._table = table
        self._log_dir = log_dir
        self._partitions = partitions
        self._config_for = config_for
        self._events = events
        self._now_ms = now_ms
        self._configs = {name.topic: config_for(name.topic) for name, _ in partitions}
        self._opened: list[PartitionLog] = []

    @property
    def volume(self) -> Hashable:
        """The volume whose disk it waits for."""
        return self._log_dir.directory.volume

    def run(self) -> None:
        """Create the directories and their files."""
        for partition, topic_id in self._partitions:
            set_aside_others(self._log_dir.directory, partition, topic_id)
            log = PartitionLog.open(
                self._log_dir.directory,
                str(partition),
                topic_partition=partition,
                topic_id=topic_id,
                config=self._configs[partition.topic],
                now_ms=self._now_ms,
                clean=True,
                events=self._events,
            )
            self._opened.append(log)

    def done(self, error: BaseException | None) -> None:
        """Add the logs to the set; a disk that failed takes its directory offline."""
        log_dir = self._log_dir
        if isinstance(error, OSError):
            self._table.fail(log_dir, error)
        for log in self._opened:
            if log_dir.is_online:
                self._add(log)
            else:
                log.release()

    def _add(self, log: PartitionLog) -> None:
        self._table.add(self._log_dir, log)
        topic = log.topic_partition.topic
        config = self._config_for(topic)
        if config != self._configs[topic]:
            log.reconfigure(config)  # changed meanwhile
