"""The HTTP server of a running node, asked as Prometheus and Kubernetes ask."""

from __future__ import annotations

import base64
import gzip
import itertools
import json
import ssl
import subprocess
import sys
import threading
import time
import urllib.request
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError

import pytest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as read_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as read_text

import ottla
from ottla.config.broker import parse_broker_config
from ottla.config.problems import ConfigErrors
from ottla.errors import OttlaError
from ottla.server.http.app import BrokerState
from ottla.server.metrics.node import BEAT_S
from ottla.server.system.ports import PortTaken
from ottla.storage.directories.loader import DirectoryLoader
from ottla.testing.cluster import TEST_DEFAULTS, Cluster
from ottla.testing.errors import ClusterError
from tests.server.security.certificates import Authority
from tests.waits import read_records, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ottla.storage.directories.loader import StrayLog
    from ottla.storage.log.partition_log import PartitionLog

OPEN = {"metrics.listener": "127.0.0.1:0"}


def ask(url: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    """Return status, headers in lower case and body."""
    request = urllib.request.Request(url, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            names = {key.lower(): value for key, value in answer.headers.items()}
            return answer.status, names, answer.read()
    except HTTPError as error:
        return error.code, {}, error.read()


def page(cluster: Cluster, name: str) -> tuple[int, Any]:
    """Return status and content of a probe."""
    status, _, body = ask(cluster.metrics_url.removesuffix("metrics") + name)
    return status, json.loads(body)


def scrape(cluster: Cluster) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Return all samples by name and labels."""
    status, _, body = ask(cluster.metrics_url)
    assert status == 200
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in read_text(body.decode())
        for sample in family.samples
    }


def labels(**pairs: str) -> frozenset[tuple[str, str]]:
    """Return labels as `scrape` has them."""
    return frozenset(pairs.items())


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Run a node with the endpoint."""
    with Cluster(config=OPEN) as running:
        yield running


def test_probes_of_a_running_node_are_good(cluster: Cluster) -> None:
    """A node that runs is alive, ready and started, and says why."""
    assert page(cluster, "livez") == (200, {"status": "ok", "state": "running"})
    status, content = page(cluster, "readyz")
    assert status == 200
    assert content["checks"] == {
        "serving": True,
        "unfenced": True,
        "caught_up": True,
        "disks": True,
        "space": True,
    }
    status, content = page(cluster, "startupz")
    assert status == 200
    assert [one["remaining"] for one in content["recovery"].values()] == [0]


@pytest.mark.soak
def test_a_node_that_is_a_controller_only_is_ready(tmp_path: Path) -> None:
    """It is no broker that could be fenced: container and Kubernetes probes wait for no such."""
    file = tmp_path / "server.properties"
    file.write_text(
        "node.id=1\nprocess.roles=controller\nlisteners=CONTROLLER://127.0.0.1:0\n"
        "controller.listener.names=CONTROLLER\ncontroller.quorum.voters=1@127.0.0.1:0\n"
        f"metrics.listener=127.0.0.1:0\nlog.dirs={tmp_path / 'data'}\n"
    )
    command = [sys.executable, "-m", "ottla", "server-start", str(file), "--format"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as node:
        assert node.stdout is not None
        banner = (line.split() for line in node.stdout)
        url = next(line[1] for line in banner if line[:1] == ["metrics"])
        try:
            status, _, body = ask(url.replace("/metrics", "/readyz"))
        finally:
            node.terminate()
            node.communicate(timeout=60)
    assert (status, json.loads(body)["checks"]) == (
        200,
        {"serving": True, "caught_up": True, "disks": True, "space": True},
    )


def test_other_paths_and_methods_are_refused(cluster: Cluster) -> None:
    """What is not served is 404, what may not be done 405."""
    assert ask(cluster.metrics_url + "/nothing")[0] == 404
    request = urllib.request.Request(cluster.metrics_url, data=b"x")
    with pytest.raises(HTTPError) as refused:
        urllib.request.urlopen(request, timeout=60)
    refused.value.close()
    assert refused.value.code == 405


def test_messages_are_counted_by_topic_and_in_all(cluster: Cluster) -> None:
    """What a producer sent shows in MessagesIn, in the log's offsets and in its size."""
    with ottla.Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topic("counted", partitions=1)
    before = scrape(cluster)
    with ottla.Producer(bootstrap_servers=cluster.bootstrap) as producer:
        for _ in range(30):
            producer.send("counted", b"x" * 50)
    after = scrape(cluster)
    name = "kafka_server_brokertopicmetrics_messagesin_total"
    assert after[name, labels(topic="counted")] == 30
    assert after[name, labels()] - before[name, labels()] == 30
    partition = labels(topic="counted", partition="0")
    assert after["kafka_log_log_logendoffset", partition] == 30
    assert after["kafka_log_log_size", partition] > 1500
    assert after["kafka_topic_partition_current_offset", partition] == 30
    assert after["kafka_server_replicamanager_underreplicatedpartitions", labels()] == 0


def test_bytes_and_requests_are_counted(cluster: Cluster) -> None:
    """Bytes in and out, appends, reads and refused appends show by topic."""
    with ottla.Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topic(
            "busy", partitions=1, configs={"message.timestamp.before.max.ms": "3600000"}
        )
    with ottla.Producer(bootstrap_servers=cluster.bootstrap) as producer:
        for _ in range(3):
            producer.send("busy", b"x" * 1000).result(60)
        with pytest.raises(OttlaError):
            producer.send("busy", b"old", timestamp_ms=1).result(60)
    with ottla.Consumer(
        bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign([ottla.TopicPartition("busy", 0)])
        read_records(consumer, 3)
    found = scrape(cluster)
    place = labels(topic="busy")

    def count(name: str) -> float:
        return found[f"kafka_server_brokertopicmetrics_{name}_total", place]

    size = found["kafka_log_log_size", labels(topic="busy", partition="0")]
    assert count("messagesin") == 3
    assert count("bytesin") == size > 3000
    assert count("bytesout") >= size
    assert count("totalproducerequests") == 4
    assert count("failedproducerequests") == 1
    assert count("totalfetchrequests") >= 1


def test_requests_are_timed_and_counted_by_api(cluster: Cluster) -> None:
    """Each API has its times, waiting apart; requests are counted by version."""
    with ottla.Producer(bootstrap_servers=cluster.bootstrap) as producer:
        for _ in range(5):
            producer.send("timed", b"x").result(60)
    times = "kafka_network_requestmetrics_"
    waited = (f"{times}remotetimems", labels(request="FetchConsumer", quantile="0.999"))
    with ottla.Consumer(bootstrap_servers=cluster.bootstrap) as consumer:
        consumer.assign([ottla.TopicPartition("timed", 0)])
        deadline_s = time.monotonic() + 90
        while (found := scrape(cluster)).get(waited, 0) < 300:  # the broker waits for 500 ms
            assert not consumer.poll(0.7)
            assert time.monotonic() < deadline_s
    produce = labels(request="Produce")
    assert found[f"{times}totaltimems_count", produce] >= 5
    assert found[f"{times}localtimems_sum", produce] > 0
    assert found[f"{times}totaltimems", labels(request="Produce", quantile="0.99")] > 0
    counted = {key: value for key, value in found.items() if key[0] == f"{times}requests_total"}
    assert sum(value for key, value in counted.items() if ("request", "Produce") in key[1]) >= 5


def test_a_deleted_topic_stays_in_the_total(cluster: Cluster) -> None:
    """The count of all topics never goes back, although the topic's own series ends."""
    with ottla.Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topic("deleted", partitions=2)
        with ottla.Producer(bootstrap_servers=cluster.bootstrap) as producer:
            producer.send("deleted", b"x")
        name = "kafka_server_brokertopicmetrics_messagesin_total"
        before = scrape(cluster)
        assert before[name, labels(topic="deleted")] == 1
        admin.delete_topics(["deleted"])
    after = scrape(cluster)
    assert (name, labels(topic="deleted")) not in after
    assert after[name, labels()] == before[name, labels()]


def test_lag_is_shown_in_records_and_in_time(cluster: Cluster) -> None:
    """A group's lag is what it has not committed, and the age of the first such record."""
    with ottla.Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topic("lagged", partitions=1)
    now_ms = cluster.run(lambda node: node.clock.now_ms())
    with ottla.Producer(bootstrap_servers=cluster.bootstrap) as producer:
        for number in range(10):
            age_ms = 100_000 - 10_000 * number
            producer.send("lagged", b"x", timestamp_ms=now_ms - age_ms)
            producer.flush()
    with ottla.Consumer(
        bootstrap_servers=cluster.bootstrap, group_id="late", enable_auto_commit=False
    ) as consumer:
        where = ottla.TopicPartition("lagged", 0)
        consumer.assign([where])
        consumer.commit({where: 4})
    found = scrape(cluster)
    elapsed_s = (cluster.run(lambda node: node.clock.now_ms()) - now_ms) / 1000
    place = labels(consumergroup="late", topic="lagged", partition="0")
    assert found["kafka_consumergroup_lag", place] == 6
    assert found["kafka_consumergroup_current_offset", place] == 4
    assert 60 <= found["kafka_consumergroup_group_lag_seconds", place] <= 60 + elapsed_s
    assert (
        found["kafka_consumer_lag_millis", place]
        == found["kafka_consumergroup_group_lag_seconds", place] * 1000
    )


def test_a_scraper_that_wants_openmetrics_and_gzip_gets_them(cluster: Cluster) -> None:
    """The strict parser reads the whole answer, and the old text's families are all in it."""
    status, headers, body = ask(
        cluster.metrics_url,
        Accept="application/openmetrics-text;version=1.0.0,text/plain;q=0.5",
        **{"Accept-Encoding": "gzip"},
    )
    assert status == 200
    assert headers["content-encoding"] == "gzip"
    assert headers["content-type"].startswith("application/openmetrics-text")
    text = gzip.decompress(body).decode()
    names = [one.name for one in read_openmetrics(text)]  # type: ignore[no-untyped-call] # theirs
    assert len(names) == len(set(names))
    _, headers, body = ask(cluster.metrics_url)
    assert headers["content-type"].startswith("text/plain; version=0.0.4")
    assert [family.name for family in read_text(body.decode())] == names


def test_a_stuck_loop_is_not_alive(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the loop is blocked, the probes report it and a scrape does not hang."""
    monkeypatch.setattr("ottla.server.http.app.LIVE_LIMIT_S", 0.05)
    is_held, free = threading.Event(), threading.Event()

    def hold(_node: object) -> None:
        is_held.set()
        free.wait(60)

    stuck = threading.Thread(target=cluster.run, args=(hold,))
    stuck.start()
    try:
        assert is_held.wait(60)
        assert page(cluster, "livez")[0] == 503
        assert page(cluster, "readyz")[0] == 503
        assert ask(cluster.metrics_url)[0] == 503
    finally:
        free.set()
        stuck.join()
    wait_for(lambda: page(cluster, "livez")[0] == 200)  # a loaded machine has no answer in 50 ms


def test_a_busy_loop_shows_in_its_lag(cluster: Cluster) -> None:
    """A loop held for half a second is told to have been late by that, less a beat."""
    name = "ottla_loop_lag_seconds_sum"
    before = scrape(cluster)[name, labels()]
    cluster.run(lambda _node: time.sleep(0.2 + BEAT_S))
    deadline = time.monotonic() + 60
    while (found := scrape(cluster))[name, labels()] < before + 0.2:
        assert time.monotonic() < deadline
    late = labels(le="0.1")
    everything = labels(le="+Inf")
    buckets = "ottla_loop_lag_seconds_bucket"
    assert found[buckets, late] < found[buckets, everything]


def test_a_recovering_node_is_alive_but_not_ready(cluster: Cluster) -> None:
    """During recovery livez is good, and startupz tells what is left."""
    health = cluster.run(lambda node: node.http.health)
    assert health.state is BrokerState.RUNNING
    try:
        health.state = BrokerState.RECOVERY
        for load in health.loads:
            load.opened_count -= 3
            load.segment_count = 2
        assert page(cluster, "livez") == (200, {"status": "ok", "state": "recovery"})
        assert page(cluster, "readyz")[0] == 503
        status, content = page(cluster, "startupz")
        assert status == 503
        assert [one["remaining"] for one in content["recovery"].values()] == [3]
        found = scrape(cluster)
        assert found["kafka_server_kafkaserver_brokerstate", labels()] == 2
        (path,) = content["recovery"]
        name = "kafka_log_logmanager_remaininglogstorecover"
        assert found[name, labels(dir=path)] == 3
        name = "kafka_log_logmanager_remainingsegmentstorecover"
        assert found[name, labels(dir=path, threadNum="0")] == 2
    finally:
        for load in health.loads:
            load.opened_count += 3
            load.segment_count = 0
        health.state = BrokerState.RUNNING


def test_a_node_answers_probes_while_it_opens_its_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the loop is busy with the disk, the start is reported as under way, with its progress.

    The loop is held in the middle of the real opening of logs.
    """
    monkeypatch.setattr("ottla.http.host.START_DELAY_S", 0.0)
    opened, may_go_on = threading.Event(), threading.Event()
    with Cluster(config=OPEN) as cluster:
        with ottla.Admin(bootstrap_servers=cluster.bootstrap) as admin:
            admin.create_topic("one", partitions=3)
        url = cluster.metrics_url
        cluster.kill()
        open_log, calls = DirectoryLoader._open, itertools.count()

        def hold(loader: DirectoryLoader, found: StrayLog) -> PartitionLog | None:
            if next(calls) == 1:  # the second log
                opened.set()
                may_go_on.wait(60)
            return open_log(loader, found)

        monkeypatch.setattr(DirectoryLoader, "_open", hold)
        starting = threading.Thread(target=cluster.start)
        starting.start()
        try:
            assert opened.wait(60)
            base = url.removesuffix("metrics")
            assert ask(f"{base}livez")[0] == 200
            assert ask(f"{base}readyz")[0] == 503
            status, _, body = ask(f"{base}startupz")
            recovery = json.loads(body)["recovery"]
            text = ask(url)[2].decode()
        finally:
            may_go_on.set()
            starting.join()
        assert status == 503
        assert [one["logs"] - one["remaining"] for one in recovery.values()] == [1]
        assert "kafka_server_kafkaserver_brokerstate 2\n" in text
        assert page(cluster, "startupz")[0] == 200


def test_both_spellings_can_be_had() -> None:
    """With metrics.names=both dashboards of either kind find their names."""
    with Cluster(config={**OPEN, "metrics.names": "both"}) as running:
        names = {name for name, _ in scrape(running)}
    assert {
        "kafka_server_brokertopicmetrics_messagesin_total",
        "kafka_server_brokertopicmetrics_messagesinpersec_total",
        "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
        "kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent_total",
        "kafka_server_raftmetrics_current_state",
        "kafka_server_raft_metrics_current_state_info",
    } <= names


def test_series_of_partitions_can_be_left_out() -> None:
    """With metrics.partition.level=topic no series has a label partition but a group's lag."""
    with Cluster(config={**OPEN, "metrics.partition.level": "topic"}) as running:
        with ottla.Admin(bootstrap_servers=running.bootstrap) as admin:
            admin.create_topic("some", partitions=2)
        found = scrape(running)
    assert not [key for key in found if any(name == "partition" for name, _ in key[1])]
    assert found["kafka_server_replicamanager_partitioncount", labels()] == 2


def test_nothing_is_served_unless_configured() -> None:
    """Without metrics.listener there is no address and no thread."""
    before = set(threading.enumerate())
    with Cluster() as running:
        assert running.run(lambda node: node.http.address) is None
        started = set(threading.enumerate()) - before
        assert started
        assert "ottla-http" not in {thread.name for thread in started}
        with pytest.raises(ClusterError, match=r"metrics\.listener"):
            _ = running.metrics_url


def test_a_node_without_the_endpoint_does_not_import_it() -> None:
    """Neither the HTTP library nor the gathering modules cost memory unless they are used."""
    program = (
        "import sys\n"
        "from ottla.testing.cluster import Cluster\n"
        "with Cluster(): print(*sys.modules, sep='\\n')"
    )
    finished = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    loaded = set(finished.stdout.split())
    assert "ottla.server.http.endpoint" in loaded
    assert not loaded & {"uvicorn", "starlette", "ottla.server.metrics.node"}


def test_a_restart_keeps_the_address_and_counts_again() -> None:
    """What was in the log before the start was not received by this process."""
    with Cluster(config=OPEN) as running:
        with ottla.Producer(bootstrap_servers=running.bootstrap) as producer:
            producer.send("kept", b"x")
        before = running.metrics_url
        running.restart()
        assert running.metrics_url == before
        found = scrape(running)
        _, content = page(running, "startupz")
    name = "kafka_server_brokertopicmetrics_messagesin_total"
    assert found[name, labels(topic="kept")] == 0
    assert sum(one["logs"] for one in content["recovery"].values()) >= 1


def test_a_taken_port_is_told_and_nothing_is_left() -> None:
    """A second node on the same metrics port does not start, and says what to change."""
    with Cluster(config=OPEN) as first:
        address = first.config["metrics.listener"]
        second = Cluster(config={"metrics.listener": address})
        with pytest.raises(PortTaken, match=r"--override metrics\.listener="):
            second.start()
        second.stop()


def test_the_banner_shows_the_address_within_six_lines(cluster: Cluster) -> None:
    """A person sees where metrics are, and the banner stays short."""
    lines = cluster.run(lambda node: node.banner.lines())
    assert f"metrics   {cluster.metrics_url}" in lines
    assert len(lines) == 6


def test_wrong_settings_are_refused_by_name() -> None:
    """All wrong values are told at once, and a typo is given its right name."""
    config = {**TEST_DEFAULTS, "log.dirs": "unused"}
    with pytest.raises(ConfigErrors) as refused:
        parse_broker_config({**config, "metrics.listener": "host:", "metrics.names": "new"})
    assert {one.name for one in refused.value.problems} == {"metrics.listener", "metrics.names"}
    typo = parse_broker_config({**config, "metrics.listner": ":9404"})
    assert "did you mean metrics.listener?" in typo.unknown_settings[0].message


def test_https_and_a_login(tmp_path: Path) -> None:
    """A scrape needs the login, a probe does not; a certificate's end is a metric."""
    authority = Authority()
    trusted = ssl.create_default_context(cadata=authority.pair.certificate_pem)
    location = authority.issue("node").write_pem(tmp_path / "node.pem")
    config = {
        **OPEN,
        "metrics.basic.auth.username": "prometheus",
        "metrics.basic.auth.password": "scrape",
        "metrics.ssl.keystore.location": location,
        "listeners": "TLS://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        "listener.security.protocol.map": "TLS:SSL,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "TLS",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": location,
    }
    with Cluster(config=config) as cluster:
        url = cluster.metrics_url
        assert url.startswith("https://")

        def status(page_url: str, login: str | None = None) -> tuple[int, str]:
            request = urllib.request.Request(page_url)
            if login is not None:
                encoded = base64.b64encode(login.encode()).decode()
                request.add_header("Authorization", f"Basic {encoded}")
            try:
                with urllib.request.urlopen(request, timeout=60, context=trusted) as answer:
                    return answer.status, answer.read().decode()
            except HTTPError as error:
                return error.code, error.read().decode()

        assert status(url.removesuffix("metrics") + "livez")[0] == 200
        assert status(url)[0] == 401
        assert status(url, "prometheus:wrong")[0] == 401
        code, text = status(url, "prometheus:scrape")
        assert code == 200
    expires_s = authority.pair.certificate.not_valid_after_utc.timestamp()
    line = next(one for one in text.splitlines() if one.startswith("ottla_certificate_expires"))
    assert 'listener="TLS"' in line
    assert abs(float(line.rpartition(" ")[2]) - expires_s) < 60


def test_a_login_without_a_password_is_refused() -> None:
    """Both are given, or neither."""
    with pytest.raises(ConfigErrors, match="give the password, too"):
        parse_broker_config({**TEST_DEFAULTS, "metrics.basic.auth.username": "p", "log.dirs": "/x"})
