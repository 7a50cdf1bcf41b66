"""When a node's log cleaner works: backoff, threads, rate, settings; and topics of a real node."""

from __future__ import annotations

import urllib.request
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from ottla.clients.admin.configs import ConfigResource, ResourceType
from ottla.config.broker import parse_broker_config
from ottla.purgatory.timing_wheel import TimingWheel
from ottla.server.broker.log_cleaner import LogCleaner
from ottla.server.metrics.node import cleaner_series
from ottla.testing.cluster import Cluster
from ottla.testing.disk import SimulatedDisk
from ottla.testing.kafka import Kafka
from ottla.types import TopicPartition, Uuid
from tests.coordinator.harness import EPOCH_MS, VirtualClock, loop_of
from tests.storage.cleaner.cleaning import COMPACT, CleanerBed, put_keys
from tests.storage.sets import make, open_set
from tests.waits import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PROPERTIES = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.voters": "1@127.0.0.1:9093",
    "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
    "controller.listener.names": "CONTROLLER",
    "log.cleaner.backoff.ms": "1000",
}
CLEANER = {"log.cleaner.backoff.ms": "20", "log.cleaner.threads": "2"}
COMPACTED = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": "2000",
    "min.cleanable.dirty.ratio": "0.01",
    "file.delete.delay.ms": "0",
}


class Bed:
    """A cleaner over some dirty logs, by a clock that is moved by hand; workers that wait."""

    def __init__(self, logs: int, **settings: str) -> None:
        self.clock = VirtualClock()
        self.timer = TimingWheel(0)
        self.loop = loop_of(self.timer, self.clock)
        self.config = self.settings(**settings)
        self.bed = CleanerBed(open_set(SimulatedDisk(), config=COMPACT, now_ms=EPOCH_MS))
        self.logs = [make(self.bed.logs, TopicPartition("t", number)) for number in range(logs)]
        self.waiting: list[Callable[[], None]] = []
        self.begun_ms: list[int] = []
        self.cleaning = LogCleaner(
            self.bed.logs,
            lambda: self.config,
            loop=self.loop,
            run_on_volume=self._run,
            new_uuid=lambda: Uuid(bytes(range(16))),
        )

    @staticmethod
    def settings(**settings: str) -> Any:
        """Return the settings of a broker."""
        given = {name.replace("_", "."): value for name, value in settings.items()}
        return parse_broker_config(PROPERTIES | given)

    def _run(self, _volume: object, job: Callable[[], Any], done: Callable[..., None]) -> None:
        def work() -> None:
            self.begun_ms.append(self.clock.time_ms)
            done(job(), None)

        self.waiting.append(work)

    def fill(self) -> None:
        """Make all logs dirty."""
        for log in self.logs:
            for number in range(60):
                put_keys(log, (b"k%d" % (number % 7), b"v"), now_ms=EPOCH_MS)
        self.bed.make_durable(EPOCH_MS)

    def work(self) -> int:
        """Do what waits for a worker, and what follows; return how many slices."""
        count = 0
        while self.waiting:
            self.waiting.pop(0)()
            self.timer.advance(self.clock.time_ms)
            count += 1
        return count

    def wait(self, elapsed_ms: int) -> None:
        """Let time go by."""
        self.clock.time_ms += elapsed_ms
        self.timer.advance(self.clock.time_ms)

    @property
    def clean_count(self) -> int:
        """Logs that were cleaned."""
        return sum(self.bed.logs.cleaner_offsets.get(log) is not None for log in self.logs)


def _metrics(bed: Bed) -> dict[str, Any]:
    series = cleaner_series(bed.cleaning, bed.bed.logs.directories)
    return {one.family.classic.rpartition("_")[2]: one.values[0] for one in series}


def test_a_cleaner_looks_again_after_its_backoff() -> None:
    """One log after the other; then it waits for log.cleaner.backoff.ms, which may change."""
    bed = Bed(2)
    bed.cleaning.start()
    assert not bed.waiting
    bed.fill()
    bed.wait(999)
    assert not bed.waiting
    bed.wait(1)
    assert len(bed.waiting) == 1
    bed.work()
    assert bed.clean_count == 2
    found = _metrics(bed)
    assert found["percent"] is not None
    assert bed.cleaning.figures().recopy_percent > 10
    bed.config = bed.settings(log_cleaner_backoff_ms="5000")
    bed.wait(1000)
    bed.fill()
    bed.wait(4999)
    assert not bed.waiting
    bed.wait(1)
    assert bed.waiting
    bed.cleaning.stop()
    bed.work()
    assert not bed.waiting


def test_as_many_logs_are_cleaned_at_a_time_as_there_are_threads() -> None:
    """More when that is changed, and fewer when one has done its slice."""
    bed = Bed(5, log_cleaner_threads="2")
    bed.fill()
    bed.cleaning.start()
    assert len(bed.waiting) == 2
    assert bed.cleaning.limits().map_bytes == 134_217_728 // 2
    bed.cleaning.settings_changed(bed.settings(log_cleaner_threads="4"))
    assert len(bed.waiting) == 4
    bed.cleaning.settings_changed(bed.settings(log_cleaner_threads="1"))
    bed.work()
    bed.wait(10_000)
    bed.work()
    assert bed.clean_count == 5
    bed = Bed(1, log_cleaner_enable="false")
    bed.fill()
    bed.cleaning.start()
    bed.wait(100_000)
    assert not bed.waiting


