"""Recovered state equals live state, for the logs of all brokers: at random times, some at a time.

A log's producers, unstable transactions, leader epochs and transaction indexes are compared with a
plain reading of its batches, and with what a process finds that is started on a copy of its files.
Nothing of it is an event of the simulation.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from ottla.records.batches import iterate_batches
from ottla.storage.indexes.transaction_index import ENTRY
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.producers.update import read_marker
from ottla.testing.disk import SimulatedDisk
from tests.storage.histories import (
    Batch,
    Model,
    check_index,
    check_producers,
    check_reads,
    check_snapshots,
    expected_aborts,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.server.node.node import Node

INTERVAL_S = 1.0
LOGS_AT_ONCE = 3
"""A log of 500 batches takes 20 ms."""


def batches_of(log: PartitionLog) -> list[Batch]:
    """Return a log's batches from the bytes of its files."""
    found = []
    for segment in log.segments:
        data = segment.file._content.data  # type: ignore[attr-defined] # a SimulatedFile
        for batch in iterate_batches(bytes(data[: segment.size])):
            marker = read_marker(batch.buffer) if batch.is_control else None
            kind = "" if marker is None else "abort" if marker.is_abort else "commit"
            found.append(
                Batch(
                    bytes(batch.buffer),
                    batch.base_offset,
                    batch.last_offset,
                    batch.leader_epoch,
                    (batch.max_timestamp,) * max(batch.record_count, 1),
                    batch.producer_id,
                    batch.producer_epoch,
                    batch.base_sequence,
                    is_transactional=batch.is_transactional,
                    marker=kind,
                    coordinator_epoch=-1 if marker is None else marker.coordinator_epoch,
                )
            )
    return found


class RecoveredLogs:
    """Compares a few random logs with their batches, each second of virtual time."""

    def __init__(self) -> None:
        self._rng = Random(0)
        self._next_s = INTERVAL_S
        self.count = 0
        """Logs of which everything was compared so far."""

    def check(self, now_s: float, nodes: Iterable[Node]) -> None:
        """Compare some logs of these nodes when it is time."""
        if now_s < self._next_s:
            return
        self._next_s = now_s + INTERVAL_S
        logs = [
            (f"{one.topic_partition} of node {node.config.node_id}", one.log)
            for node in nodes
            for one in node.broker.replicas
            if one.log.failure is None and not one.log.is_deleted
        ]
        for name, log in self._rng.sample(logs, min(len(logs), LOGS_AT_ONCE)):
            try:
                self._compare(log)
            except AssertionError as error:
                raise AssertionError(f"{name}, {log}: {error}") from error

    def _compare(self, log: PartitionLog) -> None:
        """Compare one log; of one that is compacted or has lost its start less is known."""
        model = Model(batches_of(log))
        first_open = min([log.high_watermark, *(one.first_offset for one in model.open)])
        assert log.last_stable_offset <= max(first_open, log.log_start_offset), "open records"
        is_whole = log.segments[0].base_offset == 0 == log.log_start_offset
        if log.producer_state.is_stale or log.config.is_compacted or not is_whole:
            return
        self.count += 1
        exact = model.last_stable_offset(log.high_watermark)
        assert log.last_stable_offset >= exact, f"the last stable offset is {exact}"
        check_producers(log, model)
        disk = log.directory
        assert isinstance(disk, SimulatedDisk)
        check_snapshots(log, model.batches, disk)
        bases = [*log.segments.base_offsets, 1 << 62]
        for segment, end_offset in zip(log.segments, bases[1:], strict=True):
            path = segment.transaction_index.path
            stored = disk.content(path) if disk.exists(path) else b""
            aborts = [fields[1:] for fields in ENTRY.iter_unpack(stored)]
            assert aborts == expected_aborts(model, segment.base_offset, end_offset), path
        self._restart(log, disk, model)

    def _restart(self, log: PartitionLog, disk: SimulatedDisk, model: Model) -> None:
        """Open a copy of the files as after a kill, and read it as a read_committed consumer."""
        copied, rng = SimulatedDisk(), self._rng
        copied.make(log.name)
        for path in disk.files():
            if path.startswith(f"{log.name}/"):
                copied.write_file_atomically(path, disk.content(path))
        opened = PartitionLog.open(
            copied,
            log.name,
            config=log.config,
            now_ms=0,
            topic_partition=log.topic_partition,
            topic_id=log.topic_id,
            recovery_point=rng.choice((0, log.recovery_point)),
        )
        opened.update_high_watermark(log.high_watermark)
        check_producers(opened, model)
        check_index(opened, model)
        check_reads(opened, model, rng)
