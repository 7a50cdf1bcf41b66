"""--json of every command that lists or describes, against one node."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click
import pytest

from ottla import Producer, ShareConsumer
from ottla.cli.main import ottla
from ottla.testing.cluster import Cluster
from ottla.testing.kafka import Kafka
from tests.cli.running import run
from tests.waits import read_records, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Run a node with a topic, a group that read it, a quota and a metrics subscription."""
    with Cluster() as running:
        kafka = Kafka(running)
        topic = kafka.topic(partitions=2, name="orders")
        topic.produce(["one", "two"])
        with kafka.consumer(topic, group="billing") as consumer:
            read_records(consumer)
            consumer.commit()
        kafka.close()
        yield running


class Tools:
    """The tools, connected to the node."""

    def __init__(self, capsys: pytest.CaptureFixture[str], bootstrap: str) -> None:
        self.capsys = capsys
        self.bootstrap = bootstrap

    def __call__(self, command: str, *arguments: str) -> Any:
        """Return the document that a command prints, with its flags behind a `/`."""
        place = ("--bootstrap-server", self.bootstrap)
        words = command.split()
        status, out, err = run(self.capsys, *words[:1], *self._ordered(words, place), *arguments)
        assert status == 0, out + err
        return json.loads(out)

    @staticmethod
    def _ordered(words: list[str], place: tuple[str, str]) -> list[str]:
        """Put the address before the subcommand of the tools that want it there."""
        is_before = words[0] in {"features", "metadata-quorum", "transactions"}
        return [*place, *words[1:]] if is_before else [*words[1:], *place]


@pytest.fixture
def tools(capsys: pytest.CaptureFixture[str], cluster: Cluster) -> Tools:
    """Give the tools."""
    capsys.readouterr()
    return Tools(capsys, cluster.bootstrap)


def test_topics(tools: Tools) -> None:
    """Names, and partitions with replicas; nothing is an empty list."""
    names = tools("topics --list --json")
    (name,) = (one for one in names if one.startswith("orders"))
    (found,) = tools(f"topics --describe --topic {name} --json")
    assert (found["topic"], found["partition_count"], found["replication_factor"]) == (name, 2, 1)
    assert found["partitions"][1]["isr"] == [1]
    assert tools("topics --describe --unavailable-partitions --json") == []
    assert tools(f"topics --describe --topic {name}x --if-exists --json") == []
    offsets = tools(f"get-offsets --topic {name} --json")
    assert sum(one["offset"] for one in offsets) == 2


def test_groups(tools: Tools) -> None:
    """Group, type and state; offsets with lag; members."""
    (listed,) = tools("groups --list --json")
    assert listed["type"] == "Classic"
    group = listed["group_id"]
    assert group.startswith("billing")
    assert tools("consumer-groups --list --json") == [listed]
    (described,) = tools(f"consumer-groups --describe --group {group} --json")
    assert described["state"] == "Empty"
    assert {one["lag"] for one in described["offsets"]} <= {0, 1, None}
    (described,) = tools(f"consumer-groups --describe --group {group} --members --json")
    assert described["members"] == []
    assert "offsets" not in described


def test_the_cluster(tools: Tools, cluster: Cluster) -> None:
    """Id, endpoints, quorum, features, versions, directories."""
    cluster_id = cluster.run(lambda node: node.cluster_id)
    assert tools("cluster cluster-id --json") == {"cluster_id": cluster_id}
    (node,) = tools("cluster list-endpoints --json")
    assert (node["id"], node["fenced"]) == (1, False)
    quorum = tools("metadata-quorum describe --status --json")
    assert quorum["cluster_id"] == cluster_id
    assert [one["replica_id"] for one in quorum["voters"]] == [1]
    assert tools("metadata-quorum describe --replication --json")["leader_id"] == 1
    features = tools("features describe --json")["features"]
    assert "metadata.version" in [one["feature"] for one in features]
    assert tools("features describe --node-id 1 --json")["features"] == features
    (versions,) = tools("broker-api-versions --json")
    assert {"key": 3, "api": "Metadata", "lowest": 0, "highest": 13} in versions["apis"]
    (broker,) = tools("log-dirs --describe --json")["brokers"]
    assert broker["logDirs"][0]["error"] is None


def test_settings(tools: Tools, capsys: pytest.CaptureFixture[str]) -> None:
    """Resources, quotas, metrics subscriptions; secrets have no value."""
    capsys.readouterr()
    place = ("--bootstrap-server", tools.bootstrap)
    for words in (
        "configs --alter --client loader --add-config producer_byte_rate=1024",
        "client-metrics --alter --name slow --interval 60000",
    ):
        assert run(capsys, *words.split(), *place)[0] == 0
    assert tools("configs --describe --client loader --json")["quotas"] == [
        {"entity": {"client-id": "loader"}, "limits": {"producer_byte_rate": 1024.0}}
    ]
    assert tools("configs --describe --user alice --json")["scram_credentials"] == {}
    (broker,) = tools("configs --describe --broker 1 --all --json")
    values = {one["name"]: one for one in broker["configs"]}
    assert values["node.id"]["value"] == "1"
    assert values["ssl.key.password"]["sensitive"] is True
    assert tools("client-metrics --list --json") == ["slow"]
    assert tools("client-metrics --describe --json")["slow"]["interval.ms"] == "60000"
    mapping = tools("features version-mapping --json")
    assert mapping["metadata.version"] > 0


