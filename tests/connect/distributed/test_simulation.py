"""Whole groups of workers: herders, the leader's divisions, topics and a coordinator, by seed.

Workers die between any two effects, also in the middle of writing the settings of tasks; they come
back from the topics. At every step each connector and task runs at one worker at most; in the end
all that is configured runs, and a herder that reads the topics again equals one that has lived.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from ottla.connect.distributed.herder import (
    Accept,
    DistributedHerder,
    ForwardTaskConfigs,
    GroupPhase,
    GroupWorker,
    MakeSessionKey,
    ReadConfig,
    Rejoin,
    RequestTarget,
)
from ottla.connect.distributed.records import SESSION_KEY, status_key, status_value
from ottla.connect.distributed.signing import SessionKey
from ottla.connect.errors import ConnectException
from ottla.connect.runtime.herder import (
    MakeTaskConfigs,
    SetTarget,
    StartConnector,
    StartTask,
    StopConnector,
    StopTasks,
    WriteConfig,
    WriteStatus,
)
from ottla.connect.runtime.state import ConnectorTaskId, RunState, TargetState

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.connect.distributed.protocol import Assignment

STEPS = 250
DELAY_MS = 1000
VERSION = 2


class Dead(Exception):
    """The worker died in the middle of what it did."""


class SimulatedWorker:
    """A herder with the connectors and tasks that it runs."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self.url = f"http://{name}/"
        self.herder = DistributedHerder(
            name, self.url, lambda _: "source", max_delay_ms=DELAY_MS, key_ttl_ms=100_000
        )
        self.read = {"config": 0, "status": 0}
        self.running: set[Any] = set()
        self.is_accepted = True
        self.wants_to_join = True
        self.later: list[Callable[[], None]] = []
        self.catch_up()

    def catch_up(self) -> None:
        """Read both topics to their ends."""
        for topic in self.read:
            while self.deliver(topic):
                pass

    def deliver(self, topic: str) -> bool:
        """Read the next record of a topic; False at its end."""
        records = self.world.topics[topic]
        position = self.read[topic]
        if position == len(records):
            return False
        self.read[topic] += 1
        key, value = records[position]
        if topic == "config":
            self.do(lambda: self.herder.read_config(key, value))
            self.herder.config_read(position + 1)
        else:
            self.do(lambda: self.herder.read_status(key, value))
        return True

    def do(self, step: Callable[[], Any]) -> None:
        """Take a step and carry its effects out, or die on the way."""
        step()
        while effects := self.herder.take_effects():
            for effect in effects:
                if self.world.rng.random() < self.world.death:
                    raise Dead(self.name)
                self.carry_out(effect)

    def carry_out(self, effect: Any) -> None:
        """Carry an effect out."""
        match effect:
            case WriteConfig(key, value):
                self.world.topics["config"].append((key, value))
            case WriteStatus(of, status):
                self.world.topics["status"].append((status_key(of), status_value(status)))
            case StartConnector(name, _, target):
                self.world.start(self, name)
                self.later.append(lambda: self.report(name, target))
            case StopConnector(name):
                self.running.discard(name)
            case StartTask(task, _, _, target):
                self.world.start(self, task)
                is_paused = target is TargetState.PAUSED
                state = RunState.PAUSED if is_paused else RunState.RUNNING
                self.later.append(lambda: self.herder.task_report(task, state))
            case StopTasks(tasks):
                self.running.difference_update(tasks)
            case SetTarget(name, target):
                if name in self.running:
                    self.later.append(lambda: self.report(name, target))
            case MakeTaskConfigs(name):
                self.later.append(lambda: self.make(name))
            case _:
                self.follow_group(effect)

    def follow_group(self, effect: Any) -> None:
        """Carry an effect on the group out."""
        match effect:
            case MakeSessionKey():
                drawn = SessionKey(b"k", "HmacSHA256", self.world.now_ms)
                self.world.topics["config"].append((SESSION_KEY, drawn.record()))
            case ForwardTaskConfigs(name, configs, url):
                self.later.append(lambda: self.forward(name, configs, url))
            case ReadConfig():
                self.later.append(self.read_config)
            case Accept():
                self.is_accepted = True
            case Rejoin():
                self.wants_to_join = True

    def report(self, name: str, target: TargetState) -> None:
        """Tell of a connector, which is in a target state now."""
        states = {
            TargetState.STARTED: RunState.RUNNING,
            TargetState.PAUSED: RunState.PAUSED,
            TargetState.STOPPED: RunState.STOPPED,
        }
        if name in self.running:
            self.herder.connector_report(name, states[target])

    def make(self, name: str) -> None:
        """Make the settings of tasks, as many as the connector's `n` says."""
        if name in self.running and name in self.herder.configs.connectors:
            config = self.herder.configs.connectors[name]
            self.herder.task_configs_made(
                name, [{"task": str(it), **config} for it in range(int(config["n"]))]
            )

    def forward(self, name: str, configs: Any, url: str | None) -> None:
        """Send the settings of tasks to the leader, or try again from the connector on."""
        leader = next((it for it in self.world.workers.values() if it.url == url), None)
        try:
            if leader is None:
                raise RequestTarget("gone", None)
            self.world.on(leader, lambda: leader.herder.put_task_configs(name, configs))
            if leader.name not in self.world.workers:
                raise RequestTarget("it died without an answer", None)
        except ConnectException:
            self.later.append(lambda: self.herder.request_task_configs(name))

    def read_config(self) -> None:
        """Read the config topic to its end, as the leader asked for."""
        while self.deliver("config"):
            pass
        self.herder.config_caught_up()


