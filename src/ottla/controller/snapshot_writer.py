"""Writes snapshots of the metadata image, in slices, and removes old ones.

Kafka: org.apache.kafka.image.publisher.SnapshotGenerator, KafkaRaftClient's cleaner.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ottla.metadata.framing import encode_record
from ottla.raft.snapshot import SnapshotEncoder
from ottla.storage.disk_errors import is_exhaustion
from ottla.types import OffsetAndEpoch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ottla.clock import Clock
    from ottla.config.broker import BrokerConfig
    from ottla.controller.replayed_log import ReplayedLog
    from ottla.raft.driver import RaftDriver
    from ottla.types import Buffer

log = logging.getLogger("ottla.controller")
_RECORDS_PER_SLICE = 250
"""Records encoded in one turn of the event loop: about two milliseconds."""


class SnapshotWriter:
    """Writes one snapshot at a time."""

    def __init__(
        self,
        replayed: ReplayedLog,
        driver: RaftDriver,
        *,
        clock: Clock,
        config: BrokerConfig,
        on_failure: Callable[[Exception], None],
    ) -> None:
        self._replayed = replayed
        self._driver = driver
        self._clock = clock
        self._config = config
        self._on_failure = on_failure
        self._is_writing = False

    def write_if_due(self) -> None:
        """Write a snapshot when one is due."""
        loader = self._replayed.loader
        if self._is_writing or loader.in_transaction:
            return
        if not loader.image.features.levels:  # the bootstrap records are not committed yet
            return
        if self._replayed.snapshots.due(self._clock.monotonic_ms()) is not None:
            self.write()

    def write(self) -> OffsetAndEpoch:
        """Write a snapshot of the current image, in slices; return its id."""
        image, node = self._replayed.loader.image, self._driver.node
        last = image.offset_and_epoch
        snapshot_id = OffsetAndEpoch(last.offset + 1, last.leader_epoch)
        quorum = node.quorum_at(snapshot_id.offset)
        encoder = SnapshotEncoder(
            map(encode_record, image.records()),
            now_ms=self._clock.now_ms(),
            leader_epoch=last.leader_epoch,
            last_contained_log_timestamp=self._replayed.last_timestamp,
            kraft_version=quorum.kraft_version,
            voters=quorum.voters,
        )
        self._replayed.snapshots.written(self._clock.monotonic_ms())
        self._is_writing = True
        self._encode_slice(snapshot_id, encoder)
        return snapshot_id

    def _encode_slice(self, snapshot_id: OffsetAndEpoch, encoder: SnapshotEncoder) -> None:
        """Encode a slice; passing through a worker lets the event loop run in between."""
        if encoder.step(_RECORDS_PER_SLICE):
            self._driver.run_in_worker(
                lambda: None, lambda *_: self._encode_slice(snapshot_id, encoder)
            )
        else:
            self._write_file(snapshot_id, encoder.finish())

    def _write_file(self, snapshot_id: OffsetAndEpoch, parts: Sequence[Buffer]) -> None:
        write, written = self._driver.log.snapshot_writer(snapshot_id, parts)

        def done(_result: object, error: Exception | None) -> None:
            self._is_writing = False
            if is_exhaustion(error):
                log.warning(
                    "writing metadata snapshot %s is postponed: %s; free space on its disk",
                    snapshot_id,
                    error,
                    extra={"event": "snapshot.put_off"},
                )
                return  # the log still has all records; the next snapshot follows when due
            if error is not None:
                self._on_failure(error)
                return
            written()
            self._remove_old()

        self._driver.run_in_worker(write, done)

    def _remove_old(self) -> None:
        self._driver.log.clean(
            now_ms=self._clock.now_ms(),
            max_bytes=self._config.metadata_max_retention_bytes,
            max_age_ms=self._config.metadata_max_retention_ms,
        )
