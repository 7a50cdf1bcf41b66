"""What the banner says of how the node runs."""

from __future__ import annotations

import socket

import pytest

from ottla.config.broker import parse_broker_config
from ottla.server.node import startup
from ottla.server.node.listeners import BoundPorts
from ottla.server.node.startup import Banner
from ottla.server.system.ports import PortTaken
from ottla.server.system.real import RealEnvironment

BANNER = Banner(1, "MkU3OEVBNTcwNTJENDM2Qg", "localhost:9092", "./ottla-data", True, 0)


def test_the_banner_says_when_nothing_was_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the compiled modules the node is slower, and says so in its first line."""
    monkeypatch.setattr(startup, "uncompiled_modules", tuple)
    compiled = BANNER.lines()[0]
    monkeypatch.setattr(startup, "uncompiled_modules", lambda: ("ottla.records.scan",))
    assert "not compiled" in BANNER.lines()[0]
    assert BANNER.lines()[0].startswith(compiled.partition(", not")[0])
    assert len(BANNER.lines()) <= 6


def test_the_banner_proposes_what_works() -> None:
    """A first topic where there is none; the topics where there are some, as after a restart."""
    topics = "next      ottla topics --bootstrap-server localhost:9092"
    assert BANNER.lines()[-1] == f"{topics} --create --topic events"
    assert BANNER._replace(is_new=False, topic_count=1).lines()[-1] == f"{topics} --describe"


def test_the_banner_of_a_controller_proposes_what_works_there() -> None:
    """Topic commands do not."""
    last = BANNER._replace(is_broker=False, bootstrap="localhost:9093").lines()[-1]
    place = "--bootstrap-controller localhost:9093"
    assert last == f"next      ottla metadata-quorum {place} describe --status"


def test_the_banner_of_a_secured_node_names_the_settings_of_the_tool() -> None:
    """Without them the command would speak plaintext to a TLS listener."""
    last = BANNER._replace(is_plain=False).lines()[-1]
    assert "--bootstrap-server localhost:9092 --command-config FILE --create" in last
    secured = BANNER._replace(is_plain=False, is_broker=False).lines()[-1]
    assert "--bootstrap-controller localhost:9092 --command-config FILE describe" in secured


def test_a_free_port_is_none_that_the_node_needs_itself() -> None:
    """The controller has the next port in Kafka's files: both listeners got 9093."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        taken = holder.getsockname()[1]
        config = parse_broker_config(
            {
                "node.id": "1",
                "process.roles": "broker,controller",
                "listeners": f"PLAINTEXT://127.0.0.1:{taken},CONTROLLER://127.0.0.1:{taken + 1}",
                "controller.listener.names": "CONTROLLER",
                "controller.quorum.bootstrap.servers": "localhost:9093",
                "metrics.listener": f"127.0.0.1:{taken + 2}",
            }
        )
        with pytest.raises(PortTaken) as refused:
            BoundPorts(config, RealEnvironment())
    assert refused.value.port not in {taken, taken + 1, taken + 2}
    (listeners,) = refused.value.overrides
    assert listeners.endswith(f":{refused.value.port},CONTROLLER://127.0.0.1:{taken + 1}")