def test_files(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """What a node would start with, and the state of its directories."""
    status, out, _ = run(capsys, "config", "show", "--given", "--json")
    assert status == 0
    assert {"name": "node.id", "value": "1", "origin": "node without a file"} in json.loads(out)
    file = tmp_path / "server.properties"
    file.write_text(f"process.roles=broker,controller\nnode.id=1\nlog.dirs={tmp_path}/none\n"
                    "controller.listener.names=CONTROLLER\nlisteners=CONTROLLER://:1,PLAINTEXT://:2\n"
                    "controller.quorum.voters=1@localhost:1\n")  # fmt: skip
    status, out, _ = run(capsys, "storage", "info", "-c", str(file), "--json")
    assert status == 1
    assert json.loads(out)["problems"] == [f"{tmp_path}/none does not exist"]
    release = json.loads(run(capsys, "storage", "version-mapping", "--json")[1])
    assert release["release"].startswith("4.3")
    words = "features feature-dependencies --feature transaction.version=2 --json"
    (level,) = json.loads(run(capsys, *words.split())[1])
    assert level["feature"] == "transaction.version"


def test_the_check_of_logs(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    """Every log with its offsets; a directory in use is refused in a line."""
    data = cluster.data_dir
    status, _, err = run(capsys, "log-repair", "--log-dir", data, "--json")
    assert status == 1
    assert "Failed to acquire lock" in err
    with Cluster() as stopped:
        Kafka(stopped).topic(partitions=2, name="checked")
        stopped.shutdown()
        status, out, _ = run(capsys, "log-repair", "--log-dir", stopped.data_dir, "--json")
        stopped.start()
    assert status == 0
    found = json.loads(out)
    assert found["problem"] is None
    names = {one["partition"] for one in found["logs"] if not one["damaged"]}
    assert "__cluster_metadata-0" in names
    assert len(names) == 3


@pytest.mark.parametrize(
    ("words", "allowed"),
    [
        ("topics --create --topic x", "--list and --describe"),
        ("consumer-groups --delete --group x", "--list and --describe"),
        ("client-metrics --delete --name x", "--list and --describe"),
        ("configs --alter --topic x --add-config a=b", "--describe"),
    ],
)
def test_json_of_what_lists_nothing_is_refused(
    words: str, allowed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The flags with which it works are named; nothing is sent."""
    place = ("--bootstrap-server", "127.0.0.1:1")
    status, _, err = run(capsys, *words.split(), *place, "--json")
    assert status == 1
    assert f"Error: --json is only supported with {allowed}\n" in err


def _commands(
    group: click.Group, path: tuple[str, ...] = ()
) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from _commands(command, (*path, name))
        else:
            yield " ".join((*path, name)), command


SHOWING = {"list", "describe", "find-hanging"}
"""Actions that list or describe, as flags or as commands, also with a suffix."""
OTHER_DOCUMENTS = {"streams describe"}
"""A topology has --output."""


def test_everything_that_lists_or_describes_has_json() -> None:
    """As docs/tools.md says; found in the commands themselves, so that none is forgotten."""
    missing = []
    for name, command in _commands(ottla):
        flags = {flag for one in command.params for flag in one.opts}
        words = {flag.removeprefix("--") for flag in flags} | {name.rpartition(" ")[2]}
        shows = any(word.startswith(tuple(SHOWING)) for word in words if not word.endswith("er"))
        if shows and "--json" not in flags:
            missing.append(name)
    assert set(missing) <= OTHER_DOCUMENTS


@pytest.fixture
def own_cluster() -> Iterator[Cluster]:
    """Run a node of one test, which changes what others count."""
    with Cluster() as running:
        kafka = Kafka(running)
        kafka.topic(name="orders")
        kafka.close()
        yield running


def test_share_and_streams_groups(own_cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    """State, members and offsets of each; lists of names with their states."""
    tools = Tools(capsys, own_cluster.bootstrap)
    servers = own_cluster.bootstrap
    with ShareConsumer("orders", group_id="sharing", bootstrap_servers=servers) as consumer:
        consumer.poll(0.1)
        wait_for(
            lambda: any(
                one["members"] for one in tools("share-groups --describe --json", "--all-groups")
            )
        )
        (group,) = tools("share-groups --describe --json", "--group", "sharing")
    assert {"group", "state", "coordinator", "members", "offsets"} <= group.keys()
    (listed,) = tools("share-groups --list --json")
    assert listed["group_id"] == "sharing"
    assert (
        "offsets"
        not in tools("share-groups --describe --json", "--group", "sharing", "--members")[0]
    )
    assert tools("streams-groups --list --json") == []
    assert tools("streams-groups --describe --json", "--all-groups") == []


def test_transactions(own_cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    """Ids, the state of one, the producers of a partition, hanging ones."""
    tools, servers = Tools(capsys, own_cluster.bootstrap), own_cluster.bootstrap
    with Producer(bootstrap_servers=servers, transactional_id="billing") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send_and_wait("orders", b"x", partition=0)
        (listed,) = tools("transactions list --json")
        assert listed["transactional_id"] == "billing"
        (described,) = tools("transactions describe --json", "--transactional-id", "billing")
        assert described["transaction_state"] == "Ongoing"
        assert described["topic_partitions"] == "orders-0"
        where = ("--topic", "orders", "--partition", "0")
        rows = tools("transactions describe-producers --json", *where)
        assert rows[0]["current_transaction_start_offset"] >= 0
        assert tools("transactions find-hanging --json", *where) == []
