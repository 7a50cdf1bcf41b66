"""The metadata log as replayed: by the leader on append, by others and into the image on commit.

Kafka: the log listener of QuorumController and OffsetControlManager; MetadataLoader's input.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from ottla.metadata.delta import MetadataDelta
from ottla.metadata.framing import NO_OP_VALUE, MessageAndVersion, decode_record
from ottla.metadata.image import MetadataImage
from ottla.metadata.image.image import records_between
from ottla.types import OffsetAndEpoch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ottla.controller.controller import Controller
    from ottla.metadata.loader import MetadataLoader, SnapshotPolicy
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
