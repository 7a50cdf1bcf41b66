"""Whole clusters with a tier: what was acknowledged is read back, and nothing is left for ever."""

from __future__ import annotations

import asyncio
from contextvars import Context
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from ottla import ConfigResource, NewTopic, ResourceType, TopicPartition
from ottla.config.broker.replication import RACK_AWARE_SELECTOR
from ottla.errors.named import UnknownServerError
from ottla.purgatory.pending import Pending
from ottla.server.remote import log_manager
from ottla.storage.producers.snapshot import encode_snapshot
from ottla.storage.remote.segment import SegmentState
from ottla.testing.simulation import SimulatedCluster
from tests.simulation.simulated_tier import SETTINGS, TIERED, Store
from tests.soaks import with_soaks
from tests.waits import until

if TYPE_CHECKING:
    from ottla.replication.partition import Partition
    from ottla.storage.remote.segment import RemoteSegment, SegmentUpdate
    from ottla.testing.simulation.node import SimulatedNode

TIMES = {
    "replica.lag.time.max.ms": "3000",
    "broker.session.timeout.ms": "3000",
    "replica.fetch.backoff.ms": "200",
}


ABANDONED_MS = 60_000
"""An hour takes long to simulate."""


@pytest.fixture(autouse=True)
def _short_age(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_manager, "ABANDONED_MS", ABANDONED_MS)


class TieredCluster(SimulatedCluster):
    """Nodes that share a store."""

    def __init__(self, seed: int, *, nodes: int = 3, **config: str) -> None:
        name = f"tier{seed}"
        settings = {**TIMES, **SETTINGS, "rsm.config.store": name, **config}
        super().__init__(seed, nodes=nodes, config=settings)
        self.store = Store(name, self.loop, Random(f"{seed}/tier"))

    async def create(self, partitions: int, replicas: int = 3, **configs: str) -> None:
        """Make the topic and wait for its leaders."""
        async with self.admin() as admin:
            topic = NewTopic("t", partitions, replicas, configs={**TIERED, **configs})
            await admin.create_topics([topic])
        await until(lambda: all(self.leader(index) is not None for index in range(partitions)))

    def replica(self, node: SimulatedNode, partition: int = 0) -> Partition | None:
        """Return a node's replica."""
        if node.node is None or not node.is_alive:
            return None
        return node.node.broker.replicas.find("t", partition)

    def leader(self, partition: int = 0) -> SimulatedNode | None:
        """Return the leader of the newest epoch."""
        known = [
            (one.leader_epoch, one.leader_id)
            for one in (self.replica(node, partition) for node in self)
            if one is not None
        ]
        leader_id = max(known, default=(0, -1))[1]
        return self[leader_id] if leader_id > 0 and self[leader_id].is_alive else None

    def leading(self, partition: int = 0) -> Partition:
        """Return the leader's replica."""
        node = self.leader(partition)
        replica = None if node is None else self.replica(node, partition)
        assert replica is not None
        return replica

    async def write(self, count: int, first: int = 0, partition: int = 0) -> None:
        """Write records, each in a segment of its own or nearly so."""
        async with self.producer(acks="all") as producer:
            for number in range(first, first + count):
                sent = await producer.send("t", b"%d" % number, partition=partition)
                await sent
                await asyncio.sleep(2.1)

    async def values(self, count: int, partition: int = 0, **settings: Any) -> list[bytes]:
        """Read a partition from its start until so many records came."""
        async with self.consumer(auto_offset_reset="earliest", **settings) as consumer:
            consumer.assign([TopicPartition("t", partition)])
            values: list[bytes] = []
            async with asyncio.timeout(300):
                while len(values) < count:
                    try:
                        polled = await consumer.poll(timeout=1.0)
                    except UnknownServerError:
                        continue  # the tier was not read: as in Kafka, the application repeats it
                    values += [bytes(record.value or b"") for record in polled]
        return values

    def is_copied(self, partition: int = 0) -> bool:
        """Whether the tier has all but the active segment, and all replicas know that."""
        found = [one for node in self if (one := self.replica(node, partition)) is not None]
        return bool(found) and all(
            one.log.segments.active.base_offset == one.log.highest_remote_offset + 1
            for one in found
        )

    def is_clean(self, partition: int = 0) -> bool:
        """Whether the tier has what the leader's table has, each offset once, and nothing else."""
        node = self.leader(partition)
        manager = None if node is None or node.node is None else node.node.remote_logs
        if manager is None:
            return False
        replica = self.leading(partition)
        if not manager._topic.is_ready((replica.topic_id, partition)):
            return False
        table = manager.table((replica.topic_id, partition)).segments()
        ends = [segment.end_offset + 1 for segment in table]
        starts = [segment.start_offset for segment in table]
        stored = self.store.segments(f"t-{partition}-")
        return (
            all(one.state is SegmentState.COPY_SEGMENT_FINISHED for one in table)
            and ends[:-1] == starts[1:]
            and len(stored) == len(table)
            and all(any(str(one.segment_id) in name for name in stored) for one in table)
        )


