"""CPU of an idle node, and memory of idle connections.

    python benchmarks/idle.py [--seconds 30] [--connections 1000]

The node runs in its own process with default settings. Each connection requests API versions and
metadata once, as clients do at start, and is idle from then on.
"""

from __future__ import annotations

import argparse
import socket
import tempfile
import time
from pathlib import Path

from against_kafka.brokers import Ottla

from ottla.protocol.apis.api_versions import ApiVersionsRequest
from ottla.protocol.apis.metadata import MetadataRequest
from ottla.protocol.frames import encode_request

HELLO = (
    (ApiVersionsRequest(client_software_name="idle", client_software_version="1"), 3),
    (MetadataRequest(topics=[], allow_auto_topic_creation=False), 9),
)


def cpu_share(node: Ottla, seconds: float) -> float:
    """Return the node's use of one core in percent."""
    before = node.cpu_seconds()
    time.sleep(seconds)
    return 100 * (node.cpu_seconds() - before) / seconds


def connect(address: tuple[str, int]) -> socket.socket:
    """Open a connection and send the first requests of a client."""
    sock = socket.create_connection(address)
    for request, version in HELLO:
        sock.sendall(b"".join(encode_request(request, version, 1, "idle")))  # type: ignore[arg-type] # no files in it
        size = int.from_bytes(sock.recv(4, socket.MSG_WAITALL), "big")
        sock.recv(size, socket.MSG_WAITALL)
    return sock


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--connections", type=int, default=1000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        node = Ottla(Path(directory) / "node")
        host, _, port = node.bootstrap.rpartition(":")
        address = (host, int(port))
        try:
            time.sleep(3)
            alone = cpu_share(node, options.seconds)
            warm = [
                connect(address) for _ in range(10)
            ]  # the first connections also cause one-time costs
            before = node.resident_mb()
            silent = [connect(address) for _ in range(options.connections)]
            time.sleep(1)
            grown = node.resident_mb() - before
            loaded = cpu_share(node, options.seconds)
        finally:
            node.stop()
        for sock in warm + silent:
            sock.close()
    print(f"idle: {alone:.2f} % of a core")
    print(f"with {options.connections} idle connections: {loaded:.2f} %")
    print(f"an idle connection: {1024 * grown / options.connections:.1f} KB")


if __name__ == "__main__":
    main()
