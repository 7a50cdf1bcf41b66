"""The shipped alert rules under Prometheus's own checker: each loads, fires and clears.

The table below has for each alert the series that make it fire, in either spelling. That the node
really serves those names is shown by tests/server/metrics/test_names.py.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import ottla
from tests.conformance.promtool import promtool_or_skip

pytestmark = pytest.mark.conformance

RULES = Path(ottla.__file__).parent / "metrics" / "ottla-rules.yml"
GOOD_MINUTES, BAD_MINUTES, AFTER_MINUTES = 20, 60, 60
SPELLINGS = ("classic", "reporter", "both")


class Shape(NamedTuple):
    """A series: its labels, its value in normal state and in the failure state."""

    labels: str
    good: float
    bad: float
    is_counter: bool = False
    """Whether the two are what a minute adds."""


CONTROLLER = "kafka_controller_kafkacontroller_"
BROKER_TOPIC = "kafka_server_brokertopicmetrics_"
ELECTIONS = "kafka_controller_controllerstats_uncleanleaderelections"
IDLE = "kafka_network_socketserver_networkprocessoravgidle"
LAG_LABELS = 'consumergroup="g",topic="t",partition="0"'
# alert → classic name → shape; a pair of names stands for (classic, reporter)
CASES: dict[str, dict[str | tuple[str, str], Shape]] = {
    "KafkaNodeDown": {"up": Shape('job="kafka"', 1, 0)},
    "KafkaActiveControllers": {f"{CONTROLLER}activecontrollercount": Shape("", 1, 0)},
    "KafkaOfflinePartitions": {f"{CONTROLLER}offlinepartitionscount": Shape("", 0, 3)},
    "KafkaFencedBrokers": {f"{CONTROLLER}fencedbrokercount": Shape("", 0, 1)},
    "KafkaUncleanLeaderElection": {
        (f"{ELECTIONS}_total", f"{ELECTIONS}persec_total"): Shape("", 0, 1, is_counter=True)
    },
    "KafkaPreferredReplicaImbalance": {
        f"{CONTROLLER}preferredreplicaimbalancecount": Shape("", 0, 4)
    },
    "KafkaUnderReplicatedPartitions": {
        "kafka_server_replicamanager_underreplicatedpartitions": Shape("", 0, 2)
    },
    "KafkaUnderMinIsrPartitions": {
        "kafka_server_replicamanager_underminisrpartitioncount": Shape("", 0, 2)
    },
    "KafkaIsrShrinks": {
        (
            "kafka_server_replicamanager_isrshrinks_total",
            "kafka_server_replicamanager_isrshrinkspersec_total",
        ): Shape("", 0, 1, is_counter=True)
    },
    "KafkaOfflineLogDirectory": {"kafka_log_logmanager_offlinelogdirectorycount": Shape("", 0, 1)},
    "OttlaLogDirectoryReserve": {
        "ottla_log_directory_short_of_space": Shape('logDirectory="/d"', 0, 1)
    },
    "KafkaOfflineReplicas": {"kafka_server_replicamanager_offlinereplicacount": Shape("", 0, 5)},
    "KafkaDescriptorsRunOut": {
        "process_open_fds": Shape("", 100, 990),
        "process_max_fds": Shape("", 1000, 1000),
    },
    "KafkaRecoveryTakesLong": {
        "kafka_server_kafkaserver_brokerstate": Shape("", 3, 2),
        "kafka_log_logmanager_remaininglogstorecover": Shape('dir="/d"', 0, 7),
    },
    "KafkaFailedProduceRequests": {
        (
            f"{BROKER_TOPIC}failedproducerequests_total",
            f"{BROKER_TOPIC}failedproducerequestspersec_total",
        ): Shape("", 0, 60, is_counter=True)
    },
    "KafkaFailedFetchRequests": {
        (
            f"{BROKER_TOPIC}failedfetchrequests_total",
            f"{BROKER_TOPIC}failedfetchrequestspersec_total",
        ): Shape("", 0, 60, is_counter=True)
    },
    "KafkaProcessorBusy": {(f"{IDLE}_percent", f"{IDLE}percent"): Shape("", 0.9, 0.05)},
    "OttlaLoopLag": {"ottla_loop_lag_recent_seconds": Shape('quantile="0.999"', 0.001, 1.5)},
    "OttlaRemoteStorageAway": {"ottla_remote_storage_away": Shape("", 0, 1)},
    "KafkaRemoteStorageErrors": {
        (
            f"{BROKER_TOPIC}remote{call}errors_total",
            f"{BROKER_TOPIC}remote{call}errorspersec_total",
        ): Shape("", 0, 1, is_counter=True)
        for call in ("copy", "delete", "fetch")
    },
    "OttlaRemoteCallHangs": {"ottla_remote_call_oldest_seconds": Shape('kind="copier"', 2, 900)},
    "KafkaConsumerGroupLate": {"kafka_consumer_lag_millis": Shape(LAG_LABELS, 20, 900_000)},
    "KafkaConsumerGroupLagGrows": {
        "kafka_consumergroup_lag": Shape(LAG_LABELS, 0, 500, is_counter=True)
    },
}


def values_of(shape: Shape) -> str:
    """Write twenty good minutes, an hour of bad ones and an hour of good ones."""
    if not shape.is_counter:
        return f"{shape.good}x{GOOD_MINUTES} {shape.bad}x{BAD_MINUTES} {shape.good}x{AFTER_MINUTES}"
    end = GOOD_MINUTES * shape.good + BAD_MINUTES * shape.bad
    return (
        f"0+{shape.good}x{GOOD_MINUTES} {shape.bad}+{shape.bad}x{BAD_MINUTES - 1} "
        f"{end}+{shape.good}x{AFTER_MINUTES}"
    )


def series_of(alert: str, spelling: str) -> list[dict[str, str]]:
    """Return the input series of one alert as a node with that spelling gives them."""
    series = []
    for names, shape in CASES[alert].items():
        classic, reporter = names if isinstance(names, tuple) else (names, names)
        shown = {"classic": [classic], "reporter": [reporter], "both": [classic, reporter]}
        for name in dict.fromkeys(shown[spelling]):
            inner = ",".join(filter(None, ('instance="n"', shape.labels)))
            series.append({"series": f"{name}{{{inner}}}", "values": values_of(shape)})
    return series


def expectation(alert: str, minute: int, *, fires: bool) -> dict[str, Any]:
    """Say whether the alert fires at a minute, as an expression over ALERTS."""
    return {
        "expr": f'count(ALERTS{{alertname="{alert}",alertstate="firing"}}) or vector(0)',
        "eval_time": f"{minute}m",
        "exp_samples": [{"labels": "{}", "value": int(fires)}],
    }


@pytest.fixture(scope="session")
def promtool() -> Path:
    """Return Prometheus's checker."""
    return promtool_or_skip()


