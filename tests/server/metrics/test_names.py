"""The names that dashboards and rules ask for, held against what a node really serves."""

from __future__ import annotations

import json
import re
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

import ottla
from ottla.testing.cluster import Cluster
from tests.server.remote.test_tier import settings_of
from tests.waits import read_records

if TYPE_CHECKING:
    from collections.abc import Iterator

SHIPPED = Path(ottla.__file__).parent / "metrics"
METRIC = re.compile(r"\b(?:kafka|ottla|process)_[a-z_]+\b")

# What Strimzi's rules and dashboards and Grafana's kafka-observ-lib take from the JMX exporter …
CLASSIC = [
    "kafka_cluster_partition_atminisr",
    "kafka_cluster_partition_replicascount",
    "kafka_cluster_partition_underminisr",
    "kafka_cluster_partition_underreplicated",
    "kafka_controller_controllerstats_uncleanleaderelections_total",
    "kafka_controller_kafkacontroller_activecontrollercount",
    "kafka_controller_kafkacontroller_offlinepartitionscount",
    "kafka_controller_kafkacontroller_preferredreplicaimbalancecount",
    "kafka_log_log_logendoffset",
    "kafka_log_log_logstartoffset",
    "kafka_log_log_size",
    "kafka_log_logmanager_offlinelogdirectorycount",
    "kafka_network_requestmetrics_localtimems",
    "kafka_network_requestmetrics_localtimems_count",
    "kafka_network_requestmetrics_remotetimems",
    "kafka_network_requestmetrics_requestqueuetimems",
    "kafka_network_requestmetrics_responsequeuetimems",
    "kafka_network_requestmetrics_responsesendtimems",
    "kafka_network_requestmetrics_totaltimems",
    "kafka_network_socketserver_networkprocessoravgidle_percent",
    "kafka_server_brokertopicmetrics_bytesin_total",
    "kafka_server_brokertopicmetrics_bytesout_total",
    "kafka_server_brokertopicmetrics_failedfetchrequests_total",
    "kafka_server_brokertopicmetrics_failedproducerequests_total",
    "kafka_server_brokertopicmetrics_messagesin_total",
    "kafka_server_brokertopicmetrics_totalfetchrequests_total",
    "kafka_server_brokertopicmetrics_totalproducerequests_total",
    "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
    "kafka_server_kafkaserver_brokerstate",
    "kafka_server_kafkaserver_linux_disk_read_bytes",
    "kafka_server_kafkaserver_linux_disk_write_bytes",
    "kafka_server_raftmetrics_append_records_rate",
    "kafka_server_raftmetrics_commit_latency_avg",
    "kafka_server_raftmetrics_current_epoch",
    "kafka_server_raftmetrics_current_leader",
    "kafka_server_raftmetrics_current_state",
    "kafka_server_raftmetrics_current_vote",
    "kafka_server_raftmetrics_high_watermark",
    "kafka_server_raftmetrics_log_end_offset",
    "kafka_server_replicamanager_isrexpands_total",
    "kafka_server_replicamanager_isrshrinks_total",
    "kafka_server_replicamanager_leadercount",
    "kafka_server_replicamanager_partitioncount",
    "kafka_server_replicamanager_underminisrpartitioncount",
    "kafka_server_replicamanager_underreplicatedpartitions",
    "kafka_server_socket_server_metrics_connection_count",
    "process_open_fds",
    *(
        f"kafka_server_brokertopicmetrics_{name}"
        for name in (
            "buildremotelogauxstateerrors_total",
            "buildremotelogauxstaterequests_total",
            "remotecopybytes_total",
            "remotecopyerrors_total",
            "remotecopylagbytes",
            "remotecopylagsegments",
            "remotecopyrequests_total",
            "remotedeleteerrors_total",
            "remotedeletelagbytes",
            "remotedeletelagsegments",
            "remotedeleterequests_total",
            "remotefetchbytes_total",
            "remotefetcherrors_total",
            "remotefetchrequests_total",
            "remotelogmetadatacount",
            "remotelogsizebytes",
            "remotelogsizecomputationtime",
        )
    ),
    "kafka_log_remote_remotelogmanager_remotelogmanagertasksavgidle_percent",
    "kafka_log_remote_remotelogmanager_remotelogreaderfetchrateandtimems_count",
    "kafka_log_remote_remotestoragethreadpool_remotelogreaderavgidle_percent",
    "kafka_log_remote_remotestoragethreadpool_remotelogreadertaskqueuesize",
    "kafka_server_rlmcopy_byte_rate",
    "kafka_server_rlmfetch_byte_rate",
]
# … from the metrics reporter where it differs …
REPORTER = [
    "kafka_controller_controllerstats_uncleanleaderelectionspersec_total",
    "kafka_network_socketserver_networkprocessoravgidlepercent",
    "kafka_server_brokertopicmetrics_bytesinpersec_total",
    "kafka_server_brokertopicmetrics_bytesoutpersec_total",
    "kafka_server_brokertopicmetrics_failedfetchrequestspersec_total",
    "kafka_server_brokertopicmetrics_failedproducerequestspersec_total",
    "kafka_server_brokertopicmetrics_messagesinpersec_total",
    "kafka_server_brokertopicmetrics_totalfetchrequestspersec_total",
    "kafka_server_brokertopicmetrics_totalproducerequestspersec_total",
    "kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent_total",
    "kafka_server_raft_metrics_current_state_info",
    "kafka_server_raft_metrics_high_watermark",
    "kafka_server_replicamanager_underreplicatedpartitions",
    "kafka_server_brokertopicmetrics_remotecopybytespersec_total",
    "kafka_server_brokertopicmetrics_buildremotelogauxstateerrorspersec_total",
    "kafka_log_remote_remotelogmanager_remotelogmanagertasksavgidlepercent",
]
# … and from the exporters of lag and topics.
EXPORTERS = [
    "kafka_broker_info",
    "kafka_brokers",
    "kafka_consumer_lag_millis",
    "kafka_consumergroup_current_offset",
    "kafka_consumergroup_group_lag_seconds",
    "kafka_consumergroup_lag",
    "kafka_consumergroup_lag_sum",
    "kafka_topic_partition_current_offset",
    "kafka_topic_partition_in_sync_replica",
    "kafka_topic_partition_leader",
    "kafka_topic_partition_leader_is_preferred",
    "kafka_topic_partition_oldest_offset",
    "kafka_topic_partition_replicas",
    "kafka_topic_partition_under_replicated_partition",
    "kafka_topic_partitions",
]


