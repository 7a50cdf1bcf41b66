"""The bound of producers in all logs of a node: counted exactly, and new ones refused."""

from __future__ import annotations

from random import Random

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.storage.directories.log_dir import LogDirectory
from ottla.storage.log_set.log_set import LogSet
from ottla.testing.disk import SimulatedDisk
from ottla.types import TopicPartition
from tests.storage.logs import NOW_MS, SMALL, TOPIC_ID, flush, put, send

A, B = TopicPartition("a", 0), TopicPartition("b", 3)


def open_set(*disks: SimulatedDisk, most: int = 1000) -> LogSet:
    """Open the logs of a node that remembers that many producers."""
    logs = LogSet(
        [LogDirectory(f"/d{number}", disk) for number, disk in enumerate(disks)],
        config_for=lambda _: SMALL,
        rng=Random(1),
        max_producers=most,
    )
    logs.load(NOW_MS)
    return logs


def counted(logs: LogSet) -> int:
    """Return the count, which must be that of all entries."""
    count = logs.producers.count
    assert count == sum(len(log.producer_state.producers) for log in logs)
    return count


def test_producers_come_and_go() -> None:
    """New ones, expired ones, deleted logs, a restart and a lost directory: the count is right."""
    disks = SimulatedDisk(), SimulatedDisk()
    logs = open_set(*disks)
    one, two = (logs.get_or_create(name, topic_id=TOPIC_ID, now_ms=NOW_MS) for name in (A, B))
    for producer_id in range(5):
        send(one, producer_id, 0)
        send(one, producer_id, 1)
        send(two, producer_id, 0)
    assert counted(logs) == 10
    one.producer_state.remove_expired(NOW_MS + SMALL.producer_id_expiration_ms + 10)
    assert counted(logs) == 5
    for producer_id in range(7):
        send(one, 100 + producer_id, 0)
    assert counted(logs) == 12
    one.truncation.truncate_to(one.log_end_offset - 3, now_ms=NOW_MS)
    flush(one)
    assert counted(logs) == 9
    logs.shutdown()
    logs = open_set(*disks)
    assert counted(logs) == 9
    logs.delete(A, now_ms=NOW_MS)
    assert counted(logs) == 5
    log_dir = logs.log_dir_of(B)
    assert log_dir is not None
    logs.fail(log_dir, OSError("gone"))
    assert counted(logs) == 0


def test_one_too_many_is_refused_until_there_is_room() -> None:
    """A new producer is POLICY_VIOLATION; known ones and batches without an id go on."""
    logs = open_set(SimulatedDisk(), most=2)
    one, two = (logs.get_or_create(name, topic_id=TOPIC_ID, now_ms=NOW_MS) for name in (A, B))
    send(one, 1, 0)
    send(two, 1, 0)
    for log, producer_id in ((one, 2), (two, 2)):
        with pytest.raises(KafkaError, match=r"producer\.states\.max") as error:
            send(log, producer_id, 0)
        assert error.value.code is ErrorCode.POLICY_VIOLATION
        assert not error.value.is_retriable
    send(one, 1, 1)
    assert send(one, 1, 1).is_duplicate
    put(one)
    assert (counted(logs), logs.producers.refused_count) == (2, 2)
    logs.delete(B, now_ms=NOW_MS)
    send(one, 2, 0)
    assert counted(logs) == 2
