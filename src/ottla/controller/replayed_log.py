"""The metadata log as replayed: by the leader on append, by others, in turns, on commit.

A start replays the whole metadata log, and a snapshot may replace all of the metadata: votes,
fetches and heartbeats are served between the turns.

Kafka: the log listener of QuorumController and OffsetControlManager; MetadataLoader's input; the
event queues of QuorumController and MetadataLoader, which are threads of their own.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.metadata.delta import MetadataDelta
from ottla.metadata.framing import NO_OP_VALUE, MessageAndVersion, decode_record
from ottla.metadata.image import MetadataImage
from ottla.metadata.image.image import records_between
from ottla.purgatory.work import NEXT_TURN
from ottla.storage.disk_errors import is_exhaustion
from ottla.types import OffsetAndEpoch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from ottla.controller.controller import Controller
    from ottla.metadata.loader import MetadataLoader, SnapshotPolicy
    from ottla.purgatory.work import Work, Worker
    from ottla.raft.driver import RunInWorker
    from ottla.raft.replicated_log import ReplicatedLog
    from ottla.raft.snapshot import SnapshotReader
    from ottla.records.batch import RecordBatch


class _Appended(NamedTuple):
    """Appended records that are not committed yet."""

    last_offset: int
    epoch: int
    records: Sequence[MessageAndVersion]


class ReplayedLog:
    """Keeps an active controller at the end of the log, all else at the high watermark."""

    def __init__(
        self, controller: Controller, loader: MetadataLoader, snapshots: SnapshotPolicy
    ) -> None:
        self.controller = controller
        self.loader = loader
        self.snapshots = snapshots
        self.last_offset = -1
        self.last_timestamp = 0
        self.committed_offset = -1
        """The offset of the last committed record."""
        self._uncommitted: deque[_Appended] = deque()
        self._delta = MetadataDelta()
        """What was applied since the listeners were notified."""
        self._is_published = False

    def load_snapshot(self, values: Iterable[bytes], snapshot_id: OffsetAndEpoch) -> Iterator[None]:
        """Begin with a snapshot, or continue from a newer one; it is committed.

        What this node has and the snapshot lacks is removed; listeners get the difference.
        Yields after each record: the caller may pause there, but has to come to the end.
        """
        last = OffsetAndEpoch(snapshot_id.offset - 1, snapshot_id.leader_epoch)
        records: list[MessageAndVersion] = []
        for found in self._changes_to(values, last):
            if found is not None:
                records.append(found)
            yield
        registry = self.controller.registry
        registry.reset()
        self.controller.in_transaction = False
        for record in records:
            self.controller.replay(record, last.offset)
            yield
        self.loader.load_snapshot(records, last, self._delta)  # all at once: others read the image
        self._replayed(last)
        registry.snapshot(last.offset)

    def _changes_to(
        self, values: Iterable[bytes], last: OffsetAndEpoch
    ) -> Iterator[MessageAndVersion | None]:
        """Yield what turns the image into a snapshot's; None for a step without a record."""
        image = self.loader.image
        if image.offset_and_epoch.offset < 0:
            yield from map(decode_record, values)
            return
        snapshot, delta = MetadataImage(), MetadataDelta()
        for value in values:
            snapshot.apply([decode_record(value)], last, delta)
            yield None
        yield from records_between(image, snapshot)

    def replay(self, batches: Iterable[RecordBatch]) -> Iterator[None]:
        """Replay committed records of another node, or of an earlier run of this one.

        Yields after each record. The image gets the records of a batch together.
        """
        registry = self.controller.registry
        if not self.controller.in_transaction:  # an abort reverts to its start
            registry.reset()  # nothing can be reverted: all of it is committed
        for batch in batches:
            if batch.is_control:
                yield
            else:
                yield from self._replay_batch(batch)
            self.last_timestamp = batch.max_timestamp
            self.snapshots.committed(batch.size)
            self._replayed(OffsetAndEpoch(batch.last_offset, batch.leader_epoch))
        if not self.controller.in_transaction:
            registry.snapshot(self.last_offset)

    def _replay_batch(self, batch: RecordBatch) -> Iterator[None]:
        records: list[MessageAndVersion] = []
        for record in batch.records():
            if record.value != NO_OP_VALUE:
                decoded = decode_record(record.value)
                self.controller.replay(decoded, record.offset)
                records.append(decoded)
            yield
        if records:
            end = OffsetAndEpoch(batch.last_offset, batch.leader_epoch)
            self.loader.load_batch(records, end, self._delta)

    def _replayed(self, end: OffsetAndEpoch) -> None:
        self.last_offset = end.offset
        self._committed(end)

    def begin_epoch(self, last_offset: int) -> None:
        """Accept operations after the epoch's first records, which are the end of the log."""
        self.last_offset = last_offset
        if not self.controller.in_transaction:
            self.controller.registry.snapshot(self.last_offset)

    def end_epoch(self) -> None:
        """Revert to the last committed state: the next leader decides what follows it."""
        registry, committed = self.controller.registry, self.committed_offset
        registry.revert_to(max(epoch for epoch in registry.epochs if epoch <= committed))
        self.controller.in_transaction = self.loader.in_transaction
        self._uncommitted.clear()
        self.last_offset = committed

    def append(
        self, records: Sequence[MessageAndVersion], first: OffsetAndEpoch, timestamp: int
    ) -> None:
        """Replay records that are being appended; an exception reverts all of them."""
        registry, offset = self.controller.registry, first.offset
        try:
            for record in records:
                self.controller.replay(record, offset)
                offset += 1
        except Exception:
            registry.revert_to(registry.latest_epoch)
            raise
        self.last_offset = offset - 1
        self.last_timestamp = timestamp
        registry.snapshot(self.last_offset)
        self._uncommitted.append(_Appended(self.last_offset, first.leader_epoch, records))

    def commit(self, high_watermark: int, epoch: int) -> None:
        """Apply this leader's own records below the high watermark to the image."""
        while self._uncommitted and self._uncommitted[0].last_offset < high_watermark:
            last_offset, written_epoch, records = self._uncommitted.popleft()
            self.loader.load_batch(records, OffsetAndEpoch(last_offset, written_epoch), self._delta)
            if not self.controller.in_transaction:
                self.controller.registry.delete_up_to(last_offset)
        self._committed(OffsetAndEpoch(high_watermark - 1, epoch))
        self.publish(is_complete=True)

    def _committed(self, end: OffsetAndEpoch) -> None:
        self.loader.committed(end)
        self.committed_offset = end.offset

    def publish(self, *, is_complete: bool) -> None:
        """Notify the image's listeners of what was applied; first when the image is complete."""
        if not (self._is_published or is_complete):
            return
        first, self._is_published = not self._is_published, True
        delta, self._delta = self._delta, MetadataDelta()
        if first or not delta.is_empty:
            self.loader.publish_from(delta, everything=first)


_RECORDS_PER_TURN: Final = 250
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
        self.records_per_turn = _RECORDS_PER_TURN
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
        is_at_end = self._replayed.committed_offset + 1 >= self._end_offset
        return self._job is None and self._snapshot_id is None and is_at_end

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
            offset = self._replayed.committed_offset + 1
            # Below the log's start, a snapshot is announced next.
            if self._log.start_offset <= offset < self._end_offset:
                self._job = self._replayed.replay(self._batches(offset, self._end_offset))
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