def _has_freed_disk(replica: Partition) -> bool:
    return replica.log.local_log_start_offset > 0


def state_of(replica: Partition) -> tuple[object, ...]:
    """Return what a log knows of its past: starts, epochs, producers."""
    log = replica.log
    producers = sorted(log.producer_state.producers.values(), key=lambda entry: entry.producer_id)
    return (
        log.log_start_offset,
        log.log_end_offset,
        log.leader_epochs.entries,
        encode_snapshot(producers),
    )


def test_every_leader_copies_and_every_follower_knows() -> None:
    """Also where another broker leads the metadata: local segments go from all replicas."""
    cluster = TieredCluster(31)

    async def work() -> None:
        await cluster.start()
        await cluster.create(6)
        writes = [cluster.loop.create_task(cluster.write(5, partition=one)) for one in range(6)]
        for write in writes:
            await write
        for partition in range(6):
            await until(partial(cluster.is_copied, partition))
            for node in cluster:
                replica = cluster.replica(node, partition)
                assert replica is not None
                await until(partial(_has_freed_disk, replica))
                assert replica.log.log_start_offset == 0
            assert await cluster.values(5, partition) == [b"%d" % one for one in range(5)]
        await cluster.stop()

    cluster.run(work())


@pytest.mark.parametrize("isolation", with_soaks(["read_uncommitted", "read_committed"]))
def test_a_follower_in_the_rack_of_a_consumer_reads_the_tier_for_it(isolation: str) -> None:
    """The leader, of another rack, only says where: none of the tier's bytes pass through it."""
    cluster = TieredCluster(38)
    for node_id in (1, 2, 3):
        own = {"broker.rack": f"rack{node_id}", "replica.selector.class": RACK_AWARE_SELECTOR}
        cluster[node_id].config.update(own)

    def reads_of(node_id: int) -> int:
        node = cluster[node_id].node
        assert node is not None
        assert node.broker.remote_reader is not None
        return node.broker.remote_reader.counts["t"].read_count

    async def work() -> None:
        await cluster.start()
        await cluster.create(1)
        await cluster.write(5)
        await until(cluster.is_copied)
        for node in cluster:
            replica = cluster.replica(node)
            assert replica is not None
            await until(partial(_has_freed_disk, replica))
        leader = cluster.leader()
        assert leader is not None
        near = next(number for number in (1, 2, 3) if cluster[number] is not leader)
        expected = [b"%d" % number for number in range(5)]
        settings: Any = {"client_rack": f"rack{near}", "isolation_level": isolation}
        assert await cluster.values(5, **settings) == expected
        reads = {number: reads_of(number) for number in (1, 2, 3)}
        assert reads[near] >= 3
        assert reads == dict.fromkeys(reads, 0) | {near: reads[near]}
        await cluster.stop()

    cluster.run(work())


