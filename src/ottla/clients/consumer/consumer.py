"""The asyncio consumer.

Kafka: org.apache.kafka.clients.consumer.KafkaConsumer, .internals.ClassicKafkaConsumer.
"""

from __future__ import annotations

# ruff: noqa: ASYNC109 - as in Kafka, a call's timeout covers its retries; it is no cancellation
import inspect
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ottla.clients.arguments import as_partition, check_poll, topic_names
from ottla.clients.consumer.core import ConsumerCore, GroupMetadata, call_listener
from ottla.clients.consumer.metrics import partition_metrics
from ottla.clients.consumer.queries import Queries
from ottla.clients.offsets import as_offsets
from ottla.clients.transport import AsyncClient
from ottla.errors import KafkaError
from ottla.protocol.offset_timestamps import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from ottla.types import TopicPartition

if TYPE_CHECKING:
    import re
    from collections.abc import AsyncIterator, Iterable, Mapping
    from typing import Unpack

    from ottla.clients.consumer.core import Batches, RebalanceListener
    from ottla.clients.consumer.membership import ListenerCall
    from ottla.clients.consumer.record_decoder import ConsumerRecord
    from ottla.clients.consumer.subscription import SubscriptionPattern
    from ottla.clients.environment import ClientEnvironment
    from ottla.clients.keywords import ConsumerSettings
    from ottla.clients.metadata import PartitionMetadata
    from ottla.clients.metric_windows import MetricName
    from ottla.clients.offsets import OffsetAndMetadata, OffsetAndTimestamp
    from ottla.purgatory.pending import Pending


