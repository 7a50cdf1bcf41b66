"""Classic groups under random joins, crashes, restarts, slow commits and changing coordinators.

Safety after each event: one assignment a generation, handed to its members only, generations of
assignments never go back; acknowledged commits are never lost; the state rebuilt from the log is
the live state. Then faults stop, and every group must become Stable with exactly the living.
`SEED=17 pytest tests/simulation/test_classic_groups.py` runs one seed.
"""

from __future__ import annotations

import os
import random
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import pytest

from ottla.coordinator.group import GroupCoordinatorConfig, GroupDependencies
from ottla.coordinator.group.classic.group import ClassicState
from ottla.coordinator.group.shard import GroupShard
from ottla.coordinator.runtime import ShardEnvironment, ShardTimers
from ottla.coordinator.runtime.active import ShardState
from ottla.coordinator.runtime.loader import Loader
from ottla.errors import ErrorCode
from ottla.protocol.apis.offset_fetch import OffsetFetchRequest
from ottla.purgatory.pending import Pending
from ottla.purgatory.timing_wheel import TimingWheel
from ottla.purgatory.work import finish
from ottla.timeline import LATEST_EPOCH, SnapshotRegistry
from tests.coordinator.harness import MemoryLog, World, context, loop_of
from tests.simulation.classic_group_clients import Client, History
from tests.soaks import with_soaks

if TYPE_CHECKING:
    from collections.abc import Callable

SEEDS = [int(os.environ["SEED"])] if "SEED" in os.environ else list(range(6))
EVENTS = 3000
APPEND_ERRORS = (
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.KAFKA_STORAGE_ERROR,
)


def rebuilt(world: World, log: MemoryLog) -> GroupShard:
    """Return the state machine of partition 0 made from the log alone."""
    registry = SnapshotRegistry()
    timer = TimingWheel(0)
    timers = ShardTimers(
        loop_of(timer, world.clock), lambda _operation, _retry: None, lambda _slices: Pending()
    )
    environment = ShardEnvironment(0, registry, timers, world.clock)
    consumer = GroupDependencies(
        world.topics,
        lambda _group_id: world.consumer_config,
        str,
        lambda _group_id: world.streams_config,
    )
    shard = GroupShard(environment, world.config, str, consumer)
    loader = Loader(log, 0, shard)
    finish(loader.run())
    return shard


def replayed_state(shard: GroupShard) -> dict[str, Any]:
    """Return everything that replay has made, to compare."""
    return {
        "groups": {key: repr(value) for key, value in shard.groups.by_id.items()},
        "offsets": {
            group_id: dict(shard.offsets.of_group(group_id, LATEST_EPOCH))
            for group_id in shard.offsets.by_group
        },
    }


