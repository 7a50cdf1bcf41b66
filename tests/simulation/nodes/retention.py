"""A seeded run of retention: what it must keep, what it must delete, and rotten timestamps.

One topic is kept for a time, another up to a size, while the node is killed, loses its power and is
stopped. What must hold:

- A record younger than `retention.ms` is there; later, none older is.
- A log that is larger than `retention.bytes` keeps at least that, and at most a segment more.
- What is left is right and has no gap; the log start offset never goes back, but by a power cut.
- A bit rots in a timestamp of a batch or of a time index. Retention verifies no checksum, as in
  Kafka: that partition may lose its records early, or keep them. It still serves no wrong record,
  and the other partitions are not affected.

Kafka: none; after its LogManagerTest.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from ottla.errors import KafkaError
from ottla.types import TopicPartition
from tests.simulation.nodes.producer_workload import ProducerWorkload
from tests.simulation.nodes.rot import Bit, flushed_batches, segments

if TYPE_CHECKING:
    from ottla.clients.consumer.consumer import AsyncConsumer

RETENTION_MS = 20_000
RETENTION_BYTES = 8192
SEGMENT_BYTES = 2048
_SETTLE_S = RETENTION_MS / 1000 + 10
TIMED = [TopicPartition("timed", number) for number in range(3)]
SIZED = TopicPartition("sized", 0)
ROTTEN = TIMED[0]
_MAX_RECORD_BYTES = 200
_CONFIG = {
    "log.index.interval.bytes": "256",
    "auto.create.topics.enable": "false",
    "log.initial.task.delay.ms": "500",
    "log.retention.check.interval.ms": "1000",
    "log.segment.delete.delay.ms": "500",
    "log.flush.offset.checkpoint.interval.ms": "1000",
}
_SEGMENTS = {"internal.segment.bytes": SEGMENT_BYTES, "flush.messages": 1}
_TIMESTAMPS = range(27, 43)
"""The bytes of a batch's base and largest timestamp."""
_INDEX_ENTRY_BYTES = 12


class _Stored(NamedTuple):
    value: bytes
    timestamp: int


