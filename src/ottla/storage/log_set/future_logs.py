"""Future logs: copies of partitions in the log directory to which they move (KIP-113).

A copy lies in `topic-0.<uuid>-future`. To take the place of the partition's log its directory is
renamed, after that log's directory was marked as deleted: at no time two directories have the
partition's name, unless power fails and one of the two renames is lost. A start resolves what a
crash left from the metadata (KIP-858): the controller knows the new directory before the exchange.

Kafka: LogManager.{replaceCurrentWithFutureLog, recoverAbandonedFutureLogs}.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.errors import KafkaError, LocalDiskError
from ottla.storage.directories.partition_dir_names import future_name, marked_name, set_aside_others
from ottla.storage.layout import DELETE_SUFFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ottla.storage.directories.loader import BrokenLog, FoundLog
    from ottla.storage.directories.log_dir import LogDirectory
    from ottla.storage.log.partition_log import PartitionLog
    from ottla.storage.log_set.log_set import LogSet
    from ottla.types import TopicPartition, Uuid


class FutureLogs:
    """The future logs of a log set."""

    def __init__(self, logs: LogSet) -> None:
        self._logs = logs
        self._table = logs.table
        self._broken: dict[TopicPartition, BrokenLog] = {}

    def __iter__(self) -> Iterator[PartitionLog]:
        return iter(list(self._table.futures.values()))

    def __len__(self) -> int:
        return len(self._table.futures)

    def get(self, partition: TopicPartition) -> PartitionLog | None:
        """Return the future log of a partition, None without one."""
        return self._table.futures.get(partition)

    def log_dir_of(self, partition: TopicPartition) -> LogDirectory | None:
        """Return the directory to which a partition moves, None while it does not."""
        return self._table.future_dirs.get(partition)

    def create(
        self, partition: TopicPartition, log_dir: LogDirectory, *, topic_id: Uuid, now_ms: int
    ) -> PartitionLog:
        """Return a new future log in a directory.

        KAFKA_STORAGE_ERROR when the disk fails, or while any directory is offline: it may hold a
        future log of the partition already. ValueError when the topic's name is too long.
        """
        logs = self._logs
        logs.check_all_online(partition)
        name = future_name(partition, logs.rng)
        log = logs.open_new(log_dir, name, partition, topic_id=topic_id, now_ms=now_ms)
        self._table.add_future(log_dir, log)
        logs.flushes.request(log)
        return log

    def discard(self, partition: TopicPartition, *, now_ms: int) -> bool:
        """Delete a future log: renamed now, removed later. False when there is none.

        KAFKA_STORAGE_ERROR when the disk fails.
        """
        log = self.get(partition)
        if log is None:
            return False
        self._logs.retire(log, self._table.remove(log), now_ms)
        return True

    def promote(self, partition: TopicPartition, *, now_ms: int) -> PartitionLog:
        """Make the future log the partition's; the log that it replaces is deleted.

        KAFKA_STORAGE_ERROR when a disk fails: its directory goes offline, and the partition keeps
        its log if that is in the other one.
        """
        logs, table = self._logs, self._table
        future, log_dir = table.futures[partition], table.future_dirs[partition]
        old = table.logs.get(partition)
        if old is None:
            self._take_name(log_dir, future)
        else:
            old_dir = table.log_dirs[partition]
            old_name = marked_name(partition, DELETE_SUFFIX, logs.rng)
            self._rename(old_dir, str(partition), old_name)
            try:
                self._take_name(log_dir, future)
            except KafkaError:
                self._rename(old_dir, old_name, str(partition))
                raise
            table.remove(old)
            old.delete()
            logs.renamed_for_removal(old, old_dir, old_name, now_ms)
            logs.flushes.waits.hand_over(old, future)
            logs.cleaner_offsets.hand_over(old, future)
            future.leader_epochs.take_over(old.leader_epochs)
            future.update_high_watermark(old.high_watermark)
        table.remove(future)
        future.promoted(str(partition))
        table.add(log_dir, future)
        logs.flushes.request(future)
        logs.checkpoints.request(log_dir)
        return future

    def _take_name(self, log_dir: LogDirectory, future: PartitionLog) -> None:
        """Give a future log's directory the partition's name."""
        partition = future.topic_partition
        if future.topic_id is not None:
            try:
                set_aside_others(log_dir.directory, partition, future.topic_id)
            except OSError as error:
                raise self._failed(log_dir, future.name, str(partition), error) from error
        self._rename(log_dir, future.name, str(partition))

    def _rename(self, log_dir: LogDirectory, old: str, new: str) -> None:
        try:
            log_dir.directory.rename(old, new)
        except OSError as error:
            raise self._failed(log_dir, old, new, error) from error

    def _failed(self, log_dir: LogDirectory, old: str, new: str, error: OSError) -> KafkaError:
        self._logs.fail(log_dir, error)
        return LocalDiskError(
            f"Error while renaming dir {old} to {new} in log dir {log_dir.path}: {error}",
        )

    # Start

    def found(self, log_dir: LogDirectory, log: PartitionLog, now_ms: int) -> None:
        """Add a future log found at start; a second one of the partition is deleted."""
        if log.topic_partition in self._table.futures:
            self._logs.retire(log, log_dir, now_ms)
        else:
            self._table.add_future(log_dir, log)

    def found_broken(self, broken: Mapping[TopicPartition, BrokenLog]) -> None:
        """Add damaged future logs found at start."""
        self._broken.update(broken)

    def _identify(self, log: PartitionLog, now_ms: int) -> None:
        """Restart a copy whose topic id was lost in a power failure."""
        current = self._table.logs.get(log.topic_partition)
        if current is None or current.topic_id is None:
            log.release()
            self._table.remove(log)
            self._logs.mark_stray(log)
            return
        log.truncation.truncate_fully_and_start_at(current.log_start_offset, now_ms=now_ms)
        log.assign_topic_id(current.topic_id)

    def settle(self, now_ms: int, assigned: Callable[[FoundLog], Uuid | None]) -> None:
        """Finish the exchanges that a crash interrupted, once all directories are loaded.

        A future log becomes the partition's when the metadata have the partition in its directory
        and there is no other log in a directory that is online: as in Kafka the log of a directory
        that failed is not waited for. All other moves continue. A damaged copy is deleted when the
        partition has a log.

        Kafka: LogManager.recoverAbandonedFutureLogs, which also drops a log that is there.
        """
        for log in [log for log in self if log.topic_id is None]:
            self._identify(log, now_ms)
        logs, table = self._logs, self._table
        for log in self:
            partition = log.topic_partition
            has_other = partition in table.logs or partition in table.broken
            log_dir = table.future_dirs[partition]
            if not has_other and assigned(log) == log_dir.directory_id is not None:
                self.promote(partition, now_ms=now_ms)
        for partition, broken in self._broken.items():
            if partition in table.logs:
                logs.remove_soon(broken.log_dir, broken.name)
            else:
                table.broken.setdefault(partition, broken)
        self._broken.clear()