class Simulation:
    """One seed: three groups, a dozen clients, one coordinator that comes and goes."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.world = World(
            GroupCoordinatorConfig(
                offsets_topic_num_partitions=1, group_initial_rebalance_delay_ms=1000
            )
        ).elect()
        self.history = History()
        self.clients = [
            Client(
                f"c{number}",
                f"g{number % 3}",
                self.world,
                self.history,
                f"i{number}" if number % 4 == 3 else None,
            )
            for number in range(12)
        ]
        self.is_leader = True
        self.fault_weight = self.rng.choice([0.3, 1, 3])
        for client in self.clients:
            client.version = self.rng.choice([3, 8, 9])

    def event(self) -> None:
        """Let one thing happen."""
        client = self.rng.choice(self.clients)
        faults = self.fault_weight
        actions: dict[Callable[[], object], float] = {
            client.act: 400,
            client.commit: 40,
            self.pass_time: 60,
            client.crash if client.is_alive else client.restart: 4 * faults
            if client.is_alive
            else 20,
            client.leave: 2 * faults,
            client.restart: 2 * faults,
            self.hold_or_commit: 40 if self.world.log.is_holding else 4 * faults,
            self.fail_next_append: 2 * faults,
            self.move_coordinator: 2 * faults if self.is_leader else 40,
            lambda: self.fetch(client.group_id): 20,
        }
        self.rng.choices(list(actions), weights=list(actions.values()))[0]()

    def pass_time(self) -> None:
        """Let a while go by."""
        self.world.advance(self.rng.choice([1, 100, 1000, 1000, 4000]))

    def hold_or_commit(self) -> None:
        """Let replication stop, or catch up."""
        self.world.log.is_holding = not self.world.log.is_holding
        if not self.world.log.is_holding:
            self.world.log.commit(0)

    def fail_next_append(self) -> None:
        """Let the log refuse what comes next."""
        self.world.log.next_error = self.rng.choice(APPEND_ERRORS)

    def move_coordinator(self) -> None:
        """Resign or be elected again; a clean election loses nothing that was appended."""
        self.world.log.next_error = None
        if self.is_leader:
            self.world.resign()
            self.is_leader = False
        else:
            self.world.log.slice_bytes = self.rng.choice([None, 1, 200])
            self.world.elect()
            self.is_leader = True

    def fetch(self, group_id: str) -> None:
        """Read the committed offset: never older than what was acknowledged."""
        group_class = OffsetFetchRequest.OffsetFetchRequestGroup
        request = OffsetFetchRequest(groups=[group_class(group_id=group_id, topics=None)])
        acknowledged = self.history.acknowledged.get(group_id, 0)
        answer = self.world.coordinator.offset_fetch(request, context(9)).value.groups[0]
        if not answer.error_code and acknowledged:
            assert answer.topics[0].partitions[0].committed_offset >= acknowledged

    def check(self) -> None:
        """Compare the live state with the log and with itself."""
        states = self.world.coordinator.runtime.partitions
        if states.get(0) != ShardState.ACTIVE:
            return
        shard = self.world.shard()
        assert replayed_state(shard) == replayed_state(rebuilt(self.world, self.world.log))
        for group in shard.classic.live.values():
            assert group.awaiting_join_count == sum(
                member.awaiting_join is not None for member in group.members.values()
            )
            assert group.leader_id is None or group.leader_id in group.members
            assert set(group.static_members.values()) <= set(group.members)
            assert set(group.pending_sync) <= set(group.members)
            if group.is_in(ClassicState.STABLE):
                stored = shard.groups.by_id[group.group_id].generation
                assert stored is not None
                assert stored.generation == group.generation_id
                stored_assignments = {m.member_id: m.assignment for m in stored.members}
                for member in group.members.values():
                    assert stored_assignments[member.member_id] == member.assignment

    def heal(self) -> None:
        """Stop all faults and give the living time: every group must be whole and serving."""
        self.world.log.next_error = None
        self.world.log.slice_bytes = None
        if not self.is_leader:
            self.move_coordinator()
        self.world.log.slice_bytes = None
        self.world.log.is_holding = False
        self.world.log.commit(0)
        for client in self.clients[:-3]:
            if not client.is_alive:
                client.restart()
        for client in self.clients[-3:]:
            client.crash()
        for _ in range(200):
            self.world.advance(1000)
            for client in self.clients:
                client.act()
        self.check()
        for group_id in ("g0", "g1", "g2"):
            alive = [c for c in self.clients if c.is_alive and c.group_id == group_id]
            group = self.world.shard().classic.get(group_id)
            assert group.is_in(ClassicState.STABLE), group.state
            assert {c.member_id for c in alive} == set(group.members)
            assert all(c.phase == "stable" and c.generation == group.generation_id for c in alive)
            held = sorted(p for c in alive for p in (c.assignment or {})["partitions"])
            assert held == list(range(8))


def run(seed: int, events: int) -> Simulation:
    """Run a seed through faults and healing."""
    simulation = Simulation(seed)
    for number in range(events):
        simulation.event()
        if number % 20 == 0:
            simulation.check()
    simulation.heal()
    return simulation


@pytest.mark.parametrize("seed", with_soaks(SEEDS))
def test_classic_groups(seed: int) -> None:
    """Safe under faults, live without them, and busy enough to mean something."""
    simulation = run(seed, EVENTS)
    assert simulation.history.sync_count > 20
    assert simulation.history.acknowledged


def test_same_seed_same_trace() -> None:
    """A seed is a whole description of a run."""
    digests = set()
    for _ in range(2):
        history = run(1, 400).history
        digests.add(sha256("\n".join(history.trace).encode()).hexdigest())
    assert len(digests) == 1
