"""What makes a log durable: flush jobs, the recovery point, a clean close.

Kafka: UnifiedLog.flush, UnifiedLog.close.
"""

from __future__ import annotations

from ottla.storage.directories.partition_metadata import encode_partition_metadata
from ottla.storage.disk_errors import is_exhaustion
from ottla.storage.log.flush import FlushJob
from ottla.storage.log.state import LogState
from ottla.storage.producers.snapshot import SNAPSHOT_SUFFIX
from ottla.storage.segments.segment import file_name


class DurableLog(LogState):
    """A log whose unflushed part can be handed out as a job."""

    def start_flush(self, now_ms: int = 0, *, is_whole: bool = True) -> FlushJob | None:
        """Hand out what makes the log durable up to its end; None when it is, or a job runs.

        When it is not to be whole: up to its active segment, as a roll asks for. Run the job in a
        worker, then call `flush_completed` with it and the OSError, if any.
        """
        if self.is_flushing or self.is_deleted:
            return None
        return self._make_flush(now_ms, is_whole=is_whole)

    def _make_flush(self, now_ms: int, *, is_whole: bool = True) -> FlushJob | None:
        end = self.log_end_offset if is_whole else self.segments.active.base_offset
        if self._is_durable_up_to(end):
            return None
        job = FlushJob(self.directory, offset=end, generation=self._generation)
        try:
            self._fill(job, is_whole=is_whole)
        except OSError as error:
            if is_exhaustion(error):
                self.flush_completed(job, error)
                return None
            job.release()
            self.failure = error
            raise self._storage_error("flushing", error) from error
        self.is_flushing = True
        if is_whole:
            self._last_flush_ms = max(self._last_flush_ms, now_ms)
        return job

    @property
    def is_durable(self) -> bool:
        """Whether nothing is left for a flush to do."""
        return self._is_durable_up_to(self.log_end_offset)

    def _is_durable_up_to(self, end: int) -> bool:
        return (
            end <= self.recovery_point
            and self._names_are_durable
            and self._metadata_is_durable
            and not self.leader_epochs.is_dirty
            and not self.producer_state.unsynced_snapshots
        )

    @property
    def _names_are_durable(self) -> bool:
        return self._names_version == self._durable_names_version

    def _fill(self, job: FlushJob, *, is_whole: bool) -> None:
        job.names_version = self._names_version
        if not self._metadata_is_durable and self.topic_id is not None:
            job.partition_metadata = encode_partition_metadata(self.topic_id)
        if self.leader_epochs.is_dirty:
            job.epochs = self.leader_epochs.encode()
            job.epochs_version = self.leader_epochs.version
        job.snapshots = [
            file_name(offset, SNAPSHOT_SUFFIX) for offset in self.producer_state.unsynced_snapshots
        ]
        self.producer_state.unsynced_snapshots = []
        if (
            not self._names_are_durable
            or job.snapshots
            or job.partition_metadata is not None
            or job.epochs is not None
        ):
            job.open_directory = self.directory.open_directory(self.name)
        active = self.segments.active
        for number, segment in enumerate(self.segments):
            is_wanted = (
                is_whole
                if segment is active
                else self.segments.end_of(number, job.offset) > self.recovery_point
            )
            if is_wanted or segment.needs_sync:
                job.segments.append(segment)
                segment.needs_sync = False
                segment.pin_for_sync(job.files, is_active=segment is active)

    def flush_completed(self, job: FlushJob, error: OSError | None = None) -> None:
        """Take note of a finished job; with an error the log is fenced (never retried).

        KafkaError KAFKA_STORAGE_ERROR when the job failed: the directory goes offline.
        """
        self.is_flushing = False
        job.release()
        if self.is_deleted:
            return
        if error is None and job.vanished:
            error = FileNotFoundError(f"a file of {self.name} vanished")
        if is_exhaustion(error):
            self._try_again(job)
            return
        if error is not None:
            self.failure = error
            raise self._storage_error("flushing", error) from error
        if job.generation == self._generation:
            self.recovery_point = max(self.recovery_point, job.offset)
            self._durable_names_version = job.names_version
        if job.epochs is not None:
            self.leader_epochs.written_version = job.epochs_version
        if job.partition_metadata is not None:
            self._metadata_is_durable = True

    def _try_again(self, job: FlushJob) -> None:
        """Nothing is wrong with the disk; all that the job took up is still to be done."""
        for name in job.snapshots:
            self.producer_state.unsynced_snapshots.append(_offset_of(name))
        for segment in job.segments:
            segment.sync_again()
        self._last_flush_ms = 0
        self.on_flush_requested(self)

    def is_flush_due(self, now_ms: int) -> bool:
        """Whether flush.messages or flush.ms ask for what is not durable up to the log's end."""
        count = self.log_end_offset - self.recovery_point
        return count > 0 and (
            count >= self.config.flush_messages
            or now_ms - self._last_flush_ms >= self.config.flush_ms
        )

    def remove_expired_producers(self, now_ms: int) -> None:
        """Forget producers that were silent for too long."""
        self.producer_state.remove_expired(now_ms)

    def close(self) -> FlushJob | None:
        """Write what a clean start needs and hand out the last job; files close when it is done.

        Call `flush_completed` and then `release` as after `start_flush`.
        """
        if self.failure is None and not self.is_deleted:
            try:
                self.producer_state.take_snapshot()
                for segment in self.segments:
                    segment.close()
            except OSError as error:
                self.failure = error
                raise self._storage_error("closing", error) from error
        return self._make_flush(self._last_flush_ms) if self.failure is None else None

    def close_now(self) -> None:
        """Close and do the last job here, which waits for the disk; `release` is the caller's.

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
        self.flush_completed(job, error)

    def release(self) -> None:
        """Give every descriptor back."""
        for segment in self.segments:
            segment.close_files()
        for _, segment in self._removals:
            segment.close_files()

    def release_idle(self) -> int:
        """Close what nobody used since the last call; return the number of segments."""
        active = self.segments.active
        return sum(
            segment.release_if_idle(is_active=segment is active) for segment in self.segments
        )

    def renamed(self, name: str) -> None:
        """Take note that the partition's directory has a new name."""
        self.name = name
        self.producer_state.moved(name)
        for segment in self.segments:
            segment.moved(name)
        for _, segment in self._removals:
            segment.moved(name)


def _offset_of(snapshot_name: str) -> int:
    return int(snapshot_name.partition(".")[0])