@pytest.mark.soak
def test_a_copy_that_its_leader_does_not_end_is_deleted() -> None:
    """The next leader copies the segment again; the entry goes by its age."""
    cluster = TieredCluster(32)

    async def work() -> None:
        await cluster.start()
        await cluster.create(1)
        cluster.store.call_ns = 3_000_000_000
        await cluster.write(4)
        await until(lambda: cluster.store.calls.get("copy", 0) >= 2)
        first = cluster.leader()
        assert first is not None
        first.kill(power=False)
        cluster.store.call_ns = 1_000_000
        await until(lambda: cluster.leader() not in (None, first))
        await until(cluster.is_copied)
        assert not cluster.is_clean()
        await asyncio.sleep(ABANDONED_MS / 1000)
        await until(cluster.is_clean)
        await first.start()
        await cluster.write(2, first=4)
        await until(cluster.is_copied)
        await until(cluster.is_clean)
        assert await cluster.values(6) == [b"%d" % one for one in range(6)]
        await cluster.stop()

    cluster.run(work())


@pytest.mark.soak
def test_leaders_of_logs_and_of_metadata_change_in_the_middle_of_copies() -> None:
    """Each copy is ended, or its leader deletes it; nothing is copied for ever."""
    cluster = TieredCluster(33)

    async def work() -> None:
        await cluster.start()
        await cluster.create(2)
        cluster.store.call_ns = 700_000_000
        writes = [cluster.loop.create_task(cluster.write(20, partition=one)) for one in range(2)]
        for number in range(6):
            await asyncio.sleep(5)
            node = cluster[number % 3 + 1]
            node.pause() if number % 2 else node.kill(power=number == 2)
            await asyncio.sleep(6)
            node.resume() if number % 2 else await node.start()
        for write in writes:
            await write
        cluster.store.call_ns = 1_000_000
        for partition in range(2):
            await until(partial(cluster.is_copied, partition))
        await asyncio.sleep(ABANDONED_MS / 1000)
        for partition in range(2):
            await until(partial(cluster.is_clean, partition))
            values = await cluster.values(20, partition)
            assert list(dict.fromkeys(values)) == [b"%d" % one for one in range(20)]
        await cluster.stop()

    cluster.run(work())


@pytest.mark.soak
@pytest.mark.parametrize("crash", [False, True])
def test_a_new_replica_begins_behind_the_tier(crash: bool) -> None:  # noqa: FBT001 - parametrized
    """It knows starts, epochs and producers as the leader does; as leader it serves the tier."""
    cluster = TieredCluster(34)

    async def work() -> None:
        await cluster.start()
        await cluster.create(1, replicas=2)
        await cluster.write(4)
        first = cluster.leader()
        assert first is not None
        first.kill(power=False)
        await until(lambda: cluster.leader() not in (None, first))
        await cluster.write(3, first=4)
        await first.start()
        await until(lambda: len(cluster.leading().isr) == 2)
        await until(cluster.is_copied)
        await until(lambda: cluster.leading().log.local_log_start_offset > 4)
        held = cluster.leading().replicas
        new_id = next(one for one in (1, 2, 3) if one not in held)
        async with cluster.admin() as admin:
            target = {TopicPartition("t", 0): [new_id, *held]}
            assert list((await admin.alter_partition_reassignments(target)).values()) == [None]
            await until(lambda: new_id in cluster.leading().isr)
        new = cluster.replica(cluster[new_id])
        assert new is not None
        assert state_of(new) == state_of(cluster.leading())
        assert len(new.log.producer_state.producers) == 2
        assert len(new.log.leader_epochs.entries) >= 2
        assert new.log.local_log_start_offset > 4
        if crash:
            cluster.kill(new_id, power=True)
            await cluster.start(new_id)
            await until(lambda: new_id in cluster.leading().isr)
            again = cluster.replica(cluster[new_id])
            assert again is not None
            await until(lambda: again.log.high_watermark == 7)
            assert state_of(again) == state_of(cluster.leading())
        for node_id in held:
            cluster.kill(node_id, power=False)
            if node_id == held[0]:
                await until(lambda: cluster.leader() not in (None, cluster[held[0]]))
                await cluster.start(node_id)
                await until(lambda: len(cluster.leading().isr) == 3)
        await until(lambda: cluster.leader() is cluster[new_id])
        await cluster.start(held[1])
        assert await cluster.values(7) == [b"%d" % one for one in range(7)]
        await cluster.write(3, first=7)
        await until(cluster.is_copied)
        async with cluster.admin() as admin:
            await admin.delete_records({TopicPartition("t", 0): 6})
        await until(lambda: len(cluster.store.segments("t-0-")) == 3)
        await cluster.stop()

    cluster.run(work())


