"""Clusters of nodes in processes of their own, of Ottla, of Kafka or of both, with their links.

Kafka: none.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, NamedTuple

import psutil

from ottla.config.properties import write_properties
from ottla.types import Uuid
from tests.conformance.clusters.history import Lost
from tests.conformance.clusters.links import Links
from tests.conformance.kafka import Kafka, answers
from tests.ports import free_ports

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

STOP_LIMIT_S = 40.0
_HOST = "127.0.0.1"


class Member(NamedTuple):
    """What a node is: an Ottla or a Kafka node, and its roles."""

    kind: str
    roles: str = "broker,controller"

    @property
    def is_broker(self) -> bool:
        """Whether it has partitions."""
        return "broker" in self.roles

    @property
    def is_controller(self) -> bool:
        """Whether it votes."""
        return "controller" in self.roles


OTTLA, KAFKA = Member("ottla"), Member("kafka")
LATER = {"controller.quorum.fetch.timeout.ms": "2600"}
"""Of the only voter of its kind. When the leader is dead, the voter that notices it first asks for
a pre-vote, which the other refuses; and grants the other's, which notices 0.6 s later."""


class Node:
    """A node in its own process, always with the same ports and directory."""

    def __init__(self, node_id: int, member: Member, directory: Path, command: list[str]) -> None:
        self.node_id = node_id
        self.member = member
        self.directory = directory
        self.ports = free_ports(3)
        """Of clients, of other brokers, of the quorum."""
        self.process: subprocess.Popen[bytes] | None = None
        self.command = command

    @property
    def settings(self) -> Path:
        """The server.properties."""
        return self.directory / "server.properties"

    @property
    def log(self) -> Path:
        """What the process printed."""
        return self.directory / "server.log"

    @property
    def _ready(self) -> Path:
        return self.directory / "ready.json"

    @property
    def address(self) -> str:
        """host:port for clients."""
        return f"{_HOST}:{self.ports[0]}"

    @property
    def is_ready(self) -> bool:
        """Whether the process serves; Kafka's opens its port when it does."""
        if self.member.kind == "ottla":
            return self._ready.exists()
        return answers(self.ports[0] if self.member.is_broker else self.ports[2])

    @property
    def is_running(self) -> bool:
        """Whether the process was started and has not ended."""
        return self.process is not None and self.process.poll() is None

    def start(self) -> None:
        """Start the process; do not wait until it serves."""
        self._ready.unlink(missing_ok=True)
        ready = ["--ready-file", str(self._ready)] if self.member.kind == "ottla" else []
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                [*self.command, str(self.settings), *ready],
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process."""
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        """Kill the process with SIGKILL."""
        self.send(signal.SIGKILL)
        assert self.process is not None
        self.process.wait()

    def stop(self) -> None:
        """Stop the process cleanly; one that has just been started may not handle signals yet."""
        is_starting = not self.is_ready
        self.send(signal.SIGTERM)
        assert self.process is not None
        try:
            status = self.process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            raise Lost(f"node {self.node_id} does not stop in {STOP_LIMIT_S:.0f} s") from None
        expected = {0, 128 + signal.SIGTERM} if self.member.kind == "kafka" else {0}
        if status not in expected and not (is_starting and status == -signal.SIGTERM):
            raise Lost(f"node {self.node_id} ended with status {status}")

    def check(self) -> None:
        """Check that the process has not ended."""
        if self.process is not None and not self.is_running:
            raise Lost(
                f"node {self.node_id} ended with status {self.process.returncode}; see {self.log}"
            )


class Cluster:
    """Nodes 1, 2, … and what happens to them."""

    def __init__(
        self,
        directory: Path,
        members: Sequence[Member] = (OTTLA,) * 3,
        kafka: Kafka | None = None,
        *,
        has_links: bool = True,
    ) -> None:
        self._kafka = kafka
        self.nodes = [
            Node(number, one, directory / f"node-{number}", self._command(one))
            for number, one in enumerate(members, 1)
        ]
        self._advertised = {one.node_id: one.ports for one in self.nodes}
        if has_links:
            self.links = Links(self._node_at)
            self._advertised = {
                node: [ports[0], *(self.links.open(node, one) for one in ports[1:])]
                for node, ports in self._advertised.items()
            }
        self.bootstrap = ",".join(one.address for one in self.brokers)

    @property
    def controllers(self) -> str:
        """The addresses of the quorum."""
        return ",".join(
            f"{_HOST}:{self._advertised[one.node_id][2]}"
            for one in self.nodes
            if one.member.is_controller
        )

    @property
    def brokers(self) -> list[Node]:
        """The nodes that have partitions."""
        return [one for one in self.nodes if one.member.is_broker]

    def node(self, node_id: int) -> Node:
        """Return the node of this id."""
        return self.nodes[node_id - 1]

    def _command(self, member: Member) -> list[str]:
        if member.kind == "ottla":
            return [sys.executable, "-m", "ottla", "server-start"]
        assert self._kafka is not None
        return self._kafka.command("kafka.Kafka")

    def replace(self, node: Node, kind: Member) -> None:
        """Stop a node cleanly and start one of the other kind on its directory, with its roles."""
        node.stop()
        node.member = kind._replace(roles=node.member.roles)
        node.command = self._command(node.member)
        node.start()

    def format(self, settings_of: Mapping[int, Mapping[str, str]] | None = None) -> None:
        """Write the settings and format the directories, each with the tool of its node.

        Nodes have settings of their own by their number.
        """
        cluster_id = _new_id()
        voters = ",".join(
            f"{one.node_id}@{_HOST}:{self._advertised[one.node_id][2]}:{_new_id()}"
            for one in self.nodes
            if one.member.is_controller
        )
        for one in self.nodes:
            one.directory.mkdir(parents=True)
            config = self._settings(one) | dict((settings_of or {}).get(one.node_id, {}))
            one.settings.write_text(write_properties(config), encoding="utf-8")
            words = ["format", "-t", cluster_id, "-c", str(one.settings)]
            if one.member.is_controller:
                words += ["--initial-controllers", voters]
            if one.member.kind == "ottla":
                command = [sys.executable, "-m", "ottla", "storage", *words]
                subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            else:
                assert self._kafka is not None
                self._kafka.run("kafka.tools.StorageTool", *words)

    def _settings(self, node: Node) -> dict[str, str]:
        return {
            "node.id": str(node.node_id),
            "process.roles": node.member.roles,
            "listeners": _listeners(node, node.ports),
            "advertised.listeners": _listeners(node, self._advertised[node.node_id]),
            "listener.security.protocol.map": ",".join(
                f"{one}:PLAINTEXT" for one in ("PLAINTEXT", "NODES", "CONTROLLER")
            ),
            "inter.broker.listener.name": "NODES",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": self.controllers,
            "log.dirs": str(node.directory / "data"),
            "broker.session.timeout.ms": "4000",
            "broker.heartbeat.interval.ms": "500",
            "replica.lag.time.max.ms": "3000",
            "log.segment.bytes": "1048576",
            "metadata.log.max.record.bytes.between.snapshots": "20000",
            "default.replication.factor": "3",
            "min.insync.replicas": "2",
            "offsets.topic.num.partitions": "5",
            "transaction.state.log.num.partitions": "5",
            "group.initial.rebalance.delay.ms": "0",
            "group.consumer.min.heartbeat.interval.ms": "100",
            "group.consumer.heartbeat.interval.ms": "300",
        }

    def start(self) -> None:
        """Start all nodes; do not wait until they serve."""
        for one in self.nodes:
            one.start()

    def stop(self) -> None:
        """Stop all nodes cleanly, controllers last; Kafka's last broker would wait for a quorum."""
        order = ("broker", "broker,controller", "controller")
        *first, last = sorted(
            self.nodes, key=lambda one: (order.index(one.member.roles), -one.node_id)
        )
        for one in first:
            one.stop()
        if last.member.kind == "kafka":
            last.kill()
        else:
            last.stop()

    def kill(self) -> None:
        """Kill what still runs."""
        for one in self.nodes:
            if one.is_running:
                one.kill()

    def _node_at(self, port: int) -> int | None:
        """Return the node that has a connection from this local port."""
        for node in self.nodes:
            if node.process is None:
                continue
            with contextlib.suppress(psutil.Error):
                for one in psutil.Process(node.process.pid).net_connections("tcp"):
                    if one.laddr.port == port:
                        return node.node_id
        return None

    def check(self) -> None:
        """Check that no process has ended by itself."""
        for one in self.nodes:
            one.check()

    def files_of(self, topic: str, partition: int) -> dict[int, bytes]:
        """Return the log of each replica, its segments joined."""
        return {
            one.node_id: b"".join(
                path.read_bytes()
                for path in sorted((one.directory / "data" / f"{topic}-{partition}").glob("*.log"))
            )
            for one in self.brokers
        }


def _listeners(node: Node, ports: Sequence[int]) -> str:
    """Return those of the node's roles, at these ports."""
    clients, brokers, controllers = ports
    found = []
    if node.member.is_broker:
        found += [f"PLAINTEXT://{_HOST}:{clients}", f"NODES://{_HOST}:{brokers}"]
    if node.member.is_controller:
        found.append(f"CONTROLLER://{_HOST}:{controllers}")
    return ",".join(found)


def _new_id() -> str:
    return str(Uuid.drawn(lambda: os.urandom(16)))
