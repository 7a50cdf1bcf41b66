"""A consumer's waiting calls: commits, committed offsets, offset queries.

Kafka: the blocking calls of org.apache.kafka.clients.consumer.KafkaConsumer.
"""

from __future__ import annotations

# ruff: noqa: ASYNC109 - as in Kafka, a call's timeout covers its retries; it is no cancellation
from typing import TYPE_CHECKING

from ottla.clients.arguments import as_partition, check_timeout, check_topic
from ottla.clients.offsets import (
    OffsetAndMetadata,
    OffsetQuery,
    as_offsets,
    first_commit_error,
    is_retried,
    offset_fetch_request,
    read_offset_fetch,
)
from ottla.config.definition import MAX_INT
from ottla.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ottla.clients.consumer.core import ConsumerCore
    from ottla.clients.coordinator import CoordinatorLookup
    from ottla.clients.metadata import PartitionMetadata
    from ottla.clients.offsets import OffsetAndTimestamp
    from ottla.types import TopicPartition


def _limit_ms(core: ConsumerCore, timeout: float | None) -> float:
    """Return the time of a call in ms; raises TypeError for a timeout that is no number."""
    check_timeout(timeout)
    default_ms: int = core.settings.default_api_timeout_ms
    return default_ms if timeout is None else timeout * 1000


class Deadline:
    """The deadline of a call, and the backoff between its retries."""

    def __init__(self, core: ConsumerCore, what: str, timeout: float | None) -> None:
        core.require_open()
        self._limit_ms = _limit_ms(core, timeout)
        self._what = what
        self._core = core
        self._end_ms = core.now_ms() + self._limit_ms
        self._last: KafkaError | None = None
        self._failures = 0
        self._woken_ms = -MAX_INT

    async def wait_before_retry(
        self, error: KafkaError | None = None, *, backoff: bool = True
    ) -> None:
        """Wait for progress or the backoff; raise a fatal error, or after the deadline."""
        self._last = error or self._last
        if error is not None and not is_retried(error):
            raise error
        pending_error = self._core.client.pending_error()
        if pending_error is not None:
            raise pending_error
        remaining_ms = self._end_ms - self._core.now_ms()
        if remaining_ms <= 0:
            text = f"Timeout of {int(self._limit_ms)}ms expired before {self._what}"
            raise self._core.client.timeout_error(text, self._last)
        self._failures += error is not None
        backoff_ms = self._core.client.backoff.after(max(self._failures, 1))
        wait_ms = min(max(backoff_ms, 1), remaining_ms)
        now_ms = self._core.now_ms()
        if now_ms - self._woken_ms >= wait_ms:  # every wake ends all waits, this one too
            self._woken_ms = now_ms
            self._core.runtime.wake()
        if error is not None and backoff:
            await self._core.runtime.sleep(wait_ms)
        else:
            await self._core.runtime.wait_progress(wait_ms)


class Queries:
    """The waiting calls of one consumer."""

    def __init__(self, core: ConsumerCore) -> None:
        self._core = core
        self._client = core.client

    async def _find_coordinator(self, deadline: Deadline) -> CoordinatorLookup:
        self._core.runtime.attach()
        coordinator = self._core.require_coordinator()
        while not coordinator.known:
            if coordinator.fatal is not None:
                error, coordinator.fatal = coordinator.fatal, None
                raise error
            coordinator.poll(self._core.now_ms())
            await deadline.wait_before_retry()
        return coordinator

    async def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None,
        timeout: float | None,
    ) -> None:
        """Commit with retries."""
        deadline = Deadline(self._core, "successfully committing offsets", timeout)
        self._core.require_coordinator()
        requested = self._core.consumed() if offsets is None else as_offsets(offsets)
        if not requested:
            return
        while True:
            await self._find_coordinator(deadline)
            error: KafkaError | None
            try:
                answer = await self._core.runtime.wait_for(self._core.send_commit(requested))
                error = first_commit_error(answer)
            except KafkaError as failure:
                error = failure
            if error is None:
                return
            await deadline.wait_before_retry(error)

    async def committed(
        self, partitions: Iterable[TopicPartition], timeout: float | None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Fetch committed offsets from the coordinator, with retries."""
        requested = [as_partition(partition) for partition in partitions]
        deadline = Deadline(self._core, "the last committed offsets could be determined", timeout)
        while True:
            coordinator = await self._find_coordinator(deadline)
            request, limit = offset_fetch_request(coordinator.key, requested, self._client.metadata)
            names = dict(self._client.metadata.topic_names)
            try:
                answer = await self._core.runtime.wait_for(
                    coordinator.send(request, max_version=limit)
                )
                found = read_offset_fetch(answer, names)
                for one in found.values():
                    if isinstance(one, KafkaError):
                        raise one
            except KafkaError as error:
                coordinator.note_error(error.code)
                await deadline.wait_before_retry(error)
            else:
                good = {p: o for p, o in found.items() if not isinstance(o, KafkaError)}
                return {partition: good.get(partition) for partition in requested}

    async def position(self, partition: TopicPartition, timeout: float | None) -> int:
        """Wait until the position is known."""
        self._core.runtime.attach()
        deadline = Deadline(
            self._core, f"the position for partition {partition} could be determined", timeout
        )
        while True:
            state = self._core.subscription.state(partition)
            position = self._core.position_of(state)
            if position is not None:
                return position
            error = self._core.positions.errors.pop()
            if error is not None:
                raise error
            await deadline.wait_before_retry()

    async def offsets(
        self, timestamps: Mapping[TopicPartition, int], timeout: float | None
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """Query the leaders for offsets by timestamp, with retries."""
        core = self._core
        core.require_open()
        core.runtime.attach()
        requested = {as_partition(partition): when for partition, when in timestamps.items()}
        for when in requested.values():
            if not isinstance(when, int):
                text = f"a timestamp must be int (ms since the epoch), not {type(when).__name__}"
                raise TypeError(text)
        limit_ms = _limit_ms(core, timeout)
        query = OffsetQuery(
            self._client,
            requested,
            committed_only=core.settings.isolation_level == "read_committed",
            deadline_ms=core.now_ms() + limit_ms,
        )
        with core.keeping_topics(partition.topic for partition in requested):
            return await core.runtime.run(query)

    async def partitions_for(self, topic: str, timeout: float | None) -> list[PartitionMetadata]:
        """Wait for the topic's metadata."""
        check_topic(topic)
        self._core.runtime.attach()
        deadline = Deadline(self._core, f"the partitions of topic {topic!r} were known", timeout)
        metadata = self._client.metadata
        with self._core.keeping_topics((topic,)):
            while not metadata.partition_count(topic):
                code = metadata.error(topic)
                await deadline.wait_before_retry(KafkaError(code) if code else None, backoff=False)
            return list(metadata.topics[topic].partitions)
