"""A broker less its sockets and controller, on a disk that loses what was not synced.

The cores are the real ones: the produce handler, ReplicaSet, LogSet and GroupCoordinator over one
simulated disk, killed or cut off at any of its writes. What holds after every restart: a killed
process lost nothing it had acknowledged, neither records nor commits; after a power cut a prefix
is there that holds all that was flushed; what is served is whole and was produced; producers go
on without a gap or a repetition. Run more with OTTLA_SIMULATION_SEEDS=1000.
"""

from __future__ import annotations

import os
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from ottla.coordinator.group.config import GroupCoordinatorConfig
from ottla.coordinator.group.coordinator import GroupCoordinator
from ottla.errors import ErrorCode
from ottla.protocol.apis.offset_commit import OffsetCommitRequest
from ottla.protocol.apis.offset_fetch import OffsetFetchRequest
from ottla.protocol.produce_values import PartitionRecords, ProduceValues
from ottla.purgatory.timing_wheel import TimingWheel
from ottla.records.batches import iterate_batches
from ottla.records.builder import encode_batch
from ottla.replication.replica_set import ReplicaSet
from ottla.server.broker.coordinator_log import TopicLog
from ottla.server.handlers.produce import produce
from ottla.storage.directories.log_dir import LogDirectory
from ottla.storage.log.append_info import FetchIsolation
from ottla.storage.log.config import LogConfig
from ottla.storage.log_set.log_set import LogSet
from ottla.testing.disk import SimulatedCrash, SimulatedDisk
from ottla.types import FileSlice
from tests.coordinator.harness import Topics, VirtualClock, context

if TYPE_CHECKING:
    from ottla.replication.partition import Partition

SEEDS = int(os.environ.get("OTTLA_SIMULATION_SEEDS", "60"))
STEPS = 60
OFFSETS = "__consumer_offsets"
CONFIG = LogConfig(segment_bytes=3000, index_interval_bytes=200, segment_index_bytes=240)
Committed = OffsetCommitRequest.OffsetCommitRequestTopic


