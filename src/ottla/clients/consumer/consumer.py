"""The asyncio consumer, and what it shares with the blocking one.

Kafka: org.apache.kafka.clients.consumer.KafkaConsumer, .internals.ClassicKafkaConsumer.
"""

from __future__ import annotations

# ruff: noqa: ASYNC109 - as in Kafka, a call's timeout covers its retries; it is no cancellation
import inspect
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.clients.consumer.classic_group import ClassicGroup, Step
from ottla.clients.consumer.coordinator import Coordinator
from ottla.clients.consumer.fetcher import Fetcher
from ottla.clients.consumer.lookups import Lookups
from ottla.clients.consumer.offsets import (
    OffsetAndMetadata,
    OffsetAndTimestamp,
    Positions,
    first_commit_error,
    offset_commit_request,
)
from ottla.clients.consumer.shape import ConsumerRecord
from ottla.clients.consumer.subscription import EARLIEST, LATEST, Subscription
from ottla.clients.interceptors import Interceptors
from ottla.clients.serdes import deserializer
from ottla.clients.settings import CONSUMER, read_settings
from ottla.clients.transport import Runtime
from ottla.errors import ErrorCode, KafkaError
from ottla.types import TopicPartition

if TYPE_CHECKING:
    import re
    from collections.abc import AsyncIterator, Iterable, Mapping
    from types import TracebackType
    from typing import Self

    from ottla.clients.metadata import PartitionMetadata
    from ottla.purgatory.pending import Pending
    from ottla.records.record import Record

    Batches = list[tuple[TopicPartition, list[Record]]]

OffsetsInput = "Mapping[TopicPartition, OffsetAndMetadata | int]"


class RebalanceListener:
    """Subclass it and give it to `subscribe`; its methods run inside `poll`.

    With AsyncConsumer they may be coroutines.
    """

    def on_partitions_revoked(self, partitions: tuple[TopicPartition, ...]) -> Any:
        """Prepare for losing these: the last chance to commit."""

    def on_partitions_assigned(self, partitions: tuple[TopicPartition, ...]) -> Any:
        """Take note of what was added."""

    def on_partitions_lost(self, partitions: tuple[TopicPartition, ...]) -> Any:
        """Take note that others may have these already: too late to commit."""
        return self.on_partitions_revoked(partitions)


class WakeupError(Exception):
    """Raised by `poll` after `wakeup`: nothing is wrong, somebody wants the thread's attention."""


class GroupMetadata(NamedTuple):
    """As whom a consumer commits; generation -1 while it is no member."""

    group_id: str
    generation: int
    member_id: str
    group_instance_id: str | None


