"""Responses that wait for a flush because of flush.messages."""

from __future__ import annotations

import errno
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

from ottla.errors import ErrorCode, KafkaError
from ottla.storage.directories.log_dir import LogDirectory
from ottla.storage.log.flushes import LogFlushes
from ottla.storage.log_set.log_set import LogSet
from ottla.testing.disk import SimulatedDisk
from ottla.types import TopicPartition
from tests.storage.logs import NOW_MS, SMALL, TOPIC_ID, content, put, send

if TYPE_CHECKING:
    import pytest

    from ottla.purgatory.pending import Pending
    from ottla.storage.log.flush import SharedSync
    from ottla.storage.log.partition_log import PartitionLog
    from ottla.storage.log_set.jobs import StorageJob

A, B = TopicPartition("a", 0), TopicPartition("b", 0)


class Flushes:
    """A set of logs whose flushes are begun as a node does, and finished when a test says so."""

    def __init__(self, flush_messages: int) -> None:
        self.disk = SimulatedDisk()
        self.config = replace(SMALL, flush_messages=flush_messages)
        self.logs = LogSet(
            [LogDirectory("/d", self.disk)],
            config_for=lambda _: self.config,
            rng=Random(1),
        )
        self.logs.load(NOW_MS)
        self.logs.flushes.on_awaited(self._begin)
        self.under_way: list[StorageJob] = []
        self.a, self.b = self._new(A), self._new(B)

    def _new(self, partition: TopicPartition) -> PartitionLog:
        log = self.logs.get_or_create(partition, topic_id=TOPIC_ID, now_ms=NOW_MS)
        self.finish(self.logs.take_jobs())
        return log

    def _begin(self, log: PartitionLog) -> None:
        self.under_way += self.logs.flushes.take_one(log, NOW_MS)

    def finish(self, jobs: list[StorageJob] | None = None, error: OSError | None = None) -> None:
        """Run what is under way, or end it with an error."""
        if jobs is None:
            jobs, self.under_way = self.under_way, []
        for job in jobs:
            if error is None:
                job.run()
            job.done(error)

    def append(self, log: PartitionLog, count: int = 1) -> Pending[None] | None:
        """Append a batch; return what its answer waits for."""
        put(log, count)
        return self.logs.flushes.wait_for_overdue().get(log.topic_partition)


def waiting(wait: Pending[None] | None) -> Pending[None]:
    """Return what must be there and must not be over."""
    assert wait is not None
    assert not wait.done
    return wait


def code_of(wait: Pending[None]) -> ErrorCode:
    """Return the code with which a wait failed."""
    assert isinstance(wait.error, KafkaError)
    return wait.error.code


def test_fewer_records_than_flush_messages_do_not_wait() -> None:
    """The third record of three waits; after its flush two are free again."""
    flushes = Flushes(3)
    assert flushes.append(flushes.a, 2) is None
    assert not flushes.under_way
    third = waiting(flushes.append(flushes.a))
    assert len(flushes.under_way) == 1
    flushes.finish()
    assert third.done
    assert third.error is None
    assert flushes.a.recovery_point == 3
    assert flushes.append(flushes.a, 2) is None
    assert waiting(flushes.append(flushes.a))


def test_one_flush_serves_all_who_appended_while_another_ran() -> None:
    """Three appends during a flush share the next one, which begins when that ends."""
    flushes = Flushes(1)
    first = waiting(flushes.append(flushes.a))
    others = [waiting(flushes.append(flushes.a)) for _ in range(3)]
    assert len(flushes.under_way) == 1
    flushes.finish()
    assert first.done
    assert not any(other.done for other in others)
    assert len(flushes.under_way) == 1
    flushes.finish()
    assert all(other.done for other in others)
    assert not flushes.under_way


def test_later_appends_need_no_second_flush_when_few_records_remain() -> None:
    """As in Kafka, where they would wait for the lock and then find one record unflushed."""
    flushes = Flushes(3)
    third = waiting(flushes.append(flushes.a, 3))
    fourth = waiting(flushes.append(flushes.a))
    flushes.finish()
    assert third.done
    assert fourth.done
    assert not flushes.under_way


def test_logs_wait_each_for_their_own_flush() -> None:
    """The end of one log's flush is not the other's."""
    flushes = Flushes(1)
    put(flushes.a)
    put(flushes.b)
    put(flushes.b)
    waits = flushes.logs.flushes.wait_for_overdue()
    assert set(waits) == {A, B}
    first, second = flushes.under_way
    flushes.finish([second])
    assert [waits[A].done, waits[B].done] == [False, True]
    flushes.finish([first])
    assert waits[A].done


