"""The topology that a checkpoint belongs to.

Kafka: no counterpart; a changed topology there meets stores and topics of other names.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from ottla.spark.checkpoint import Checkpoint
from ottla.streams.columns.operators import ColumnOperator
from ottla.streams.description import describe
from ottla.streams.errors import StreamsException
from ottla.streams.topology import ProcessorNode

if TYPE_CHECKING:
    from ottla.streams.topology import Topology

FILE = "ottla-topology.txt"
"""What the checkpoint's directory has besides Spark's files."""


CLUSTER_FILE = "ottla-cluster.txt"


def check_cluster(location: str, cluster_id: str) -> None:
    """Note the cluster of a new checkpoint; StreamsException for an old one of another cluster."""
    checkpoint = Checkpoint(location)
    found = checkpoint.read_text(CLUSTER_FILE)
    if found is None:
        checkpoint.write_text(CLUSTER_FILE, cluster_id)
    elif found != cluster_id:
        raise StreamsException(
            f"the checkpoint {location} belongs to cluster {found}, the brokers to {cluster_id}: "
            "its offsets mean nothing there; take a new checkpoint, or correct bootstrap_servers"
        )


def check_topology(location: str, topology: Topology) -> None:
    """Note the topology of a new checkpoint; StreamsException for an old one of another topology.

    Functions may change; nodes, stores and topics may not, since Spark's state is named by them.
    """
    checkpoint = Checkpoint(location)
    text = describe(topology) + _columns(topology)
    found = checkpoint.read_text(FILE)
    if found is None:
        checkpoint.write_text(FILE, text)
        return
    if found != text:
        lines = difflib.unified_diff(
            found.splitlines(), text.splitlines(), "checkpoint", "application", lineterm="", n=0
        )
        raise StreamsException(
            f"the checkpoint {location} belongs to another topology; take a new checkpoint, or the "
            "old topology:\n" + "\n".join(lines)
        )


def _columns(topology: Topology) -> str:
    """Return a line that names the operators with columns, which divide the state otherwise."""
    names = [
        node.name
        for node in topology.nodes.values()
        if isinstance(node, ProcessorNode) and isinstance(node.supplier, ColumnOperator)
    ]
    return f"Columns: {', '.join(names)}\n" if names else ""