class ConsumerCore:
    """Settings, client and machines of one consumer, tied together."""

    def __init__(self, config: Mapping[str, Any] | None, keywords: Mapping[str, Any]) -> None:
        self.settings = settings = read_settings(CONSUMER, config, keywords)
        if settings.group_protocol != "classic":
            raise KafkaError(ErrorCode.INVALID_CONFIG, "group.protocol: only classic is served yet")
        settings.client_id = settings.client_id or "ottla-consumer"
        self.runtime = Runtime(settings)
        self.client = client = self.runtime.client
        self.subscription = Subscription(exclude_internal=settings.exclude_internal_topics)
        self.deserialize_key = deserializer(settings.key_deserializer)
        self.deserialize_value = deserializer(settings.value_deserializer)
        self.coordinator = Coordinator(client, settings.group_id) if settings.group_id else None
        self.group = (
            ClassicGroup(settings, client, self.subscription, self.coordinator)
            if self.coordinator is not None
            else None
        )
        self.positions = Positions(settings, client, self.subscription, self.coordinator)
        self.positions.wall_ms = lambda: time.time_ns() // 1_000_000
        self.fetcher = Fetcher(settings, client, self.subscription)
        self.fetcher.on_out_of_range = self.positions.reset
        self.auto_commit = bool(settings.enable_auto_commit and settings.group_id)
        self._next_auto_commit_ms = 0
        self._auto_committing = False
        if self.group is not None:
            client.machines.append(self.group)
        if self.coordinator is not None:
            client.machines.append(_Lookup(self))
        client.machines += [self.positions, self.fetcher]
        client.metadata.on_update(self._metadata_changed)
        self.now_ms = self.runtime.now_ms
        self.interceptors = Interceptors(settings.interceptor_classes)
        self.woken = False

    def need_group(self) -> Coordinator:
        """Return the coordinator; KafkaError(INVALID_GROUP_ID) without a group.id."""
        if self.coordinator is None:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, "this needs a group_id")
        return self.coordinator

    def _metadata_changed(self) -> None:
        if self.subscription.pattern is not None:
            topics = self.client.metadata.topics.values()
            self.subscription.match((topic.name, topic.is_internal) for topic in topics)

    # ------------------------------------------------------------ what is read

    def subscribe(
        self,
        topics: Iterable[str] | str | None,
        pattern: str | re.Pattern[str] | None,
        listener: Any,
    ) -> None:
        """Want topics by name or by pattern."""
        self.need_group()
        if (topics is None) == (pattern is None):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "give topics or a pattern")
        metadata = self.client.metadata
        if pattern is not None:
            self.subscription.subscribe_pattern(pattern, listener)
            metadata.wants_all = True
            metadata.mark_stale()
        else:
            names = [topics] if isinstance(topics, str) else list(topics or ())
            self.subscription.subscribe(names, listener)
            metadata.want(names)
        self.runtime.wake()

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Take partitions by hand."""
        wanted = [TopicPartition(*partition) for partition in partitions]
        self.subscription.assign_by_hand(wanted)
        self.client.metadata.want(partition.topic for partition in wanted)
        self.runtime.wake()

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue at an offset, or at EARLIEST / LATEST."""
        state = self.subscription.state(partition)
        if offset in (EARLIEST, LATEST):
            state.request_reset(offset)
        elif offset < 0:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} is negative")
        else:
            state.seek(offset)
        self.runtime.wake()

    # ------------------------------------------------------------ poll

    def user_poll(self) -> Step | None:
        """Do what happens in every poll; return what the listener must be told."""
        now_ms = self.now_ms()
        if self.woken:
            self.woken = False
            raise WakeupError("wakeup() was called")
        self._raise_errors()
        if self.auto_commit and now_ms >= self._next_auto_commit_ms:
            self._commit_in_background(now_ms)
        if self.group is None or not self.subscription.uses_group:
            return None
        return self.group.user_poll(now_ms)

    def _raise_errors(self) -> None:
        trouble = self.client.trouble()
        if trouble is not None:
            raise trouble
        for machine in (self.group, self.positions, self.fetcher):
            if machine is not None and machine.errors:
                raise machine.errors.pop(0)
        if self.coordinator is not None and self.coordinator.fatal is not None:
            error, self.coordinator.fatal = self.coordinator.fatal, None
            raise error

    def take(self, limit: int | None, *, shaped: bool = False) -> list[tuple[Any, list[Any]]]:
        """Return buffered records, at most limit (max.poll.records)."""
        return self.fetcher.take(limit or self.settings.max_poll_records, shaped=shaped)

    def joined(self, batches: list[tuple[Any, list[ConsumerRecord]]]) -> list[ConsumerRecord]:
        """Return one list of shaped records, deserialized."""
        if len(batches) == 1:
            out = batches[0][1]
        else:
            out = [record for _, records in batches for record in records]
        if self.deserialize_key is not None or self.deserialize_value is not None:
            out = self._deserialized(out)
        return self.interceptors.on_consume(out) if out and self.interceptors else out

    def _deserialized(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        to_key, to_value = self.deserialize_key or _same, self.deserialize_value or _same
        new = tuple.__new__
        return [
            new(
                ConsumerRecord,
                (topic, partition, offset, timestamp, to_key(key), to_value(value), headers),
            )
            for topic, partition, offset, timestamp, key, value, headers in records
        ]

    # ------------------------------------------------------------ commits

    def consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the positions of all partitions that have one."""
        return {
            partition: OffsetAndMetadata(state.position, "", state.leader_epoch)
            for partition, state in self.subscription.partitions.items()
            if state.position is not None
        }

    def send_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> Pending[Any]:
        """Send one commit; see Coordinator.send for errors."""
        coordinator = self.need_group()
        assert self.group is not None
        request, limit = offset_commit_request(
            coordinator.key, offsets, self.group.identity, self.client.metadata
        )
        pending = coordinator.send(request, max_version=limit)
        if self.interceptors:
            pending.on_done(lambda done: self._tell_commit(done, offsets))
        return pending

    def _tell_commit(
        self, done: Pending[Any], offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> None:
        if done.error is None and first_commit_error(done.value) is None:
            self.interceptors.on_commit(offsets)

    def _commit_in_background(self, now_ms: int) -> None:
        self._next_auto_commit_ms = now_ms + self.settings.auto_commit_interval_ms
        offsets = self.consumed()
        if self._auto_committing or not offsets:
            return
        self._auto_committing = True
        self.send_commit(offsets).on_done(self._committed_in_background)

    def _committed_in_background(self, done: Pending[Any]) -> None:
        self._auto_committing = False
        error = done.error or first_commit_error(done.value)
        if isinstance(error, KafkaError):
            self.note_commit_error(error)
            if error.is_retriable:
                self._next_auto_commit_ms = self.client.now_ms + self.settings.retry_backoff_ms

    def note_commit_error(self, error: KafkaError) -> None:
        """Tell coordinator and group about an error of a commit."""
        if self.coordinator is not None and self.group is not None:
            self.coordinator.note_error(error.code)
            self.group.commit_failed(error.code)


class _Lookup:
    """Keeps the coordinator known for consumers that only commit."""

    def __init__(self, core: ConsumerCore) -> None:
        self._core = core
        self.wanted = False

    def poll(self, now_ms: int) -> None:
        """Look the coordinator up."""
        coordinator = self._core.coordinator
        if coordinator is not None and self._core.subscription.by_hand:
            coordinator.poll(now_ms)

    def next_deadline_ms(self) -> int | None:
        """When to try again."""
        coordinator = self._core.coordinator
        by_hand = self._core.subscription.by_hand
        return coordinator.next_deadline_ms() if coordinator is not None and by_hand else None


class AsyncConsumer:
    """Reads records from coroutines. Use as `async with AsyncConsumer(...) as consumer`.

    Settings are Kafka's: keyword arguments with underscores or a mapping with dotted names.
    Topics given first are subscribed to. Iterate (`async for record in consumer`) or `poll`.
    """

    def __init__(
        self, *topics: str, config: Mapping[str, Any] | None = None, **settings: Any
    ) -> None:
        self._core = ConsumerCore(config, settings)
        self._runtime = self._core.runtime
        self._lookups = Lookups(self._core)
        if topics:
            self._core.subscribe(topics, None, None)

    async def start(self) -> Self:
        """Belong to the running loop; called by `async with` and by the first call."""
        self._runtime.attach()
        self._runtime.wake()
        return self

    # ------------------------------------------------------------ what is read

    def subscribe(
        self,
        topics: Iterable[str] | str | None = None,
        *,
        pattern: str | re.Pattern[str] | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Join the group for topics by name, or for all whose whole name matches a pattern."""
        self._core.subscribe(topics, pattern, listener)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions, without a group."""
        self._core.assign(partitions)

    async def unsubscribe(self) -> None:
        """Give up topics or partitions and leave the group."""
        core = self._core
        if core.subscription.uses_group:
            if core.auto_commit:
                await self._commit_quietly()
            await self._leave("the consumer unsubscribed from all topics")
        core.subscription.unsubscribe()

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions read now."""
        return frozenset(self._core.subscription.partitions)

    @property
    def subscription(self) -> frozenset[str]:
        """The topics subscribed to."""
        return frozenset(self._core.subscription.topics)

    def pause(self, *partitions: TopicPartition) -> None:
        """Deliver nothing from these until `resume`; membership stays."""
        for partition in partitions:
            self._core.subscription.state(TopicPartition(*partition)).paused = True

    def resume(self, *partitions: TopicPartition) -> None:
        """Deliver again."""
        for partition in partitions:
            self._core.subscription.state(TopicPartition(*partition)).paused = False
        self._runtime.wake()

    @property
    def paused(self) -> frozenset[TopicPartition]:
        """The partitions paused now."""
        states = self._core.subscription.partitions.items()
        return frozenset(partition for partition, state in states if state.paused)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue at an offset, or at EARLIEST (-2) or LATEST (-1)."""
        self._core.seek(TopicPartition(*partition), offset)

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Continue at the first record of these, or of all assigned partitions."""
        for partition in partitions or self.assignment:
            self.seek(partition, EARLIEST)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Continue behind the last record of these, or of all assigned partitions."""
        for partition in partitions or self.assignment:
            self.seek(partition, LATEST)

    def wakeup(self) -> None:
        """Make the `poll` that runs now, or the next one, raise WakeupError; from any thread."""
        self._core.woken = True
        self._runtime.wake_from_anywhere()

    def enforce_rebalance(self, reason: str = "") -> None:
        """Have the group rebalance, in one of the next polls."""
        self._core.need_group()
        assert self._core.group is not None
        self._core.group.request_rejoin(reason or "rebalance enforced by user")
        self._runtime.wake()

    def group_metadata(self) -> GroupMetadata:
        """Return as whom the consumer commits now."""
        coordinator = self._core.need_group()
        assert self._core.group is not None
        return GroupMetadata(coordinator.key, *self._core.group.identity)

    # ------------------------------------------------------------ records

    async def poll(
        self, timeout: float = 1.0, max_records: int | None = None
    ) -> list[ConsumerRecord]:
        """Return the next records, at most max_records (max.poll.records).

        Waits up to timeout seconds for the first. Group work and the listener run in here, so
        call it at least every max.poll.interval.ms. Raises KafkaError for what retries cannot
        help.
        """
        self._runtime.attach()
        deadline_ms = self._core.now_ms() + timeout * 1000
        batches = await self._next_batches(deadline_ms, max_records, shaped=True)
        return self._core.joined(batches)

    async def poll_batches(self, timeout: float = 1.0, max_records: int | None = None) -> Batches:
        """As `poll`, undecorated: (partition, records) pairs of bytes; the fastest way."""
        self._runtime.attach()
        deadline_ms = self._core.now_ms() + timeout * 1000
        return await self._next_batches(deadline_ms, max_records, shaped=False)

    async def _next_batches(
        self, deadline_ms: float, max_records: int | None, *, shaped: bool
    ) -> list[tuple[TopicPartition, list[Any]]]:
        while True:
            batches, step = await self.wait_batches(deadline_ms, max_records, shaped=shaped)
            if step is None:
                return batches
            await self._run_step(step)

    async def wait_batches(
        self, deadline_ms: float, max_records: int | None, *, shaped: bool = False
    ) -> tuple[list[tuple[TopicPartition, list[Any]]], Step | None]:
        """Wait for records or for a step to run; nothing of both when the time is up."""
        core = self._core
        while True:
            with self._runtime.lock:
                step = core.user_poll()
                batches = core.take(max_records, shaped=shaped) if step is None else []
            left_ms = deadline_ms - core.now_ms()
            if batches or step is not None or left_ms <= 0:
                return batches, step
            await self._runtime.wait_progress(left_ms)

    async def _run_step(self, step: Step) -> None:
        core = self._core
        assert core.group is not None
        if step.kind in ("prepare", "revoked") and core.auto_commit and step.partitions:
            await self._commit_quietly()
        if step.kind == "assigned":
            core.group.step_done()
        try:
            result = call_listener(core.subscription.listener, step)
            if inspect.isawaitable(result):
                await result
        finally:
            if step.kind != "assigned":
                core.group.step_done()

    async def _commit_quietly(self) -> None:
        try:
            await self.commit(timeout=min(self._core.settings.default_api_timeout_ms / 1000, 5.0))
        except KafkaError:
            return  # at least once: what was not committed is read again

    async def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        while True:
            for record in await self.poll(1.0):
                yield record

    # ------------------------------------------------------------ offsets

    async def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None,
        *,
        timeout: float | None = None,
    ) -> None:
        """Commit offsets (the next to read), or all positions; retries until timeout seconds.

        Raises KafkaError: REBALANCE_IN_PROGRESS, ILLEGAL_GENERATION and UNKNOWN_MEMBER_ID mean
        that the partitions may belong to someone else by now.
        """
        await self._lookups.commit(offsets, timeout)

    def commit_nowait(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None
    ) -> Pending[Any]:
        """Send a commit once and do not wait; the Pending holds the raw answer."""
        wanted = self._core.consumed() if offsets is None else as_offsets(offsets)
        return self._core.send_commit(wanted)

    async def committed(
        self, partitions: Iterable[TopicPartition], *, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return what the group has committed, None where nothing."""
        return await self._lookups.committed(partitions, timeout)

    async def position(self, partition: TopicPartition, *, timeout: float | None = None) -> int:
        """Return the offset of the next record; waits until it is known."""
        return await self._lookups.position(TopicPartition(*partition), timeout)

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition], *, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the first offset of each partition."""
        found = await self._lookups.offsets(dict.fromkeys(partitions, EARLIEST), timeout)
        return {partition: answer.offset for partition, answer in found.items()}

    async def end_offsets(
        self, partitions: Iterable[TopicPartition], *, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the offset behind the last readable record of each partition."""
        found = await self._lookups.offsets(dict.fromkeys(partitions, LATEST), timeout)
        return {partition: answer.offset for partition, answer in found.items()}

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], *, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first record at or after each timestamp (ms), None where there is none."""
        found = await self._lookups.offsets(timestamps, timeout)
        return {p: answer if answer.offset >= 0 else None for p, answer in found.items()}

    def lag(self, partition: TopicPartition) -> int | None:
        """Return how many offsets are ahead, as far as the last answer told; None if unknown."""
        state = self._core.subscription.state(TopicPartition(*partition))
        committed_only = self._core.settings.isolation_level == "read_committed"
        end = state.last_stable_offset if committed_only else state.high_watermark
        return None if end is None or state.position is None else max(end - state.position, 0)

    async def partitions_for(
        self, topic: str, *, timeout: float | None = None
    ) -> list[PartitionMetadata]:
        """Return a topic's partitions."""
        return await self._lookups.partitions_for(topic, timeout)

    # ------------------------------------------------------------ the end

    async def _leave(self, reason: str) -> None:
        group = self._core.group
        if group is None:
            return
        if self._core.settings.internal_leave_group_on_close:
            pending = group.leave(reason)
            if pending is not None:
                with suppress(KafkaError):  # the session will end by itself
                    await self._runtime.wait_for(pending)
        group.stop()

    async def close(self) -> None:
        """Commit when auto-commit is on, leave the group, close connections; idempotent."""
        if self._core.client.closed:
            return
        if self._runtime.attached:
            if self._core.auto_commit and self._core.client.reached:
                await self._commit_quietly()
            await self._leave("the consumer is being closed")
        self._core.interceptors.close()
        await self._runtime.aclose()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()


def _same(given: Any) -> Any:
    return given


def call_listener(listener: Any, step: Step) -> Any:
    """Call the listener's method for a step; empty revocations are not told."""
    if listener is None or (step.kind != "assigned" and not step.partitions):
        return None
    if step.kind == "assigned":
        return listener.on_partitions_assigned(step.partitions)
    if step.kind == "lost":
        return listener.on_partitions_lost(step.partitions)
    return listener.on_partitions_revoked(step.partitions)


def as_offsets(
    given: Mapping[TopicPartition, OffsetAndMetadata | int],
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return offsets with metadata, whichever way they were given."""
    return {
        TopicPartition(*partition): value
        if isinstance(value, OffsetAndMetadata)
        else OffsetAndMetadata(int(value))
        for partition, value in given.items()
    }
