"""Helpers that create logs and batches for storage tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.records.builder import encode_batch
from ottla.records.control import encode_end_txn_marker
from ottla.records.validator import AppendOrigin
from ottla.storage.log.config import LogConfig
from ottla.storage.log.partition_log import PartitionLog
from ottla.testing.disk import SimulatedDisk
from ottla.types import FileSlice, Uuid

if TYPE_CHECKING:
    from ottla.storage.log.append_info import AppendInfo
    from ottla.types import SendItem

NOW_MS = 1_000_000
TOPIC_ID = Uuid(b"0123456789abcdef")
SMALL = LogConfig(segment_bytes=1000, index_interval_bytes=150, segment_index_bytes=1200)


def new_log(
    disk: SimulatedDisk | None = None,
    *,
    config: LogConfig = SMALL,
    clean: bool = False,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    now_ms: int = NOW_MS,
) -> PartitionLog:
    """Open the log `t-0`."""
    return PartitionLog.open(
        disk or SimulatedDisk(),
        "t-0",
        config=config,
        now_ms=now_ms,
        topic_id=TOPIC_ID,
        clean=clean,
        recovery_point=recovery_point,
        log_start_offset=log_start_offset,
    )


def close(log: PartitionLog) -> None:
    """Close a log as a clean stop does."""
    job = log.flushes.close()
    if job is not None:
        job.run()
        log.flushes.completed(job)
    log.release()


def flush(log: PartitionLog) -> None:
    """Make a log durable."""
    job = log.flushes.start()
    if job is not None:
        job.run()
        log.flushes.completed(job)


def put(
    log: PartitionLog,
    count: int = 1,
    *,
    epoch: int = 0,
    timestamp: int = NOW_MS,
    size: int = 100,
    now_ms: int = NOW_MS,
) -> AppendInfo:
    """Append one plain batch."""
    batch = encode_batch([(timestamp, b"k", bytes(size), ())] * count)
    return log.writes.append_as_leader(memoryview(batch), leader_epoch=epoch, now_ms=now_ms)


def send(
    log: PartitionLog,
    producer_id: int,
    sequence: int,
    count: int = 1,
    *,
    producer_epoch: int = 0,
    transactional: bool = False,
    epoch: int = 0,
    timestamp: int = NOW_MS,
) -> AppendInfo:
    """Append one batch of an idempotent producer."""
    batch = encode_batch(
        [(timestamp, b"k", b"v", ())] * count,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=sequence,
        transactional=transactional,
    )
    return log.writes.append_as_leader(memoryview(batch), leader_epoch=epoch, now_ms=NOW_MS)


def end(
    log: PartitionLog,
    producer_id: int,
    *,
    commit: bool,
    producer_epoch: int = 0,
    coordinator_epoch: int = 0,
    transaction_version: int = 0,
    epoch: int = 0,
) -> AppendInfo:
    """Append the marker that ends a transaction."""
    marker = encode_end_txn_marker(
        commit=commit,
        coordinator_epoch=coordinator_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        timestamp=NOW_MS,
    )
    return log.writes.append_as_leader(
        memoryview(marker),
        leader_epoch=epoch,
        now_ms=NOW_MS,
        origin=AppendOrigin.COORDINATOR,
        transaction_version=transaction_version,
    )


def content(item: SendItem) -> bytes:
    """Return the bytes of what a read gave."""
    return item.read() if isinstance(item, FileSlice) else bytes(item)
