"""What clients are told about a node's listeners."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from ottla.protocol.apis.metadata import MetadataRequest
from ottla.server.system.ports import PortTaken
from ottla.server.system.process import own_host_name
from ottla.testing.cluster import Cluster
from tests.server.requests.untrusted_clients import Peer

if TYPE_CHECKING:
    from collections.abc import Callable


def _told(config: dict[str, str]) -> tuple[str, int, int]:
    """Start a node; return the host and port that clients are told, and the port it listens on."""
    with Cluster(config=config) as cluster:
        port = cluster.run(lambda node: node.addresses["PLAINTEXT"][1])
        broker = Peer(f"127.0.0.1:{port}").ask(MetadataRequest(topics=[]), 12).brokers[0]
        return broker.host, broker.port, port


def test_the_advertised_port_is_told() -> None:
    """Clients behind a mapped port are sent to that port, not to the one that was bound."""
    told = _told({"advertised.listeners": "PLAINTEXT://node.example:29092"})
    assert told[:2] == ("node.example", 29092)
    assert told[2] != 29092


def test_a_listener_on_every_interface_is_advertised_by_the_host_name() -> None:
    """As in Kafka; localhost would not reach it from another machine."""
    host, told, bound = _told({"listeners": "PLAINTEXT://:0,CONTROLLER://127.0.0.1:0"})
    assert (host, told) == (own_host_name(), bound)


@pytest.mark.parametrize(
    ("advertised", "expected"),
    [
        (
            "PLAINTEXT://127.0.0.1:0,CONTROLLER://controller.example:19093",
            ("controller.example", 19093),
        ),
        ("PLAINTEXT://127.0.0.1:0", None),
    ],
)
def test_the_quorum_is_told_the_advertised_address_of_a_controller(
    advertised: str, expected: tuple[str, int] | None
) -> None:
    """As in Kafka, voters and controller registrations have it; else where it listens."""
    with Cluster(config={"advertised.listeners": advertised}) as cluster:
        bound = cluster.run(lambda node: node.addresses["CONTROLLER"])
        voters = cluster.run(lambda node: list(node.controller.quorum.voters))
        (registered,) = cluster.run(lambda node: node.controller.image.cluster.controllers.values())
    (end,) = voters[0].endpoints
    assert (end.host, end.port) == (expected or bound)
    address = registered.listeners["CONTROLLER"]
    assert (address.host, address.port) == (expected or bound)


def _raise(*_: object) -> str:
    raise OSError("unknown host")


@pytest.mark.parametrize(
    ("by_name", "by_address", "expected"),
    [
        (lambda _: "10.0.0.7", lambda _: ("box.example", [], []), "box.example"),
        (lambda _: "10.0.0.7", _raise, "10.0.0.7"),
        (_raise, _raise, "localhost"),
    ],
)
def test_own_name(
    monkeypatch: pytest.MonkeyPatch,
    by_name: Callable[[str], str],
    by_address: Callable[[str], object],
    expected: str,
) -> None:
    """The canonical name, the address where it has none, and localhost as the last resort."""
    monkeypatch.setattr(socket, "gethostbyname", by_name)
    monkeypatch.setattr(socket, "gethostbyaddr", by_address)
    assert own_host_name() == expected


@pytest.mark.parametrize(
    ("host", "reason"),
    [("203.0.113.9", "Cannot assign requested address"), ("a..b", "Name or service not known")],
)
def test_an_address_that_cannot_be_had_is_not_called_taken(host: str, reason: str) -> None:
    """The port is free, and the next one would fail too: the message names the cause."""
    for config in (
        {"listeners": f"PLAINTEXT://{host}:19092,CONTROLLER://127.0.0.1:0"},
        {"metrics.listener": f"{host}:19092"},
    ):
        cluster = Cluster(config=config)
        with pytest.raises(PortTaken) as told:
            cluster.start()
        cluster.stop()
        assert str(told.value).startswith(f"cannot listen on {host}:19092, see ")
        assert reason in str(told.value)
