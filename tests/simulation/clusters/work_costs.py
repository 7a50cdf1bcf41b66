"""What the work of a node costs in virtual time, for each record, batch, partition and proposal.

File calls and bytes of the network are charged by the simulation itself.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch

from ottla.controller.controller import Controller
from ottla.coordinator.group.shard import GroupShard
from ottla.coordinator.transaction.shard import TransactionShard
from ottla.metadata.loader import MetadataLoader
from ottla.replication.fetch_session import FetchSession
from ottla.replication.fetcher import ReplicaFetcher
from ottla.replication.leader_state import LeaderState
from ottla.replication.partition import Partition
from ottla.server.broker.publisher import MetadataPublisher
from ottla.storage.log.writes import LogWrites

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.testing.simulation import SimulatedLoop

TURN_LIMIT_US: Final = 10_000
CALL_NS: Final[tuple[tuple[type[Any], str, int], ...]] = (
    (Controller, "replay", 12_000),
    (GroupShard, "replay", 13_000),
    (TransactionShard, "replay", 13_000),
    (LogWrites, "append_as_leader", 25_000),
    (LogWrites, "append_as_follower", 15_000),
    (Partition, "read_for_follower", 6_000),
    (Partition, "become_leader", 15_000),
    (ReplicaFetcher, "add", 10_000),
    (LeaderState, "check_lag", 2_000),
    (LeaderState, "_propose", 25_000),
    (MetadataPublisher, "_host_partition", 40_000),
)
"""Methods and what a call costs, measured on two cores of a virtual machine."""
ITEM_NS: Final[tuple[tuple[type[Any], str, int], ...]] = (
    (MetadataLoader, "load_batch", 6_000),
    (FetchSession, "update", 1_500),
)
"""The same for each item of the first argument."""


@contextmanager
def charged(loop: SimulatedLoop) -> Iterator[None]:
    """Charge the work of all nodes while the context lasts; a turn over the limit ends the run."""
    loop.turn_limit_us = TURN_LIMIT_US
    with ExitStack() as patches:
        for owner, name, cost_ns in CALL_NS:
            call = _charged_by_call(loop, getattr(owner, name), name, cost_ns)
            patches.enter_context(patch.object(owner, name, call))
        for owner, name, cost_ns in ITEM_NS:
            call = _charged_by_item(loop, getattr(owner, name), name, cost_ns)
            patches.enter_context(patch.object(owner, name, call))
        yield


def _charged_by_call(loop: SimulatedLoop, function: Any, what: str, cost_ns: int) -> Any:
    charge = loop.charge

    def call(*args: Any, **options: Any) -> Any:
        charge(what, cost_ns)
        return function(*args, **options)

    return call


def _charged_by_item(loop: SimulatedLoop, function: Any, what: str, cost_ns: int) -> Any:
    def call(owner: Any, items: Any, *args: Any, **options: Any) -> Any:
        loop.charge(what, cost_ns * len(items))
        return function(owner, items, *args, **options)

    return call
