"""What must hold on a simulated node: metadata, records, commits and assignments.

- A killed process lost nothing it acknowledged; a power cut takes nothing that was flushed.
- A partition holds what was sent, without gaps, nothing twice, in the order of sending.
- A look-up of a committed offset finds the last acknowledged commit or a later one that was sent.
- Acknowledged topics, partitions and settings stay; none come from nowhere.
- A damaged partition serves right records or an error.
- The group's members share all partitions, each held by one, once nothing disturbs them.

Kafka: none; after its system tests' verifiable consumers.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from ottla.clients.admin.configs import ConfigResource, ResourceType
from ottla.errors import KafkaError
from tests.simulation.nodes.model import InvariantViolated

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.clients.consumer.consumer import AsyncConsumer
    from ottla.clients.offsets import OffsetAndMetadata
    from ottla.types import TopicPartition
    from tests.simulation.nodes.model import GroupModel, TopicModel
    from tests.simulation.nodes.workload import Workload

_READ_LIMIT_S = 120
_DAMAGED_READ_LIMIT_S = 10
_ASSIGNMENT_ROUNDS = 60


class Checks:
    """Compares a node with a workload's model."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload

    async def everything(self) -> None:
        """Check metadata, records and commits; done early when the node dies meanwhile."""
        workload = self._workload
        with suppress(_NodeDied):
            await self._topics()
            for topic in list(workload.topics.values()):
                for partition in topic.partitions:
                    await self._records(topic, partition)
            for group in workload.groups:
                await self._commits(group)

    def _check(self, condition: object, text: str) -> None:
        """Raise InvariantViolated, or _NodeDied where the answer is that of a dead node."""
        if not condition:
            self._if_alive()
            self._workload.check(condition, text)

    def _if_alive(self) -> None:
        if not self._workload.simulation.is_alive:
            raise _NodeDied

    async def _topics(self) -> None:
        workload, admin = self._workload, self._workload.admin
        assert admin is not None
        try:
            names = {topic.name for topic in await admin.list_topics()}
            resources = {name: ConfigResource(ResourceType.TOPIC, name) for name in workload.topics}
            found = await admin.describe_configs(resources.values())
            described = await admin.describe_topics(list(workload.topics))
        except KafkaError:
            self._if_alive()
            raise
        for name in workload.topics:
            self._check(name in names, f"the topic {name} is gone")
        known = set(workload.topics) | workload.uncertain_topics
        ours = {name for name in names if name.startswith("topic-")}
        self._check(ours <= known, f"topics came from nowhere: {sorted(ours - known)}")
        for name, topic in workload.topics.items():
            entries, description = found[resources[name]], described[name]
            for answer in (entries, description):
                if isinstance(answer, KafkaError):
                    self._if_alive()
                    raise answer
            assert not isinstance(entries, KafkaError)
            assert not isinstance(description, KafkaError)
            value = entries["retention.bytes"].value
            self._check(
                value in topic.possible_settings, f"retention.bytes of {name} is {value} again"
            )
            count = len(description.partitions)
            self._check(
                count in (topic.partition_count, topic.partition_count + 1),
                f"{name} has {count} partitions",
            )

    async def _records(self, topic: TopicModel, partition: TopicPartition) -> None:
        """Read a partition from its start; no gap, nothing twice, nothing lost."""
        is_damaged = partition.partition in topic.damaged
        values = await self._read(partition, is_damaged=is_damaged)
        self._check(len(set(values)) == len(values), f"{partition} holds a record twice")
        self._check(topic.sent.issuperset(values), f"{partition} holds what was never sent")
        numbers = [int(value.partition(b":")[0]) for value in values]
        self._check(numbers == sorted(numbers), f"{partition} has another order than was sent")
        for value, place in topic.acknowledged.items():
            if place.partition != partition.partition:
                continue
            if place.offset < len(values) or not is_damaged:
                self._check(
                    place.offset < len(values) and values[place.offset] == value,
                    f"{partition} lost the acknowledged record at {place.offset} of {len(values)}",
                )

    async def _read(self, partition: TopicPartition, *, is_damaged: bool) -> list[bytes]:
        """Return what a partition holds; of a damaged one what it serves before it refuses."""
        workload = self._workload
        limit_s = _DAMAGED_READ_LIMIT_S if is_damaged else _READ_LIMIT_S
        consumer = await workload.simulation.consumer(
            auto_offset_reset="earliest",
            fetch_max_wait_ms=20,
            default_api_timeout_ms=1000 * limit_s,
            request_timeout_ms=3000,
            retry_backoff_ms=50,
            reconnect_backoff_ms=20,
            reconnect_backoff_max_ms=200,
        ).start()
        values: list[bytes] = []
        try:
            async with asyncio.timeout(limit_s):
                await self._read_all(consumer, partition, values)
        except (KafkaError, TimeoutError) as error:
            self._if_alive()
            if not is_damaged:
                text = f"Workload({workload.seed}): {partition} cannot be read: {error!r}"
                raise InvariantViolated(text) from error
        finally:
            await consumer.close()
        return values

    async def _read_all(
        self, consumer: AsyncConsumer, partition: TopicPartition, values: list[bytes]
    ) -> None:
        consumer.assign([partition])
        end = (await consumer.end_offsets([partition]))[partition]
        consumer.seek(partition, 0)
        while len(values) < end:
            self._if_alive()
            for record in await consumer.poll(0.5):
                self._check(record.offset == len(values), f"{partition} has a gap: {len(values)}")
                values.append(record.value)

    async def _commits(self, group: GroupModel) -> None:
        """Look up a group's offsets; a damaged partition must answer with an error."""
        promised = [partition for partition, commits in group.commits.items() if commits.sent]
        try:
            found = await self._look_up(group, promised)
        except KafkaError:
            self._if_alive()
            if group.is_damaged:
                return
            raise
        self._check(not group.is_damaged, f"{group.name} is served from a damaged log")
        for partition in promised:
            entry = found.get(partition)
            offset = -1 if entry is None else entry.offset
            known = offset in group.may_be_found(partition)
            self._check(known, f"{partition} has an offset that was never committed: {offset}")
            expected = group.commits[partition].promised
            self._check(
                offset >= expected,
                f"{partition}: the commit {expected} of {group.name} is now {offset}",
            )

    async def _look_up(
        self, group: GroupModel, partitions: list[TopicPartition]
    ) -> Mapping[TopicPartition, OffsetAndMetadata | None]:
        workload, timeout_s = self._workload, 3 if group.is_damaged else 30
        if group is workload.groups[0]:
            return await workload.members[0].committed(partitions, timeout=timeout_s)
        assert workload.admin is not None
        return await workload.admin.list_group_offsets(group.name, partitions, timeout=timeout_s)

    async def assignments(self) -> None:
        """Poll until the members share all partitions; each must be held by one."""
        workload = self._workload
        for _ in range(_ASSIGNMENT_ROUNDS):
            if not workload.simulation.is_alive:
                return
            await asyncio.gather(*(workload.poll(member) for member in workload.members))
            held = [one for member in workload.members for one in member.assignment]
            every = {one for topic in workload.topics.values() for one in topic.partitions}
            if len(set(held)) == len(held) and every <= set(held):
                return
        self._check(condition=False, text=f"no assignment: {sorted(held)}, {sorted(every)}")


class _NodeDied(Exception):
    """A planned crash struck during a check."""
