"""Applies committed batches to the image, notifies listeners, says when a snapshot is due.

Records between BeginTransaction and EndTransaction take effect together, at the end; after
AbortTransaction they are dropped.

Kafka: org.apache.kafka.image.loader.{MetadataLoader, MetadataBatchLoader};
org.apache.kafka.image.publisher.SnapshotGenerator.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TypeAlias

from ottla.errors import CorruptMessage
from ottla.metadata.image import MetadataImage
from ottla.protocol.records.metadata import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ottla.metadata.delta import MetadataDelta
    from ottla.metadata.framing import MessageAndVersion
    from ottla.types import OffsetAndEpoch

    Listener: TypeAlias = Callable[[MetadataDelta, MetadataImage], None]

log = logging.getLogger("ottla.metadata")
_BEGIN = BeginTransactionRecord.message_key
_END = EndTransactionRecord.message_key
_ABORT = AbortTransactionRecord.message_key


class MetadataLoader:
    """Owns the broker's image."""

    __slots__ = ("_is_published", "_listeners", "_transaction", "image")

    def __init__(self) -> None:
        self.image = MetadataImage()
        self._transaction: list[MessageAndVersion] | None = None
        self._listeners: list[Listener] = []
        self._is_published = False

    @property
    def in_transaction(self) -> bool:
        """Whether records wait for the end of their transaction; no snapshot is taken then."""
        return self._transaction is not None

    def add_listener(self, listener: Listener) -> None:
        """Call listener(delta, image) for every subsequent change.

        A listener that is added after the start first gets the whole image as a snapshot delta.
        """
        self._listeners.append(listener)
        if self._is_published:
            listener(self.image.everything(), self.image)

    def load_snapshot(
        self,
        records: Iterable[MessageAndVersion],
        offset_and_epoch: OffsetAndEpoch,
        delta: MetadataDelta,
    ) -> None:
        """Apply the records that turn the image into a snapshot's; discard an open transaction."""
        self._transaction = None
        self.image.apply(records, offset_and_epoch, delta)

    def load_batch(
        self,
        records: Sequence[MessageAndVersion],
        offset_and_epoch: OffsetAndEpoch,
        delta: MetadataDelta,
    ) -> None:
        """Add the records of one committed batch that ends at offset_and_epoch to delta."""
        has_transaction = self._transaction is not None or any(
            record.message.message_key in _MARKERS for record in records
        )
        ready: Sequence[MessageAndVersion] = self._resolve(records) if has_transaction else records
        self.image.apply(ready, offset_and_epoch, delta)

    def committed(self, offset_and_epoch: OffsetAndEpoch) -> None:
        """Record how far the log is committed, unless a transaction is open."""
        if self._transaction is None:
            self.image.offset_and_epoch = offset_and_epoch

    def publish_from(self, delta: MetadataDelta, *, everything: bool) -> None:
        """Pass the delta, or the first time the whole image, to all listeners."""
        self._is_published = True
        if everything:
            delta = self.image.everything()
        delta.offset_and_epoch = self.image.offset_and_epoch
        for listener in list(self._listeners):
            try:
                listener(delta, self.image)
            except Exception:  # the other listeners must still be called
                log.exception(
                    "a metadata change was not applied; report this as a bug, then restart"
                )

    def _resolve(self, records: Sequence[MessageAndVersion]) -> list[MessageAndVersion]:
        ready: list[MessageAndVersion] = []
        for record in records:
            key = record.message.message_key
            if key == _BEGIN:
                if self._transaction is not None:
                    raise CorruptMessage("a metadata transaction began within another")
                self._transaction = []
            elif key in (_END, _ABORT):
                if self._transaction is None:
                    raise CorruptMessage("a metadata transaction ended without a begin")
                if key == _END:
                    ready += self._transaction
                self._transaction = None
            else:
                (ready if self._transaction is None else self._transaction).append(record)
        return ready


_MARKERS = frozenset({_BEGIN, _END, _ABORT})


class SnapshotPolicy:
    """A snapshot is due after `max_bytes` of records, or when the last one is too old.

    max_bytes is metadata.log.max.record.bytes.between.snapshots, max_interval_ms is
    metadata.log.max.snapshot.interval.ms (0 ignores the age).
    """

    __slots__ = ("_bytes", "_last_ms", "max_bytes", "max_interval_ms")

    def __init__(self, *, max_bytes: int, max_interval_ms: int, now_ms: int) -> None:
        self.max_bytes = max_bytes
        self.max_interval_ms = max_interval_ms
        self._bytes = 0
        self._last_ms = now_ms

    def committed(self, size_bytes: int) -> None:
        """Count the bytes of a committed batch."""
        self._bytes += size_bytes

    def due(self, now_ms: int) -> str | None:
        """Return why a snapshot is due, None when it is not."""
        if self._bytes >= self.max_bytes:
            return f"we have replayed at least {self.max_bytes} bytes"
        if self.max_interval_ms and self._bytes and now_ms - self._last_ms >= self.max_interval_ms:
            return f"we have waited at least {self.max_interval_ms // 60_000} minute(s)"
        return None

    def written(self, now_ms: int) -> None:
        """Reset the byte count and the age."""
        self._bytes = 0
        self._last_ms = now_ms