class World:
    """The topics, the coordinator and the workers."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.death = 0.01
        self.now_ms = 0
        self.topics: dict[str, list[tuple[str, Any]]] = {"config": [], "status": []}
        self.workers: dict[str, SimulatedWorker] = {}
        self.members: list[str] = []
        """The group's members, the leader first; some may be dead."""
        self.generation = 0
        self.count = 0
        self.joined: dict[str, GroupWorker] | None = None
        for _ in range(2):
            self.add_worker()

    def add_worker(self) -> None:
        """Start a worker, which reads the topics and wants to join."""
        self.count += 1
        name = f"w{self.count}"
        self.workers[name] = SimulatedWorker(self, name)

    def start(self, worker: SimulatedWorker, what: Any) -> None:
        """Note a start: no other worker may run it."""
        owners = [it.name for it in self.workers.values() if what in it.running]
        assert not owners, f"{worker.name} starts {what}, which {owners} run"
        worker.running.add(what)

    def on(self, worker: SimulatedWorker, step: Callable[[], Any]) -> None:
        """Take a step at a worker, which may die of it."""
        try:
            worker.do(step)
        except Dead:
            self.workers.pop(worker.name, None)

    def some(self) -> SimulatedWorker | None:
        """Return a worker that lives."""
        return self.workers[self.rng.choice(sorted(self.workers))] if self.workers else None

    # ------------------------------------------------------------ the coordinator

    def rebalance(self) -> None:
        """Let the members join, or send the assignments of those that have joined."""
        if self.joined is None:
            waits = [it for it in self.workers.values() if not it.is_accepted]
            if waits or not any(it.wants_to_join for it in self.workers.values()):
                return
            joined = {}
            for worker in list(self.workers.values()):
                self.on(worker, worker.herder.prepare)
                if worker.name in self.workers:
                    herder = worker.herder
                    worker.wants_to_join = worker.is_accepted = False
                    joined[worker.name] = GroupWorker(worker.url, herder.offset, herder.work)
            self.joined = joined or None
            return
        joined, self.joined = self.joined, None
        self.members = [it for it in self.members if it in joined]
        self.members += [it for it in joined if it not in self.members]
        self.generation += 1
        generation, leader = self.generation, self.workers.get(self.members[0])
        made: dict[str, Assignment] = {}
        if leader is not None:
            made = leader.herder.divide(VERSION, joined, leader.name, generation, self.now_ms)
        for member in [self.workers[it] for it in self.members if it in self.workers]:
            if member.name not in made:  # the leader died: all join again
                member.is_accepted = member.wants_to_join = True
                continue
            self.on(
                member,
                lambda it=member, of=made[member.name]: it.herder.assigned(  # type: ignore[misc]
                    of, it.name, generation, VERSION, self.now_ms
                ),
            )

    def expire(self) -> None:
        """Have the group notice a death: the others rebalance."""
        if any(it not in self.workers for it in self.members):
            self.members = [it for it in self.members if it in self.workers]
            for worker in self.workers.values():
                worker.wants_to_join = True

    def cut_off(self, worker: SimulatedWorker) -> None:
        """Have a worker hear no coordinator for so long that it stops; then the group goes on."""
        if self.joined is None:
            self.on(worker, worker.herder.lost)
            assert not worker.running or worker.name not in self.workers  # it died of it
            worker.is_accepted = worker.wants_to_join = True

    # ------------------------------------------------------------ users and time

    def ask(self, step: Callable[[DistributedHerder], Any]) -> None:
        """Ask a worker, and whom it names."""
        worker = self.some()
        for _ in range(3):
            if worker is None:
                return
            try:
                self.on(worker, lambda it=worker: step(it.herder))  # type: ignore[misc]
            except RequestTarget as error:
                worker = next((it for it in self.workers.values() if it.url == error.url), None)
            except ConnectException:
                return
            else:
                return

    def step(self) -> None:
        """Do something."""
        rng, worker, name = self.rng, self.some(), self.rng.choice("abc")
        choice = rng.random()
        if choice < 0.06:
            config = {"n": str(rng.randrange(4)), "x": str(rng.random())}
            self.ask(lambda it: it.put(name, config, may_replace=True))
        elif choice < 0.08:
            self.ask(lambda it: it.delete(name))
        elif choice < 0.11:
            target = rng.choice(list(TargetState))
            self.ask(lambda it: it.set_target(name, target))
        elif choice < 0.13:
            self.ask(lambda it: it.restart_with_tasks(name, include_tasks=True, only_failed=False))
        elif choice < 0.15:
            self.ask(lambda it: it.restart_task(ConnectorTaskId(name, 0)))
        elif choice < 0.17 and len(self.workers) < 4:
            self.add_worker()
        elif choice < 0.18 and worker is not None:
            self.cut_off(worker)
        elif choice < 0.25:
            self.rebalance()
        elif choice < 0.28:
            self.expire()
        else:
            self.progress()

    def progress(self) -> None:
        """Let a worker go on: a record, an event, or time."""
        worker = self.some()
        if worker is None:
            return
        choice = self.rng.random()
        if choice < 0.6:
            topic = "config" if choice < 0.4 else "status"
            try:
                worker.deliver(topic)
            except Dead:
                self.workers.pop(worker.name, None)
        elif choice < 0.9 and worker.later:
            self.on(worker, worker.later.pop(0))
        else:
            self.now_ms += self.rng.randrange(200)
            self.on(worker, lambda: worker.herder.tick(self.now_ms, self.now_ms))

    def heal(self) -> None:
        """Let everything go on without faults until nothing changes."""
        self.death = 0.0
        if not self.workers:
            self.add_worker()
        for _ in range(60):
            self.now_ms += 500
            self.expire()
            self.rebalance()
            for worker in list(self.workers.values()):
                worker.catch_up()
                for _ in range(len(worker.later)):  # what is tried again waits for its turn
                    self.on(worker, worker.later.pop(0))
                self.on(worker, lambda it=worker: it.herder.tick(self.now_ms, self.now_ms))  # type: ignore[misc]


