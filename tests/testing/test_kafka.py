"""Tests of the `kafka` and `kafka_cluster` fixtures."""

from __future__ import annotations

import copy
import importlib
import pickle
import sys
import tempfile
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from _pytest.assertion.rewrite import AssertionRewritingHook

from ottla.clients import blocking
from ottla.config.problems import ConfigErrors
from ottla.testing.cluster import Cluster
from ottla.testing.errors import ClusterError
from ottla.testing.plugin import _options

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ottla.testing.kafka import Kafka


def test_records_come_back_as_they_were_sent(kafka: Kafka) -> None:
    """Values, keys and offsets are those that were produced."""
    orders = kafka.topic("orders", partitions=3)
    orders.produce_json([{"id": 1}, {"id": 2}], key="id")
    assert sorted(orders.values(), key=lambda row: row["id"]) == [{"id": 1}, {"id": 2}]
    orders.expect(key="1").within(0.1).exactly(1)


def test_a_missing_record_is_reported_with_the_topics_content(kafka: Kafka) -> None:
    """The text of a failed expectation shows what was there."""
    orders = kafka.topic("orders").produce(["present"])
    with pytest.raises(AssertionError, match="present"):
        orders.expect(value="absent").at_least(1)


def test_a_group_is_waited_for_by_state(kafka: Kafka) -> None:
    """wait_assigned and wait_lag look at the group, not at the clock."""
    orders = kafka.topic("orders", partitions=2).produce(["a", "b", "c"], keys=["1", "2", "3"])
    group = kafka.group("app")
    with kafka.consumer(orders, group=group) as consumer:
        seen = 0
        while seen < 3:
            seen += len(consumer.poll(1.0))
        kafka.wait_assigned(group, members=1)
        consumer.commit()
        kafka.wait_lag(0, group=group)
    assert sum(kafka.committed(group).values()) == 3


def test_acknowledged_records_survive_a_kill(kafka_cluster: Callable[..., Kafka]) -> None:
    """A killed node comes back on the same address with what it acknowledged."""
    kafka = kafka_cluster()
    orders = kafka.topic("orders").produce(["before"])
    kafka.kill(1)
    kafka.start(1)
    orders.produce(["after"])
    assert orders.values() == ["before", "after"]


@pytest.mark.usefixtures("kafka")
def test_the_package_is_imported_as_it_is() -> None:
    """Pytest does not rewrite a node's modules: it would parse them on the node's thread."""
    loaders = {
        type(module.__loader__).__name__
        for name, module in list(sys.modules.items())
        if name.startswith("ottla.server.")
    }
    assert "SourceFileLoader" in loaders
    assert "AssertionRewritingHook" not in loaders


def test_a_report_of_a_killed_node_says_so(kafka_cluster: Callable[..., Kafka]) -> None:
    """A test that fails between kill and start must not end the whole run."""
    kafka = kafka_cluster()
    kafka.topic("orders").produce(["one"])
    kafka.kill()
    assert kafka.describe() == "the broker is not running"


def test_the_shared_node_is_started_for_the_next_test(request: pytest.FixtureRequest) -> None:
    """A test that killed it and failed spoils no other."""
    cluster: Any = request.getfixturevalue("_shared_kafka_cluster")
    cluster.kill()
    kafka: Kafka = request.getfixturevalue("kafka")
    assert kafka.topic("orders").produce(["one"]).values() == ["one"]


def test_what_the_marker_asks_for_is_not_passed_over() -> None:
    """A marker's options are those of a cluster; what a cluster sets itself is refused."""
    assert _options() == _options(nodes=1) == {}
    assert _options({"num.partitions": "3"})["config"] == {"num.partitions": "3"}
    assert _options(nodes=3) == {"config": None, "nodes": 3}
    with pytest.raises(ClusterError, match=r"node\.id: a cluster of several nodes sets it itself"):
        Cluster(nodes=3, config={"node.id": "5"})
    with pytest.raises(ClusterError, match=r"log\.dirs"):
        Cluster(config={"log.dirs": "/somewhere"})


def test_a_topic_is_copied_as_its_name(kafka: Kafka) -> None:
    """Options of other libraries are copied and pickled; a broker cannot be."""
    orders = kafka.topic("orders")
    assert copy.deepcopy({"topic": orders}) == {"topic": str(orders)}
    assert type(pickle.loads(pickle.dumps(orders))) is str


def test_a_second_start_is_refused(kafka_cluster: Callable[..., Kafka]) -> None:
    """The node that runs goes on, and is stopped in the end."""
    kafka = kafka_cluster()
    with pytest.raises(ClusterError, match="running already"):
        kafka.start()
    assert kafka.topic("orders").produce(["one"]).values() == ["one"]


def test_a_start_that_fails_leaves_no_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither `with` nor a fixture would get to remove it; one that was given stays."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(ConfigErrors):
        Cluster(config={"num.partitions": "many"}).start()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ConfigErrors):
        Cluster(config={"num.partitions": "many"}, data_dir=str(tmp_path)).start()
    assert tmp_path.exists()


def test_listeners_may_be_written_with_blanks() -> None:
    """As in any list of Kafka's; the bound ports are kept for a restart."""
    listeners = "PLAINTEXT://127.0.0.1:0, CONTROLLER://127.0.0.1:0"
    with Cluster(config={"listeners": listeners}) as cluster:
        address = cluster.bootstrap
        assert cluster.restart().bootstrap == address


def test_threads_share_the_fixtures_clients(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    """One producer and one admin client are made, and closed in the end."""
    made: list[str] = []
    both = threading.Barrier(2)

    def client(name: str) -> Callable[..., str]:
        def make(**_settings: object) -> str:
            made.append(name)
            with suppress(threading.BrokenBarrierError):
                both.wait(0.2)  # a second thread that does not wait for us would be here, too
            return name

        return make

    monkeypatch.setattr(blocking, "Producer", client("producer"))
    monkeypatch.setattr(blocking, "Admin", client("admin"))
    fresh = type(kafka)(kafka.cluster)
    for name in ("producer", "admin"):
        both.reset()
        threads = [threading.Thread(target=lambda: getattr(fresh, name)) for _ in range(2)]  # noqa: B023 - joined below
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert made == ["producer", "admin"]


@pytest.mark.parametrize("number", [1, 2])
def test_tests_take_the_same_exact_name_one_after_the_other(kafka: Kafka, number: int) -> None:
    """The topic is gone at the end of a test: applications have fixed names of topics."""
    topic = kafka.topic("the-same-for-each-test", exact=True).produce([str(number)])
    assert topic.values() == [str(number)]


def test_pytest_does_not_warn_of_the_package_that_every_process_imports(
    pytestconfig: pytest.Config,
) -> None:
    """`pytest -W error` ended with a PytestAssertRewriteWarning wherever Ottla was installed."""
    importlib.import_module("pyspark_ottla")
    AssertionRewritingHook(pytestconfig).mark_rewrite("pyspark_ottla")