def test_a_controller_resigns_before_its_stop_waits_for_the_tier() -> None:
    """Calls that do not end take ten seconds of a stop: longer than elections and sessions."""
    cluster = TieredCluster(38)

    async def work() -> None:
        await cluster.start()
        await cluster.create(1)
        stopping = next(one.node for one in cluster if one.node and one.node.controller.active)
        assert stopping.remote_logs is not None
        pool, was_active = stopping.remote_logs.tier.pool, []
        close = pool.close

        def note() -> None:
            was_active.append(stopping.controller.active)
            close()

        pool.close = note  # type: ignore[method-assign]
        await cluster.stop(stopping.config.node_id)
        assert was_active == [False]
        await cluster.stop()

    cluster.run(work())


@pytest.mark.soak
def test_a_segment_whose_copy_is_being_confirmed_counts_once() -> None:
    """Its record is read back before it is durable; by retention.bytes none has expired then."""
    cluster = TieredCluster(37)

    async def work() -> None:
        await cluster.start()
        await cluster.create(1, replicas=1)
        await cluster.write(4)
        await until(cluster.is_copied)
        replica = cluster.leading()
        leader = cluster.leader()
        assert leader is not None
        assert leader.node is not None
        assert leader.node.remote_logs is not None
        manager, key = leader.node.remote_logs, (replica.topic_id, 0)
        topic, write, confirmed = manager._topic, manager._topic.write, Pending[None]()

        def write_slowly(record: RemoteSegment | SegmentUpdate) -> Pending[None]:
            written = write(record)
            return confirmed if record.state is SegmentState.COPY_SEGMENT_FINISHED else written

        topic.write = write_slowly  # type: ignore[method-assign]
        sizes = [one.size_bytes for one in manager.table(key).segments()]
        active = replica.log.segments.active.size
        resource = ConfigResource(ResourceType.TOPIC, "t")
        async with cluster.admin() as admin:
            limit = {"retention.bytes": str(sum(sizes) + 2 * active)}
            await admin.alter_configs({resource: limit})
        await cluster.write(1, first=4)
        await asyncio.sleep(10)
        states = [one.state for one in manager.table(key).segments()]
        assert states == [SegmentState.COPY_SEGMENT_FINISHED] * (len(sizes) + 1)
        assert replica.log.log_start_offset == 0
        confirmed.complete(None)
        topic.write = write  # type: ignore[method-assign]
        assert await cluster.values(5) == [b"%d" % one for one in range(5)]
        await cluster.stop()

    cluster.run(work())


@pytest.mark.soak
def test_a_call_that_ends_late_does_not_change_a_log_that_goes_on() -> None:
    """A follower has got the state by another call, and has new epochs, when the first one ends."""
    cluster = TieredCluster(36)

    async def elect_another(count: int) -> None:
        leader = cluster.leader()
        assert leader is not None
        leader.kill(power=False)
        await until(lambda: cluster.leader() not in (None, leader))
        await cluster.write(1, first=count)
        await leader.start()
        await until(lambda: len(cluster.leading().isr) == len(cluster.leading().replicas))

    async def work() -> None:
        await cluster.start()
        await cluster.create(1, replicas=2)
        await cluster.write(7)
        await until(cluster.is_copied)
        await until(lambda: cluster.leading().log.local_log_start_offset > 4)
        held = cluster.leading().replicas
        new = cluster[next(one for one in (1, 2, 3) if one not in held)]
        assert new.node is not None
        assert new.node.remote_logs is not None
        calls, late = new.node.remote_logs.tier.followers, []
        run, calls.run = calls.run, lambda *call: late.append(call)  # type: ignore[method-assign]
        async with cluster.admin() as admin:
            target = {TopicPartition("t", 0): [new.node.config.node_id, *held]}
            assert list((await admin.alter_partition_reassignments(target)).values()) == [None]
        await until(lambda: late)
        calls.run = run  # type: ignore[method-assign]
        await elect_another(7)
        await elect_another(8)
        replica = cluster.replica(new)
        assert replica is not None
        epochs = list(replica.log.leader_epochs.entries)
        assert len(epochs) > 2
        await asyncio.sleep(5)
        run(*late.pop())
        await asyncio.sleep(5)
        new.kill(power=False)
        await new.start()
        await until(lambda: cluster.replica(new) is not None)
        again = cluster.replica(new)
        assert again is not None
        assert list(again.log.leader_epochs.entries)[: len(epochs)] == epochs
        await cluster.stop()

    cluster.run(work())


