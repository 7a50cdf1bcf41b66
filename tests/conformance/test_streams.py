"""Kafka's Java Streams client on a node: a word count with a repartition topic and a changelog."""

from __future__ import annotations

import subprocess
import time
from collections import Counter
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla import Admin, Consumer, Producer
from ottla.testing import Cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conformance.kafka import Kafka

pytestmark = pytest.mark.conformance
HERE = Path(__file__).parent
SETTINGS = {
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.assignment.interval.ms": "0",
    "group.streams.min.heartbeat.interval.ms": "200",
    "group.streams.heartbeat.interval.ms": "200",
    "group.streams.min.session.timeout.ms": "1000",
    "group.streams.session.timeout.ms": "6000",
    "group.initial.rebalance.delay.ms": "0",
}
PARTITIONS = 4
WORDS = ["to", "be", "or", "not", "to", "be"]
PATIENCE_S = 120.0


class WordCounts:
    """Instances of the application on a cluster."""

    def __init__(self, kafka: Kafka, bootstrap: str, directory: Path, **settings: str) -> None:
        self._kafka = kafka
        self._directory = directory
        self._bootstrap = bootstrap
        self._settings = {
            "bootstrap.servers": bootstrap,
            "application.id": "count",
            "input": "lines",
            "output": "totals",
            "commit.interval.ms": "100",
            "auto.offset.reset": "earliest",
            "session.timeout.ms": "6000",
            **settings,
        }

    @contextmanager
    def instance(self, name: str) -> Iterator[subprocess.Popen[str]]:
        """Run an instance; it is closed at the end."""
        classes = self._kafka.compile(HERE / "java" / "WordCount.java")
        settings = {**self._settings, "state.dir": str(self._directory / name), "client.id": name}
        words = [f"{key}={value}" for key, value in settings.items()]
        command = self._kafka.command("WordCount", *words, classes=classes)
        log = (self._directory / f"{name}.log").open("w")
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=log, stderr=log, text=True
        )
        try:
            yield process
        finally:
            process.communicate(timeout=120)  # of a killed one, too: it closes the pipe
            log.close()

    def send(self, *lines: str) -> None:
        """Write lines to the input, each to another partition."""
        with Producer(bootstrap_servers=self._bootstrap) as producer:
            for index, line in enumerate(lines):
                producer.send(self._settings["input"], line, partition=index % PARTITIONS)

    def wait_for(self, expected: Counter[str]) -> None:
        """Read totals until each word has its count; none may go beyond it."""
        found: dict[str, int] = {}
        end = time.monotonic() + PATIENCE_S
        with Consumer(
            self._settings["output"],
            bootstrap_servers=self._bootstrap,
            group_id=f"totals-{time.monotonic_ns()}",
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        ) as consumer:
            while found != expected:
                assert time.monotonic() < end, f"{found}, not {dict(expected)}"
                for record in consumer.poll(0.2):
                    word, count = record.key.decode(), int(record.value)
                    found[word] = count
                    assert count <= expected[word]


@pytest.mark.parametrize(
    ("protocol", "guarantee"),
    [("streams", "exactly_once_v2"), ("classic", "exactly_once_v2")],
)
def test_a_killed_instance_is_replaced(
    kafka: Kafka, tmp_path: Path, protocol: str, guarantee: str
) -> None:
    """Two instances share the tasks; one is killed, and the other goes on with its counts."""
    with Cluster(config=SETTINGS) as cluster, ExitStack() as stack:
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            admin.create_topic("lines", PARTITIONS)
            admin.create_topic("totals", 1)
        counts = WordCounts(
            kafka,
            cluster.bootstrap,
            tmp_path,
            **{"group.protocol": protocol, "processing.guarantee": guarantee},
        )
        first = stack.enter_context(counts.instance("first"))
        stack.enter_context(counts.instance("second"))
        counts.send(*WORDS)
        counts.wait_for(Counter(WORDS))
        first.kill()
        counts.send(*WORDS)
        counts.wait_for(Counter(WORDS * 2))
