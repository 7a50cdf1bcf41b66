"""The metadata log as replayed: into the controller on append, into the image on commit.

Kafka: the log listener of QuorumController and OffsetControlManager; MetadataLoader's input.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from ottla.metadata.delta import MetadataDelta
from ottla.metadata.framing import NO_OP_VALUE, MessageAndVersion, decode_record
from ottla.types import OffsetAndEpoch

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    """Keeps the controller at the end of the log and the image at the high watermark."""

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

    def load_snapshot(
        self, values: Sequence[bytes], snapshot_id: OffsetAndEpoch, timestamp: int
    ) -> None:
        """Start from a snapshot, which is committed."""
        last = OffsetAndEpoch(snapshot_id.offset - 1, snapshot_id.leader_epoch)
        records = [decode_record(value) for value in values]
        for record in records:
            self.controller.replay(record, last.offset)
        self.loader.load_snapshot(records, last)
        self.last_offset = last.offset
        self.last_timestamp = timestamp

    def load_batch(self, batch: RecordBatch) -> None:
        """Replay a batch of the log; it is applied to the image when it is committed."""
        records: list[MessageAndVersion] = []
        for record in batch.records():
            if record.value == NO_OP_VALUE:
                continue
            decoded = decode_record(record.value)
            self.controller.replay(decoded, record.offset)
            records.append(decoded)
        if records:
            appended = _Appended(batch.last_offset, batch.leader_epoch, records)
            self._uncommitted.append(appended)
        self.last_offset = batch.last_offset
        self.last_timestamp = batch.max_timestamp
        self.snapshots.committed(batch.size)

    def begin_epoch(self, epoch_start_offset: int) -> None:
        """Make the end of the log the state to which failed operations revert."""
        self.last_offset = max(self.last_offset, epoch_start_offset)
        if not self.controller.in_transaction:
            self.controller.registry.snapshot(self.last_offset)

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
        """Apply the records below the high watermark to the image and notify its listeners."""
        first = self.committed_offset < 0
        delta = MetadataDelta(is_snapshot=first)
        while self._uncommitted and self._uncommitted[0].last_offset < high_watermark:
            last_offset, written_epoch, records = self._uncommitted.popleft()
            self.loader.load_batch(records, OffsetAndEpoch(last_offset, written_epoch), delta)
            if not self.controller.in_transaction:  # an abort reverts to its start
                self.controller.registry.delete_up_to(last_offset)
        self.loader.committed(OffsetAndEpoch(high_watermark - 1, epoch))
        self.committed_offset = high_watermark - 1
        if first or not delta.is_empty:
            self.loader.publish_from(delta, everything=first)