def served(spelling: str, **settings: object) -> set[str]:
    """Return the sample names of a node with a topic, a group and a little traffic."""
    config = {"metrics.listener": "127.0.0.1:0", "metrics.names": spelling, **settings}
    with Cluster(config=config) as cluster:
        with ottla.Admin(bootstrap_servers=cluster.bootstrap) as admin:
            admin.create_topic("topic")
        with ottla.Producer(bootstrap_servers=cluster.bootstrap) as producer:
            producer.send("topic", b"x")
        with ottla.Consumer(
            bootstrap_servers=cluster.bootstrap, group_id="group", auto_offset_reset="earliest"
        ) as consumer:
            consumer.subscribe(["topic"])
            read_records(consumer)
            consumer.commit()
            with urllib.request.urlopen(cluster.metrics_url, timeout=60) as answer:
                text = answer.read().decode()
    return {
        sample.name for family in text_string_to_metric_families(text) for sample in family.samples
    }


@pytest.fixture(scope="module")
def classic(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Return the names of the default spelling."""
    return served("classic", **settings_of(tmp_path_factory.mktemp("tier")))


@pytest.fixture(scope="module")
def reporter(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Return the names of the other spelling."""
    return served("reporter", **settings_of(tmp_path_factory.mktemp("tier")))


def test_without_a_tier_none_of_its_metrics_is_served() -> None:
    """Nothing is counted or measured for them."""
    assert not [name for name in served("both") if "remote" in name and "remotetime" not in name]


def test_stored_dashboards_find_their_classic_names(classic: set[str]) -> None:
    """By default every name in the lists above that the JMX exporter or an exporter has is here."""
    assert not {*CLASSIC, *EXPORTERS} - classic


def test_stored_dashboards_find_the_reporters_names(reporter: set[str]) -> None:
    """With metrics.names=reporter the reporter's names are here, and the exporters'."""
    assert not {*REPORTER, *EXPORTERS} - reporter


def panels() -> Iterator[dict[str, Any]]:
    """Yield the panels of the shipped dashboard."""
    yield from json.loads((SHIPPED / "ottla-dashboard.json").read_text())["panels"]


def expressions() -> Iterator[str]:
    """Yield the expressions of dashboard and rules."""
    for panel in panels():
        yield from (target["expr"] for target in panel.get("targets", ()))
    rules = (SHIPPED / "ottla-rules.yml").read_text()
    yield from re.findall(r"expr: (?:>-\n)?((?:.*\n)+?) +(?:for|labels):", rules)


def test_what_is_shipped_asks_only_for_what_is_served(
    classic: set[str], reporter: set[str]
) -> None:
    """Each expression of dashboard and rules names metrics of both spellings, none invented."""
    found = list(expressions())
    assert len(found) > 50
    for expression in found:
        names = set(METRIC.findall(expression))
        assert not names - classic - reporter, expression
        for spelling in (classic, reporter):
            assert names & spelling or names <= {"up"}, expression


def test_the_dashboard_is_laid_out() -> None:
    """Panels have ids of their own, a source and a target, and none lies over another."""
    seen: set[tuple[int, int]] = set()
    ids = [panel["id"] for panel in panels()]
    assert len(ids) == len(set(ids))
    for panel in panels():
        place = panel["gridPos"]
        cells = {
            (place["x"] + right, place["y"] + down)
            for right in range(place["w"])
            for down in range(place["h"])
        }
        assert not cells & seen, panel["title"]
        seen |= cells
        assert panel["type"] == "row" or panel["targets"]
