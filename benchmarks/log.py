"""The log's hot paths: append, read, open. Run: python benchmarks/log.py [directory].

Prints microseconds per call; `pwritev` alone is the baseline for appends.
"""

from __future__ import annotations

import gc
import os
import resource
import shutil
import sys
import tempfile
import time
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from ottla.records.builder import encode_batch
from ottla.server.system.files import RealDirectory
from ottla.storage.directories.log_dir import LogDirectory
from ottla.storage.log.append_info import FetchIsolation
from ottla.storage.log.config import LogConfig
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log_set.log_set import LogSet
from ottla.types import TopicPartition, Uuid

if TYPE_CHECKING:
    from collections.abc import Callable

NOW_MS = 1_700_000_000_000
TOPIC_ID = Uuid(b"0123456789abcdef")


def timed(name: str, count: int, call: Callable[[int], object]) -> float:
    """Print and return the microseconds per call, the best of three rounds."""
    best = 1e9
    for _ in range(3):
        gc.collect()
        start = time.perf_counter()
        for number in range(count):
            call(number)
        best = min(best, (time.perf_counter() - start) / count * 1e6)
    print(f"{name:58s} {best:9.2f} us")
    return best


def floor(log_dir: str, size: int) -> None:
    """Print the cost of one system call."""
    descriptor = os.open(f"{log_dir}/floor", os.O_RDWR | os.O_CREAT)
    data = [bytes(size)]
    timed(f"pwritev of {size} bytes", 20_000, lambda n: os.pwritev(descriptor, data, n * size))
    os.close(descriptor)


def append(log_dir: str, records: int, size: int, *, producer: bool = False) -> PartitionLog:
    """Print the cost of appends as leader and as follower."""
    directory = RealDirectory(log_dir)
    name = f"append-{records}-{size}-{int(producer)}"
    log = PartitionLog.open(directory, f"{name}-0", config=LogConfig(), now_ms=NOW_MS)
    ids = {"producer_id": 1, "producer_epoch": 0, "base_sequence": 0} if producer else {}
    batch = encode_batch([(NOW_MS, None, bytes(size), ())] * records, **ids)  # type: ignore[arg-type] # three ints
    sequence = 0

    def one(_: int) -> None:
        nonlocal sequence
        batch[0:8] = bytes(8)
        if producer:
            from ottla.records.crc32c import crc32c

            batch[53:57] = sequence.to_bytes(4, "big")
            sequence += records
            batch[17:21] = crc32c(memoryview(batch)[21:]).to_bytes(4, "big")
        log.writes.append_as_leader(memoryview(batch), leader_epoch=0, now_ms=NOW_MS)

    kind = " idempotent" if producer else ""
    timed(f"append_as_leader{kind}, {records} x {size} B", 20_000, one)
    follower = PartitionLog.open(directory, f"{name}-1", config=LogConfig(), now_ms=NOW_MS)

    def two(_: int) -> None:
        batch[0:8] = follower.log_end_offset.to_bytes(8, "big")
        follower.writes.append_as_follower(batch, leader_epoch=0, now_ms=NOW_MS)

    timed(f"append_as_follower{kind}, {records} x {size} B", 20_000, two)
    log.update_high_watermark(log.log_end_offset)
    return log


def read(log: PartitionLog) -> None:
    """Print the cost of reads at the tail and of old offsets."""
    end = log.log_end_offset
    limit = FetchIsolation.HIGH_WATERMARK
    timed(
        "read at the tail, up to the high watermark",
        50_000,
        lambda _: log.reads.read(end - 5, 1 << 20, isolation=limit),
    )
    offsets = [Random(1).randrange(end) for _ in range(10_000)]
    timed("read of a random old offset", 10_000, lambda n: log.reads.read(offsets[n], 1 << 20))
    timed("is_cached of 1 MiB", 10_000, lambda _: log.segments[0].file.is_cached(0, 1 << 20))
    timed("offset_for_timestamp", 1_000, lambda _: log.reads.offset_for_timestamp(NOW_MS))


def many(log_dir: str, count: int) -> None:
    """Print the cost of thousands of partitions: creation, close, open, memory."""
    Path(log_dir).mkdir()

    def open_set() -> LogSet:
        logs = LogSet(
            [LogDirectory(log_dir, RealDirectory(log_dir))],
            config_for=lambda _: LogConfig(),
            rng=Random(1),
        )
        logs.load(NOW_MS)
        return logs

    logs = open_set()
    start = time.perf_counter()
    batch = encode_batch([(NOW_MS, None, b"x", ())])
    for number in range(count):
        log = logs.get_or_create(TopicPartition("t", number), topic_id=TOPIC_ID, now_ms=NOW_MS)
        batch[0:8] = bytes(8)
        log.writes.append_as_leader(memoryview(batch), leader_epoch=0, now_ms=NOW_MS)
    spent = time.perf_counter() - start
    print(f"create {count} partitions with a batch each {spent:27.2f} s")
    for clean in (True, False):
        start = time.perf_counter()
        if clean:
            logs.shutdown()
        how = "(fsync of all)" if clean else "(none)"
        print(f"shutdown {how} {time.perf_counter() - start:45.2f} s")
        if not clean:
            for held in logs.directories:
                held.release()
        del logs
        gc.collect()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        start = time.perf_counter()
        logs = open_set()
        spent = time.perf_counter() - start
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        grown = (after - before) / 1024
        print(f"open {len(logs)} partitions, clean={clean} {spent:36.2f} s, +{grown:.0f} MiB peak")
    print(f"open descriptors: {sum(1 for _ in Path('/proc/self/fd').iterdir())}")


def main() -> None:
    """Run all."""
    log_dir = tempfile.mkdtemp(dir=sys.argv[1] if len(sys.argv) > 1 else None)
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    try:
        floor(log_dir, 168)
        log = append(log_dir, 1, 100)
        read(log)
        append(log_dir, 1, 100, producer=True)
        floor(log_dir, 11_000)
        append(log_dir, 100, 100)
        many(f"{log_dir}/many", 2_000)
    finally:
        shutil.rmtree(log_dir)


if __name__ == "__main__":
    main()
