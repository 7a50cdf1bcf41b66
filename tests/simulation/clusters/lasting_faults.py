"""Faults that last: paused processes, hung or lost disks, a directory that stays offline."""

from __future__ import annotations

import asyncio
import errno
from typing import TYPE_CHECKING, Final

from tests.simulation.clusters.chosen import choose
from tests.simulation.clusters.work import PARTITIONS

if TYPE_CHECKING:
    from ottla.testing.simulation.node import SimulatedNode
    from tests.simulation.clusters.faults import ClusterFaults

HANG_S: Final = 70.0
"""Longer than each timeout of nodes and clients: requests, sessions, deliveries."""
HANG_STEP_S: Final = 1.0
"""What the disk has begun ends so long after the fault at most."""
DISK_LATENCY_US: Final = (50, 3000)


def _may_suffer(faults: ClusterFaults, victim: SimulatedNode) -> bool:
    is_busy = victim in faults.starting or victim in faults.stopping or victim in faults.held
    return victim.is_alive and not is_busy


async def pause(faults: ClusterFaults) -> None:
    """Freeze a process or its machine: it goes on with late timers and what it knew before."""
    victim = faults.any()
    if not _may_suffer(faults, victim):
        return
    victim.pause()
    await faults.wait(1, 4, 12)
    victim.resume()


async def hang(faults: ClusterFaults) -> None:
    """Let the disk of a node in some role hang for longer than all timeouts.

    It is that of the active controller, of a partition's leader or follower, or of any node. What
    the disk has begun meanwhile ends with the fault, not as long after it (seed 71206).
    """
    victim = _in_role(faults)
    if not _may_suffer(faults, victim):
        return
    end_s = faults.cluster.loop.time() + HANG_S
    while (left_s := end_s - faults.cluster.loop.time()) > 0:
        victim.disk_latency_us = (int(left_s * 1e6), int(left_s * 1e6))
        await asyncio.sleep(min(left_s, HANG_STEP_S))
    victim.disk_latency_us = DISK_LATENCY_US


def _in_role(faults: ClusterFaults) -> SimulatedNode:
    role = faults.rng.choice(("controller", "leader", "follower", "any"))
    chosen = choose(faults.cluster, faults.rng, PARTITIONS)
    if role == "controller" and faults.cluster.active_controller is not None:
        return faults.cluster.active_controller
    if role in ("leader", "follower") and chosen is not None:
        return faults.cluster[chosen.leader if role == "leader" else chosen.followers[0]]
    return faults.any()


async def lose_directory(faults: ClusterFaults) -> None:
    """Let one of two directories go offline; the broker lives on while topics come and go."""
    victim = faults.any()
    if len(victim.disks) < 2 or not _may_suffer(faults, victim) or not faults.arm(victim):
        return
    disk = list(victim.disks.values())[1]  # the first one holds the metadata log
    faults.degraded[victim] = None
    disk.fail(lambda call: call.kind != "read", errno.EIO, times=1 << 30)
    await faults.wait(10, 25)
    disk.heal()
    del faults.degraded[victim]
    faults.disarm(victim)


async def empty_disk(faults: ClusterFaults) -> None:
    """Let a broker lose its disks and return with new ones."""
    brokers = [one for one in faults.cluster if one.config["process.roles"] == "broker"]
    if not brokers:
        return
    victim = faults.rng.choice(brokers)
    if not _may_suffer(faults, victim) or not faults.may_end(victim, loses=True):
        return
    faults.hold(victim)
    faults.kill(victim, power=True)
    await faults.wait(0.5, 5)
    faults.cluster.replace_disks(int(victim.config["node.id"]))
    faults.release(victim)
