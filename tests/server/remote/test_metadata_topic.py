"""Reads of the metadata topic by a broker: what a write leaves, and the file in a worker."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from types import MappingProxyType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from ottla.clock import Clock
from ottla.errors import ErrorCode, KafkaError
from ottla.purgatory.loop import Loop
from ottla.purgatory.pending import Pending
from ottla.purgatory.timing_wheel import TimingWheel
from ottla.purgatory.work import Worker
from ottla.server.remote.metadata_topic import RemoteMetadataTopic
from ottla.testing.disk import SimulatedFile
from tests.storage.logs import NOW_MS, new_log
from tests.storage.remote.test_records import SEGMENT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


WAIT_MS = 1000


class Time(Clock):
    """A clock that stands still."""

    def now_ms(self) -> int:
        return NOW_MS

    def monotonic_ms(self) -> int:
        return 0


class Broker:
    """The leader of the topic's only partition, whose turns the test runs."""

    def __init__(self, clients: Mapping[str, str] = MappingProxyType({})) -> None:
        self.log = new_log()
        self.events: list[str] = []
        self.turns: deque[Callable[[], None]] = deque()
        self.timer = TimingWheel(0)
        settings = SimpleNamespace(remote_log_metadata_consume_wait_ms=WAIT_MS)
        metadata: Any = SimpleNamespace(
            config=SimpleNamespace(
                remote_metadata=settings,
                remote_metadata_client=lambda kind, _name: kind(
                    kind.definitions.read(clients).values, clients
                ),
            ),
            partition_count=lambda _topic: 1,
            topic_id=lambda _topic: None,
        )
        loop = Loop(Time(), self.timer, Worker(self.turns.append))
        unused: Any = None
        replicas: Any = self
        self.flush: Pending[None] = Pending()
        self.flush.complete(None)
        flushes = SimpleNamespace(make_durable=lambda _log: self.flush)
        self.logs = SimpleNamespace(flushes=flushes)
        self.is_leader = True
        self.topic = RemoteMetadataTopic(
            metadata, replicas, unused, unused, loop, run_on_volume=self._in_worker
        )

    def on_high_watermark(self, *_: object) -> None:
        """Follow no high watermark: the test reads."""

    def find(self, *_: object) -> Any:
        return self

    def append(self, _partition: Any, batch: memoryview, *_: object) -> Any:
        info = self.log.writes.append_as_leader(batch, leader_epoch=0, now_ms=NOW_MS)
        return SimpleNamespace(info=info)

    def _in_worker(self, _volume: object, job: Any, done: Callable[[Any, Any], None]) -> None:
        result = job()
        self.events.append("read")
        done(result, None)

    def run(self) -> None:
        """Run all turns."""
        while self.turns:
            self.turns.popleft()()


def test_the_file_is_pinned_in_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """A write is complete when it is read back, and leaves no timer."""
    broker = Broker()
    for name in ("pin", "unpin"):
        monkeypatch.setattr(SimulatedFile, name, lambda _, name=name: broker.events.append(name))
    written = broker.topic.write(SEGMENT)
    broker.run()
    assert (written.done, len(broker.timer), broker.events) == (False, 1, [])
    broker.log.update_high_watermark(1)
    broker.topic.refresh([])
    broker.run()
    assert written.succeeded
    assert len(broker.timer) == 0
    assert broker.events == ["pin", "read", "unpin"]
    assert broker.topic.table((SEGMENT.topic_id, 0)).segments() == [SEGMENT]
    assert broker.topic.table((SEGMENT.topic_id, 1)).segments() == []


def test_the_clients_settings_bound_reads_and_pace_repeats(monkeypatch: pytest.MonkeyPatch) -> None:
    """`fetch.max.bytes` of the consumer, `retry.backoff.ms` of the producer."""
    broker = Broker({"fetch.max.bytes": "1", "retry.backoff.ms": "30"})
    refusals = [KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)]
    append = broker.append

    def refuse_first(*arguments: Any) -> Any:
        if refusals:
            raise refusals.pop()
        return append(*arguments)

    monkeypatch.setattr(broker, "append", refuse_first)
    for segment in (SEGMENT, replace(SEGMENT, partition=1)):
        broker.topic.write(segment)
    broker.run()
    assert broker.log.log_end_offset == 1
    broker.timer.advance(29)
    broker.run()
    assert broker.log.log_end_offset == 1
    broker.timer.advance(31)
    broker.run()
    assert broker.log.log_end_offset == 2
    broker.log.update_high_watermark(2)
    broker.topic.refresh([])
    broker.run()
    assert broker.events == ["read", "read"]


def test_a_write_is_not_complete_before_the_disk_has_it() -> None:
    """A power cut would take the record of a segment that has left the disk by then."""
    broker = Broker()
    broker.flush = Pending()
    written = broker.topic.write(SEGMENT)
    broker.run()
    broker.log.update_high_watermark(1)
    broker.topic.refresh([])
    broker.run()
    assert len(broker.topic.table((SEGMENT.topic_id, 0))) == 1
    assert not written.done
    broker.flush.complete(None)
    broker.run()
    assert written.succeeded


def test_a_table_that_is_not_read_whole_decides_nothing() -> None:
    """At the start, and while records are read again that an unclean election has replaced."""
    broker, key = Broker(), (SEGMENT.topic_id, 0)
    with pytest.raises(KafkaError, match="is not read yet"):
        broker.topic.table(key)
    broker.topic.write(SEGMENT)
    broker.run()
    broker.log.update_high_watermark(1)
    broker.topic.refresh([])
    broker.run()
    assert broker.topic.table(key).segments() == [SEGMENT]
    broker.log = new_log()
    broker.topic.refresh([])
    broker.run()
    with pytest.raises(KafkaError, match="is not read yet") as unread:
        broker.topic.table(key)
    assert unread.value.is_retriable
    broker.topic.refresh([])
    broker.run()
    assert broker.topic.table(key).segments() == []


def test_a_write_that_is_not_committed_times_out() -> None:
    """At the deadline, with the error that the copy reports."""
    broker = Broker()
    written = broker.topic.write(SEGMENT)
    broker.timer.advance(WAIT_MS)
    assert isinstance(written.error, KafkaError)
    assert written.error.code is ErrorCode.REQUEST_TIMED_OUT
