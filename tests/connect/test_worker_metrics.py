"""Metrics of a worker at /metrics: Kafka's beans and attributes, and what they count."""

from __future__ import annotations

import re
import time
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import pytest

from ottla.connect.errors import ConnectException, RetriableException
from ottla.connect.metrics import MBean, series_of
from ottla.connect.mirror.metrics import MirrorMetrics
from ottla.connect.runtime.metrics import RebalanceMetrics, StartMetrics, TaskMetrics
from ottla.connect.runtime.rest import ConnectApi
from ottla.connect.runtime.standalone import Standalone
from ottla.connect.runtime.state import ConnectorTaskId, RunState
from ottla.connect.runtime.tolerance import ErrorHandler, ErrorStage, Tolerance
from ottla.http.host import HttpHost
from ottla.metrics.families import Exposition, Spelling
from ottla.testing.cluster import Cluster
from ottla.types import TopicPartition
from tests.connect.serving import serve

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

TASK = ConnectorTaskId("s", 0)
_STARTS = ("attempts-total", "success-total", "failure-total")
_SHARES = ("success-percentage", "failure-percentage")
KAFKA: dict[tuple[str, tuple[str, ...]], set[str]] = {
    ("connect-worker-metrics", ()): {
        "connector-count",
        "task-count",
        *(f"{of}-startup-{it}" for of in ("connector", "task") for it in (*_STARTS, *_SHARES)),
    },
    ("connect-worker-metrics", ("connector",)): {
        f"connector-{it}-task-count"
        for it in ("total", "running", "paused", "failed", "unassigned", "destroyed", "restarting")
    },
    ("connector-metrics", ("connector",)): {
        *("status", "connector-class", "connector-type", "connector-version"),
    },
    ("connector-task-metrics", ("connector", "task")): {
        *("status", "running-ratio", "pause-ratio", "batch-size-max", "batch-size-avg"),
        *("offset-commit-max-time-ms", "offset-commit-avg-time-ms"),
        *("offset-commit-success-percentage", "offset-commit-failure-percentage"),
        *("connector-class", "connector-type", "connector-version", "task-class", "task-version"),
        *(
            f"{it}-converter-{of}"
            for it in ("key", "value", "header")
            for of in ("class", "version")
        ),
    },
    ("source-task-metrics", ("connector", "task")): {
        *("source-record-poll-rate", "source-record-poll-total", "source-record-write-rate"),
        *("source-record-write-total", "poll-batch-max-time-ms", "poll-batch-avg-time-ms"),
        *("source-record-active-count", "source-record-active-count-max"),
        "source-record-active-count-avg",
    },
    ("sink-task-metrics", ("connector", "task")): {
        *("sink-record-read-rate", "sink-record-read-total", "sink-record-send-rate"),
        *("sink-record-send-total", "partition-count", "offset-commit-seq-no"),
        *("offset-commit-completion-rate", "offset-commit-completion-total"),
        *("offset-commit-skip-rate", "offset-commit-skip-total", "put-batch-max-time-ms"),
        *("put-batch-avg-time-ms", "sink-record-active-count", "sink-record-active-count-max"),
        "sink-record-active-count-avg",
    },
    ("task-error-metrics", ("connector", "task")): {
        *("total-record-failures", "total-record-errors", "total-records-skipped"),
        *("total-retries", "total-errors-logged", "deadletterqueue-produce-requests"),
        *("deadletterqueue-produce-failures", "last-error-timestamp"),
    },
}
"""The attributes that real Kafka 4.3 has, by type and tags; those of transactions are not here."""


@pytest.fixture(name="worker")
def _worker(tmp_path: Path) -> Iterator[tuple[Standalone, str, Path]]:
    text = "org.apache.kafka.connect.storage.StringConverter"
    with Cluster() as cluster:
        settings = {
            "bootstrap.servers": cluster.bootstrap,
            "key.converter": text,
            "value.converter": text,
            "offset.storage.file.filename": str(tmp_path / "offsets"),
            "offset.flush.interval.ms": "100",
            "metrics.names": "both",
        }
        worker = Standalone(settings, "127.0.0.1:8083")
        host = HttpHost("127.0.0.1", 0, "the API")
        serve(host, ConnectApi(worker, "cluster"))
        yield worker, f"http://127.0.0.1:{host.address[1]}/metrics", tmp_path
        host.stop()
        worker.stop()


