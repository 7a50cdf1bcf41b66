"""The files and ports of a cluster of several real nodes, chosen before the first start.

Kafka: org.apache.kafka.common.test.TestKitNodes.
"""

from __future__ import annotations

import json
import secrets
import shutil
import socket
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla.testing.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Mapping

CONTROLLER: Final = "CONTROLLER"
_ADDRESSES: Final = "cluster.json"
_PORT_RANGE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_FIRST_PORT: Final = 10_000
_DEFAULT_END: Final = 32_768


def node_directory(data_dir: str, node_id: int) -> str:
    """Return a node's directory in that of its cluster."""
    return str(Path(data_dir) / f"node-{node_id}")


class ClusterFiles:
    """The cluster's directory, with one per node and a file of the nodes' addresses."""

    def __init__(self, data_dir: str, nodes: int) -> None:
        self._root = Path(data_dir)
        self._nodes = nodes

    def prepare(self, config: Mapping[str, str]) -> tuple[dict[int, str], bool]:
        """Return `listeners` by node id, and whether this call formatted the cluster."""
        kept = self._root / _ADDRESSES
        if not kept.exists():
            listeners = free_listeners(config["listeners"], self._nodes)
            self._format(config, listeners)
            kept.write_text(json.dumps(listeners))
            return listeners, True
        found = {int(node_id): text for node_id, text in json.loads(kept.read_text()).items()}
        if len(found) != self._nodes:
            raise ClusterError(f"{self._root} has {len(found)} nodes: give nodes={len(found)}")
        return found, False

    def config_of(
        self, node_id: int, config: Mapping[str, str], listeners: Mapping[int, str]
    ) -> dict[str, str]:
        """Return a node's settings; the controllers of all nodes are the voters."""
        quorum = [endpoint_of(text, CONTROLLER) for text in listeners.values()]
        return {
            **config,
            "node.id": str(node_id),
            "listeners": listeners[node_id],
            "controller.quorum.bootstrap.servers": ",".join(f"{h}:{p}" for h, p in quorum),
        }

    def _format(self, config: Mapping[str, str], listeners: Mapping[int, str]) -> None:
        from ottla.server.node.format import format_node, new_quorum
        from ottla.server.system.files import RealDirectory
        from ottla.server.system.process import random_uuid

        endpoints = {one: endpoint_of(text, CONTROLLER) for one, text in listeners.items()}
        quorum = new_quorum(endpoints, random_uuid, now_ms=time.time_ns() // 1_000_000)
        for node_id in listeners:
            path = node_directory(str(self._root), node_id)
            own = {**self.config_of(node_id, config, listeners), "log.dirs": path}
            format_node(own, quorum, {path: RealDirectory(path, create=True)}, random_uuid)

    def remove(self) -> None:
        """Remove the files of `prepare`."""
        for node_id in range(1, self._nodes + 1):
            shutil.rmtree(node_directory(str(self._root), node_id), ignore_errors=True)
        (self._root / _ADDRESSES).unlink(missing_ok=True)


def endpoint_of(listeners: str, name: str) -> tuple[str, int]:
    """Return host and port of one of the `listeners`."""
    for entry in listeners.split(","):
        found, _, rest = entry.strip().partition("://")
        if found == name:
            host, _, port = rest.rpartition(":")
            return host.strip("[]"), int(port)
    raise ClusterError(f"listeners: {listeners} has no {name}")


def free_listeners(listeners: str, nodes: int) -> dict[int, str]:
    """Return `listeners` with a free port for each node and each 0."""
    found = {}
    with ExitStack() as held:
        for node_id in range(1, nodes + 1):
            entries = []
            for entry in listeners.split(","):
                name, _, rest = entry.strip().partition("://")
                host, _, port = rest.rpartition(":")
                if int(port):
                    raise ClusterError(f"listeners: {entry.strip()}: several nodes need port 0")
                entries.append(f"{name}://{host}:{_free_port(host, held)}")
            found[node_id] = ",".join(entries)
    return found


def _free_port(host: str, held: ExitStack) -> int:
    """Return a free port outside the range of ephemeral ports.

    A client that reconnects to a node that is down could get the node's port as its own, and would
    then be connected to itself.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for _ in range(1000):
        port = _FIRST_PORT + secrets.randbelow(_ephemeral_begin() - _FIRST_PORT)
        sock = socket.socket(family, socket.SOCK_STREAM)
        held.callback(sock.close)
        try:
            sock.bind((host.strip("[]"), port))
        except OSError:
            continue
        return port
    raise ClusterError(f"no free port on {host}")


def _ephemeral_begin() -> int:
    try:
        begin = int(_PORT_RANGE.read_text().split()[0])
    except (OSError, ValueError):
        begin = _DEFAULT_END
    return begin if begin > _FIRST_PORT + 1000 else _DEFAULT_END