@pytest.mark.soak
@pytest.mark.parametrize("is_on", [False, True])
def test_an_empty_follower_begins_after_the_tier(is_on: bool) -> None:  # noqa: FBT001 - parametrized
    """With KIP-1023; without it it copies all that the leader has on its disk."""
    name = "follower.fetch.last.tiered.offset.enable"
    cluster = TieredCluster(35, nodes=3, **{name: str(is_on).lower()})

    async def work() -> None:
        await cluster.start()
        await cluster.create(1, replicas=2, **{"local.retention.bytes": "200"})
        await cluster.write(7)
        await until(cluster.is_copied)
        await until(lambda: cluster.leading().log.local_log_start_offset > 0)
        await asyncio.sleep(10)
        leader = cluster.leading()
        held, local_start = leader.replicas, leader.log.local_log_start_offset
        assert 0 < local_start < leader.log.segments.active.base_offset
        new_id = next(one for one in (1, 2, 3) if one not in held)
        async with cluster.admin() as admin:
            target = {TopicPartition("t", 0): [new_id, *held]}
            assert list((await admin.alter_partition_reassignments(target)).values()) == [None]
            await until(lambda: new_id in cluster.leading().isr)
        new = cluster.replica(cluster[new_id])
        assert new is not None
        expected = leader.log.segments.active.base_offset if is_on else local_start
        assert new.log.local_log_start_offset == expected
        assert state_of(new) == state_of(cluster.leading())
        assert await cluster.values(7) == [b"%d" % one for one in range(7)]
        await cluster.stop()

    cluster.run(work())


@pytest.mark.soak
@pytest.mark.parametrize("seed", [41, 42, 43])
def test_a_tier_that_delays_and_fails_loses_nothing(seed: int) -> None:
    """All that was acknowledged is read back while calls fail and brokers die; nothing is left."""
    cluster = TieredCluster(seed)
    rng = Random(seed)

    async def work() -> None:
        await cluster.start()
        await cluster.create(2)
        cluster.store.fault_rate = 0.15
        writes = [cluster.loop.create_task(cluster.write(15, partition=one)) for one in range(2)]
        for _ in range(3):
            await asyncio.sleep(4)
            node_id = rng.randint(1, 3)
            cluster.kill(node_id, power=rng.random() < 0.5)
            await asyncio.sleep(rng.randint(1, 5))
            await cluster.start(node_id)
        for write in writes:
            await write
        for partition in range(2):
            values = await cluster.values(15, partition)
            assert list(dict.fromkeys(values)) == [b"%d" % one for one in range(15)]
        cluster.store.fault_rate = 0
        for partition in range(2):
            await until(partial(cluster.is_copied, partition))
        await asyncio.sleep(ABANDONED_MS / 1000)
        for partition in range(2):
            await until(partial(cluster.is_clean, partition))
            values = await cluster.values(15, partition)
            assert list(dict.fromkeys(values)) == [b"%d" % one for one in range(15)]
        await cluster.stop()

    cluster.run(work())


@pytest.mark.soak
def test_nothing_leaves_the_disks_while_the_tier_is_away() -> None:
    """All replicas keep all segments; what was not copied is copied when it is back."""
    cluster = TieredCluster(44)

    async def work() -> None:
        await cluster.start()
        await cluster.create(1)
        cluster.store.is_away = True
        await cluster.write(5)
        await asyncio.sleep(20)
        for node in cluster:
            replica = cluster.replica(node)
            assert replica is not None
            assert replica.log.local_log_start_offset == 0
        assert await cluster.values(5) == [b"%d" % one for one in range(5)]
        cluster.store.is_away = False
        await until(cluster.is_copied)
        await until(cluster.is_clean)
        await cluster.stop()

    cluster.run(work())


