"""Whole nodes and clients on virtual time: one seed, one course of events.

Kafka: none; after FoundationDB's and TigerBeetle's simulators.
"""

from ottla.testing.simulation.cluster import SimulatedCluster
from ottla.testing.simulation.loop import Deadlock, Livelock, SimulatedLoop, Trace
from ottla.testing.simulation.node import SimulatedNode

__all__ = [
    "Deadlock",
    "Livelock",
    "SimulatedCluster",
    "SimulatedLoop",
    "SimulatedNode",
    "Trace",
]