def test_the_rules_load(promtool: Path) -> None:
    """Prometheus accepts the file, and every alert has its row above."""
    done = subprocess.run(
        [promtool, "check", "rules", str(RULES)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    alerts = re.findall(r"- alert: (\w+)", RULES.read_text())
    assert sorted(alerts) == sorted(CASES)
    assert f"{len(alerts)} rules found" in done.stdout or f"SUCCESS: {len(alerts)}" in done.stdout


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("alert", sorted(CASES))
def test_each_alert_fires_and_clears(
    promtool: Path, tmp_path: Path, alert: str, spelling: str
) -> None:
    """No alert in normal state, firing within an hour of the failure, cleared afterwards."""
    bad_end = GOOD_MINUTES + BAD_MINUTES
    content = {
        "rule_files": [str(RULES)],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": series_of(alert, spelling),
                "promql_expr_test": [
                    expectation(alert, GOOD_MINUTES - 2, fires=False),
                    expectation(alert, bad_end - 5, fires=True),
                    expectation(alert, bad_end + AFTER_MINUTES - 5, fires=False),
                ],
            }
        ],
    }
    path = tmp_path / "tests.yml"
    path.write_text(json.dumps(content))  # which is YAML too
    done = subprocess.run(
        [promtool, "test", "rules", str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