@pytest.mark.soak
def test_a_deletion_that_its_leader_does_not_end_is_resumed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The leader of the metadata deletes segments of a topic that is gone."""
    monkeypatch.setattr(log_manager, "ORPHAN_MS", 20_000)
    cluster = TieredCluster(45)

    async def work() -> None:
        await cluster.start()
        await cluster.create(1)
        await cluster.write(4)
        await until(cluster.is_copied)
        cluster.store.is_away = True
        async with cluster.admin() as admin:
            await admin.delete_topics(["t"])
        await asyncio.sleep(2)
        for node in cluster:
            node.kill(power=False)
        cluster.store.is_away = False
        await cluster.start()
        assert cluster.store.segments("t-0-")
        await until(lambda: not cluster.store.files)
        await cluster.stop()

    cluster.run(work())


def test_disabling_with_deletion_leaves_only_local_records() -> None:
    """The log starts at the leader's local start, on all replicas; the tier is empty."""
    cluster = TieredCluster(46)

    async def work() -> None:
        await cluster.start()
        await cluster.create(1)
        await cluster.write(5)
        await until(cluster.is_copied)
        await until(lambda: cluster.leading().log.local_log_start_offset == 4)
        topic = ConfigResource(ResourceType.TOPIC, "t")
        async with cluster.admin() as admin:
            configs = {"remote.storage.enable": "false", "remote.log.delete.on.disable": "true"}
            await admin.alter_configs({topic: configs})
        await until(lambda: not cluster.store.files)
        for node in cluster:
            replica = cluster.replica(node)
            assert replica is not None
            await until(partial(_starts_at, replica, 4))
        assert await cluster.values(1) == [b"4"]
        await cluster.stop()

    cluster.run(work())


def _starts_at(replica: Partition, offset: int) -> bool:
    return replica.log.log_start_offset == offset


@pytest.mark.soak
def test_with_copies_disabled_the_tier_is_read_and_expires() -> None:
    """No further segment is copied; local segments expire with the whole log."""
    cluster = TieredCluster(47)

    async def work() -> None:
        await cluster.start()
        await cluster.create(1)
        await cluster.write(4)
        await until(cluster.is_copied)
        await until(lambda: cluster.leading().log.local_log_start_offset == 3)
        count = len(cluster.store.segments("t-0-"))
        topic = ConfigResource(ResourceType.TOPIC, "t")
        async with cluster.admin() as admin:
            configs = {"remote.log.copy.disable": "true", "local.retention.bytes": "-2"}
            await admin.alter_configs({topic: configs})
            await cluster.write(3, first=4)
            assert len(cluster.store.segments("t-0-")) == count
            assert await cluster.values(7) == [b"%d" % one for one in range(7)]
            await admin.alter_configs({topic: {"retention.ms": "5000"}})
            await until(lambda: not cluster.store.files)
            await until(lambda: cluster.leading().log.log_start_offset > 4)
        await cluster.stop()

    cluster.run(work())


@pytest.mark.soak
@pytest.mark.parametrize("seed", [81, 82])
def test_a_copy_whose_last_record_comes_late_is_kept(seed: int) -> None:
    """The record of its end times out and reaches the topic: the segment is not deleted."""
    waits = {"rlmm.config.remote.log.metadata.consume.wait.ms": "5000"}
    one = {"rlmm.config.remote.log.metadata.topic.num.partitions": "1"}
    cluster = TieredCluster(seed, nodes=3, **waits, **one)

    async def work() -> None:
        await cluster.start()
        await cluster.create(1, replicas=1)
        await cluster.write(3)
        await until(cluster.is_copied)
        leader = cluster.leader()
        others = [node for node in cluster if node is not leader]
        assert leader is not None
        assert leader.node is not None
        assert leader.node.remote_logs is not None
        topic = leader.node.remote_logs._topic
        write = topic.write

        def resume() -> None:
            for node in others:
                node.resume()

        def write_late(record: Any) -> Any:
            setattr(topic, "write", write)  # noqa: B010 - mypy knows it as a method
            for node in others:
                node.pause()
            cluster.loop.call_later(9, resume)
            return write(record)

        def watched(record: Any) -> Any:
            is_end = getattr(record, "state", None) is SegmentState.COPY_SEGMENT_FINISHED
            return write_late(record) if is_end else write(record)

        setattr(topic, "write", watched)  # noqa: B010 - mypy knows it as a method
        await cluster.write(5, first=3)
        await until(cluster.is_copied)
        await asyncio.sleep(30)
        async with cluster.consumer(auto_offset_reset="none") as consumer:
            consumer.assign([TopicPartition("t", 0)])
            for offset in range(8):
                consumer.seek(TopicPartition("t", 0), offset)
                assert (await consumer.poll(timeout=5))[0].offset == offset
        await cluster.stop()

    cluster.run(work())