def check(world: World) -> None:
    """Assert that all that is configured runs once, and that statuses say so."""
    configs = world.workers[min(world.workers)].herder.configs
    wanted: set[Any] = set()
    for name, config in configs.connectors.items():
        wanted.add(name)
        if configs.target(name) is TargetState.STOPPED:
            assert not configs.tasks.get(name)
        elif configs.target(name) is TargetState.STARTED:
            assert [it["x"] for it in configs.tasks[name]] == [config["x"]] * int(config["n"])
        wanted |= {ConnectorTaskId(name, it) for it in range(len(configs.tasks.get(name, ())))}
    running = [what for worker in world.workers.values() for what in worker.running]
    assert sorted(map(str, running)) == sorted(map(str, wanted))
    rebuilt = SimulatedWorker(world, "again")
    for worker in world.workers.values():
        assert worker.herder.phase is GroupPhase.WORKING
        live = worker.herder
        assert live.configs == rebuilt.herder.configs
        assert live.statuses == rebuilt.herder.statuses
        assert (live.offset, live.session_key) == (
            rebuilt.herder.offset,
            rebuilt.herder.session_key,
        )
        for what in worker.running:
            statuses: Any = live.statuses.tasks if what in live.statuses.tasks else None
            status = (statuses or live.statuses.connectors)[what]
            assert status.worker_id == worker.name


@pytest.mark.parametrize("seed", range(60))
def test_groups_of_workers(seed: int) -> None:
    """Work is never run twice, and never lost."""
    world = World(seed)
    for _ in range(STEPS):
        world.step()
    world.heal()
    check(world)
