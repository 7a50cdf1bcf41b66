"""Policies as Python classes: loaded by dotted path, applied, closed; Java names are refused."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from ottla.config.broker import parse_broker_config
from ottla.config.problems import ConfigErrors
from ottla.errors import ConfigError, ErrorCode
from ottla.protocol.apis.create_topics import CreateTopicsRequest
from ottla.server.node import plugins
from ottla.server.node.plugins import PluginError, load_class, plugin_problems
from ottla.server.node.settings import node_settings
from ottla.server.system.ports import PortTaken
from ottla.storage.remote.managers.directory import DirectoryStorage
from ottla.storage.remote.storage_manager import RetriableRemoteStorageError
from ottla.testing.cluster import Cluster
from ottla.testing.disk import SimulatedDisk
from tests.controller.harness import PROPERTIES, topic
from tests.server.node.policies import NoForbiddenTopics
from tests.server.node.receivers import Receiver
from tests.server.node.test_setting_answers import TOPIC, alter
from tests.server.requests.untrusted_clients import Peer

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

TOPICS = "tests.server.node.policies.NoForbiddenTopics"
POLICIES = {
    "create.topic.policy.class.name": TOPICS,
    "alter.config.policy.class.name": "tests.server.node.policies.NoGuardedChanges",
}


def test_policies_are_obeyed_and_closed() -> None:
    """A topic and a change are refused with the policy's words; others pass; both are closed."""
    closed = NoForbiddenTopics.closed
    with Cluster(config=POLICIES) as cluster:
        peer = Peer(cluster.bootstrap)
        topics = [topic("forbidden", 2), topic("guarded"), topic("broken")]
        results = peer.ask(CreateTopicsRequest(topics=topics), 7).topics
        assert [one.error_code for one in results] == [ErrorCode.POLICY_VIOLATION, 0, -1]
        assert results[0].error_message == "forbidden 2 1 null {}"
        refused = alter(peer, TOPIC, "guarded", **{"retention.ms": "5"})
        assert refused == (ErrorCode.POLICY_VIOLATION, "TOPIC guarded {retention.ms=5}")
        assert NoForbiddenTopics.settings["process.roles"] == "broker,controller"
    assert NoForbiddenTopics.closed == closed + 1


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("org.acme.kafka.TopicPolicy", "class org.acme.kafka.TopicPolicy cannot be loaded"),
        ("TopicPolicy", "class TopicPolicy cannot be loaded"),
        ("tests.server.node.policies.Nothing", "cannot be loaded"),
        ("tests.server.node.ends_when_imported.Policy", "cannot be loaded (not today)"),
        ("lib2to3.__main__.Policy", "cannot be loaded (lib2to3.__main__ holds no plug-ins)"),
        ("tests.__main__.Policy", "cannot be loaded (tests.__main__ holds no plug-ins)"),
        ("tests.server.node.policies.NoPolicy", "it lacks: configure, validate, close"),
        ("tests.server.node.policies.annotations", "is not a class"),
    ],
)
def test_what_cannot_be_loaded_is_refused_by_name(name: str, text: str, tmp_path: Path) -> None:
    """Every setting is told at once, before anything is opened."""
    given = dict.fromkeys(POLICIES, name)
    config = parse_broker_config({**PROPERTIES, **given})
    found = list(plugin_problems(config))
    assert [one.name for one in found] == list(POLICIES)
    assert all(text in one.message and name in one.message for one in found)
    with pytest.raises(ConfigErrors, match=name):
        node_settings(None, given)
    with pytest.raises(PluginError):
        Cluster(config=given, data_dir=str(tmp_path)).start()


def test_a_package_can_stand_for_a_java_class(monkeypatch: pytest.MonkeyPatch) -> None:
    """The entry point's name is Java's, what it points to is loaded."""
    known = {"org.acme.TopicPolicy": TOPICS}

    def counterparts() -> Mapping[str, str]:
        return known

    monkeypatch.setattr(plugins, "java_counterparts", counterparts)
    assert load_class("org.acme.TopicPolicy") is NoForbiddenTopics
    config = parse_broker_config({**PROPERTIES, **dict.fromkeys(POLICIES, "org.acme.TopicPolicy")})
    assert not list(plugin_problems(config))


