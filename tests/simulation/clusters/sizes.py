"""What may not grow: queues, snapshots and undo logs of a cluster at rest.

A fault may leave something behind that no check of the data sees: a request that is repeated for
ever, a snapshot that is never deleted, an undo log of a decision that was committed long ago.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.server.node.node import Node
    from ottla.testing.simulation import SimulatedCluster

LIMITS: Final = {
    "responses of the controller that wait": 50,
    "decisions in slices": 2,
    "uncommitted batches of the controller": 50,
    "epochs of the controller's timelines": 100,
    "snapshots of the metadata": 60,
    "lowered recovery points": 0,
    "AlterPartition proposals": 20,
    "fetches that wait": 200,
}
"""Of one node; a cluster at rest has far fewer."""
_SMALL_BYTES: Final = 1 << 20
"""With more metadata.max.retention.bytes no snapshot is old enough to be deleted."""


def oversized(cluster: SimulatedCluster) -> list[str]:
    """Return what is larger than it may be in a cluster without faults and with little work."""
    return [
        f"{host.host}: {count} {what}"
        for host in cluster
        if host.node is not None
        for what, count in _sizes(host.node)
        if count > LIMITS[what]
    ]


def _sizes(node: Node) -> Iterator[tuple[str, int]]:
    runtime = node.controller._runtime
    yield "responses of the controller that wait", len(runtime._waiting)
    yield "decisions in slices", len(runtime._sliced)
    yield "uncommitted batches of the controller", len(runtime._replayed._uncommitted)
    yield "epochs of the controller's timelines", len(runtime.controller.registry.epochs)
    if node.broker.metadata.config.metadata_max_retention_bytes <= _SMALL_BYTES:
        yield "snapshots of the metadata", len(runtime.driver.log.snapshots)
    replicas = node.broker.replicas
    yield "lowered recovery points", len(replicas.logs.checkpoints._lowering)
    updates = replicas.environment
    waiting = 0 if updates is None else len(updates._waiting) + len(updates._sent)  # type: ignore[attr-defined] # an IsrUpdates
    yield "AlterPartition proposals", waiting
    yield "fetches that wait", node.broker.delayed_fetches.delayed_count
