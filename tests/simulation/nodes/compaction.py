"""A seeded run of compaction: a topic whose records have keys, on a node that does not stay up.

Values are written, overwritten and deleted while the node is killed, loses its power and is
stopped, and the log cleaner works all the time. What must hold:

- The last record of each key is there, or the key is gone when that is a tombstone.
- A tombstone younger than `delete.retention.ms` is there unless a newer record has its key.
- What is read is right, in order, and every offset at which something was written has either that
  record or none.
- The log stays small: old values go.

Kafka: none; after its LogCleanerIntegrationTest.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from ottla.errors import KafkaError
from ottla.types import TopicPartition
from tests.simulation.nodes.producer_workload import ProducerWorkload

if TYPE_CHECKING:
    from ottla.clients.consumer.consumer import AsyncConsumer
    from ottla.clients.consumer.record_decoder import ConsumerRecord

PARTITION = TopicPartition("compacted", 0)
DELETE_RETENTION_MS = 15_000
KEYS = 12
SEGMENT_BYTES = 1024
_CONFIG = {
    "auto.create.topics.enable": "false",
    "log.cleaner.backoff.ms": "200",
    "log.cleaner.dedupe.buffer.size": "2097152",
    "log.segment.delete.delay.ms": "500",
}
_TOPIC = {
    "cleanup.policy": "compact",
    "delete.retention.ms": DELETE_RETENTION_MS,
    "flush.messages": 1,
    "index.interval.bytes": 256,
    "internal.segment.bytes": SEGMENT_BYTES,
    "min.cleanable.dirty.ratio": 0.1,
}
_MAX_RECORDS = 6 * KEYS
"""After a while without writes: each key's last, the active segment, and one that is not rolled."""


class _Sent(NamedTuple):
    key: bytes
    value: bytes | None
    at_ms: int


class CompactionWorkload(ProducerWorkload):
    """The records that were sent, and what of them must be there."""

    def __init__(self, seed: int, *, steps: int = 60) -> None:
        super().__init__(seed, "compaction", _CONFIG)
        self.removed_count = 0
        """Acknowledged records that the last check did not find."""
        self._steps = steps
        self._stored: dict[int, _Sent] = {}
        self._unsure: dict[bytes, set[bytes | None]] = {}
        """By key: values whose send failed since the last that was acknowledged."""

    async def _main(self) -> None:
        await self.simulation.start()
        async with self.simulation.admin() as admin:
            await admin.create_topic(PARTITION.topic, 1, configs=_TOPIC)
        await self._open_producer()
        steps = (self._produce, self._wait, self._restart, self._check_all)
        for _ in range(self._steps):
            step = self._rng.choices(steps, (8, 3, 2, 2))[0]
            await step()
        await self._settle()
        await self._close_producer()
        await self.simulation.stop()

    async def _settle(self) -> None:
        """Roll a segment, so that all but the last records are cleaned; twice for tombstones."""
        for _ in range(2):
            for _ in range(12):
                await self._send()
            await asyncio.sleep(DELETE_RETENTION_MS / 1000 + 2)
        count = await self._check_all()
        self._check(count < _MAX_RECORDS, f"{count} of {len(self._stored)} records are left")

    # Steps

    async def _produce(self) -> None:
        for _ in range(self._rng.randrange(12)):
            await self._send()

    async def _send(self) -> None:
        assert self._producer is not None
        rng = self._rng
        key = b"key %d" % rng.randrange(KEYS)
        value = None if rng.random() < 0.2 else rng.randbytes(rng.randrange(80))
        try:
            found = await self._producer.send_and_wait(
                PARTITION.topic, value, key=key, partition=PARTITION.partition
            )
        except KafkaError:
            self._unsure.setdefault(key, set()).add(value)
        else:
            self._unsure.pop(key, None)
            self._stored[found.offset] = _Sent(key, value, self._clock.now_ms())

    async def _restart(self) -> None:
        await self._end()
        await self._begin_again()
        await self._check_all()

    # Checks

    async def _check_all(self) -> int:
        """Read everything and compare; return the number of records."""
        begin_ms = self._clock.now_ms()
        consumer = await self.simulation.consumer(
            fetch_max_wait_ms=20, default_api_timeout_ms=10_000, request_timeout_ms=3000
        ).start()
        try:
            found = await self._read(consumer)
        finally:
            await consumer.close()
        self._check_records(found)
        self._check_last(found, begin_ms)
        offsets = {record.offset for record in found}
        self.removed_count = len(self._stored.keys() - offsets)
        return len(found)

    async def _read(self, consumer: AsyncConsumer) -> list[ConsumerRecord]:
        consumer.assign([PARTITION])
        end = (await consumer.end_offsets([PARTITION]))[PARTITION]
        consumer.seek(PARTITION, 0)
        found: list[ConsumerRecord] = []
        deadline_ms = self._clock.now_ms() + 10_000
        while await consumer.position(PARTITION) < end:
            self._check(self._clock.now_ms() < deadline_ms, f"the log cannot be read up to {end}")
            found += await consumer.poll(0.5)
        return found

    def _check_records(self, found: list[ConsumerRecord]) -> None:
        last = -1
        for record in found:
            self._check(record.offset > last, f"offset {record.offset} follows {last}")
            last = record.offset
            sent = self._stored.get(last)
            is_right = sent is None or (record.key, record.value) == sent[:2]
            self._check(is_right, f"another record is at offset {last}")

    def _check_last(self, found: list[ConsumerRecord], begin_ms: int) -> None:
        """Compare the last record of each key."""
        there = {record.key: record for record in found}
        last = {sent.key: offset for offset, sent in sorted(self._stored.items())}
        for key, offset in last.items():
            record, sent = there.get(key), self._stored[offset]
            if record is None:
                is_old = begin_ms - sent.at_ms >= DELETE_RETENTION_MS
                self._check(sent.value is None and is_old, f"{key!r} is gone, {sent} was its last")
                continue
            is_unsure = record.value in self._unsure.get(key, ())
            is_last = record.offset == offset
            self._check(is_last or is_unsure, f"{key!r} ends at {record.offset}, not {offset}")
