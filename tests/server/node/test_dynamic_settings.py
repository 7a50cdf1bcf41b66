"""Settings changed while a node runs act at once, and stop to act when they are taken back."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from ottla.controller.config_operations import ConfigOperation
from ottla.errors import ErrorCode
from ottla.protocol.apis.api_versions import ApiVersionsRequest
from ottla.protocol.apis.create_topics import CreateTopicsRequest
from ottla.protocol.apis.describe_log_dirs import DescribeLogDirsRequest
from ottla.protocol.apis.incremental_alter_configs import IncrementalAlterConfigsRequest
from ottla.protocol.apis.metadata import MetadataRequest
from ottla.server.system.real import RealNetwork
from ottla.testing.cluster import Cluster
from tests.controller.harness import topic
from tests.server.node.test_setting_answers import BROKER, alter
from tests.server.requests.untrusted_clients import Peer
from tests.waits import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Run a node; every test changes settings of its own."""
    with Cluster(config={"log.retention.ms": "777000"}) as cluster:
        yield cluster


def _take_back(peer: Peer, broker: str, name: str) -> None:
    struct = IncrementalAlterConfigsRequest.AlterConfigsResource
    change = struct.AlterableConfig(name=name, config_operation=ConfigOperation.DELETE, value=None)
    resource = struct(resource_type=BROKER, resource_name=broker, configs=[change])
    answer = peer.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1)
    assert answer.responses[0].error_code == 0


def _retention_ms(cluster: Cluster) -> int:
    return cluster.run(lambda node: node.broker.replicas.get("t", 0).log.config.retention_ms)


def test_levels_of_settings(cluster: Cluster) -> None:
    """A broker's own change wins over the cluster's, that one over the file's, and back."""
    peer = Peer(cluster.bootstrap)
    peer.ask(CreateTopicsRequest(topics=[topic("t")]), 7)
    assert _retention_ms(cluster) == 777_000
    assert alter(peer, BROKER, "", **{"log.retention.ms": "1000"})[0] == 0
    assert _retention_ms(cluster) == 1000
    assert alter(peer, BROKER, "1", **{"log.retention.ms": "2000"})[0] == 0
    assert _retention_ms(cluster) == 2000
    _take_back(peer, "1", "log.retention.ms")
    assert _retention_ms(cluster) == 1000
    _take_back(peer, "", "log.retention.ms")
    assert _retention_ms(cluster) == 777_000


def test_stored_settings_are_there_after_a_restart(cluster: Cluster) -> None:
    """What was changed is in force from the first request of the next life."""
    assert alter(Peer(cluster.bootstrap), BROKER, "", **{"max.connections": "3"})[0] == 0
    cluster.restart()
    peers = [Peer(cluster.bootstrap) for _ in range(3)]
    for peer in peers:
        peer.ask(ApiVersionsRequest(), 0)
    late = Peer(cluster.bootstrap)
    peers[1].ask(ApiVersionsRequest(), 0)
    assert cluster.run(lambda node: node.connection_count) == 3
    peers[0].close()
    late.ask(ApiVersionsRequest(), 0)


def test_fewer_connections_close_the_silent_ones(cluster: Cluster) -> None:
    """A lower max.connections acts on those that are there; a higher one lets others in."""
    peers = [Peer(cluster.bootstrap) for _ in range(5)]
    for peer in peers:
        peer.ask(ApiVersionsRequest(), 0)
    struct = IncrementalAlterConfigsRequest.AlterConfigsResource
    change = struct.AlterableConfig(name="max.connections", config_operation=0, value="2")
    resource = struct(resource_type=BROKER, resource_name="", configs=[change])
    with suppress(EOFError, ConnectionError):  # the one that asks may be among the closed
        peers[4].ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1)
    assert sum(_answers(peer) for peer in peers) == 2


def _answers(peer: Peer) -> bool:
    try:
        peer.ask(ApiVersionsRequest(), 0)
    except (EOFError, ConnectionError):
        return False
    return True


