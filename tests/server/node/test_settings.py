"""Which of several places gives a node its setting, and how all errors are told at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ottla.config.problems import ConfigErrors
from ottla.server.node.settings import (
    ConfigFile,
    StartSettings,
    node_environment,
    node_settings,
)

if TYPE_CHECKING:
    from ottla.config.environment import EnvironmentSettings

FILE = ConfigFile(
    "server.properties",
    """\
process.roles=broker,controller
node.id=4
controller.quorum.bootstrap.servers=localhost:9093
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
log.dirs=/one
num.partitions=2
""",
)


def environment(**variables: str) -> EnvironmentSettings:
    """Read variables; no file can be opened."""

    def read_file(path: str) -> str:
        raise FileNotFoundError(path)

    return node_environment(variables, read_file)


def origins(settings: StartSettings, *names: str) -> list[str]:
    """Return where settings come from."""
    return [settings.given[name].origin for name in names]


def test_the_later_place_wins() -> None:
    """The environment goes over the file, an override over both."""
    found = node_settings(
        FILE,
        {"num.partitions": "9"},
        environment=environment(KAFKA_LOG_DIRS="/two", KAFKA_NUM_PARTITIONS="5"),
    )
    config = found.config
    assert (config.node_id, config.data_directories, config.num_partitions) == (4, ("/two",), 9)
    assert origins(found, "node.id", "log.dirs", "num.partitions") == [
        "server.properties:2",
        "KAFKA_LOG_DIRS",
        "--override",
    ]
    assert "log.segment.bytes" not in found.given


def test_a_node_without_a_file() -> None:
    """The environment changes the development node; --port is stronger than its listeners."""
    found = node_settings(None, {}, environment=environment(KAFKA_NUM_PARTITIONS="5"))
    assert found.is_development
    assert found.config.num_partitions == 5
    assert origins(found, "log.dirs") == ["node without a file"]
    listeners = environment(KAFKA_LISTENERS="PLAINTEXT://:1,CONTROLLER://:2")
    asked = node_settings(None, {}, port=7777, environment=listeners)
    assert asked.config.endpoints[0].port == 7777
    assert origins(asked, "listeners") == ["--port"]


def test_all_errors_at_once() -> None:
    """Values, names and variables that are wrong are told together, each with its place."""
    file = ConfigFile("s.properties", FILE.text + "log.retenton.hours=1\nlog.segment.bytes=x\n")
    with pytest.raises(ConfigErrors) as raised:
        node_settings(
            file,
            {"num.io.thread": "1"},
            environment=environment(
                KAFKA_NUM_NETWORK_THREADS="0", KAFKA_LOG_CLEANR_ENABLE="true", OTTLA_METRIC_NAMES=""
            ),
        )
    assert str(raised.value).splitlines() == [
        "OTTLA_METRIC_NAMES is no setting; did you mean OTTLA_METRICS_NAMES?",
        (
            "Invalid value x for configuration log.segment.bytes: Not a number of type INT"
            " (s.properties:9)"
        ),
        (
            "Invalid value 0 for configuration num.network.threads: Value must be at least 1"
            " (KAFKA_NUM_NETWORK_THREADS)"
        ),
        (
            "Unknown configuration log.retenton.hours; did you mean log.retention.hours?"
            " (s.properties:8)"
        ),
        (
            "Unknown configuration log.cleanr.enable; did you mean log.cleaner.enable?"
            " (KAFKA_LOG_CLEANR_ENABLE)"
        ),
        "Unknown configuration num.io.thread; did you mean num.io.threads? (--override)",
    ]


def test_strange_names_are_told_and_passed_over() -> None:
    """A name like no other may be a plug-in's: a warning with its place, from each source."""
    file = ConfigFile("s.properties", FILE.text + "xyzzy.enable=1\nnum.partitions=3\n")
    found = node_settings(file, {}, environment=environment(KAFKA_FROBNICATE="1"))
    assert found.config.num_partitions == 3
    assert found.warnings == (
        "num.partitions is given twice, s.properties:9 counts, not s.properties:7",
        "Unknown configuration xyzzy.enable (s.properties:8)",
        "Unknown configuration frobnicate (KAFKA_FROBNICATE)",
        (
            "offsets.topic.replication.factor is 3 and must be 1 if the cluster has one broker: "
            "otherwise groups find no coordinator"
        ),
    )
    assert not node_settings(None, {}).warnings


def test_a_node_of_a_larger_cluster_may_replicate_the_offsets() -> None:
    """Only a node that is a cluster of its own warns: others name controllers or have one role."""
    replicas = "offsets.topic.replication.factor=3\n"
    names = "controller.quorum.bootstrap.servers=a:9093,b:9093\n"
    base = "node.id=1\nprocess.roles=broker,controller\ncontroller.listener.names=CONTROLLER\n"
    base += "listeners=PLAINTEXT://:9092,CONTROLLER://:9093\nlog.dirs=/var/data\n"
    single = "controller.quorum.bootstrap.servers=a:9093\n"
    assert node_settings(ConfigFile("s.properties", base + single + replicas), {}).warnings
    assert not node_settings(ConfigFile("s.properties", base + names + replicas), {}).warnings


def test_one_of_ottlas_own_settings_hides_no_other_problem() -> None:
    """All that is wrong is told, each with its place, whichever table it stands in."""
    wrong = {"log.dir.reserve.bytes": "x", "node.id": "y", "retention.m": "1"}
    with pytest.raises(ConfigErrors) as told:
        node_settings(None, wrong)
    lines = str(told.value).splitlines()
    assert [line.endswith(" (--override)") for line in lines] == [True] * 3
    assert {one.name for one in told.value.problems} == wrong.keys()


def test_settings_of_single_listeners_are_read_at_start() -> None:
    """A limit that is not a number fails the start, as in Kafka."""
    name = "listener.name.plaintext.max.connections"
    assert node_settings(None, {name: "5"}).config.given[name] == "5"
    with pytest.raises(ConfigErrors) as told:
        node_settings(None, {name: "5O"})
    assert str(told.value) == (
        "Invalid value 5O for configuration max.connections: Not a number of type INT (--override)"
    )
    assert told.value.problems[0].name == name