class Broker:
    """One seeded run."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.disk = SimulatedDisk(seed)
        self.clock = VirtualClock()
        self.clock.time_ms = 1_000_000
        self.topics = Topics("t")
        self.epoch = 0
        self.produced: list[bytes] = []
        self.acknowledged = 0
        self.flushed = 0
        self.commits = [-1]
        self.commit_acknowledged = -1
        self.crashes = 0
        self.start()

    def start(self) -> None:
        """Load the logs and lead every partition."""
        self.timer = TimingWheel(self.clock.time_ms)
        self.logs = LogSet.open(
            [LogDirectory("/disk", self.disk)],
            config_for=lambda _: CONFIG,
            now_ms=self.clock.time_ms,
            rng=self.rng,
        )
        self.replicas = ReplicaSet(1, self.logs)
        self.groups = GroupCoordinator(
            GroupCoordinatorConfig(offsets_topic_num_partitions=1),
            log=TopicLog(OFFSETS, self.replicas, self.clock),
            timer=self.timer,
            clock=self.clock,
            topics=self.topics,
            new_uuid=lambda: str(self.rng.getrandbits(64)),
            on_fault=self._fault,
            offsets_partitions=lambda: None,
        )
        self.epoch += 1
        self.partition = self._lead("t")
        offsets = self._lead(OFFSETS)
        offsets.on_commit = lambda one: self.groups.on_high_watermark(0, one.log.high_watermark)
        self.groups.on_elected(0, self.epoch)
        self.advance(0)

    def _fault(self, error: Exception) -> None:
        raise error

    def _lead(self, topic: str) -> Partition:
        topic_id = Topics.id_of(topic)
        held = self.replicas.host(topic, 0, topic_id, now_ms=self.clock.time_ms)
        held.replicas = held.isr = (1,)
        held.become_leader(1, self.epoch)
        return held

    def advance(self, delay_ms: int) -> None:
        """Let time pass."""
        self.clock.time_ms += delay_ms
        self.timer.advance(self.clock.time_ms)

    def op_produce(self) -> None:
        """Send the producer's next batch through the handler."""
        sequence = len(self.produced)
        value = b"%d:" % sequence + self.rng.randbytes(self.rng.randrange(150))
        self.produced.append(value)
        self.send(sequence)

    def send(self, sequence: int) -> None:
        """Produce the record of this sequence; note its acknowledgement."""
        records = encode_batch(
            [(self.clock.time_ms, b"k", self.produced[sequence], ())],
            producer_id=5,
            producer_epoch=0,
            base_sequence=sequence,
        )
        request = ProduceValues(None, -1, 1000, [PartitionRecords("t", 0, memoryview(records))])
        ctx: Any = SimpleNamespace(
            broker=SimpleNamespace(replicas=self.replicas),
            api_version=9,
            client_id="c",
            now_ms=self.clock.time_ms,
        )
        answer: Any = produce(ctx, request)
        (found,) = answer
        assert found.error_code == ErrorCode.NONE
        assert found.base_offset == sequence
        self.acknowledged = max(self.acknowledged, sequence + 1)

    def op_commit(self) -> None:
        """Commit as far as the log goes."""
        offset = len(self.commits)
        self.commits.append(offset)
        topic = Committed(
            name="t",
            topic_id=Topics.id_of("t"),
            partitions=[
                Committed.OffsetCommitRequestPartition(
                    partition_index=0, committed_offset=offset, committed_metadata=""
                )
            ],
        )
        pending = self.groups.offset_commit(
            OffsetCommitRequest(group_id="g", member_id="", topics=[topic]), context(8)
        )
        self.advance(20)
        assert pending.value.topics[0].partitions[0].error_code == ErrorCode.NONE
        self.commit_acknowledged = offset

    def op_flush(self) -> None:
        """Run the storage's jobs: everything before is durable then."""
        self.logs.flushes.request_due(self.clock.time_ms)
        for job in self.logs.take_jobs():
            job.run()
            job.done(None)
        self.flushed = self.partition.log.recovery_point

    def op_roll(self) -> None:
        """Begin a new segment, which asks for a flush of the old one."""
        if self.partition.log.segments.active.size:
            self.partition.log.roll(self.clock.time_ms)

    def op_wait(self) -> None:
        """Let time pass."""
        self.advance(self.rng.randrange(1, 500))

    def step(self) -> None:
        """Do one thing."""
        operations = (self.op_produce, self.op_commit, self.op_flush, self.op_roll, self.op_wait)
        self.rng.choices(operations, (10, 5, 2, 1, 2))[0]()

    def served(self) -> list[bytes]:
        """Read all that consumers may see; every batch must be whole and in its place."""
        values: list[bytes] = []
        end = self.partition.log.high_watermark
        while len(values) < end:
            data = self.partition.read(
                len(values), 700, isolation=FetchIsolation.HIGH_WATERMARK, min_one_message=True
            ).records
            content = data.read() if isinstance(data, FileSlice) else data
            for batch in iterate_batches(memoryview(content), partial_tail=True):
                batch.check_crc()
                assert batch.base_offset == len(values)
                values += [bytes(record.value or b"") for record in batch.records(1 << 20)]
        return values

    def committed(self) -> int:
        """Ask the coordinator for the group's offset."""
        wanted = OffsetFetchRequest.OffsetFetchRequestGroup(
            group_id="g",
            topics=[
                OffsetFetchRequest.OffsetFetchRequestGroup.OffsetFetchRequestTopics(
                    name="t", topic_id=Topics.id_of("t"), partition_indexes=[0]
                )
            ],
        )
        pending = self.groups.offset_fetch(OffsetFetchRequest(groups=[wanted]), context(9))
        self.advance(20)
        return int(pending.value.groups[0].topics[0].partitions[0].committed_offset)

    def crash(self, *, power: bool) -> None:
        """End the process or cut the power; start again; hold what is there against the model."""
        self.crashes += 1
        if power:
            self.disk.crash()
        else:
            self.disk.kill()
        self.start()
        values, offset = self.served(), self.committed()
        assert values == self.produced[: len(values)]
        assert offset in self.commits
        assert len(values) >= (self.flushed if power else self.acknowledged)
        if not power:
            assert offset >= self.commit_acknowledged
        for sequence in range(max(len(values) - 3, 0), len(values)):
            self.send(sequence)  # a retry of what is there is answered, not written again
        for sequence in range(len(values), len(self.produced)):
            self.send(sequence)
        assert self.served() == self.produced
        self.commit_acknowledged, self.commits = offset, [-1, *range(1, len(self.commits))]

    def go(self) -> None:
        """Run and crash, now and then in the middle of a write."""
        for _ in range(STEPS):
            if self.rng.random() < 0.12:
                self.disk.crash_at(self.disk.calls + self.rng.randrange(1, 12))
            try:
                self.step()
                if self.rng.random() < 0.05:
                    raise SimulatedCrash
            except SimulatedCrash:
                self.crash(power=self.rng.random() < 0.5)
        self.crash(power=False)


@pytest.mark.parametrize("block", range(4))
def test_a_broker_survives_kills_and_power_cuts_at_any_write(block: int) -> None:
    """Every seed keeps every promise."""
    crashes = 0
    for seed in range(block, SEEDS, 4):
        broker = Broker(seed)
        try:
            broker.go()
        except AssertionError as error:
            raise AssertionError(f"Broker({seed}).go() fails") from error
        crashes += broker.crashes
    assert crashes > SEEDS // 4