TIERS = {
    "remote.log.storage.system.enable": "true",
    "rsm.config.dir": "/tier",
    "rsm.config.other": "5",
}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("io.aiven.kafka.tieredstorage.RemoteStorageManager", "cannot be loaded"),
        (TOPICS, "it lacks: copy_segment, read_segment, read_index, delete_segment"),
        ("", "tiered storage needs the class of a storage manager"),
    ],
)
def test_a_storage_manager_without_counterpart_is_refused_by_name(name: str, text: str) -> None:
    """Another Java class may have another layout; without tiered storage none is loaded."""
    given = {plugins.STORAGE_MANAGER: name} if name else {}
    (found,) = plugin_problems(parse_broker_config({**PROPERTIES, **TIERS, **given}))
    assert found.message.startswith(f"{plugins.STORAGE_MANAGER}: ")
    assert text in found.message
    assert not list(plugin_problems(parse_broker_config({**PROPERTIES, **given})))


def test_settings_of_remote_metadata_are_checked() -> None:
    """By their whole names, when tiered storage is enabled."""
    name = "rlmm.config.remote.log.metadata.topic.num.partitions"
    given = {**TIERS, plugins.STORAGE_MANAGER: "directory", name: "0"}
    (problem,) = plugin_problems(parse_broker_config({**PROPERTIES, **given}))
    assert problem.name == name
    assert "Value must be at least 1" in problem.message


def test_settings_of_remote_metadatas_clients_are_checked() -> None:
    """As in Kafka, whose clients do not start with them; what the broker sets is not missed."""
    prefix = "rlmm.config.remote.log.metadata."
    given = {
        f"{prefix}producer.acks": "some",
        f"{prefix}common.client.retry.backoff.ms": "-1",
        f"{prefix}consumer.fetch.max.wait.ms": "soon",
        f"{prefix}consumer.max.poll.records": "7",
    }
    config = {**PROPERTIES, **TIERS, plugins.STORAGE_MANAGER: "directory", **given}
    found = {problem.name for problem in plugin_problems(parse_broker_config(config))}
    assert found == {*given} - {f"{prefix}consumer.max.poll.records"}


@pytest.mark.parametrize(
    "name",
    [
        "directory",
        "ottla.storage.remote.managers.directory.DirectoryStorage",
        "org.apache.kafka.server.log.remote.storage.LocalTieredStorage",
    ],
)
def test_storage_managers_are_known_by_several_names(name: str) -> None:
    """A short name, the dotted path, and Kafka's class with the same layout."""
    disk = SimulatedDisk()
    config = parse_broker_config({**PROPERTIES, **TIERS, plugins.STORAGE_MANAGER: name})
    assert not list(plugin_problems(config))

    def opened(path: str) -> SimulatedDisk:
        assert path == "/tier"
        return disk

    assert issubclass(plugins.load_storage_class(name), DirectoryStorage)
    plugins.load_storage_manager(config, opened, "cluster").connect()
    other = plugins.load_storage_manager(config, opened, "other")
    with pytest.raises(ConfigError, match="remote storage of cluster cluster, not of other"):
        other.connect()
    with pytest.raises(RetriableRemoteStorageError, match="has not answered since the start"):
        other.delete_segment(None)  # type: ignore[arg-type] # it is not reached
    other.close()


def test_kafkas_own_reporter_needs_nothing() -> None:
    """JmxReporter, the default, is done by the metrics endpoint; others are refused by name."""
    assert not list(plugin_problems(parse_broker_config(PROPERTIES)))
    given = {"metric.reporters": "org.acme.Reporter"}
    found = list(plugin_problems(parse_broker_config({**PROPERTIES, **given})))
    assert "metric.reporters: class org.acme.Reporter cannot be loaded" in found[0].message


def test_a_plugin_that_cannot_be_configured_keeps_the_node_from_starting(tmp_path: Path) -> None:
    """Its name and its reason are told, and the ports are free again."""
    name = "tests.server.node.policies.Moody"
    config = {"create.topic.policy.class.name": name}
    with pytest.raises(PluginError, match=f"{name} cannot be configured: not today"):
        Cluster(config=config, data_dir=str(tmp_path)).start()


def test_plugins_are_closed_when_the_start_fails(tmp_path: Path) -> None:
    """For a port that is taken, and for the second policy."""
    closed, open_count = NoForbiddenTopics.closed, Receiver.open_count
    with socket.create_server(("127.0.0.1", 0)) as taken:
        metrics = f"127.0.0.1:{taken.getsockname()[1]}"
        config = POLICIES | {
            "metric.reporters": "tests.server.node.receivers.Receiver",
            "metrics.listener": metrics,
        }
        with pytest.raises(PortTaken):
            Cluster(config=config, data_dir=str(tmp_path)).start()
    assert NoForbiddenTopics.closed == closed + 1
    moody = POLICIES | {"alter.config.policy.class.name": "tests.server.node.policies.Moody"}
    with pytest.raises(PluginError, match="not today"):
        Cluster(config=moody, data_dir=str(tmp_path)).start()
    assert NoForbiddenTopics.closed == closed + 2
    assert Receiver.open_count == open_count
