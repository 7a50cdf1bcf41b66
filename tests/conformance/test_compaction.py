"""Logs that Kafka's Cleaner and ours compact: the same records and batches are left.

One Java process opens log directories with Kafka's UnifiedLog and runs its Cleaner on them.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from ottla.server.system.files import RealDirectory
from ottla.storage.cleaner.log_cleaner_manager import CleaningProgress
from tests.conformance.test_log_files import dump, problems
from tests.storage.cleaner.cleaning import COMPACT, CleanerBed, batches_of
from tests.storage.cleaner.test_cleaner_model import Script
from tests.storage.sets import make, open_set

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.storage.log.partition_log import PartitionLog
    from tests.conformance.kafka import Kafka

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(300)]
SETTINGS = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": str(COMPACT.segment_bytes),
    "index.interval.bytes": str(COMPACT.index_interval_bytes),
    "segment.index.bytes": str(COMPACT.segment_index_bytes),
    "delete.retention.ms": str(COMPACT.delete_retention_ms),
}
LATER_MS = 10 * COMPACT.delete_retention_ms


class Oracle:
    """The Java process: one JSON question, one JSON answer."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(self, directory: Path, now_ms: int, **more: int) -> dict[str, Any]:
        """Open a log directory, clean it if asked, and return what is in it."""
        question = {"directory": str(directory), "now": now_ms, "config": SETTINGS, **more}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        assert "error" not in answer, answer
        return answer


@pytest.fixture(scope="module")
def oracle(kafka: Kafka) -> Iterator[Oracle]:
    """Run the Java program for all tests here."""
    classes = kafka.compile(Path(__file__).parent / "java" / "CleanerOracle.java")
    with subprocess.Popen(
        kafka.command("CleanerOracle", classes=classes),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        yield Oracle(process)
        process.kill()


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.hex()


def described(log: PartitionLog) -> dict[str, Any]:
    """Return what is in a log, as the Java side says it."""
    return {
        "batches": [
            [
                batch.base_offset,
                batch.last_offset,
                batch.record_count,
                batch.producer_id,
                batch.producer_epoch,
                batch.base_sequence,
                batch.is_transactional,
                batch.is_control,
                int(batch.compression),
                batch.max_timestamp,
                -1 if batch.delete_horizon_ms is None else batch.delete_horizon_ms,
                batch.leader_epoch,
                [
                    [one.offset, one.timestamp, _text(one.key), _text(one.value), len(one.headers)]
                    for one in batch.records()
                ],
            ]
            for batch in batches_of(log)
        ],
        "aborted": [
            list(one[:3]) for segment in log.segments for one in segment.transaction_index.entries()
        ],
        "bases": log.segments.base_offsets,
        "log_end": log.log_end_offset,
        "producers": {
            str(key): one.last_sequence for key, one in log.producer_state.producers.items()
        },
    }


class Node:
    """Our logs in a directory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.bed = CleanerBed(open_set(RealDirectory(str(path), create=True), config=COMPACT))
        self.log = make(self.bed.logs)

    def clean(self, now_ms: int) -> dict[str, int]:
        """Clean the log once; return where it was dirty."""
        cleaning = self.bed.choose(now_ms)
        assert cleaning is not None
        assert self.bed.run(cleaning, now_ms) is CleaningProgress.CLEANED
        candidate = cleaning.candidate
        return {
            "first_dirty": candidate.first_dirty,
            "first_uncleanable": candidate.first_uncleanable,
        }

    def stop(self) -> None:
        """Close the logs."""
        self.bed.logs.shutdown()


@pytest.mark.parametrize("seed", range(12))
def test_the_same_is_left(oracle: Oracle, kafka: Kafka, tmp_path: Path, seed: int) -> None:
    """Of random logs with producers, transactions and codecs, twice; and each opens the other's."""
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    node = Node(ours)
    script = Script(node.log, Random(seed))
    for _ in range(200):
        script.step()
    node.bed.make_durable(script.now_ms)
    node.stop()
    shutil.copytree(ours, theirs)
    node = Node(ours)
    node.log.update_high_watermark(script.log.high_watermark)
    dirty = node.clean(script.now_ms)
    left = described(node.log)
    node.stop()
    theirs_left = oracle.ask(theirs / "a-0", script.now_ms, **dirty)
    end_offset = theirs_left.pop("end_offset")
    del theirs_left["cpu_ms"]
    assert end_offset == dirty["first_uncleanable"]
    assert theirs_left == left
    assert oracle.ask(ours / "a-0", script.now_ms) == left
    for pattern in ("*.log", "*.index", "*.timeindex", "*.txnindex", "*.snapshot"):
        files = sorted((ours / "a-0").glob(pattern))
        assert problems(dump(kafka, files)) == [] if files else True
    _clean_the_others(oracle, ours, theirs, script.now_ms + LATER_MS)


def _clean_the_others(oracle: Oracle, ours: Path, theirs: Path, now_ms: int) -> None:
    """Let each side clean what the other cleaned, when tombstones and markers are due."""
    (theirs / "cleaner-offset-checkpoint").unlink(missing_ok=True)
    (ours / "cleaner-offset-checkpoint").unlink(missing_ok=True)
    node = Node(theirs)
    node.log.update_high_watermark(node.log.log_end_offset)
    dirty = node.clean(now_ms)
    left = described(node.log)
    node.stop()
    found = oracle.ask(ours / "a-0", now_ms, **dirty)
    del found["end_offset"], found["cpu_ms"]
    assert found == left
