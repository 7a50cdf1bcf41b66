"""Makes a log durable: flush jobs, the recovery point, a clean close.

Kafka: UnifiedLog.flush, UnifiedLog.close.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.storage.directories.partition_metadata import encode_partition_metadata
from ottla.storage.disk_errors import is_exhaustion
from ottla.storage.log.flush import FlushJob, SharedSync
from ottla.storage.producers.rebuild import ProducerRebuild

if TYPE_CHECKING:
    from ottla.storage.directory import OpenDirectory
    from ottla.storage.log.partition_log import PartitionLog


class EpochFile(NamedTuple):
    """The content of a log's leader-epoch-checkpoint, for a worker."""

    log: PartitionLog
    directory: OpenDirectory
    data: bytes
    version: int


class LogFlushes:
    """Flush jobs, the recovery point and the close of one log."""

    __slots__ = ("_log",)

    def __init__(self, log: PartitionLog) -> None:
        self._log = log

    def start(
        self, now_ms: int = 0, *, is_whole: bool = True, names: SharedSync | None = None
    ) -> FlushJob | None:
        """Return the job that makes the log durable up to its end; None when it is, or a job runs.

        Without is_whole: up to its active segment, as after a roll. Jobs of one call share `names`.
        Run the job in a worker, then call `completed` with it and the OSError, if any.
        """
        log = self._log
        if log.is_flushing or log.is_deleted:
            return None
        return self._make_flush(now_ms, names, is_whole=is_whole)

    def _make_flush(
        self, now_ms: int, names: SharedSync | None, *, is_whole: bool = True
    ) -> FlushJob | None:
        log = self._log
        end = log.log_end_offset if is_whole else log.segments.active.base_offset
        if self._is_durable_up_to(end):
            return None
        names = names or SharedSync(log.directory)
        job = FlushJob(names, offset=end, generation=log.generation)
        try:
            self._fill(job, now_ms, is_whole=is_whole)
        except OSError as error:
            if is_exhaustion(error):
                self.completed(job, error)
                return None
            job.release()
            log.fail(error)
            raise log.storage_error("flushing", error) from error
        log.flush_begins(now_ms if is_whole else None)
        return job

    @property
    def is_durable(self) -> bool:
        """Whether all changes are durable."""
        return self._is_durable_up_to(self._log.log_end_offset)

    def _is_durable_up_to(self, end: int) -> bool:
        log = self._log
        if log.is_new and log.names_version == 1:
            return True
        return (
            end <= log.recovery_point
            and log.is_cut_durable
            and self._names_are_durable
            and not log.segments.active.needs_sync  # after a cut the removed bytes may come back
            and log.metadata_is_durable
            and not log.leader_epochs.must_be_written
            and not log.producer_state.unflushed_snapshots
        )

    @property
    def _names_are_durable(self) -> bool:
        log = self._log
        return log.names_version == log.durable_names_version

    def _fill(self, job: FlushJob, now_ms: int, *, is_whole: bool) -> None:
        log = self._log
        job.names_version = log.names_version
        if not log.metadata_is_durable and log.topic_id is not None:
            job.partition_metadata = encode_partition_metadata(log.topic_id)
        epochs = log.leader_epochs
        if epochs.must_be_written or (epochs.is_dirty and job.offset > log.recovery_point):
            job.epochs = epochs.encode()
            job.epochs_version = log.leader_epochs.version
        if log.producer_state.is_stale:
            job.rebuild = ProducerRebuild(
                log.directory,
                [segment.readable() for segment in log.segments],
                log.producer_state,
                log_start_offset=log.log_start_offset,
                now_ms=now_ms,
            )
        else:
            job.snapshots = dict(log.producer_state.unflushed_snapshots)
        if (
            not self._names_are_durable
            or job.snapshots
            or job.rebuild is not None
            or job.partition_metadata is not None
            or job.epochs is not None
        ):
            job.open_directory = log.directory.open_directory(log.name)
        active = log.segments.active
        for number, segment in enumerate(log.segments):
            is_included = (
                is_whole
                if segment is active
                else log.segments.end_of(number, job.offset) > log.recovery_point
            )
            if is_included or segment.needs_sync:
                job.segments.append(segment)
                segment.needs_sync = False
                segment.pin_for_sync(job.files, is_active=segment is active)

    def completed(self, job: FlushJob, error: OSError | None = None) -> None:
        """Apply a finished job; with an error the log is fenced (never retried).

        KafkaError KAFKA_STORAGE_ERROR when the job failed: the directory goes offline.
        """
        log = self._log
        log.flush_ended()
        job.release()
        if log.is_deleted:
            return
        if error is None and job.vanished:
            error = FileNotFoundError(f"a file of {log.name} vanished")
        if is_exhaustion(error):
            self._retry_later(job)
            return
        if error is not None:
            log.fail(error)
            raise log.storage_error("flushing", error) from error
        log.flushed(job)

    def _retry_later(self, job: FlushJob) -> None:
        """Repeat the job's work later: descriptors or space ran out, the disk works."""
        log = self._log
        for segment in job.segments:
            segment.sync_again()
        log.flush_again()

    def open_epochs(self) -> EpochFile | None:
        """Return the epochs to be written without a sync; None when the file has them.

        No flush begins until `epochs_saved`. OSError when the disk fails.
        """
        log, epochs = self._log, self._log.leader_epochs
        assert not log.is_flushing
        if epochs.is_saved or log.is_deleted or log.failure is not None:
            return None
        directory = log.directory.open_directory(log.name)
        log.flush_begins()
        return EpochFile(log, directory, epochs.encode(), epochs.version)

    def epochs_saved(self, file: EpochFile, *, is_done: bool) -> None:
        """Record that a worker wrote the file, or failed."""
        self._log.flush_ended()
        file.directory.close()
        if is_done:
            self._log.leader_epochs.saved(file.version)

    def is_due(self, now_ms: int) -> bool:
        """Whether flush.messages or flush.ms require a flush up to the log's end."""
        log = self._log
        count = log.log_end_offset - log.recovery_point
        return count > 0 and (
            count >= log.config.flush_messages or now_ms - log.last_flush_ms >= log.config.flush_ms
        )

    def close(self, names: SharedSync | None = None) -> FlushJob | None:
        """Prepare a clean stop and return the last job; files close when it is done.

        Call `completed` as after `start`, and then `release`.
        """
        log = self._log
        if log.failure is None and not log.is_deleted:
            try:
                log.producer_state.take_snapshot()
                for segment in log.segments:
                    segment.close()
            except OSError as error:
                log.fail(error)
                raise log.storage_error("closing", error) from error
        return self._make_flush(log.last_flush_ms, names) if log.failure is None else None

    def close_now(self) -> None:
        """Close and run the last job on this thread; the caller calls `release`.

        KAFKA_STORAGE_ERROR when that fails.
        """
        job = self.close()
        if job is None:
            return
        error = None
        try:
            job.run()
        except OSError as failure:
            error = failure
        self.completed(job, error)
