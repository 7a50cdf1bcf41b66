"""What a checkpoint belongs to: a topology, a cluster, the number of tasks.

Kafka: no counterpart; a changed topology there meets stores and topics of other names.
"""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Final

from ottla.streams.columns.operators import ColumnOperator
from ottla.streams.description import describe
from ottla.streams.errors import StreamsException
from ottla.streams.topology import ProcessorNode

if TYPE_CHECKING:
    from ottla.spark.checkpoint import Checkpoint
    from ottla.streams.plan.plan import Plan
    from ottla.streams.topology import Topology

TOPOLOGY_FILE: Final = "ottla-topology.txt"
CLUSTER_FILE: Final = "ottla-cluster.txt"
TASKS_FILE: Final = "ottla-tasks.txt"
"""What the checkpoint's directory has besides Spark's files."""
_TASKS: Final = re.compile(r"Sub-topology: (\d+) tasks: (\d+)\n")


def check_cluster(checkpoint: Checkpoint, cluster_id: str) -> None:
    """Note the cluster of a new checkpoint; StreamsException for an old one of another cluster."""
    found = _noted(checkpoint, CLUSTER_FILE, cluster_id)
    if found != cluster_id:
        raise StreamsException(
            f"the checkpoint {checkpoint.location} belongs to cluster {found}, the brokers to "
            f"{cluster_id}: its offsets mean nothing there; take a new checkpoint, or correct "
            "bootstrap_servers"
        )


def check_topology(checkpoint: Checkpoint, topology: Topology) -> None:
    """Note the topology of a new checkpoint; StreamsException for an old one of another topology.

    Functions may change; nodes, stores and topics may not, since Spark's state is named by them.
    """
    text = describe(topology) + _columns(topology) + _bounded(topology) + _with_headers(topology)
    found = _noted(checkpoint, TOPOLOGY_FILE, text)
    if found != text:
        lines = difflib.unified_diff(
            found.splitlines(), text.splitlines(), "checkpoint", "application", lineterm="", n=0
        )
        raise StreamsException(
            f"the checkpoint {checkpoint.location} belongs to another topology; take a new "
            "checkpoint, or the old topology:\n" + "\n".join(lines)
        )


def check_tasks(checkpoint: Checkpoint, plan: Plan) -> None:
    """Note how many tasks have state; StreamsException if topics have other partitions since.

    State belongs to a task, keys to a partition: with another number of them a key's state would
    be in another task. Kafka refuses it, too, by the partitions of its changelog topics.
    """
    tasks = {
        stage.sub_topology.number: plan.task_count(stage) for stage in plan.stages if stage.stores
    }
    noted = noted_tasks(checkpoint)
    known = {number: count for number, count in tasks.items() if count}  # 0: no topic matches yet
    if any(noted.get(number, count) != count for number, count in known.items()):
        raise StreamsException(
            f"the checkpoint {checkpoint.location} has state of {_in_one_line(noted)}, which the "
            f"partitions of the topics make {_in_one_line(tasks)} now: keys belong to other "
            "tasks; take a new checkpoint"
        )
    text = "".join(f"{line}\n" for line in _lines({**noted, **known}))
    if text != checkpoint.read_text(TASKS_FILE):
        checkpoint.write_text(TASKS_FILE, text)


def noted_tasks(checkpoint: Checkpoint) -> dict[int, int]:
    """Return how many tasks of each sub-topology have state, as a checkpoint notes."""
    text = "" if checkpoint.is_new() else checkpoint.read_text(TASKS_FILE) or ""
    return {int(number): int(count) for number, count in _TASKS.findall(text)}


def _noted(checkpoint: Checkpoint, name: str, text: str) -> str:
    """Return what an old checkpoint notes; a new one, or one without the note, notes the text."""
    found = checkpoint.read_text(name)
    if found is None or (found != text and checkpoint.is_new()):
        checkpoint.write_text(name, text)
        return text
    return found


def _in_one_line(tasks: dict[int, int]) -> str:
    return ", ".join(_lines(tasks)).lower()


def _lines(tasks: dict[int, int]) -> list[str]:
    return [f"Sub-topology: {number} tasks: {count}" for number, count in tasks.items()]


def _bounded(topology: Topology) -> str:
    """Return a line that names the stores whose values have the numbers of their last uses."""
    names = [one.name for one in topology.stores.values() if one.max_entries is not None]
    return f"Bounded: {', '.join(names)}\n" if names else ""


def _with_headers(topology: Topology) -> str:
    """Return a line that names the stores whose values have headers."""
    names = [one.name for one in topology.stores.values() if one.has_headers]
    return f"Headers: {', '.join(names)}\n" if names else ""


def _columns(topology: Topology) -> str:
    """Return a line that names the operators with columns, which divide the state otherwise."""
    names = [
        node.name
        for node in topology.nodes.values()
        if isinstance(node, ProcessorNode) and isinstance(node.supplier, ColumnOperator)
    ]
    return f"Columns: {', '.join(names)}\n" if names else ""