def until(condition: Callable[[], Any]) -> None:
    """Wait for a condition, for a time that no healthy run needs."""
    end_s = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.05)


def scraped(url: str) -> dict[str, float]:
    """Return the samples of a scrape."""
    with urlopen(url, timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    samples = (it.rpartition(" ") for it in lines if not it.startswith("#"))
    return {name: float(value) for name, _, value in samples}


@pytest.mark.parametrize("runtime", ["thread", "process"])
def test_beans_and_figures_of_both_kinds(
    worker: tuple[Standalone, str, Path], runtime: str
) -> None:
    """Types, tags and attributes are Kafka's; figures do not depend on where a task runs."""
    running, url, directory = worker
    (directory / "in").write_text("a\nb\nc\n")
    java = "org.apache.kafka.connect.file.FileStream"
    source = {"connector.class": f"{java}SourceConnector", "file": str(directory / "in")}
    sink = {"connector.class": f"{java}SinkConnector", "file": str(directory / "out")}
    source |= {"name": "s", "topic": "t", "ottla.runtime": runtime}
    sink |= {"name": "k", "topics": "t", "ottla.runtime": runtime}
    running.put("s", source, may_replace=False).result(30)
    running.put("k", sink, may_replace=False).result(30)
    of_source, of_sink = '{connector="s",task="0"}', '{connector="k",task="0"}'
    awaited = {
        f"kafka_connect_source_task_source_record_write_total{of_source}": 3,
        f"kafka_connect_sink_task_sink_record_send_total{of_sink}": 3,
        f"kafka_connect_source_task_source_record_active_count{of_source}": 0,
        'kafka_connect_connector_task_status{connector="s",task="0",status="running"}': 1,
        'kafka_connect_connector_task_status{connector="k",task="0",status="running"}': 1,
    }

    def is_done() -> bool:
        samples = scraped(url)
        commits = samples.get(f"kafka_connect_sink_task_offset_commit_completion_total{of_sink}")
        return bool(commits) and awaited.items() <= samples.items()

    until(is_done)
    samples = scraped(url)
    expected = {
        f"kafka_connect_source_task_source_record_poll_total{of_source}": 3,
        f"kafka_connect_source_task_metrics_source_record_write_total{of_source}": 3,
        f"kafka_connect_source_task_source_record_active_count{of_source}": 0,
        f"kafka_connect_sink_task_sink_record_read_total{of_sink}": 3,
        f"kafka_connect_sink_task_partition_count{of_sink}": 1,
        f"kafka_connect_task_error_total_record_errors{of_sink}": 0,
        "kafka_connect_worker_connector_count": 2,
        "kafka_connect_connect_worker_metrics_task_count": 2,
        "kafka_connect_worker_connector_startup_success_total": 2,
        "kafka_connect_worker_task_startup_success_total": 2,
        'kafka_connect_worker_connector_running_task_count{connector="s"}': 1,
        'kafka_connect_worker_connector_failed_task_count{connector="k"}': 0,
        'kafka_connect_connector_status{connector="s",status="running"}': 1,
        'kafka_connect_connector_metrics_status_info{connector="k",status="running"}': 1,
        'kafka_connect_connector_task_status{connector="k",task="0",status="running"}': 1,
    }
    assert {name: samples.get(name) for name in expected} == expected
    assert 0 < samples[f"kafka_connect_connector_task_running_ratio{of_source}"] <= 1
    made: dict[tuple[str, tuple[str, ...]], set[str]] = {}
    for bean in running.metrics().result(30):
        made.setdefault((bean.type, tuple(bean.tags)), set()).update(bean.attributes)
    assert made == KAFKA


def test_errors_are_counted() -> None:
    """Each failed attempt is a failure; an operation that fails in the end is one error."""
    handler = ErrorHandler(
        TASK, Tolerance(tolerates_all=True, logs=True), now_s=lambda: 0.0, wait=lambda _: False
    )

    def fail() -> None:
        raise ValueError("not a number")

    handler.run(ErrorStage.VALUE_CONVERTER, handler, fail)
    counts = handler.counts
    found = (counts.failures, counts.errors, counts.skipped, counts.logged, counts.retries)
    assert found == (1, 1, 1, 1, 0)
    assert counts.last_ms > 0

    attempts = iter([RetriableException("later"), None])

    def recover() -> None:
        if (error := next(attempts)) is not None:
            raise error

    patient = ErrorHandler(
        TASK, Tolerance(retry_timeout_ms=-1), now_s=lambda: 0.0, wait=lambda _: False
    )
    patient.run(ErrorStage.TASK_POLL, patient, recover)
    assert (patient.counts.failures, patient.counts.retries, patient.counts.errors) == (1, 1, 0)
    with pytest.raises(ConnectException):
        patient.run(ErrorStage.TASK_POLL, patient, fail)
    assert (patient.counts.failures, patient.counts.errors, patient.counts.skipped) == (2, 1, 0)


def test_starts_and_rebalances() -> None:
    """The first state decides a start; a rebalance lasts until the assignment."""
    starts = StartMetrics()
    starts.begin("s")
    starts.begin(TASK)
    starts.reported("s", RunState.PAUSED)
    starts.reported(TASK, RunState.FAILED)
    starts.reported(TASK, RunState.FAILED)  # not of a start
    attributes = starts.attributes()
    assert attributes["connector-startup-success-total"] == 1
    assert attributes["task-startup-attempts-total"] == 1
    assert attributes["task-startup-failure-percentage"] == 1
    rebalances = RebalanceMetrics()
    rebalances.started()
    assert rebalances.bean("SESSIONED", "http://h:1/", 3).attributes["rebalancing"] == 1
    rebalances.completed()
    bean = rebalances.bean("SESSIONED", "http://h:1/", 3)
    assert set(bean.attributes) == {
        *("connect-protocol", "leader-name", "epoch", "completed-rebalances-total", "rebalancing"),
        *("rebalance-max-time-ms", "rebalance-avg-time-ms", "time-since-last-rebalance-ms"),
    }
    assert (bean.attributes["completed-rebalances-total"], bean.attributes["rebalancing"]) == (1, 0)


def test_beans_of_a_mirror() -> None:
    """Tags and attributes are those of Kafka 4.3's mirror."""
    metrics = MirrorMetrics("a", "b")
    partition = TopicPartition("a.t", 0)
    now_ms = time.time_ns() // 1_000_000
    metrics.read(partition, [now_ms - 5000, now_ms - 1000], 300)
    metrics.wrote({partition: [now_ms - 5000, now_ms - 1000, now_ms - 3000]})
    metrics.checkpoint("g", partition, now_ms - 10)
    copies, checkpoint = metrics.beans()
    assert (copies.domain, copies.type) == ("kafka.connect.mirror", "MirrorSourceConnector")
    assert dict(copies.tags) == {"source": "a", "target": "b", "topic": "a.t", "partition": "0"}
    parts = ("", "-min", "-max", "-avg")
    names = {"record-count", "record-rate", "byte-count", "byte-rate"}
    names |= {f"{of}{it}" for of in ("record-age-ms", "replication-latency-ms") for it in parts}
    assert set(copies.attributes) == names
    assert (copies.attributes["record-count"], copies.attributes["byte-count"]) == (3, 300)
    assert copies.attributes["record-age-ms-min"] >= 1000  # type: ignore[operator]
    assert copies.attributes["replication-latency-ms-max"] >= 5000  # type: ignore[operator]
    assert list(checkpoint.tags) == ["source", "target", "group", "topic", "partition"]
    assert set(checkpoint.attributes) == {f"checkpoint-latency-ms{it}" for it in parts}
    text = b"".join(Exposition().render(series_of(metrics.beans()))).decode()
    tags = '{source="a",target="b",topic="a.t",partition="0"}'
    assert f"kafka_connect_mirror_mirrorsourceconnector_record_count{tags} 3" in text


@pytest.mark.parametrize(
    ("beans", "lines"),
    [
        ([["T", {"a": "x"}, {"b": 1}], ["T", {"a": "x"}, {"b": 2}]], ['b{a="x"} 1']),
        ([["T", {"a": "x"}, {"b": 1}], ["t", {"a": "y"}, {"b": 2}]], ['b{a="x"} 1']),
        ([["T", {"a": "x", "c": "y"}, {"b": 1}], ["T", {"c": "y", "a": "x"}, {"b": 2}]],
         ['b{a="x",c="y"} 1']),
        ([["T", {"a": "x"}, {"b": 1}], ["T", {"a": "y"}, {"b": 2}]],
         ['b{a="x"} 1', 'b{a="y"} 2']),
        ([["T", {"A": "x"}, {"a": "y"}]], ['a{a="y"} 1']),
        ([["T", {}, {"b-total": 1, "b": 2, "b_total": 3}]], ["b_total 1", "b 2"]),
        ([["T", {}, {"b": True}]], ["b 1"]),
    ],
)  # fmt: skip
def test_beans_of_tasks_never_spoil_the_page(beans: list[Any], lines: list[str]) -> None:
    """No sample is there twice, and each can be read."""
    page = b"".join(Exposition().render(series_of([MBean("own", *it) for it in beans])))
    assert re.findall(r"(?m)^own_t_(.+)$", page.decode()) == lines


@pytest.mark.parametrize(
    "bad",
    [
        None,
        MBean("own", "T", None, {"b": 1}),  # type: ignore[arg-type]
        MBean("own", "T", {"a": 1}, {"b": 1}),  # type: ignore[dict-item]
        MBean("own", "T", {}, {"b": None}),  # type: ignore[dict-item]
        MBean("own", "T", {"0a": "x"}, {"b": 1}),
        MBean("kafka.connect", "T", {}, {"b": 1}),
        MBean("own", "T", {"a": "\ud800"}, {"b": 1}),
    ],
)
def test_what_is_no_bean_is_left_out(bad: Any) -> None:
    """Of a task on a thread as of one in a process."""
    metrics, good = TaskMetrics(), MBean("own", "T", MappingProxyType({}), {"c": 2})
    metrics.own = lambda: [bad, good]
    beans = metrics.beans(ConnectorTaskId("c", 0), "paused")
    assert beans[-1] == good
    page = b"".join(Exposition().render(series_of(beans))).decode()
    assert re.findall(r"(?m)^(?:own|kafka_connect)_t_(.+)$", page) == ["c 2"]


def test_beans_of_tasks_hide_none_of_the_workers() -> None:
    """Neither by a domain that is spelled like the worker's, nor by one that begins so."""
    own = MBean("kafka.connect", "connector-metrics", {"connector": "c"}, {"status": "failed"})
    fakes = [
        own._replace(domain=domain, type=type_, attributes={"status": "running"})
        for domain, type_ in (("Kafka_Connect", own.type), ("kafka", "connect_connector-metrics"))
    ]
    page = b"".join(Exposition().render(series_of([*fakes, own]))).decode()
    line = 'kafka_connect_connector_status{connector="c",status="failed"} 1'
    assert [it for it in page.splitlines() if not it.startswith("#")] == [line]


@pytest.mark.parametrize("spelling", list(Spelling))
def test_names_and_types_are_those_of_prometheus(spelling: Spelling) -> None:
    """Names have no hyphens, no name comes twice, and totals are counters."""
    beans = [
        MBean("kafka.connect", type_, dict.fromkeys(tags, 'a"b\n'), dict.fromkeys(sorted(names), 1))
        for (type_, tags), names in KAFKA.items()
    ]
    pieces = list(Exposition(spelling).render(series_of(beans)))
    types = [re.findall(rb"# TYPE (\S+) (\S+)\n", it)[0] for it in pieces]
    assert len(dict(types)) == len(types)
    for name, kind in types:
        assert re.fullmatch(rb"kafka_connect_[a-z0-9_]+", name)
        assert kind == (b"counter" if name.endswith(b"_total") else b"gauge")