class RetentionWorkload(ProducerWorkload):
    """The records that were sent, and what of them must be there."""

    def __init__(self, seed: int, *, steps: int = 40) -> None:
        super().__init__(seed, "retention", _CONFIG)
        self.rot_count = 0
        self.expired_count = 0
        """Records that retention removed from sound partitions."""
        self._steps = steps
        self._value_count = 0
        self._sent: set[bytes] = set()
        self._stored: dict[TopicPartition, dict[int, _Stored]] = {
            one: {} for one in (*TIMED, SIZED)
        }
        self._starts: dict[TopicPartition, int] = {}
        """Log start offsets as last seen."""

    async def _main(self) -> None:
        await self.simulation.start()
        async with self.simulation.admin() as admin:
            by_time = {"retention.ms": RETENTION_MS, **_SEGMENTS}
            await admin.create_topic("timed", len(TIMED), configs=by_time)
            by_size = {"retention.ms": -1, "retention.bytes": RETENTION_BYTES, **_SEGMENTS}
            await admin.create_topic("sized", 1, configs=by_size)
        await self._open_producer()
        steps = (self._produce, self._wait, self._restart, self._rot, self._check_all)
        for _ in range(self._steps):
            step = self._rng.choices(steps, (8, 4, 2, 1, 2))[0]
            await step()
        await self._produce()
        await asyncio.sleep(_SETTLE_S)
        await self._check_all()
        self._check_settled()
        await self._close_producer()
        await self.simulation.stop()

    # Steps

    async def _produce(self) -> None:
        for partition in (*TIMED, SIZED):
            for _ in range(self._rng.randrange(6)):
                await self._send(partition)

    async def _send(self, partition: TopicPartition) -> None:
        assert self._producer is not None
        self._value_count += 1
        noise = self._rng.randbytes(self._rng.randrange(_MAX_RECORD_BYTES))
        value = b"%d:" % self._value_count + noise
        self._sent.add(value)
        try:
            found = await self._producer.send_and_wait(
                partition.topic, value, partition=partition.partition
            )
        except KafkaError:
            self._check(partition == ROTTEN and self.rot_count, f"{partition} takes no records")
        else:
            self._stored[partition][found.offset] = _Stored(value, found.timestamp)

    async def _restart(self) -> None:
        if await self._end() == "power cut":
            self._starts.clear()
        if self._rng.random() < 0.3:
            await self._rot()
        await self._begin_again()
        await self._check_all()

    async def _rot(self) -> None:
        """Flip a bit of a timestamp of the one partition that rots."""
        disk, rng = self.simulation.disk, self._rng
        choices = [
            Bit(stored.path, stored.header.position + rng.choice(_TIMESTAMPS), rng.randrange(8))
            for stored in flushed_batches(disk, ROTTEN)
        ]
        for log in segments(disk, str(ROTTEN)):
            path = log.removesuffix(".log") + ".timeindex"
            size = len(disk.content(path)) if path in disk.files() else 0
            if size >= _INDEX_ENTRY_BYTES:
                choices.append(Bit(path, rng.randrange(size), rng.randrange(8)))
        if choices:
            rng.choice(choices).flip(disk)
            self.rot_count += 1

    # Checks

    async def _check_all(self) -> None:
        consumer = await self.simulation.consumer(
            auto_offset_reset="earliest",  # retention may overtake this reader
            fetch_max_wait_ms=20,
            default_api_timeout_ms=10_000,
            request_timeout_ms=3000,
        ).start()
        try:
            for partition in (*TIMED, SIZED):
                is_rotten = partition == ROTTEN and self.rot_count > 0
                try:
                    await self._check_partition(consumer, partition, is_rotten=is_rotten)
                except KafkaError:
                    if not is_rotten:
                        raise
        finally:
            await consumer.close()

    async def _check_partition(
        self, consumer: AsyncConsumer, partition: TopicPartition, *, is_rotten: bool
    ) -> None:
        consumer.assign([partition])
        start = (await consumer.beginning_offsets([partition]))[partition]
        end = (await consumer.end_offsets([partition]))[partition]
        if not is_rotten:
            self._check_start(partition, start, end)
        consumer.seek(partition, start)
        deadline_ms = self._clock.now_ms() + 10_000
        offset = start
        while offset < end and self._clock.now_ms() < deadline_ms:
            for record in await consumer.poll(0.5):
                moved = record.offset - offset  # retention may delete while this reads
                self._check(moved >= 0, f"{partition} is read out of order at {offset}")
                known = self._stored[partition].get(record.offset)
                is_right = record.value in self._sent if known is None else known[0] == record.value
                self._check(is_right, f"{partition} holds a wrong record at {record.offset}")
                offset = record.offset + 1
        self._check(offset >= end or is_rotten, f"{partition} cannot be read at {offset} of {end}")

    def _check_start(self, partition: TopicPartition, start: int, end: int) -> None:
        before = self._starts.get(partition, 0)
        self._check(start >= before, f"the start of {partition} goes back: {before} to {start}")
        self._starts[partition] = start
        stored = self._stored[partition]
        self._check(end > max(stored, default=-1), f"{partition} ends at {end}")
        removed = [one for offset, one in stored.items() if offset < start]
        if partition != SIZED:
            limit_ms = self._clock.now_ms() - RETENTION_MS
            youngest_ms = max((one.timestamp for one in removed), default=0)
            self._check(
                youngest_ms < limit_ms, f"{partition} lost a record of {youngest_ms}, {limit_ms}"
            )
            self.expired_count += len(removed)

    def _check_settled(self) -> None:
        """Nothing was written for a while: what is due is gone."""
        disk = self.simulation.disk
        for partition in TIMED:
            if partition != ROTTEN or not self.rot_count:
                left = [path for path in segments(disk, str(partition)) if disk.size(path)]
                self._check(not left, f"{left} outlive retention.ms")
        size = sum(disk.size(path) for path in segments(disk, str(SIZED)))
        start = self._starts.get(SIZED, 0)
        self._check(size >= RETENTION_BYTES or start == 0, f"{SIZED} keeps only {size} bytes")
        most = RETENTION_BYTES + SEGMENT_BYTES
        self._check(size < most, f"{SIZED} keeps {size} bytes, {most} are due")
