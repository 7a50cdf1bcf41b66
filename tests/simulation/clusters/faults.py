"""Bad days of a cluster: nodes, power, links, disks and clocks fail, at times several at once.

Records are acknowledged before they are flushed, with min.insync.replicas=2: what fewer than two
replicas of a partition lose is not lost. As in Kafka a killed broker counts as one that may have
lost something. So as long as one replica has lost its power, and is not in sync again, no other one
ends uncleanly.
"""

from __future__ import annotations

import asyncio
import errno
from contextlib import suppress
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

from ottla.errors import CorruptMessage, KafkaError
from ottla.storage.layout import METADATA_LOG
from ottla.testing.disk import UNLIMITED, SimulatedCrash
from ottla.testing.simulation.network import CLIENTS, LinkRules
from tests.simulation.clusters.chosen import choose, end_at_commit
from tests.simulation.clusters.lasting_faults import empty_disk, hang, lose_directory, pause
from tests.simulation.clusters.rot import damage, damage_records, start_damaged
from tests.simulation.clusters.settings import change_settings
from tests.simulation.clusters.work import PARTITIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from ottla.metadata.image.image import MetadataImage
    from ottla.metadata.partition import PartitionRegistration
    from ottla.testing.disk import Call
    from ottla.testing.simulation import SimulatedCluster
    from ottla.testing.simulation.node import SimulatedNode
    from tests.simulation.clusters.bounds import Bounds
    from tests.simulation.clusters.rot import Damage

MAX_DRIFT = 0.02
MAX_STEP_MS = 3_600_000
DISK_LATENCY_US = (50, 3000)
STOP_LIMIT_S = 30.0
SUPERVISED_S = 0.5
ALONE_S = 1.5
"""How long a leader of the quorum writes alone."""
SUCCESSION_S = 8.0
BOUNDS_SHARE = 0.3
"""Of rounds after which the cluster has to work again before the next fault."""
LAST_DISK_SHARE = 0.3
"""Of seeds in which the last fault is a write of a partition that fails."""
_UNKNOWN_EPOCH = 1 << 62