def test_limits_of_an_address_and_of_a_listener(cluster: Cluster) -> None:
    """max.connections.per.ip refuses at once; an override by name or number frees an address."""
    peer = Peer(cluster.bootstrap)
    assert alter(peer, BROKER, "", **{"max.connections.per.ip": "2"})[0] == 0
    second = Peer(cluster.bootstrap)
    second.ask(ApiVersionsRequest(), 0)
    with pytest.raises((EOFError, ConnectionError)):
        Peer(cluster.bootstrap).ask(ApiVersionsRequest(), 0)
    override = {"max.connections.per.ip.overrides": "127.0.0.1:3,localhost:3"}
    assert alter(peer, BROKER, "", **override)[0] == 0
    third = Peer(cluster.bootstrap)
    third.ask(ApiVersionsRequest(), 0)
    limit = {"listener.name.plaintext.max.connections": "2"}
    with suppress(EOFError, ConnectionError):
        alter(third, BROKER, "1", **limit)
    assert sum(_answers(one) for one in (peer, second, third)) == 2


def test_names_of_addresses_are_resolved_by_a_worker(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name server that does not answer must not stop the loop."""
    threads: dict[str, str] = {}

    def resolve(_network: RealNetwork, host: str) -> set[str]:
        threads[host] = threading.current_thread().name
        return {"127.0.0.1"}

    monkeypatch.setattr(RealNetwork, "addresses_of", resolve)
    peer = Peer(cluster.bootstrap)
    override = {"max.connections.per.ip.overrides": "host.example:1"}
    assert alter(peer, BROKER, "", **override)[0] == 0

    def is_refused() -> bool:
        with suppress(EOFError, ConnectionError):
            Peer(cluster.bootstrap).ask(ApiVersionsRequest(), 0)
            return False
        return True

    wait_for(is_refused)
    assert threads["host.example"].startswith("ottla-worker")


def test_impossible_changes_are_not_stored(cluster: Cluster) -> None:
    """The broker looks at the whole before a change is stored."""
    peer = Peer(cluster.bootstrap)
    code, text = alter(peer, BROKER, "1", **{"num.io.threads": "100"})
    assert code == ErrorCode.INVALID_REQUEST
    assert "double the current value 8" in str(text)
    assert cluster.run(lambda node: dict(node.broker.image.configs.of(BROKER, "1"))) == {}


MAP = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,OTHER:PLAINTEXT"


def _listeners(cluster: Cluster, *more: str) -> dict[str, str]:
    """Return a change: the listeners that the node was started with, and more."""
    return {
        "listeners": ",".join((cluster.config["listeners"], *more)),
        "listener.security.protocol.map": MAP,
    }


def _other(cluster: Cluster) -> Peer:
    return Peer("{}:{}".format(*cluster.run(lambda node: node.addresses["OTHER"])))


def test_listeners_come_and_go() -> None:
    """A new one is served at once, also after a restart; one that is taken back ends at once."""
    with Cluster(config={"advertised.listeners": "PLAINTEXT://127.0.0.1:0"}) as cluster:
        change = _listeners(cluster, "OTHER://127.0.0.1:0")
        assert alter(Peer(cluster.bootstrap), BROKER, "1", **change)[0] == 0
        assert _other(cluster).ask(ApiVersionsRequest(), 0).error_code == 0
        cluster.restart()
        other = _other(cluster)
        assert not other.ask(MetadataRequest(topics=[]), 12).brokers, "it is not advertised"
        peer = Peer(cluster.bootstrap)
        assert len(peer.ask(MetadataRequest(topics=[]), 12).brokers) == 1
        assert alter(peer, BROKER, "1", **_listeners(cluster))[0] == 0
        assert not _answers(other)
        assert cluster.run(lambda node: sorted(node.addresses)) == ["CONTROLLER", "PLAINTEXT"]


def test_what_is_advertised_stays(cluster: Cluster) -> None:
    """Without advertised.listeners that is every listener, those that were added too."""
    peer = Peer(cluster.bootstrap)
    assert alter(peer, BROKER, "1", **_listeners(cluster, "OTHER://127.0.0.1:0"))[0] == 0
    code, text = alter(peer, BROKER, "1", **_listeners(cluster))
    assert code == ErrorCode.INVALID_REQUEST
    both = "Set(ListenerName(PLAINTEXT), ListenerName(OTHER))"
    known = "Set(ListenerName(PLAINTEXT), ListenerName(CONTROLLER))"
    assert f"Advertised listeners '{both}' must be a subset of listeners '{known}'" in str(text)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            {"listener.security.protocol.map": MAP.replace(":PLAINTEXT", ":SASL_PLAINTEXT", 1)},
            "Security protocol cannot be updated for existing listener ListenerName(PLAINTEXT)",
        ),
        (
            {"listener.name.plaintext.connections.max.reauth.ms": "5"},
            "Configs cannot be updated dynamically for existing listener ListenerName(PLAINTEXT)",
        ),
        (
            {"listener.security.protocol.map": MAP.replace("OTHER:P", "OTHER:SASL_P")},
            "GSSAPI for listener OTHER: GSSAPI needs",
        ),
    ],
)
def test_listeners_that_cannot_change(
    cluster: Cluster, change: dict[str, str], reason: str
) -> None:
    """What stays is as it was, and what is not built is not opened."""
    peer = Peer(cluster.bootstrap)
    changes = {**_listeners(cluster, "OTHER://127.0.0.1:0"), **change}
    code, text = alter(peer, BROKER, "1", **changes)
    assert code == ErrorCode.INVALID_REQUEST
    assert reason in str(text)
    assert "OTHER" not in cluster.run(lambda node: node.addresses)


def test_a_listener_whose_port_is_taken(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    """The change is stored and told about; the others go on."""
    peer = Peer(cluster.bootstrap)
    with socket.create_server(("127.0.0.1", 0)) as holder:
        held = f"OTHER://127.0.0.1:{holder.getsockname()[1]}"
        assert alter(peer, BROKER, "1", **_listeners(cluster, held))[0] == 0
        assert cluster.run(lambda node: "OTHER" in node.addresses) is False
    assert "is taken" in caplog.text
    assert peer.is_served()


def test_a_cordoned_directory_gets_no_new_partitions(tmp_path: Path) -> None:
    """The fewest partitions decide among open directories; with all cordoned nothing is made."""
    paths = [str(tmp_path / name) for name in ("one", "two")]
    with Cluster(data_dir=",".join(paths)) as cluster:
        peer = Peer(cluster.bootstrap)
        peer.ask(CreateTopicsRequest(topics=[topic("even", 4)]), 7)
        assert _counts(peer, 4) == {paths[0]: 2, paths[1]: 2}
        assert alter(peer, BROKER, "1", **{"cordoned.log.dirs": paths[1]})[0] == 0
        peer.ask(CreateTopicsRequest(topics=[topic("odd", 3)]), 7)
        assert _counts(peer, 7) == {paths[0]: 5, paths[1]: 2}
        assert alter(peer, BROKER, "1", **{"cordoned.log.dirs": "*"})[0] == 0
        dry = CreateTopicsRequest(topics=[topic("none")], validate_only=True)
        wait_for(lambda: peer.ask(dry, 7).topics[0].error_code != 0)  # the controller hears of it
        refused = peer.ask(CreateTopicsRequest(topics=[topic("none")]), 7).topics[0]
        assert refused.error_code != 0
        assert alter(peer, BROKER, "1", **{"cordoned.log.dirs": ""})[0] == 0
        wait_for(lambda: peer.ask(dry, 7).topics[0].error_code == 0)
        peer.ask(CreateTopicsRequest(topics=[topic("back", 3)]), 7)
        assert _counts(peer, 10) == {paths[0]: 5, paths[1]: 5}


def _counts(peer: Peer, total: int) -> dict[str, int]:
    """Count the partitions of each directory, once the broker has made all that were created."""
    found: dict[str, int] = {}

    def are_made() -> bool:
        answer = peer.ask(DescribeLogDirsRequest(topics=None), 5)
        for one in answer.results:
            found[one.log_dir] = sum(len(topic.partitions) for topic in one.topics)
        return sum(found.values()) == total

    wait_for(are_made)
    return found
