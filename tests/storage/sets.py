"""Helpers that open log sets and run their jobs."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from ottla.storage.directories.log_dir import LogDirectory
from ottla.storage.log_set.jobs import run_now
from ottla.storage.log_set.log_set import LogSet
from ottla.types import TopicPartition
from tests.storage.logs import NOW_MS, SMALL, TOPIC_ID

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ottla.storage.directories.loader import FoundLog
    from ottla.storage.directory import Directory
    from ottla.storage.log.config import LogConfig
    from ottla.storage.log.partition_log import PartitionLog
    from ottla.storage.log_set.jobs import StorageJob
    from ottla.types import Uuid

A = TopicPartition("a", 0)


def open_set(
    *disks: Directory,
    config: LogConfig = SMALL,
    now_ms: int = NOW_MS,
    is_stray: Callable[[FoundLog], bool] | None = None,
) -> LogSet:
    """Open directories `/d0`, `/d1`, …, all logs with one configuration."""
    logs = LogSet(
        [LogDirectory(f"/d{number}", disk) for number, disk in enumerate(disks)],
        config_for=lambda _: config,
        rng=Random(1),
    )
    logs.load(now_ms, is_stray)
    return logs


def make(logs: LogSet, partition: TopicPartition = A, topic_id: Uuid = TOPIC_ID) -> PartitionLog:
    """Return a partition's log, made when missing."""
    return logs.get_or_create(partition, topic_id=topic_id, now_ms=NOW_MS)


def finish(jobs: Iterable[StorageJob]) -> None:
    """Do jobs one after another, as a worker and the loop would."""
    for job in jobs:
        run_now(job)


def drain(logs: LogSet, now_ms: int = NOW_MS) -> None:
    """Run all pending jobs of the set."""
    while jobs := logs.take_jobs(now_ms):
        finish(jobs)
