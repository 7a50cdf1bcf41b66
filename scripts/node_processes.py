"""Three nodes in processes of their own, with links between them, for `scripts/kill_cluster.py`."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
from typing import TYPE_CHECKING

import psutil
from cluster_history import Lost
from node_links import Links

from ottla.cli.commands.dev_cluster import DevNode
from ottla.cli.commands.storage import real_environment
from ottla.config.broker import parse_broker_config
from ottla.config.properties import write_properties
from ottla.server.node.quorum_format import format_node, new_quorum

if TYPE_CHECKING:
    from pathlib import Path

NODES = 3
STOP_LIMIT_S = 40.0
_HOST = "127.0.0.1"


class Node:
    """A node in its own process, always with the same ports and directory."""

    def __init__(self, files: DevNode) -> None:
        self.files = files
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process; do not wait until it serves."""
        self.files.ready.unlink(missing_ok=True)
        with self.files.log.open("ab") as output:
            self.process = subprocess.Popen(
                [*self.files.command, "--ready-file", str(self.files.ready)],
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
        is_starting = not self.files.ready.exists()
        self.send(signal.SIGTERM)
        assert self.process is not None
        try:
            status = self.process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            raise Lost(f"node {self.files.node_id} does not stop in {STOP_LIMIT_S:.0f} s") from None
        if status and not (is_starting and status == -signal.SIGTERM):
            raise Lost(f"node {self.files.node_id} ended with status {status}")

    def check(self) -> None:
        """Check that the process has not ended."""
        if self.process is not None and self.process.poll() is not None:
            raise Lost(
                f"node {self.files.node_id} ended with status {self.process.returncode}; "
                f"see {self.files.log}"
            )


class Cluster:
    """Three nodes, each broker and controller, and what happens to them."""

    def __init__(self, directory: Path) -> None:
        ports = _free_ports(3 * NODES)
        self.links = Links(self._node_at)
        numbers = range(1, NODES + 1)
        self._ports = dict(zip(numbers, zip(ports[::3], ports[1::3], strict=True), strict=True))
        """The ports on which a node listens to other brokers and controllers."""
        self._advertised = {
            node: tuple(self.links.open(node, port) for port in own)
            for node, own in self._ports.items()
        }
        self._files = [
            DevNode(node, ports[3 * node - 1], self._advertised[node][1], directory)
            for node in numbers
        ]
        self.nodes = [Node(one) for one in self._files]
        self.bootstrap = ",".join(one.address for one in self._files)

    def format(self) -> None:
        """Write the settings and format the directories."""
        quorum = None
        for one in self._files:
            config = self._settings(one)
            one.directory.mkdir(parents=True)
            one.settings.write_text(write_properties(config), encoding="utf-8")
            (one.directory / "data").mkdir()
            target = real_environment(parse_broker_config(config), quiet=True)
            if quorum is None:
                endpoints = {each.node_id: (_HOST, each.controller_port) for each in self._files}
                quorum = new_quorum(endpoints, target.new_uuid, now_ms=target.now_ms)
            format_node(config, quorum, target.directories, target.new_uuid)

    def _settings(self, node: DevNode) -> dict[str, str]:
        return {
            "node.id": str(node.node_id),
            "process.roles": "broker,controller",
            "listeners": self._listeners(node, self._ports[node.node_id]),
            "advertised.listeners": self._listeners(node, self._advertised[node.node_id]),
            "listener.security.protocol.map": ",".join(
                f"{one}:PLAINTEXT" for one in ("PLAINTEXT", "NODES", "CONTROLLER")
            ),
            "inter.broker.listener.name": "NODES",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": ",".join(
                f"{_HOST}:{one.controller_port}" for one in self._files
            ),
            "log.dirs": str(node.directory / "data"),
            "broker.session.timeout.ms": "4000",
            "broker.heartbeat.interval.ms": "500",
            "replica.lag.time.max.ms": "3000",
            "log.segment.bytes": "1048576",
            "metadata.log.max.record.bytes.between.snapshots": "20000",
        }

    def _listeners(self, node: DevNode, ports: tuple[int, ...]) -> str:
        brokers, controllers = ports
        return (
            f"PLAINTEXT://{node.address},NODES://{_HOST}:{brokers},"
            f"CONTROLLER://{_HOST}:{controllers}"
        )

    def _node_at(self, port: int) -> int | None:
        """Return the node that has a connection from this local port."""
        for node in self.nodes:
            assert node.process is not None
            with contextlib.suppress(psutil.Error):
                for one in psutil.Process(node.process.pid).net_connections("tcp4"):
                    if one.laddr.port == port:
                        return node.files.node_id
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
            for one in self._files
        }


def _free_ports(count: int) -> list[int]:
    """Return ports that are free now and differ."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind((_HOST, 0))
        return [int(one.getsockname()[1]) for one in sockets]
    finally:
        for one in sockets:
            one.close()
