"""Which of several places gives a node its setting, and how all errors are told at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ottla.config.broker import BrokerConfig
from ottla.config.broker.unsupported import removed_setting
from ottla.config.listener_settings import ListenerSettings
from ottla.config.problems import ConfigErrors
from ottla.security.sasl.plain import users_of
from ottla.server.node.login_handlers import jaas_options
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
        "Unknown configuration num.io.thread; did you mean num.io.threads? (--override)",
    ]


def test_unknown_names_of_files_and_variables_are_warnings() -> None:
    """A file for Kafka, perhaps for an older one, starts here as it does there."""
    lines = """
        log.retenton.hours=1
        zookeeper.connect=zk:2181
        zookeeper.connection.timeout.ms=18000
        delegation.token.master.key=abc
        retention.ms=1000
        max.message.bytes=1000000
        confluent.license=x
    """
    text = FILE.text + "\n".join(line.strip() for line in lines.strip().splitlines())
    found = node_settings(
        ConfigFile("s.properties", text),
        {},
        environment=environment(KAFKA_LOG_CLEANR_ENABLE="true"),
    )
    removed, topics = "Kafka 4 has removed ", "is a setting of topics and has no effect here"
    old, new = "delegation.token.master.key", "delegation.token.secret.key"
    nothing = "Kafka 4 has no ZooKeeper; remove it"
    unknown = "Unknown configuration"
    assert list(found.warnings[:8]) == [
        f"{unknown} log.retenton.hours; did you mean log.retention.hours? (s.properties:8)",
        f"{removed}zookeeper.connect: {nothing} (s.properties:9)",
        f"{removed}zookeeper.connection.timeout.ms: {nothing} (s.properties:10)",
        f"{removed}{old}: it is named {new} now (s.properties:11)",
        f"retention.ms {topics}: set log.retention.ms (s.properties:12)",
        f"max.message.bytes {topics}: set message.max.bytes (s.properties:13)",
        "confluent.license is ignored: it belongs to a plug-in of Confluent (s.properties:14)",
        f"{unknown} log.cleanr.enable; did you mean log.cleaner.enable? (KAFKA_LOG_CLEANR_ENABLE)",
    ]


def test_no_name_of_kafka_4_is_called_removed() -> None:
    """The table of removed names and the settings that exist have nothing in common."""
    assert [name for name in BrokerConfig.keys if removed_setting(name) is not None] == []


LOGIN_FILE = """
// users of PLAIN
KafkaServer {
  org.apache.kafka.common.security.plain.PlainLoginModule required
  username="admin" password="admin-secret; }"
  user_admin="admin-secret; }" user_al="al-pw";
  org.apache.kafka.common.security.scram.ScramLoginModule required username="a" password="b";
};
inside.KafkaServer { x.PlainLoginModule required user_own="c"; };
Client {};
"""


def test_the_login_file_of_java_gives_the_logins_of_listeners() -> None:
    """That of KAFKA_OPTS, as in compose files; settings of the listener take precedence."""
    options = "-Xmx512m -Djava.security.auth.login.config=/etc/kafka/jaas.conf"
    files = {"/etc/kafka/jaas.conf": LOGIN_FILE}
    read = node_environment({"KAFKA_OPTS": options}, files.__getitem__)
    file = ConfigFile(
        "s.properties",
        "node.id=1\nprocess.roles=broker,controller\ncontroller.listener.names=CONTROLLER\n"
        "controller.quorum.bootstrap.servers=a:9093\nlog.dirs=/var/data\n"
        "listeners=SASL_PLAINTEXT://:9092,INSIDE://:9094,CONTROLLER://:9093\n"
        "listener.security.protocol.map=SASL_PLAINTEXT:SASL_PLAINTEXT,INSIDE:SASL_PLAINTEXT,"
        "CONTROLLER:PLAINTEXT\ninter.broker.listener.name=SASL_PLAINTEXT\n"
        "sasl.enabled.mechanisms=PLAIN\nsasl.mechanism.inter.broker.protocol=PLAIN\n",
    )
    found = node_settings(file, {}, environment=read)
    assert "KAFKA_OPTS: only its login file /etc/kafka/jaas.conf is read" in found.warnings
    users = {
        listener: users_of(jaas_options(ListenerSettings(found.config, listener), "PLAIN"))
        for listener in ("SASL_PLAINTEXT", "INSIDE")
    }
    assert users["SASL_PLAINTEXT"]("al", "al-pw")
    assert users["SASL_PLAINTEXT"]("admin", "admin-secret; }")
    assert users["INSIDE"]("own", "c")
    assert not users["INSIDE"]("al", "al-pw")
    own = {"listener.name.inside.plain.sasl.jaas.config": 'p.PlainLoginModule required user_x="y";'}
    changed = node_settings(file, own, environment=read).config
    assert users_of(jaas_options(ListenerSettings(changed, "INSIDE"), "PLAIN"))("x", "y")


@pytest.mark.parametrize(
    "text",
    [
        "KafkaServer",
        "KafkaServer { a b;",
        "KafkaServer { x; }",
        "{};",
        "KafkaServer { x required; }; KafkaServer { x required; };",
    ],
)
def test_a_malformed_login_file_is_an_error(text: str) -> None:
    """So is one that is missing; no line of it is repeated. The last one of a line counts."""
    options = {
        "KAFKA_OPTS": "-Djava.security.auth.login.config=/before "
        '-Djava.security.auth.login.config="/a b"'
    }
    with pytest.raises(ConfigErrors, match="login file"):
        node_settings(None, {}, environment=node_environment(options, {"/a b": text}.__getitem__))

    def missing(path: str) -> str:
        raise FileNotFoundError(2, "No such file or directory", path)

    with pytest.raises(ConfigErrors, match="cannot read the login file /a b"):
        node_settings(None, {}, environment=node_environment(options, missing))


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