class ClusterFaults:
    """Takes nodes down and starts them again; `heal` ends it all."""

    def __init__(self, seed: int, cluster: SimulatedCluster, bounds: Bounds | None = None) -> None:
        """With bounds, lasting faults are among the others, and the cluster works soon after."""
        self.rng = Random(f"{seed}/faults")
        self.cluster = cluster
        self._bounds = bounds
        self.is_over = False
        self.counts: dict[str, int] = {}
        """How often each happened."""
        self.held: dict[SimulatedNode, int] = {}
        """Nodes that are to stay down, by how many faults."""
        self.starting: dict[SimulatedNode, asyncio.Task[None]] = {}
        self._is_rotten = False
        self.stopping: dict[SimulatedNode, None] = {}
        self._lost: dict[int, int] = {}
        """Node → its broker epoch when it lost power."""
        self._unclean: dict[int, int] = {}
        """Node → its broker epoch when it last ended other than by a clean stop."""
        self._images: list[MetadataImage] = []
        """The newest metadata that any node had: those that start have none yet."""
        self.degraded: dict[SimulatedNode, None] = {}
        """Nodes that live on with a directory offline."""
        self._armed: dict[SimulatedNode, None] = {}
        """Nodes whose disk may fail them at any moment."""
        if self.rng.random() < 0.25:
            for host in cluster:
                host.clock_rate = 1.0 + self.rng.uniform(-MAX_DRIFT, MAX_DRIFT)
        self._kinds: tuple[tuple[int, Callable[[], Coroutine[Any, Any, None]]], ...] = (
            (4, self._restart),
            (3, self._partition),
            (3, self._isolate),
            (1, self._cut_one_way),
            (2, self._break_links),
            (2, self._slow_network),
            (2, self._slow_disk),
            (1, self._fill_disk),
            (1, self._break_disk),
            (2, self._crash_at_write),
            (1, self._cold_reads),
            (1, self._step_clock),
            (1, self._roll),
            (1, self._write_alone),
            (1, self._miss_epochs),
            (1, self._end_at_commit),
            (1, self._rot),
            (2, self._rot_records),
        )
        if bounds is not None:
            lasting = ((2, pause), (1, hang), (2, lose_directory), (2, empty_disk))
            self._kinds += tuple((weight, partial(kind, self)) for weight, kind in lasting)

    async def run(self, rounds: int) -> None:
        """Let faults happen, some of them together."""
        weights = [weight for weight, _ in self._kinds]
        supervising = self.cluster.loop.create_task(self._supervise())
        for _ in range(rounds):
            await asyncio.sleep(self.rng.random() * 3)
            count = self.rng.choice((1, 1, 2))
            kinds = self.rng.choices([kind for _, kind in self._kinds], weights, k=count)
            for kind in kinds:
                name = kind.func.__name__ if isinstance(kind, partial) else kind.__name__
                self.counts[name] = self.counts.get(name, 0) + 1
            await asyncio.gather(*(kind() for kind in kinds))
            if self._bounds is not None and self.rng.random() < BOUNDS_SHARE:
                await self._bounds.check(self._is_up)
        if self.rng.random() < LAST_DISK_SHARE:
            await self._fail_appends()
        self.heal()
        while not self._is_up():  # noqa: ASYNC110 - virtual time costs nothing
            await asyncio.sleep(SUPERVISED_S)
        self.is_over = True
        await supervising

    def heal(self) -> None:
        """End all faults but for nodes that are down: the supervisor starts them."""
        self.cluster.heal()
        self.cluster.network.settings = LinkRules()
        self.held.clear()
        for host in self.cluster:
            host.resume()
            host.disk_latency_us = DISK_LATENCY_US
            for disk in host.disks.values():
                disk.heal()
                disk.capacity_bytes = UNLIMITED
                disk.cold_probability = 0.0

    def _is_up(self) -> bool:
        return all(
            host.is_alive and host not in self.starting and not _is_broken(host)
            for host in self.cluster
        )

    # Processes

    async def _supervise(self) -> None:
        """Start what is down, as a service manager does."""
        while not self.is_over:
            for host in self.cluster:
                if host.is_alive and self._must_end(host):
                    self.kill(host)
                if not host.is_alive and host not in self.held:
                    self._start(host)
            await asyncio.sleep(SUPERVISED_S)

    def _must_end(self, host: SimulatedNode) -> bool:
        return _is_broken(host) and host not in self.starting and host not in self.degraded

    def _start(self, host: SimulatedNode) -> None:
        """Begin to start; without a majority a start waits for the others."""
        if host in self.starting:
            return
        if host in self._armed:
            self.disarm(host)
        self._newest_image()
        self._begin_start(host, self._started(host))

    def _begin_start(self, host: SimulatedNode, start: Coroutine[Any, Any, None]) -> None:
        task = self.starting[host] = self.cluster.loop.create_task(start)
        task.add_done_callback(raise_failure)

    async def _started(self, host: SimulatedNode) -> None:
        try:
            await host.start()
        except CorruptMessage:
            raise
        except (SimulatedCrash, KafkaError, OSError):  # down again, no majority, a bad disk
            self.kill(host)
        finally:
            del self.starting[host]

    def any(self) -> SimulatedNode:
        return self.rng.choice(list(self.cluster))

    async def wait(self, *limits_s: float) -> None:
        await asyncio.sleep(self.rng.random() * self.rng.choice(limits_s))

    def hold(self, host: SimulatedNode) -> None:
        self.held[host] = self.held.get(host, 0) + 1

    def release(self, host: SimulatedNode) -> None:
        count = self.held.pop(host, 1)
        if count > 1:
            self.held[host] = count - 1

    async def _restart(self) -> None:
        """Take one to three nodes down in some way, and back after a while."""
        count = self.rng.choice((1, 1, 1, 2, 3))
        victims = self.rng.sample(list(self.cluster), count)
        for victim in victims:
            self.hold(victim)
            await self._take_down(victim)
            await self.wait(0.01, 1, 5)
        await self.wait(0.2, 2, 8)
        for victim in victims:
            self.release(victim)

    async def _take_down(self, victim: SimulatedNode) -> None:
        if not victim.is_alive:
            return
        kind = self.rng.choice(("kill", "power", "power", "stop"))
        if kind == "power" and self.may_end(victim, loses=True):
            self.kill(victim, power=True)
        elif kind != "stop" and self.may_end(victim):
            self.kill(victim)
        elif victim not in self.starting:
            await self._stop(victim)

    def kill(self, host: SimulatedNode, *, power: bool = False) -> None:
        self._unclean[_id(host)] = self._broker_epoch(_id(host))
        if power:
            self._lost[_id(host)] = self._broker_epoch(_id(host))
        host.kill(power=power)

    async def _stop(self, victim: SimulatedNode) -> None:
        """Stop a node that is not being stopped: a second one would end the first half-way."""
        if victim in self.stopping:
            return
        self.stopping[victim] = None
        stopping = self.cluster.loop.create_task(self._stopped(victim))
        await asyncio.wait((stopping,), timeout=STOP_LIMIT_S)
        if not stopping.done() and self.may_end(victim):
            self.kill(victim)
        await stopping
        del self.stopping[victim]

    async def _stopped(self, victim: SimulatedNode) -> None:
        try:
            await victim.stop()
        except (SimulatedCrash, KafkaError, OSError):
            self.kill(victim)

    async def _roll(self) -> None:
        """Stop and start each node in turn."""
        for host in self.cluster:
            if not host.is_alive or host in self.starting:
                continue
            self.hold(host)
            await self._stop(host)
            self.release(host)
            await self.wait(1, 5)

    # Power

    def _newest_image(self) -> MetadataImage:
        images = [one.node.broker.image for one in self.cluster if one.node is not None]
        self._images = [max([*self._images, *images], key=lambda image: image.offset_and_epoch)]
        return self._images[0]

    def _broker_epoch(self, node_id: int) -> int:
        found = self._newest_image().cluster.brokers.get(node_id)
        return -1 if found is None else found.broker_epoch

    def may_end(self, victim: SimulatedNode, *, loses: bool = False) -> bool:
        """Whether a node may end uncleanly, and lose its power: see the head of this module."""
        image, victim_id = self._newest_image(), _id(victim)
        for topic in image.topics.by_name.values():
            for found in topic.partitions.values():
                if victim_id not in found.replicas:
                    continue
                holders = {*found.isr, *found.eligible_leader_replicas} - {victim_id}
                if not loses and not any(self._has_lost(one, found) for one in found.replicas):
                    continue
                others = [one for one in found.replicas if one != victim_id]
                if not all(self._is_clean(one) for one in others) or not holders:
                    return False
        return True

    def _is_clean(self, node_id: int) -> bool:
        return self._unclean.get(node_id, -2) < self._broker_epoch(node_id)

    def _has_lost(self, node_id: int, partition: PartitionRegistration) -> bool:
        """Whether a replica may lack what it lost with its power."""
        lost_epoch = self._lost.get(node_id, -2)
        is_back = lost_epoch < self._broker_epoch(node_id) and node_id in partition.isr
        return lost_epoch > -2 and not is_back

    def arm(self, victim: SimulatedNode, *, loses: bool = False) -> bool:
        """Begin a fault of the disk that may end a node; whether it is allowed."""
        if not victim.is_alive or victim in self._armed or not self.may_end(victim, loses=loses):
            return False
        self._armed[victim] = None
        self._unclean[_id(victim)] = _UNKNOWN_EPOCH
        if loses:
            self._lost[_id(victim)] = _UNKNOWN_EPOCH
        return True

    def disarm(self, victim: SimulatedNode) -> None:
        """End it; a node that lives on counts as one that ended: it may halt yet."""
        self._armed.pop(victim, None)
        for epochs in (self._unclean, self._lost):
            if epochs.get(_id(victim)) == _UNKNOWN_EPOCH:
                epochs[_id(victim)] = self._broker_epoch(_id(victim))

    async def _crash_at_write(self) -> None:
        """Let a node crash half-way through one of its next file operations, with its power."""
        victim = self.any()
        if not self.arm(victim, loses=True):
            return
        self.hold(victim)
        disk = self.rng.choice(list(victim.disks.values()))
        disk.crash_at(disk.calls + self.rng.randrange(1, 60))
        await self.wait(1, 4)
        disk.heal()
        if victim.is_alive and victim not in self.starting:
            self.kill(victim, power=True)
        elif not victim.is_alive:
            for one in victim.disks.values():
                one.crash()
        self.disarm(victim)
        self.release(victim)

    # Links

    async def _partition(self) -> None:
        """Cut the nodes into two groups; the clients are in one of them, or reach both.

        A leader that only clients reach takes records that are never committed.
        """
        ends: list[int | str] = [*map(_id, self.cluster)]
        if self.rng.random() < 0.5:
            ends.append(CLIENTS)
        self.rng.shuffle(ends)
        at = self.rng.randrange(1, len(ends))
        if self.rng.random() < 0.3:  # the one that decides
            active = self.cluster.active_controller
            if active is not None:
                ends.remove(_id(active))
                ends.insert(0, _id(active))
                at = 1
        self.cluster.partition(ends[:at], ends[at:])
        await self.wait(1, 5, 10)
        self.cluster.heal()

    async def _write_alone(self) -> None:
        """Let the quorum's leader write what no one fetches, and run after its successor's end.

        Its log may be the longest then, and is not the newest.
        """
        active = self.cluster.active_controller
        if active is None or active in self.starting or not self.may_end(active):
            return
        near = [active, *(one for one in self.cluster if _roles(one) == "broker")]
        far = [one for one in self.cluster if one not in near]
        self.cluster.partition([CLIENTS, *map(_id, near)], map(_id, far))
        await self._change_settings(active, near)
        if not active.is_alive or not self.may_end(active):
            self.cluster.heal()
            return
        self.hold(active)
        self.kill(active)
        self.cluster.heal()
        await asyncio.sleep(SUCCESSION_S * self.rng.random())
        successor = self.cluster.active_controller
        if successor is not None and self.may_end(successor):
            self.hold(successor)
            self.kill(successor)
            self.release(active)
            await asyncio.sleep(SUCCESSION_S)
            self.release(successor)
        else:
            self.release(active)

    async def _miss_epochs(self) -> None:
        """Cut a node off while the metadata change, until the quorum has another epoch.

        It gets what the former leader committed from the next one, and writes snapshots of that.
        """
        active, victim = self.cluster.active_controller, self.any()
        if active is None or victim is active or active in self.starting:
            return
        epoch, near = self._quorum_epoch(), [one for one in self.cluster if one is not victim]
        self.cluster.partition([_id(victim)], map(_id, near))
        await self._change_settings(active, near)
        self.hold(active)
        await self._take_down(active)
        await self.wait(0.2, 2)
        self.release(active)
        with suppress(TimeoutError):
            async with asyncio.timeout(SUCCESSION_S):
                while self._quorum_epoch() <= epoch:  # noqa: ASYNC110 - virtual time costs nothing
                    await asyncio.sleep(SUPERVISED_S)
        self.cluster.heal()

    def _quorum_epoch(self) -> int:
        """Return the epoch of the active controller, -1 without one."""
        active = self.cluster.active_controller
        node = None if active is None else active.node
        return -1 if node is None else node.controller.driver.node.epoch

    async def _change_settings(self, active: SimulatedNode, near: list[SimulatedNode]) -> None:
        """Let a leader of the quorum write, through brokers that reach it."""
        with suppress(KafkaError, TimeoutError):
            async with asyncio.timeout(ALONE_S):
                brokers = [one.bootstrap for one in near if "broker" in _roles(one)]
                async with active.admin(bootstrap_servers=",".join(brokers)) as admin:
                    await change_settings(admin, self.rng, PARTITIONS, 8, timeout_s=ALONE_S)

    async def _end_at_commit(self) -> None:
        """Cut a partition's leader off when it commits what a replica out of sync lacks."""
        chosen = choose(self.cluster, self.rng, PARTITIONS)
        if chosen is not None and await end_at_commit(self.cluster, self.rng, chosen):
            self.counts["cut at a commit"] = self.counts.get("cut at a commit", 0) + 1

    async def _isolate(self) -> None:
        """Cut a node off from the others until they have taken over what it led.

        Clients reach it: it appends records that are never committed, and has to cut them.
        """
        victim = self.any()
        others = [_id(host) for host in self.cluster if host is not victim]
        self.cluster.partition([_id(victim)], others)
        await asyncio.sleep(4 + self.rng.random() * 4)
        self.cluster.heal()

    async def _cut_one_way(self) -> None:
        ends: list[int | str] = [CLIENTS, *map(_id, self.cluster)]
        for _ in range(self.rng.randrange(1, 4)):
            one, other = self.rng.sample(ends, 2)
            self.cluster.cut(one, other, one_way=True)
        await self.wait(1, 5, 10)
        self.cluster.heal()

    async def _break_links(self) -> None:
        for _ in range(self.rng.randrange(1, 6)):
            self.cluster.network.break_links()
            await self.wait(0.1, 1)

    async def _slow_network(self) -> None:
        settings = LinkRules()
        settings.slow_probability = self.rng.choice((0.05, 0.3))
        settings.slow_us = self.rng.choice((200_000, 3_000_000))
        settings.split_probability = 0.3
        self.cluster.network.settings = settings
        await self.wait(2, 8)
        self.cluster.network.settings = LinkRules()

    # Disks and clocks

    async def _slow_disk(self) -> None:
        """Let flushes take long, or hang for seconds."""
        victim = self.any()
        longest_us = self.rng.choice((50_000, 1_000_000, 10_000_000))
        victim.disk_latency_us = (longest_us // 10, longest_us)
        await self.wait(2, 8)
        victim.disk_latency_us = DISK_LATENCY_US

    async def _fill_disk(self) -> None:
        victim = self.any()
        if not self.arm(victim):
            return
        disk = self.rng.choice(list(victim.disks.values()))
        disk.capacity_bytes = disk.used_bytes() + self.rng.randrange(20_000)
        await self.wait(2, 8)
        disk.capacity_bytes = UNLIMITED
        self.disarm(victim)

    async def _break_disk(self) -> None:
        """Let writes of a disk fail, or only flushes."""
        victim = self.any()
        if not self.arm(victim):
            return
        disk = self.rng.choice(list(victim.disks.values()))
        only_syncs = self.rng.random() < 0.5
        count = self.rng.choice((1, 20))
        disk.fail(
            lambda call: call.kind == "sync" if only_syncs else call.kind != "read",
            errno.EIO,
            times=count,
        )
        await self.wait(1, 4)
        disk.heal()
        self.disarm(victim)

    async def _fail_appends(self) -> None:
        """Let writes of a partition fail on some node; nothing restarts it but what it reports."""
        victim = self.any()
        if victim in self.starting or not self.arm(victim):
            return
        for disk in victim.disks.values():
            disk.fail(_is_append_to_partition, errno.EIO)
        await self.wait(4, 8)
        for disk in victim.disks.values():
            disk.heal()
        self.disarm(victim)

    async def _rot(self) -> None:
        """Let a bit of a node's metadata rot while it is down; `rot` says what must hold."""
        victim = self.any()
        if victim in self._armed or victim in self.starting or victim in self.held:
            return
        self.hold(victim)
        await self._take_down(victim)
        if not victim.is_alive and victim not in self.starting:
            for disk in victim.disks.values():
                disk.heal()
            offset = self._newest_image().offset_and_epoch.offset
            found = damage(victim, self.rng, offset)
            if found is not None:
                self._begin_start(victim, self._started_damaged(victim, found))
        await self.wait(2, 8)
        self.release(victim)

    async def _rot_records(self) -> None:
        """Let a bit of a stored batch rot in a node that runs, and restore it."""
        victim = self.any()
        if self._is_rotten or victim.node is None or not victim.is_alive:
            return
        if victim in self.starting or victim in self.stopping:
            return
        found, life = damage_records(victim, self.rng, PARTITIONS), victim.life_count
        if found is None:
            return
        self._is_rotten = True
        self.counts["rotten batches"] = self.counts.get("rotten batches", 0) + 1
        await self.wait(5, 10)
        found.restore()
        self._is_rotten = False
        if victim.is_alive and victim.life_count != life and victim not in self.starting:
            await self._stop(victim)

    async def _started_damaged(self, host: SimulatedNode, found: Damage) -> None:
        try:
            is_started = await start_damaged(host)
            what = "started" if is_started else "refused"
            self.counts[f"rot, {what}"] = self.counts.get(f"rot, {what}", 0) + 1
        except (SimulatedCrash, KafkaError, OSError):  # no majority, or stopped meanwhile
            self.kill(host)
        finally:
            found.restore()
            del self.starting[host]

    async def _cold_reads(self) -> None:
        victim = self.any()
        for disk in victim.disks.values():
            disk.cold_probability = 0.5
        await self.wait(2, 8)
        for disk in victim.disks.values():
            disk.cold_probability = 0.0

    async def _step_clock(self) -> None:
        self.any().clock_step_ms = self.rng.randrange(-MAX_STEP_MS, MAX_STEP_MS)


def raise_failure(job: asyncio.Task[None]) -> None:
    """Let the loop know what a job raised: it ends the run."""
    if not job.cancelled() and job.exception() is not None:
        raise job.exception()  # type: ignore[misc] # it is one


def _roles(host: SimulatedNode) -> str:
    return host.config["process.roles"]


def _is_append_to_partition(call: Call) -> bool:
    is_metadata = call.path.startswith((METADATA_LOG, "__consumer_offsets"))
    return call.kind == "append" and call.path.endswith(".log") and not is_metadata


def _id(host: SimulatedNode) -> int:
    return int(host.config["node.id"])


def _is_broken(host: SimulatedNode) -> bool:
    """Whether a node has halted, or a log directory of its is offline: it has to start again."""
    node = host.node
    if node is None:
        return False
    logs = node.broker.replicas.logs
    return node.halted.is_set() or len(logs.online_directories) < len(logs.directories)
