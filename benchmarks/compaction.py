"""Log compaction: MB a CPU second, and what it does to another thread. Run as a script.

    python benchmarks/compaction.py [--mb 200] [--kafka] [--size 1000]

With --kafka real Kafka compacts a copy of the same log in a Java process, which is warm by
then. Prints for records of 100 B and 1 KB, plain and lz4, in batches of 1, 10 and 100 records: MB
read by CPU second and the share of bytes that is left.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.records.builder import encode_batch
from ottla.records.compression import Compression
from ottla.server.system.files import RealDirectory
from ottla.storage.cleaner.cleaner import CleanerLimits
from ottla.storage.cleaner.log_cleaner_manager import CleaningProgress, LogCleanerManager
from ottla.storage.directories.log_dir import LogDirectory
from ottla.storage.log.config import LogConfig
from ottla.storage.log_set.jobs import run_now
from ottla.storage.log_set.log_set import LogSet
from ottla.types import TopicPartition, Uuid

if TYPE_CHECKING:
    from ottla.storage.log.partition_log import PartitionLog

NOW_MS = 1_700_000_000_000
SEGMENT_BYTES = 32 << 20
CONFIG = LogConfig(
    cleanup_policy=("compact",), segment_bytes=SEGMENT_BYTES, min_cleanable_dirty_ratio=0.0
)
LIMITS = CleanerLimits(128 << 20, 0.9, 256 << 10)
KEYS = 100_000


class Case(NamedTuple):
    """The records of a log."""

    size: int
    batch: int
    codec: Compression

    def __str__(self) -> str:
        return f"{self.size} B, {self.codec.config_name}, {self.batch} a batch"


def open_logs(path: Path) -> LogSet:
    """Open the logs in a directory."""
    directory = RealDirectory(str(path), create=True)
    logs = LogSet([LogDirectory(str(path), directory)], config_for=lambda _: CONFIG, rng=Random(1))
    logs.load(NOW_MS)
    return logs


def make(logs: LogSet) -> PartitionLog:
    """Return the log."""
    topic_id = Uuid(b"0123456789abcdef")
    return logs.get_or_create(TopicPartition("a", 0), topic_id=topic_id, now_ms=NOW_MS)


def write(path: Path, case: Case, total_bytes: int) -> int:
    """Write a log with random keys; return its bytes."""
    rng = Random(2)
    logs = open_logs(path)
    log = make(logs)
    value = bytes(rng.choices(b"abcdefgh", k=case.size))
    while log.size_bytes < total_bytes:
        rows = [(NOW_MS, b"key-%08d" % rng.randrange(KEYS), value, ()) for _ in range(case.batch)]
        batch = encode_batch(rows, compression=case.codec)
        log.writes.append_as_leader(memoryview(batch), leader_epoch=0, now_ms=NOW_MS)
    log.roll(NOW_MS)
    size = log.size_bytes
    logs.shutdown()
    return size


def clean(path: Path) -> tuple[float, float, int]:
    """Compact the log; return CPU seconds, the longest wait of another thread, bytes left."""
    logs = open_logs(path)
    log = make(logs)
    log.update_high_watermark(log.log_end_offset)
    cleaner = LogCleanerManager(logs)
    survey = cleaner.survey(NOW_MS)
    while survey.step(100):
        pass
    assert survey.best is not None
    cleaning = cleaner.begin(survey.best, LIMITS, now_ms=NOW_MS, seed=1 << 99)
    assert cleaning is not None
    longest = 0.0
    is_over = threading.Event()

    def wait() -> None:
        nonlocal longest
        while not is_over.is_set():
            start = time.perf_counter()
            time.sleep(0.001)
            longest = max(longest, time.perf_counter() - start - 0.001)

    other = threading.Thread(target=wait)
    other.start()
    cpu_s = 0.0
    while True:
        start = time.thread_time()
        cleaning.run()
        progress = cleaner.advance(cleaning, None, NOW_MS)
        cpu_s += time.thread_time() - start
        if progress is CleaningProgress.CLEANED:
            break
    is_over.set()
    other.join()
    left = log.size_bytes
    for job in logs.take_jobs():
        run_now(job)
    logs.shutdown()
    return cpu_s, longest, left


class KafkaCleaner:
    """Kafka's Cleaner in a Java process."""

    def __init__(self) -> None:
        sys.path.insert(0, str(Path(__file__).parents[1]))
        from tests.conformance.kafka import find_kafka

        kafka = find_kafka()
        source = Path(__file__).parents[1] / "tests/conformance/java/CleanerOracle.java"
        self._process = subprocess.Popen(
            kafka.command("CleanerOracle", classes=kafka.compile(source), heap_mb=1024),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def clean(self, path: Path, end_offset: int) -> tuple[float, int]:
        """Return CPU seconds of the cleaning and the bytes that are left."""
        settings = {"cleanup.policy": "compact", "segment.bytes": str(SEGMENT_BYTES)}
        question: dict[str, Any] = {
            "directory": str(path / "a-0"),
            "now": NOW_MS,
            "config": settings,
            "first_dirty": 0,
            "first_uncleanable": end_offset,
            "map_bytes": LIMITS.map_bytes,
            "buffer_bytes": LIMITS.buffer_bytes,
            "only_measure": True,
        }
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        return answer["cpu_ms"] / 1000, answer["bytes"]

    def close(self) -> None:
        """End the process."""
        self._process.kill()


def end_offset_of(path: Path) -> int:
    """Return the base offset of the active segment."""
    return max(int(one.stem) for one in (path / "a-0").glob("*.log"))


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--mb", type=int, default=200)
    parser.add_argument("--kafka", action="store_true")
    parser.add_argument("--size", type=int, choices=(100, 1000), help="only records of this size")
    given = parser.parse_args()
    kafka = KafkaCleaner() if given.kafka else None
    cases = [
        Case(size, batch, codec)
        for size in ((given.size,) if given.size else (100, 1000))
        for codec in (Compression.NONE, Compression.LZ4)
        for batch in (1, 10, 100)
    ]
    for number, case in enumerate(cases):
        with tempfile.TemporaryDirectory() as name:
            ours, theirs = Path(name) / "ours", Path(name) / "theirs"
            size = write(ours, case, given.mb << 20)
            text = ""
            if kafka is not None:
                for _ in range(1 if number else 3):  # warm
                    shutil.rmtree(theirs, ignore_errors=True)
                    shutil.copytree(ours, theirs)
                    cpu_s, left = kafka.clean(theirs, end_offset_of(theirs))
                text = f"   Kafka {size / cpu_s / 1e6:6.0f} MB/s, {left / size:4.0%} left"
            cpu_s, longest, left = clean(ours)
            rate = f"{size / cpu_s / 1e6:6.0f} MB/s, {left / size:4.0%} left"
            print(f"{case!s:28} {rate}, longest wait {longest * 1000:5.1f} ms{text}", flush=True)
    if kafka is not None:
        kafka.close()


if __name__ == "__main__":
    main()
