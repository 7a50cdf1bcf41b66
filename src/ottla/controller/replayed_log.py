"""The metadata log as replayed: by the leader on append, by others and into the image on commit.

Kafka: the log listener of QuorumController and OffsetControlManager; MetadataLoader's input.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from ottla.metadata.delta import MetadataDelta
from ottla.metadata.difference import records_between
from ottla.metadata.framing import NO_OP_VALUE, MessageAndVersion, decode_record
from ottla.metadata.image import MetadataImage
from ottla.types import OffsetAndEpoch

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ottla.controller.controller import Controller
    from ottla.metadata.loader import MetadataLoader
    from ottla.metadata.snapshot import SnapshotPolicy
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
        self._is_published = False

    def load_snapshot(
        self, values: Sequence[bytes], snapshot_id: OffsetAndEpoch, timestamp: int
    ) -> None:
        """Begin with a snapshot, or continue from a newer one; it is committed.

        What this node has and the snapshot lacks is removed; listeners hear of the difference.
        """
        last = OffsetAndEpoch(snapshot_id.offset - 1, snapshot_id.leader_epoch)
        records = [decode_record(value) for value in values]
        if self.loader.image.offset_and_epoch.offset >= 0:  # even before it was published
            snapshot = MetadataImage()
            snapshot.apply(records, last)
            records = records_between(self.loader.image, snapshot)
        registry = self.controller.registry
        registry.reset()
        self.controller.in_transaction = False
        for record in records:
            self.controller.replay(record, last.offset)
        delta = MetadataDelta(is_snapshot=not self._is_published)
        self.loader.load_snapshot(records, last, delta)
        self.last_offset = self.committed_offset = last.offset
        self.last_timestamp = timestamp
        if self._is_published:
            registry.snapshot(last.offset)
            self._committed(last, delta)

    def replay(self, batches: Iterable[RecordBatch], high_watermark: int) -> None:
        """Replay what another node, or an earlier life of this one, wrote and is committed now."""
        registry = self.controller.registry
        if not self.controller.in_transaction:  # an abort reverts to its start
            registry.reset()  # nothing can be reverted: all of it is committed
        delta = MetadataDelta(is_snapshot=not self._is_published)
        epoch = self.loader.image.offset_and_epoch.leader_epoch
        for batch in batches:
            if batch.base_offset >= high_watermark:
                break
            epoch = batch.leader_epoch
            if not batch.is_control:
                self._replay_batch(batch, delta)
            self.last_timestamp = batch.max_timestamp
            self.snapshots.committed(batch.size)
        self.last_offset = high_watermark - 1
        if not self.controller.in_transaction:
            registry.snapshot(self.last_offset)
        self._committed(OffsetAndEpoch(self.last_offset, epoch), delta)

    def _replay_batch(self, batch: RecordBatch, delta: MetadataDelta) -> None:
        records: list[MessageAndVersion] = []
        for record in batch.records():
            if record.value == NO_OP_VALUE:
                continue
            decoded = decode_record(record.value)
            self.controller.replay(decoded, record.offset)
            records.append(decoded)
        if records:
            end = OffsetAndEpoch(batch.last_offset, batch.leader_epoch)
            self.loader.load_batch(records, end, delta)

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
        delta = MetadataDelta(is_snapshot=not self._is_published)
        while self._uncommitted and self._uncommitted[0].last_offset < high_watermark:
            last_offset, written_epoch, records = self._uncommitted.popleft()
            self.loader.load_batch(records, OffsetAndEpoch(last_offset, written_epoch), delta)
            if not self.controller.in_transaction:
                self.controller.registry.delete_up_to(last_offset)
        self._committed(OffsetAndEpoch(high_watermark - 1, epoch), delta)

    def _committed(self, end: OffsetAndEpoch, delta: MetadataDelta) -> None:
        """Notify the image's listeners."""
        first, self._is_published = not self._is_published, True
        self.loader.committed(end)
        self.committed_offset = end.offset
        if first or not delta.is_empty:
            self.loader.publish_from(delta, everything=first)
