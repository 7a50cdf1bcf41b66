"""Client metrics: windows, and totals after known work."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING

import pytest

from ottla import Admin, AsyncProducer, Consumer, Producer, TopicPartition
from ottla.clients.metric_windows import MetricName, MetricWindow
from ottla.errors import KafkaError
from ottla.testing.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """Yield the address of a node."""
    with Cluster() as cluster:
        yield cluster.bootstrap


def value(measured: Mapping[MetricName, float | str], name: str, **tags: str) -> float:
    """Return the one value of a name that has exactly these tags and the client's id."""
    found = [
        one
        for key, one in measured.items()
        if key.name == name and "-node-" not in key.group and dict(key.tags[1:]) == tags
    ]
    assert len(found) == 1, name
    return float(found[0])


def test_a_rate_counts_at_least_all_samples_but_one_as_full() -> None:
    """As in Kafka: ten values after a second are ten in 31 seconds, not ten a second."""
    window = MetricWindow(2, 30_000)
    for _ in range(10):
        window.record(5, 1_000)
    assert window.rate(2_000) == pytest.approx(50 / 31)
    assert window.frequency(2_000) == pytest.approx(10 / 31)
    assert (window.mean(2_000), window.highest(2_000), window.lowest(2_000)) == (5, 5, 5)


def test_old_samples_are_forgotten_and_sums_are_not() -> None:
    """After two widths only the totals remain."""
    window = MetricWindow(2, 1_000)
    window.record(1, 0)
    window.record(9, 1_500)
    assert window.highest(1_500) == 9
    assert window.lowest(1_500) == 1
    assert window.rate(1_500) == pytest.approx(10 / 1.5)
    assert window.lowest(2_100) == 9
    assert math.isnan(window.mean(9_000))
    assert math.isnan(window.highest(9_000))
    assert window.rate(9_000) == window.frequency(9_000) == 0
    assert (window.total, window.count) == (10, 2)


def test_a_window_keeps_at_most_the_configured_samples() -> None:
    """Its memory does not grow with time."""
    window = MetricWindow(3, 10)
    for now_ms in range(0, 10_000, 10):
        window.record(1, now_ms)
    assert len(window._samples) == 4


def test_names_are_written_as_kafka_writes_them() -> None:
    """Group, name and tags."""
    name = MetricName("g", "n", (("client-id", "c"), ("topic", "t")))
    assert str(name) == "g:n:{client-id=c, topic=t}"


def test_a_producer_counts_what_it_sent(bootstrap: str) -> None:
    """Records, bytes, batches and requests, in all and by topic."""
    with Producer(bootstrap_servers=bootstrap, client_id="p", linger_ms=50) as producer:
        for _ in range(30):
            producer.send("sent", b"x" * 100)
        producer.flush()
        measured = producer.metrics()
    assert value(measured, "record-send-total") == 30
    assert value(measured, "record-send-total", topic="sent") == 30
    assert value(measured, "byte-total", topic="sent") > 3_000
    assert value(measured, "record-send-rate") == pytest.approx(1, abs=0.05)
    assert value(measured, "batch-size-avg") > 100
    assert value(measured, "request-latency-avg") >= 0
    assert value(measured, "request-latency-max") >= value(measured, "request-latency-avg")
    assert value(measured, "record-error-total") == value(measured, "record-retry-total") == 0
    assert value(measured, "outgoing-byte-total") > 3_000
    assert value(measured, "response-total") == value(measured, "request-total") >= 4
    assert value(measured, "connection-count") >= 1
    assert value(measured, "buffer-available-bytes") == value(measured, "buffer-total-bytes")
    assert value(measured, "count") == len(measured)
    assert {name.tags[0] for name in measured} == {("client-id", "p")}
    assert any(("node-id", "node-1") in name.tags for name in measured)


def test_a_producer_counts_what_failed(bootstrap: str) -> None:
    """A batch that is given up counts with all its records."""
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topic("small", 1, configs={"max.message.bytes": "200"})
    with Producer(bootstrap_servers=bootstrap, linger_ms=100) as producer:
        deliveries = [producer.send("small", b"x" * 300) for _ in range(2)]
        for delivery in deliveries:
            with pytest.raises(KafkaError):
                delivery.result(60)
        measured = producer.metrics()
    assert value(measured, "record-error-total", topic="small") == 2
    assert value(measured, "batch-split-total") == 1


def test_a_consumer_counts_what_it_read(bootstrap: str) -> None:
    """Records, bytes, lag, commits and joins."""
    with Producer(bootstrap_servers=bootstrap) as producer:
        for _ in range(20):
            producer.send("read", b"x" * 100)
    with Consumer(
        "read",
        bootstrap_servers=bootstrap,
        group_id="g",
        auto_offset_reset="earliest",
        max_poll_records=15,
    ) as consumer:
        while not consumer.poll(5):
            pass
        part = consumer.metrics()
        consumer.poll(5)
        consumer.commit()
        measured = consumer.metrics()
        place = {"topic": "read", "partition": "0"}
        assert value(part, "records-lag", **place) == 5
    assert value(part, "records-consumed-total") == 15
    assert value(part, "records-lag-max") == 5
    assert value(part, "records-lead-min") == 15
    assert value(measured, "records-consumed-total") == 20
    assert value(measured, "records-consumed-total", topic="read") == 20
    assert value(measured, "records-lag", **place) == 0
    assert value(measured, "records-lead", **place) == 20
    assert value(measured, "bytes-consumed-total") > 2_000
    assert value(measured, "fetch-total") >= 1
    assert value(measured, "fetch-latency-avg") >= 0
    assert value(measured, "commit-total") >= 1
    assert value(measured, "commit-latency-max") >= 0
    assert value(measured, "join-total") >= 1
    assert value(measured, "assigned-partitions") == 1
    assert value(measured, "rebalance-total") == 1
    assert any(("node-id", "node-2147483646") in name.tags for name in measured)


def test_admin_and_asyncio_clients_measure_too(bootstrap: str) -> None:
    """The same names under the client's own group."""
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.list_topics()
        measured = admin.metrics()
    assert {name.group for name in measured} >= {"admin-client-metrics", "app-info"}
    assert value(measured, "request-total") >= 2

    async def send() -> Mapping[MetricName, float | str]:
        async with AsyncProducer(bootstrap_servers=bootstrap) as producer:
            await producer.send_and_wait("sent", b"v", partition=0)
            found: Mapping[MetricName, float | str] = producer.metrics()
            return found

    assert value(asyncio.run(send()), "record-send-total") == 1


def test_width_and_number_of_samples_are_settings(bootstrap: str) -> None:
    """metrics.sample.window.ms and metrics.num.samples act."""
    with Consumer(
        bootstrap_servers=bootstrap, metrics_sample_window_ms=1_000, metrics_num_samples=1
    ) as consumer:
        consumer.end_offsets([TopicPartition("sent", 0)])
        assert value(consumer.metrics(), "request-rate") > 1
