"""Applies committed records to the controller and the image, a limited number in each turn.

A start replays the whole metadata log, and a snapshot may replace all of the metadata: votes,
fetches and heartbeats are served between the turns.

Kafka: the event queues of QuorumController and MetadataLoader, which are threads of their own.
"""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final

from ottla.purgatory.work import NEXT_TURN
from ottla.storage.disk_errors import is_exhaustion

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ottla.controller.replayed_log import ReplayedLog
    from ottla.purgatory.work import Work, Worker
    from ottla.raft.driver import RunInWorker
    from ottla.raft.replicated_log import ReplicatedLog
    from ottla.raft.snapshot import SnapshotReader
    from ottla.records.batch import RecordBatch
    from ottla.types import OffsetAndEpoch

RECORDS_PER_TURN: Final = 250
"""About six milliseconds."""


class CatchUp:
    """Follows the high watermark and the snapshots of a controller that is not active."""

    def __init__(
        self,
        replayed: ReplayedLog,
        log: ReplicatedLog,
        *,
        worker: Worker,
        run_in_worker: RunInWorker,
        on_caught_up: Callable[[], None],
        on_failure: Callable[[Exception], None],
    ) -> None:
        """on_caught_up() is called when all below a high watermark is applied.

        on_failure(error) is called once when a record cannot be.
        """
        self.records_per_turn = RECORDS_PER_TURN
        self._replayed = replayed
        self._log = log
        self._worker = worker
        self._run_in_worker = run_in_worker
        self._on_caught_up = on_caught_up
        self._on_failure = on_failure
        self._end_offset = 0
        self._snapshot_id: OffsetAndEpoch | None = None
        """Of the snapshot that is to be loaded next."""
        self._reader: tuple[OffsetAndEpoch, SnapshotReader] | None = None
        """What a worker has read for it."""
        self._is_reading = False
        self._job: Iterator[None] | None = None
        self._is_reported = True
        self._is_closed = False

    @property
    def is_done(self) -> bool:
        """Whether all that was announced is applied."""
        return self._job is None and self._snapshot_id is None and self._is_at_end

    @property
    def _is_at_end(self) -> bool:
        return self._replayed.committed_offset + 1 >= self._end_offset

    def committed(self, end_offset: int) -> None:
        """Apply what is below end_offset: now as much as a turn may, then the rest."""
        self._end_offset = end_offset
        self._is_reported = False
        self._begin()

    def snapshot_loaded(self, snapshot_id: OffsetAndEpoch) -> None:
        """Continue from a snapshot that took the place of the log."""
        self._snapshot_id = snapshot_id
        self._begin()

    def close(self) -> None:
        """Stop applying records."""
        self._is_closed = True

    def _begin(self) -> None:
        self._worker.run(self._apply(), self)

    def _apply(self) -> Work[None]:
        """Apply records_per_turn records in a turn, and publish them, until nothing is left."""
        while not self._is_closed:
            try:
                remaining = self.records_per_turn
                while remaining and (job := self._next_job()) is not None:
                    remaining -= sum(1 for _ in islice(job, remaining))
                    if remaining:  # nothing is left of the job
                        self._job = None
                is_caught_up = self._is_to_be_reported
                self._replayed.publish(is_complete=is_caught_up)
                if is_caught_up:
                    self._is_reported = True
                    self._on_caught_up()
            except Exception as error:  # noqa: BLE001 - a record that cannot be applied stops this node
                self.close()
                self._on_failure(error)
                return
            if self._next_job() is None and not self._is_to_be_reported:
                return
            yield NEXT_TURN

    @property
    def _is_to_be_reported(self) -> bool:
        return self.is_done and not self._is_reported

    # What is to be done

    def _next_job(self) -> Iterator[None] | None:
        if self._job is None and self._snapshot_id is not None:
            self._job = self._next_load(self._snapshot_id)
        elif self._job is None:
            self._job = self._replay()
        return self._job

    def _next_load(self, snapshot_id: OffsetAndEpoch) -> Iterator[None] | None:
        """Return what loads a snapshot; None while a worker reads it."""
        if snapshot_id not in self._log.snapshots:  # a newer one, which will be announced, has
            self._snapshot_id = None  # taken its place already
            return iter(())
        reader = None
        if self._log.has_read(snapshot_id):
            reader = self._log.snapshot_reader(snapshot_id)
        elif self._reader is not None and self._reader[0] == snapshot_id:
            reader = self._reader[1]
        self._reader = None
        if reader is None:
            self.retry_read()
            return None
        self._snapshot_id = None
        return self._load(reader, snapshot_id)

    def retry_read(self) -> None:
        """Read the snapshot that is to be loaded, unless a worker does; called periodically too."""
        snapshot_id = self._snapshot_id
        if snapshot_id is None or self._is_reading or self._is_closed or self._job is not None:
            return
        self._is_reading = True
        read = partial(self._log.snapshot_reader, snapshot_id)
        self._run_in_worker(read, partial(self._read, snapshot_id))

    def _read(
        self, snapshot_id: OffsetAndEpoch, reader: SnapshotReader | None, error: Exception | None
    ) -> None:
        self._is_reading = False
        if is_exhaustion(error) or self._is_closed:
            return  # `retry_read` is called later
        is_known = snapshot_id in self._log.snapshots
        if reader is not None:
            self._reader = snapshot_id, reader
        elif error is not None and is_known:
            self.close()
            self._on_failure(error)
            return
        self._begin()

    def _load(self, reader: SnapshotReader, snapshot_id: OffsetAndEpoch) -> Iterator[None]:
        yield from self._replayed.load_snapshot(reader.values(), snapshot_id)
        self._replayed.last_timestamp = reader.last_contained_log_timestamp

    def _replay(self) -> Iterator[None] | None:
        """Return the replay of what is committed; None where the log waits for a snapshot."""
        offset = self._replayed.committed_offset + 1
        if not self._log.start_offset <= offset < self._end_offset:
            return None
        return self._replayed.replay(self._batches(offset, self._end_offset))

    def _batches(self, offset: int, end_offset: int) -> Iterator[RecordBatch]:
        """Yield batches below end_offset: those after it may be cut off yet.

        It ends where a snapshot takes the place of the log.
        """
        for batch in self._log.read(offset):
            if batch.base_offset >= end_offset:
                return
            yield batch
            if self._snapshot_id is not None or self._log.start_offset > batch.next_offset:
                return