def test_a_duplicate_waits_as_its_first_answer_does() -> None:
    """A retried request is not acknowledged before its records are durable."""
    flushes = Flushes(1)
    send(flushes.a, 7, 0)
    first = flushes.logs.flushes.wait_for_overdue()[A]
    assert send(flushes.a, 7, 0).is_duplicate
    again = flushes.logs.flushes.wait_for_overdue()[A]
    assert not again.done
    flushes.finish()
    assert first.done
    assert again.done
    assert send(flushes.a, 7, 0).is_duplicate
    assert not flushes.logs.flushes.wait_for_overdue()


def test_a_flush_that_fails_fails_all_logs_of_the_directory() -> None:
    """KAFKA_STORAGE_ERROR for every wait on a log of the failed directory."""
    flushes = Flushes(1)
    waits = [waiting(flushes.append(log)) for log in (flushes.a, flushes.a, flushes.b)]
    first = flushes.under_way.pop(0)
    flushes.finish([first], OSError(errno.EIO, "simulated"))
    assert {code_of(wait) for wait in waits} == {ErrorCode.KAFKA_STORAGE_ERROR}
    assert not flushes.logs.online_directories
    flushes.finish()  # the other log's flush ends into nothing
    assert A not in {log.topic_partition for log in flushes.logs}


def test_a_flush_that_cannot_begin_fails_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk refuses to open a file: 56, and the jobs of the other logs are not lost."""
    flushes = Flushes(1)
    put(flushes.a)

    def refuse(
        _flushes: LogFlushes, _now_ms: int, *, is_whole: bool, names: SharedSync | None
    ) -> None:
        assert is_whole
        assert names is None
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR) from OSError(errno.EIO, "simulated")

    monkeypatch.setattr(LogFlushes, "start", refuse)
    (wait,) = flushes.logs.flushes.wait_for_overdue().values()
    assert code_of(wait) is ErrorCode.KAFKA_STORAGE_ERROR
    assert not flushes.logs.directories[0].is_online
    assert flushes.logs.take_jobs() == []


def test_descriptors_that_run_out_are_waited_for() -> None:
    """Nothing is wrong with the disk: the clockwork tries again, the answer waits for that."""
    flushes = Flushes(1)
    wait = waiting(flushes.append(flushes.a))
    flushes.finish(error=OSError(errno.EMFILE, "Too many open files"))
    assert not wait.done
    assert not flushes.under_way
    flushes.finish(flushes.logs.take_jobs())
    assert wait.error is None
    assert wait.done


def test_a_deleted_log_is_waited_for_no_longer() -> None:
    """UNKNOWN_TOPIC_OR_PARTITION, at once; the running flush has no effect."""
    flushes = Flushes(1)
    wait = waiting(flushes.append(flushes.a))
    assert flushes.logs.delete(A, now_ms=NOW_MS)
    assert code_of(wait) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    flushes.finish()
    assert flushes.logs.online_directories


def test_a_truncation_leaves_no_one_waiting() -> None:
    """A flush from before it proves nothing; the next one ends the wait for what is gone."""
    flushes = Flushes(1)
    assert flushes.append(flushes.a)
    wait = waiting(flushes.append(flushes.a))
    flushes.a.truncation.truncate_to(1, now_ms=NOW_MS)
    flushes.finish()
    assert not wait.done
    flushes.finish()
    assert wait.done


def test_what_an_answer_starts_may_append_again() -> None:
    """Completing one response can append the next records synchronously."""
    flushes = Flushes(1)
    later: list[Pending[None]] = []

    def next_request(_done: Pending[None]) -> None:
        later.append(waiting(flushes.append(flushes.a)))

    waiting(flushes.append(flushes.a)).on_done(next_request)
    flushes.finish()
    assert len(flushes.under_way) == 1
    flushes.finish()
    assert later[0].done


def test_a_follower_asks_for_a_flush_and_waits_for_none() -> None:
    """Follower appends complete no waits."""
    flushes = Flushes(1)
    put(flushes.a)
    flushes.logs.flushes.wait_for_overdue()
    flushes.finish()
    records = content(flushes.a.reads.read(0, 1000).records)
    flushes.b.writes.append_as_follower(records, leader_epoch=0, now_ms=NOW_MS)
    assert flushes.logs.flushes.wait_for_overdue() == {}
    flushes.finish(flushes.logs.take_jobs())
    assert flushes.b.recovery_point == 1


def test_a_held_log_is_flushed_once_it_is_released() -> None:
    """Requests and waits stay; other logs are flushed meanwhile, and a flush under way ends."""
    flushes = Flushes(1)
    first = waiting(flushes.append(flushes.a))
    flushes.logs.flushes.hold(flushes.a)
    flushes.finish()
    assert first.done
    second = waiting(flushes.append(flushes.a))
    assert not flushes.under_way
    assert not flushes.logs.take_jobs(NOW_MS)
    assert waiting(flushes.append(flushes.b))
    flushes.finish()
    assert (flushes.a.recovery_point, flushes.b.recovery_point) == (1, 1)
    flushes.logs.flushes.release(flushes.a)
    flushes.finish()
    assert second.done
    assert flushes.a.recovery_point == 2