def test_a_rate_is_kept_by_pauses() -> None:
    """Bytes read and written, log.cleaner.io.max.bytes.per.second of them a second."""
    bed = Bed(1, log_cleaner_io_max_bytes_per_second="10000")
    bed.fill()
    bed.cleaning.start()
    while bed.clean_count == 0:
        bed.work()
        bed.wait(10)
    stats = bed.cleaning.figures()
    assert stats.max_clean_s == bed.clock.time_ms // 1000
    size = 2 * bed.logs[0].size_bytes
    assert bed.clock.time_ms > size / 10
    assert len(bed.begun_ms) > 3


def test_a_step_of_the_wall_clock_does_not_stop_the_cleaner() -> None:
    """The pause after a slice is measured by the monotonic clock."""
    bed = Bed(1)
    bed.fill()
    bed.cleaning.start()
    bed.clock.step_ms = -3_600_000  # during a slice
    bed.work()
    assert bed.clean_count == 1


def test_many_logs_are_looked_at_in_turns() -> None:
    """Other work of the loop comes in between."""
    bed = Bed(5)
    bed.loop.worker.max_steps = 2
    bed.fill()
    bed.cleaning.start()
    assert not bed.waiting
    bed.wait(1)
    assert not bed.waiting
    bed.wait(1)
    assert bed.waiting


def test_an_error_of_the_program_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """DeadThreadCount tells that a cleaner ended."""
    bed = Bed(1)
    bed.fill()
    monkeypatch.setattr(bed.cleaning.cleaner, "survey", lambda _now_ms: None)
    with pytest.raises(AttributeError):
        bed.cleaning.start()
    assert _metrics(bed)["deadthreadcount"] == 1


def test_a_record_that_waits_too_long_is_measured() -> None:
    """max.compaction.lag.ms and a log that cannot be cleaned in time."""
    bed = Bed(1)
    bed.fill()
    bed.logs[0].reconfigure(replace(COMPACT, max_compaction_lag_ms=1000))
    bed.clock.time_ms = 5000
    bed.cleaning.start()
    assert _metrics(bed)["secs"] == 4


# A real node


def _size(cluster: Cluster, topic: str) -> int:
    return cluster.run(lambda node: node.broker.replicas.get(topic, 0).log.size_bytes)


def test_a_topic_is_compacted_while_it_is_used(tmp_path: Path) -> None:
    """Keyed records, rolled segments, a cleaning; a consumer reads the last value of each key."""
    config = CLEANER | {"metrics.listener": "127.0.0.1:0"}
    with Cluster(config=config, data_dir=str(tmp_path)) as cluster, Kafka(cluster) as kafka:
        topic = kafka.topic("t", config=COMPACTED, exact=True)
        keys = [f"k{number % 5}" for number in range(400)]
        for start in range(0, 400, 20):
            topic.produce([f"value {start + n}" for n in range(20)], keys=keys[start : start + 20])
        wait_for(lambda: len(topic.records()) < 100)
        wait_for(lambda: _size(cluster, "t") < 4000)
        expected = {f"k{number % 5}".encode(): f"value {number}".encode() for number in range(400)}
        assert {one.key: one.value for one in topic.records()} == expected
        with urllib.request.urlopen(cluster.metrics_url) as response:
            text = response.read().decode()
        assert "kafka_log_logcleanermanager_uncleanable_partitions_count{" in text
        assert "kafka_log_logcleaner_cleaner_recopy_percent" in text
        cluster.restart()
        assert {one.key: one.value for one in topic.records()} == expected


def test_the_offsets_topic_stays_small(tmp_path: Path) -> None:
    """However often a group commits; a restart loads the last commit."""
    config = CLEANER | {
        "offsets.topic.num.partitions": "1",
        "log.segment.delete.delay.ms": "0",
    }
    with Cluster(config=config, data_dir=str(tmp_path)) as cluster, Kafka(cluster) as kafka:
        topic = kafka.topic("t", exact=True).produce(["v"] * 600)
        partition = TopicPartition("t", 0)
        with kafka.consumer(topic, group="g") as consumer:
            consumer.poll(5.0)
            consumer.commit({partition: 1})
            offsets_topic = ConfigResource(ResourceType.TOPIC, "__consumer_offsets")
            small = {"internal.segment.bytes": "4000"}
            assert kafka.admin.alter_configs({offsets_topic: small}) == {offsets_topic: None}
            for number in range(2, 500):
                consumer.commit({partition: number})
        largest = 500 * 100
        wait_for(lambda: _size(cluster, "__consumer_offsets") < largest / 4)
        committed = kafka.committed("g")
        assert committed[partition] >= 499
        cluster.restart()
        assert kafka.committed("g") == committed
