"""Readers of a tiered topic with transactions: what each kind gets of records in the tier alone."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Literal

import pytest

import ottla
from ottla import TopicPartition
from ottla.testing import Cluster
from tests.server.metrics.test_shares import scraped
from tests.server.remote.test_tier import TIERED, settings_of, until_copied
from tests.waits import WAIT_S, read_records, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

TRANSACTIONS, PER_TRANSACTION = 10, 300
"""Of 1,000 bytes; every second one is aborted."""
COMMITTED = [
    f"{transaction:02d}-{number:03d}".encode()
    for transaction in range(0, TRANSACTIONS, 2)
    for number in range(PER_TRANSACTION)
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Return a node whose topic `t` has transactions, most of them in the tier alone."""
    settings = settings_of(tmp_path_factory.mktemp("tier")) | {
        "group.share.heartbeat.interval.ms": "100",
        "group.share.min.heartbeat.interval.ms": "100",
        "group.share.assignment.interval.ms": "0",
        "metrics.listener": "127.0.0.1:0",
    }
    with Cluster(config=settings) as running:
        with ottla.Admin(bootstrap_servers=running.bootstrap) as admin:
            admin.create_topics([ottla.NewTopic("t", 1, 1, configs=TIERED)])
        with ottla.Producer(
            bootstrap_servers=running.bootstrap, transactional_id="writer"
        ) as producer:
            producer.init_transactions()
            for transaction in range(TRANSACTIONS):
                producer.begin_transaction()
                for number in range(PER_TRANSACTION):
                    value = f"{transaction:02d}-{number:03d}".encode() + bytes(994)
                    producer.send("t", value, partition=0)
                if transaction % 2:
                    producer.flush()
                    producer.abort_transaction()
                else:
                    producer.commit_transaction()
        start, local_start, _ = until_copied(running)
        assert start == 0
        assert local_start > PER_TRANSACTION * 3
        yield running


def test_a_consumer_sees_what_is_committed(cluster: Cluster) -> None:
    """In order, from both tiers; read_uncommitted sees all."""
    partition = TopicPartition("t", 0)
    expected: tuple[tuple[Literal["read_committed", "read_uncommitted"], int], ...] = (
        ("read_committed", 1500),
        ("read_uncommitted", 3000),
    )
    for isolation, count in expected:
        with ottla.Consumer(
            bootstrap_servers=cluster.bootstrap,
            auto_offset_reset="earliest",
            isolation_level=isolation,
        ) as consumer:
            consumer.assign([partition])
            values = [record.value[:6] for record in read_records(consumer, count) if record.value]
            assert consumer.poll(0.2) == []
        assert values == COMMITTED if count == 1500 else len(values) == count


@pytest.mark.parametrize(("isolation", "count"), [("read_committed", 1500), ("", 3000)])
def test_a_share_group_gets_each_record_once(cluster: Cluster, isolation: str, count: int) -> None:
    """Aborted ones are archived; the start offset is the end when all are accepted."""
    group = f"share-{isolation}"
    configs = {"share.auto.offset.reset": "earliest"}
    configs |= {"share.isolation.level": isolation} if isolation else {}
    with ottla.Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.alter_configs({ottla.ConfigResource(ottla.ResourceType.GROUP, group): configs})
    with ottla.ShareConsumer("t", bootstrap_servers=cluster.bootstrap, group_id=group) as consumer:
        values: list[bytes] = []
        end = time.monotonic() + WAIT_S
        while len(values) < count:
            assert time.monotonic() < end, len(values)
            values += [record.value[:6] for record in consumer.poll(0.5) if record.value]
        assert consumer.poll(0.2) == []
    assert values == COMMITTED if isolation else len(set(values)) == count


def test_reads_of_the_tier_are_counted(cluster: Cluster) -> None:
    """Under Kafka's names; so are the operations that wait for them."""
    with ottla.Consumer(
        bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign([TopicPartition("t", 0)])
        read_records(consumer, TRANSACTIONS * PER_TRANSACTION)
    found = scraped(cluster)
    traffic = "kafka_server_brokertopicmetrics_remotefetch"
    assert found[f"{traffic}requests_total"] >= 1
    assert found[f"{traffic}bytes_total"] >= 3 * PER_TRANSACTION * 1_000  # before the local start
    assert found[f"{traffic}errors_total"] == 0
    copies = "kafka_server_brokertopicmetrics_remotecopy"
    for topic in ("", '{topic="t"}'):
        assert found[f"{copies}requests_total{topic}"] >= 1
        assert found[f"{copies}bytes_total{topic}"] >= 1_000_000
        assert found[f"{copies}errors_total{topic}"] == 0
    assert found["kafka_server_brokertopicmetrics_remotedeleterequests_total"] == 0
    pool = "kafka_log_remote_remotestoragethreadpool"
    assert found[f"{pool}_remotelogreadertaskqueuesize"] == 0
    waiting = "kafka_server_delayedoperationpurgatory_numdelayedoperations"
    for name in ("RemoteFetch", "RemoteListOffsets"):
        series = f'{waiting}{{delayedOperation="{name}"}}'  # what was read ahead may still wait
        wait_for(lambda series=series: scraped(cluster)[series] == 0)  # type: ignore[misc] # the loop's value


def test_spark_reads_a_tiered_topic(cluster: Cluster) -> None:
    """As a batch, task after task: what is committed, from both tiers."""
    pytest.importorskip("pyarrow")
    pytest.importorskip("pyspark")
    from ottla.spark.batch_reader import BatchReader
    from ottla.spark.options import read_options

    given = {
        "kafka.bootstrap.servers": cluster.bootstrap,
        "subscribe": "t",
        "kafka.isolation.level": "read_committed",
    }
    reader = BatchReader(read_options(given, streaming=False), ("value",))
    values = [
        row["value"][:6]
        for task in reader.partitions()
        for batch in reader.read(task)
        for row in batch.to_pylist()
    ]
    assert values == COMMITTED