class AsyncConsumer(AsyncClient):
    """Reads records from coroutines. Use as `async with AsyncConsumer(...) as consumer`.

    Parameters:
        topics: topics to subscribe to.
        config: settings under Kafka's dotted names, such as `{"group.id": "billing"}`.
        settings: the same as keywords, `group_id="billing"`.

    Use `async for record in consumer`, or `poll`. Raises ConfigError for unknown and invalid
    settings.

        >>> async def main():
        ...     async with AsyncProducer(bootstrap_servers=servers) as producer:
        ...         await producer.send_and_wait("orders", b"tea")
        ...     async with AsyncConsumer(
        ...         "orders", bootstrap_servers=servers, group_id="billing",
        ...         auto_offset_reset="earliest",
        ...     ) as consumer:
        ...         async for record in consumer:
        ...             await consumer.commit()
        ...             return record.offset, record.value
        >>> asyncio.run(main())
        (0, b'tea')
    """

    def __init__(
        self,
        *topics: str,
        config: Mapping[str, Any] | None = None,
        environment: ClientEnvironment | None = None,
        **settings: Unpack[ConsumerSettings],
    ) -> None:
        """Take settings; an environment is given where the time is simulated."""
        names = topic_names(topics)
        self._core = ConsumerCore(config, settings, environment)
        self._runtime = self._core.runtime
        self._queries = Queries(self._core)
        self._is_leaving = False
        if names:
            self._core.subscribe(names, None, None)

    # ------------------------------------------------------------ subscription

    def subscribe(
        self,
        topics: Iterable[str] | str | None = None,
        *,
        pattern: str | re.Pattern[str] | SubscriptionPattern | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Join the group for topics by name, or for all topics whose full name matches.

        Parameters:
            topics: names; they replace those of an earlier call.
            pattern: a regular expression; a SubscriptionPattern (RE2) is resolved by the
                coordinator, with group.protocol=consumer (KIP-848).
            listener: called inside `poll` when partitions are assigned, revoked or lost.

        Raises KafkaError unless topics or a pattern are given, IllegalStateError after `assign`.
        """
        self._core.subscribe(topics, pattern, listener)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions, without group membership."""
        self._core.assign(partitions)

    async def unsubscribe(self) -> None:
        """Remove the subscription or assignment and leave the group."""
        self._core.require_open()
        try:
            await self._notify_listener(await self.prepare_to_leave())
        finally:
            await self.finish_unsubscribe()

    async def finish_unsubscribe(self) -> None:
        """Leave the group and clear the subscription: `unsubscribe` after the listener's call."""
        await self._leave("the consumer unsubscribed from all topics")
        self._core.unsubscribe()

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The assigned partitions."""
        self._core.require_open()
        return frozenset(self._core.subscription.partitions)

    @property
    def subscription(self) -> frozenset[str]:
        """The subscribed topics."""
        self._core.require_open()
        return frozenset(self._core.subscription.topics)

    def pause(self, *partitions: TopicPartition) -> None:
        """Stop returning records of these partitions until `resume`; membership continues."""
        self._core.require_open()
        self._core.put_back()
        for partition in partitions:
            self._core.subscription.state(as_partition(partition)).paused = True

    def resume(self, *partitions: TopicPartition) -> None:
        """Return records of these partitions again."""
        self._core.require_open()
        for partition in partitions:
            self._core.subscription.state(as_partition(partition)).paused = False
        self._runtime.wake()

    @property
    def paused(self) -> frozenset[TopicPartition]:
        """The paused partitions."""
        self._core.require_open()
        states = self._core.subscription.partitions.items()
        return frozenset(partition for partition, state in states if state.paused)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue at an offset, or at EARLIEST_TIMESTAMP (-2) or LATEST_TIMESTAMP (-1)."""
        self._core.seek(as_partition(partition), offset)

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Continue at the first record of the given or of all assigned partitions."""
        for partition in partitions or self.assignment:
            self.seek(partition, EARLIEST_TIMESTAMP)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Continue after the last record of the given or of all assigned partitions."""
        for partition in partitions or self.assignment:
            self.seek(partition, LATEST_TIMESTAMP)

    def seek_to_committed(self, *partitions: TopicPartition) -> None:
        """Continue at the group's committed offsets of the given or of all assigned partitions.

        They are looked up by the next poll, as after a start: where nothing is committed,
        auto.offset.reset applies. Offsets of open transactions are waited for.
        """
        for partition in partitions or self.assignment:
            self._core.seek_to_committed(as_partition(partition))

    def wakeup(self) -> None:
        """Make the current or the next `poll` raise WakeupError; callable from any thread."""
        self._core.wake()
        self._runtime.wake_from_anywhere()

    def enforce_rebalance(self, reason: str = "") -> None:
        """Request a rebalance of the group; a later poll joins again."""
        self._core.require_coordinator()
        assert self._core.group is not None
        self._core.group.request_rejoin(reason or "rebalance enforced by user")
        self._runtime.wake()

    def group_metadata(self) -> GroupMetadata:
        """Return the membership in which the assignment was received, for transactions."""
        coordinator = self._core.require_coordinator()
        assert self._core.group is not None
        return GroupMetadata(coordinator.key, *self._core.group.last_identity)

    # ------------------------------------------------------------ records

    async def poll(
        self, timeout: float = 1.0, max_records: int | None = None
    ) -> list[ConsumerRecord]:
        """Return the next records, at most max_records (max.poll.records).

        Waits up to timeout seconds for the first. Rebalances and their listener run inside it, so
        call it at least every max.poll.interval.ms. Raises KafkaError for errors that are not
        retriable.
        """
        return self._core.joined(await self._poll_with_topic(timeout, max_records))

    async def _poll_with_topic(
        self, timeout: float, max_records: int | None, only: frozenset[TopicPartition] | None = None
    ) -> list[tuple[TopicPartition, list[Any]]]:
        check_poll(timeout, max_records)
        self._runtime.attach()
        deadline_ms = self._core.now_ms() + timeout * 1000
        return await self._next_batches(deadline_ms, max_records, with_topic=True, only=only)

    async def getone(self, *partitions: TopicPartition) -> ConsumerRecord:
        """Wait for the next record, of the given or of all assigned partitions."""
        while True:
            for records in (
                await self.getmany(*partitions, timeout_ms=1000, max_records=1)
            ).values():
                return records[0]

    async def getmany(
        self,
        *partitions: TopicPartition,
        timeout_ms: float = 0,
        max_records: int | None = None,
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Return the next records by partition, of the given or of all assigned partitions.

        As aiokafka's method of this name; `poll` returns them as one list.
        """
        only = frozenset(as_partition(partition) for partition in partitions) or None
        batches = await self._poll_with_topic(timeout_ms / 1000, max_records, only)
        found: dict[TopicPartition, list[ConsumerRecord]] = {}
        for record in self._core.joined(batches):
            found.setdefault(TopicPartition(record.topic, record.partition), []).append(record)
        return found

    async def poll_batches(self, timeout: float = 1.0, max_records: int | None = None) -> Batches:
        """Return (partition, records) pairs as they arrived, without deserializers: the fastest."""
        check_poll(timeout, max_records)
        self._runtime.attach()
        deadline_ms = self._core.now_ms() + timeout * 1000
        return await self._next_batches(deadline_ms, max_records, with_topic=False)

    async def _next_batches(
        self,
        deadline_ms: float,
        max_records: int | None,
        *,
        with_topic: bool,
        only: frozenset[TopicPartition] | None = None,
    ) -> list[tuple[TopicPartition, list[Any]]]:
        while True:
            batches, step = await self.wait_batches(
                deadline_ms, max_records, with_topic=with_topic, only=only
            )
            if step is None:
                return batches
            await self._run_step(step)

    async def wait_batches(
        self,
        deadline_ms: float,
        max_records: int | None,
        *,
        with_topic: bool = False,
        only: frozenset[TopicPartition] | None = None,
    ) -> tuple[list[tuple[TopicPartition, list[Any]]], ListenerCall | None]:
        """Wait for records or for a listener step; return neither after the deadline."""
        core = self._core
        while True:
            with self._runtime.lock:
                step = core.user_poll()
                batches = (
                    core.take(max_records, with_topic=with_topic, only=only) if step is None else []
                )
            remaining_ms = deadline_ms - core.now_ms()
            if batches or step is not None:
                return batches, step
            if remaining_ms <= 0:
                core.log_empty_poll()
                return batches, step
            await self._runtime.wait_progress(remaining_ms)

    async def _run_step(self, step: ListenerCall) -> None:
        core = self._core
        assert core.group is not None
        if step.kind in ("prepare", "revoked") and core.auto_commit and step.partitions:
            await self.commit_before_revocation()
        if step.kind == "assigned" and not core.group.step_done(step):
            return  # the membership has ended
        try:
            result = call_listener(core.subscription.listener, step)
            if inspect.isawaitable(result):
                await result
        finally:
            if step.kind != "assigned":
                core.group.step_done(step)

    async def commit_before_revocation(self) -> None:
        """Commit what was read of partitions that go to others; also what `Consumer` calls.

        An error of the cluster is no reason to keep them: uncommitted records are read again. Any
        other one is raised.
        """
        try:
            await self.commit(timeout=min(self._core.settings.default_api_timeout_ms / 1000, 5.0))
        except KafkaError:
            return

    async def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        while True:
            for record in self._core.iterate(await self._poll_with_topic(1.0, None)):
                yield record

    # ------------------------------------------------------------ offsets

    async def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None,
        *,
        timeout: float | None = None,
    ) -> None:
        """Commit offsets (each the next to read), or all positions; retries for timeout seconds.

        Raises KafkaError; after REBALANCE_IN_PROGRESS, ILLEGAL_GENERATION and UNKNOWN_MEMBER_ID the
        partitions may be assigned to another member.
        """
        await self._queries.commit(offsets, timeout)

    def commit_nowait(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None
    ) -> Pending[Any]:
        """Send a commit once, without waiting; the Pending completes with the response."""
        requested = self._core.consumed() if offsets is None else as_offsets(offsets)
        return self._core.send_commit(requested)

    async def committed(
        self, partitions: Iterable[TopicPartition], *, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the group's committed offsets, None for partitions without one."""
        return await self._queries.committed(partitions, timeout)

    async def position(self, partition: TopicPartition, *, timeout: float | None = None) -> int:
        """Return the offset of the next record to read; waits until it is known."""
        return await self._queries.position(as_partition(partition), timeout)

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition], *, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the first offset of each partition."""
        found = await self._queries.offsets(dict.fromkeys(partitions, EARLIEST_TIMESTAMP), timeout)
        return {partition: answer.offset for partition, answer in found.items()}

    async def end_offsets(
        self, partitions: Iterable[TopicPartition], *, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the offset after the last readable record of each partition."""
        found = await self._queries.offsets(dict.fromkeys(partitions, LATEST_TIMESTAMP), timeout)
        return {partition: answer.offset for partition, answer in found.items()}

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], *, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first record at or after each timestamp (ms), None where there is none."""
        found = await self._queries.offsets(timestamps, timeout)
        return {p: answer if answer.offset >= 0 else None for p, answer in found.items()}

    def lag(self, partition: TopicPartition) -> int | None:
        """Return the offsets between the position and the last known end, None while unknown."""
        self._core.require_open()
        state = self._core.subscription.state(as_partition(partition))
        committed_only = self._core.settings.isolation_level == "read_committed"
        end = state.last_stable_offset if committed_only else state.high_watermark
        position = self._core.position_of(state)
        return None if end is None or position is None else max(end - position, 0)

    async def partitions_for(
        self, topic: str, *, timeout: float | None = None
    ) -> list[PartitionMetadata]:
        """Return a topic's partitions."""
        return await self._queries.partitions_for(topic, timeout)

    def metrics(self) -> dict[MetricName, float | str]:
        """Return the client's metrics under Kafka's names; rates cover the last minute.

        Values are numbers or, as for `app-info`, text; a mean without samples is NaN.
        """
        return {
            **self._runtime.metrics(),
            **partition_metrics(self._core.subscription, self._core.settings.client_id),
        }

    # ------------------------------------------------------------ close

    async def prepare_to_leave(self) -> ListenerCall | None:
        """Commit with enable.auto.commit; return the listener's last step."""
        core = self._core
        if core.group is None or self._is_leaving or not self._runtime.attached:
            return None
        self._is_leaving = True
        if core.auto_commit and core.client.is_reachable:
            await self.commit_before_revocation()
        return core.group.leave_step()

    async def _notify_listener(self, step: ListenerCall | None) -> None:
        if step is not None:
            result = call_listener(self._core.subscription.listener, step)
            if inspect.isawaitable(result):
                await result

    async def _leave(self, reason: str) -> None:
        self._is_leaving = False
        group = self._core.group
        if group is None or not self._runtime.attached:
            return
        if self._core.settings.internal_leave_group_on_close:
            pending = group.leave(reason)
            if pending is not None:
                with suppress(KafkaError):  # the session expires
                    await self._runtime.wait_for(pending)
        group.stop()

    async def close(self) -> None:
        """Commit with enable.auto.commit, leave the group and close connections; idempotent.

        The rebalance listener is called for revoked partitions, or for lost ones if the group has
        rebalanced without this member; its exception is raised after everything is closed.
        """
        if self._core.client.closed:
            return
        try:
            await self._notify_listener(await self.prepare_to_leave())
        finally:
            await self.finish_close()

    async def finish_close(self) -> None:
        """Leave the group and close: `close` after the listener's call."""
        if self._core.client.closed:
            return
        try:
            await self._leave("the consumer is being closed")
        finally:  # a close that is cancelled closes, too
            self._core.interceptors.close()
            await self._runtime.aclose()
