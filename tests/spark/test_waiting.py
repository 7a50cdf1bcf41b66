"""What an idle query asks of the brokers, without a JVM."""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from ottla.clients.blocking import Admin, Producer
from ottla.spark import stream, waiting
from ottla.spark.options import read_options
from ottla.spark.stream import StreamReader
from ottla.spark.waiting import MIN_WAIT_MS, RecordWait
from ottla.types import TopicPartition
from tests.waits import WAIT_S, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.spark.offsets import SourceOffsets
    from ottla.testing.cluster import Cluster


class CountingReader(StreamReader):
    """Counts how often the end offsets are asked for."""

    lookups = 0

    def _latest(self) -> SourceOffsets:
        self.lookups += 1
        return super()._latest()


@pytest.fixture
def idle(node: Cluster, request: pytest.FixtureRequest) -> Iterator[CountingReader]:
    """Return the stream of an empty topic that is named as the test."""
    topic = request.node.name
    with Admin(bootstrap_servers=node.bootstrap) as admin:
        admin.create_topic(topic, partitions=2)
    given = {"kafka.bootstrap.servers": node.bootstrap, "subscribe": topic}
    options = read_options({**given, "startingOffsets": "earliest"}, streaming=True)
    reader = CountingReader(options, ("value",))
    yield reader
    reader.stop()


def poll(reader: StreamReader, start: dict[str, Any], times: int) -> list[dict[str, Any]]:
    """Ask for the end of the next micro-batch, as Spark does all the time."""
    limit = reader.getDefaultReadLimit()
    return [reader.latestOffset(start, limit) for _ in range(times)]


def test_end_offsets_are_asked_for_once(
    idle: CountingReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a Fetch waits at the leader nothing has changed, which progress reports say, too."""
    monkeypatch.setattr(waiting, "LOOK_MS", 600_000)
    monkeypatch.setattr(stream, "KNOWN_S", 600.0)
    start = idle.initialOffset()
    for _ in range(6):
        assert poll(idle, start, 1) == [start]
        assert idle.reportLatestOffset() == start
    assert idle.lookups == 1


def test_progress_reports_the_newest_ends(node: Cluster, idle: CountingReader) -> None:
    """A micro-batch takes a while: the ends at its start are not those at its end."""
    topic = "test_progress_reports_the_newest_ends"
    start = idle.initialOffset()
    assert poll(idle, start, 1) == [start]
    with Producer(bootstrap_servers=node.bootstrap) as producer:
        producer.send_and_wait(topic, b"new", partition=1)
    time.sleep(stream.KNOWN_S)
    reported = idle.reportLatestOffset()
    assert reported is not None
    assert reported[topic]["1"] == 1


def test_a_record_ends_the_wait(
    node: Cluster, idle: CountingReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is seen at once, however long the query has been idle."""
    start = idle.initialOffset()
    poll(idle, start, 8)
    monkeypatch.setattr(waiting, "MIN_WAIT_MS", WAIT_S * 1000)
    monkeypatch.setattr(waiting, "MAX_WAIT_MS", WAIT_S * 1000)
    with Producer(bootstrap_servers=node.bootstrap) as producer:
        producer.send_and_wait("test_a_record_ends_the_wait", b"new", partition=1)
    began_s = time.monotonic()
    (end,) = poll(idle, start, 1)
    assert end["test_a_record_ends_the_wait"]["1"] == 1
    assert time.monotonic() - began_s < WAIT_S


def test_new_partitions_are_found(node: Cluster, idle: CountingReader) -> None:
    """An idle query looks at its topics every two seconds."""
    topic = "test_new_partitions_are_found"
    start = idle.initialOffset()
    poll(idle, start, 3)
    with Admin(bootstrap_servers=node.bootstrap) as admin:
        admin.create_partitions({topic: 3})
    with Producer(bootstrap_servers=node.bootstrap) as producer:
        producer.send_and_wait(topic, b"new", partition=2)
    found = (end[topic].get("2") for end in iter(lambda: poll(idle, start, 1)[0], None))
    assert 1 in itertools.islice(found, 100)


def test_an_answer_with_an_error_ends_no_wait(idle: CountingReader) -> None:
    """Spark would ask again at once, a hundred times a second."""
    topic = "test_an_answer_with_an_error_ends_no_wait"
    topics = idle.cluster.existing_topics([topic])
    wait = RecordWait(idle.cluster, 0)
    beyond_the_end = {TopicPartition(topic, 0): 100, TopicPartition(topic, 1): 100}
    began_s = time.monotonic()
    assert not wait.wait(topics, beyond_the_end)
    assert time.monotonic() - began_s > 0.0009 * MIN_WAIT_MS
    wait_for(lambda: not wait.wait(topics, beyond_the_end) and not wait.is_idle)


def test_the_question_for_an_idle_query_changes_nothing(idle: CountingReader) -> None:
    """Only a look at the ends begins the next interval: a question may be asked any time."""
    topic = "test_the_question_for_an_idle_query_changes_nothing"
    topics = idle.cluster.existing_topics([topic])
    wait = RecordWait(idle.cluster, 0)
    ends = {TopicPartition(topic, 0): 0, TopicPartition(topic, 1): 0}
    while not wait.is_idle:  # the answers come after some waits
        assert not wait.wait(topics, ends)
    assert not wait.is_idle_at({TopicPartition(topic, 0): 1})
    assert wait.is_idle_at(ends)
    wait.looking_up()
    assert not wait.is_idle_at(ends)
