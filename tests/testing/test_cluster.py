"""Tests of `Cluster` with several nodes: real sockets, threads and files."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from ottla import Admin
from ottla.clients.admin.configs import ConfigResource, ResourceType
from ottla.testing import cluster_files
from ottla.testing.cluster import Cluster
from ottla.testing.cluster_files import CONTROLLER, ClusterFiles, endpoint_of, free_listeners
from ottla.testing.errors import ClusterError
from ottla.testing.kafka import Kafka
from tests.waits import WAIT_S

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

LISTENERS = f"PLAINTEXT://127.0.0.1:0,{CONTROLLER}://127.0.0.1:0"


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of the module's cluster."""
    return tmp_path_factory.mktemp("cluster")


@pytest.fixture(scope="module")
def three(data_dir: Path) -> Iterator[Kafka]:
    """Give three nodes."""
    with Cluster(nodes=3, data_dir=str(data_dir)) as cluster, Kafka(cluster) as kafka:
        yield kafka


def _controller(kafka: Kafka) -> int:
    cluster = kafka.cluster
    assert isinstance(cluster, Cluster)
    kafka.wait(lambda: cluster.controller_id is not None, WAIT_S, lambda: "no controller")
    found = cluster.controller_id
    assert found is not None
    return found


def test_three_nodes_serve_a_topic(three: Kafka) -> None:
    """Its leader is one of them, whichever node a client asks."""
    cluster = three.cluster
    assert isinstance(cluster, Cluster)
    orders = three.topic("orders", partitions=6).produce(["a", "b"], partition=5)
    assert orders.values() == ["a", "b"]
    assert {cluster.leader(orders, number) for number in range(6)} == {1, 2, 3}
    assert three.bootstrap == ",".join(one.address for one in cluster.nodes)
    with pytest.raises(ClusterError, match=f"there is no partition {orders}-6"):
        cluster.leader(orders, 6)
    with pytest.raises(ClusterError, match="there is no node 4: the cluster has nodes 1, 2, 3"):
        three.kill(4)


@pytest.mark.parametrize("asked", [1, 2, 3])
def test_every_controller_names_the_active_one(three: Kafka, asked: int) -> None:
    """A client that begins with any of them sends changes to the one that makes them."""
    active, cluster = _controller(three), three.cluster
    assert isinstance(cluster, Cluster)
    host, port = cluster.node(asked).run(lambda node: node.addresses[CONTROLLER])
    with Admin(bootstrap_controllers=f"{host}:{port}") as admin:
        described = admin.describe_cluster()
        assert [one.node_id for one in described.brokers] == [1, 2, 3]
        assert described.controller is not None
        assert described.controller.node_id == active
        everywhere = ConfigResource(ResourceType.BROKER, "")
        assert admin.alter_configs({everywhere: {"log.cleaner.threads": "1"}}) == {everywhere: None}


def test_a_killed_controller_is_replaced(three: Kafka) -> None:
    """And comes back on its address."""
    first = _controller(three)
    before = three.bootstrap
    three.kill(first)
    assert _controller(three) != first
    created = three.topic("meanwhile", partitions=3)  # the dead broker is not fenced yet
    three.start(first)
    created.produce("value").expect(value="value").exactly(1)
    assert three.bootstrap == before


def test_a_paused_controller_is_replaced(three: Kafka) -> None:
    """It follows when it goes on; a paused node can be killed."""
    cluster = three.cluster
    assert isinstance(cluster, Cluster)
    first = _controller(three)
    three.pause(first)
    with pytest.raises(ClusterError, match=f"node {first} is paused"):
        cluster.node(first).run(lambda node: node.cluster_id)
    assert _controller(three) != first
    three.resume(first)
    three.wait(
        lambda: not cluster.node(first).run(lambda node: node.controller.active),
        WAIT_S,
        lambda: "the old controller does not follow",
    )
    three.pause(first)
    three.kill(first)
    three.start(first)


@pytest.mark.soak
def test_a_later_cluster_has_data_and_ports_of_the_earlier(three: Kafka, data_dir: Path) -> None:
    """The voters of the quorum are known by their ports."""
    orders = three.topic("kept").produce("value")
    cluster = three.cluster
    assert isinstance(cluster, Cluster)
    before = three.bootstrap
    cluster.shutdown()
    with pytest.raises(ClusterError, match="has 3 nodes: give nodes=3"):
        Cluster(nodes=2, data_dir=str(data_dir)).start()
    with Cluster(nodes=3, data_dir=str(data_dir)) as later:
        assert later.bootstrap == before
        assert later.leader(orders) is not None
    assert not later.is_running
    assert cluster.start().bootstrap == before


def test_a_port_that_was_taken_meanwhile_is_exchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is left of the attempt."""
    asked: list[Mapping[int, str]] = []
    with socket.create_server(("127.0.0.1", 0)) as taken:

        def free(listeners: str, nodes: int) -> Mapping[int, str]:
            found = free_listeners(listeners, nodes)
            if not asked:
                host = "127.0.0.1"
                number = endpoint_of(found[2], CONTROLLER)[1]
                port = taken.getsockname()[1]
                found[2] = found[2].replace(f"{host}:{number}", f"{host}:{port}")
            asked.append(found)
            return found

        monkeypatch.setattr(cluster_files, "free_listeners", free)
        with Cluster(nodes=2, data_dir=str(tmp_path)) as cluster:
            assert len(asked) == 2
            assert cluster.nodes[1].config["listeners"] == asked[1][2]
        assert sorted(one.name for one in tmp_path.iterdir()) == [
            "cluster.json",
            "node-1",
            "node-2",
        ]


def test_each_node_has_ports_of_its_own() -> None:
    """Below those that the system gives to outgoing connections."""
    found = free_listeners(LISTENERS, 3)
    ports = {
        endpoint_of(text, name)[1] for text in found.values() for name in ("PLAINTEXT", CONTROLLER)
    }
    assert len(ports) == 6
    assert all(10_000 <= port < 65_536 for port in ports)


def test_a_directory_is_formatted_once(tmp_path: Path) -> None:
    """With one cluster id and the same voters for all nodes."""
    files = ClusterFiles(str(tmp_path), 3)
    config = {
        "process.roles": "broker,controller",
        "listeners": LISTENERS,
        "controller.listener.names": CONTROLLER,
    }
    listeners, is_new = files.prepare(config)
    assert is_new
    assert files.prepare(config) == (listeners, False)
    properties = [(tmp_path / f"node-{n}" / "meta.properties").read_text() for n in (1, 2, 3)]
    ids = {line for text in properties for line in text.splitlines() if "cluster.id" in line}
    assert len(ids) == 1
    files.remove()
    assert list(tmp_path.iterdir()) == []