def test_a_start_answers_no_reset_before_it_knows_the_tier() -> None:
    """A consumer that reads at once after a restart gets every record, whatever its reset is."""
    alone = {"rlmm.config.remote.log.metadata.topic.replication.factor": "1"}
    cluster = TieredCluster(71, nodes=1, **alone)

    async def work() -> None:
        await cluster.start()
        await cluster.create(1, replicas=1)
        await cluster.write(6)
        await until(cluster.is_copied)
        await until(lambda: cluster.leading().log.local_log_start_offset > 3)
        cluster[1].kill(power=False)
        start = asyncio.ensure_future(cluster.start(1))
        async with cluster.consumer(auto_offset_reset="none") as consumer:
            consumer.assign([TopicPartition("t", 0)])
            consumer.seek(TopicPartition("t", 0), 0)
            offsets: list[int] = []
            while len(offsets) < 6:
                offsets += [record.offset for record in await consumer.poll(timeout=0.05)]
        assert offsets == list(range(6))
        await start
        await cluster.stop()

    cluster.run(work())


@pytest.mark.soak
@pytest.mark.parametrize("seed", [91, 92, 93])
def test_a_copy_whose_last_record_is_not_committed_at_a_restart_is_kept(seed: int) -> None:
    """Its leader starts again and does not see the record yet: what it deletes is copied again."""
    alone = {"rlmm.config.remote.log.metadata.topic.num.partitions": "1"}
    cluster = TieredCluster(seed, nodes=3, **alone, **{"replica.lag.time.max.ms": "20000"})

    async def work() -> None:
        await cluster.start()
        await cluster.create(1, replicas=1)
        await cluster.write(3)
        await until(cluster.is_copied)
        leader = cluster.leader()
        assert leader is not None
        assert leader.node is not None
        assert leader.node.remote_logs is not None
        topic = leader.node.remote_logs._topic
        metadata = leader.node.broker.replicas.find("__remote_log_metadata", 0)
        assert metadata is not None
        keeper = cluster[metadata.leader_id]
        (follower,) = (node for node in cluster if node not in (leader, keeper))
        write = topic.write

        def kill_after(record: Any) -> Any:
            if getattr(record, "state", None) is SegmentState.COPY_SEGMENT_FINISHED:
                setattr(topic, "write", write)  # noqa: B010 - mypy knows it as a method
                follower.pause()
                ours = Context()  # timers of the leader's process would end with it
                cluster.loop.call_later(9, follower.resume, context=ours)
                cluster.loop.call_later(0.3, partial(leader.kill, power=False), context=ours)
            return write(record)

        setattr(topic, "write", kill_after)  # noqa: B010 - mypy knows it as a method
        writing = asyncio.ensure_future(cluster.write(5, first=3))
        await until(lambda: not leader.is_alive)
        await leader.start()
        await writing
        await until(cluster.is_copied)
        await asyncio.sleep(30)
        async with cluster.consumer(auto_offset_reset="none") as consumer:
            consumer.assign([TopicPartition("t", 0)])
            for offset in range(8):
                consumer.seek(TopicPartition("t", 0), offset)
                polled: Any = []
                while not polled:
                    polled = await consumer.poll(timeout=5)
                assert polled[0].offset == offset
        await cluster.stop()

    cluster.run(work())
