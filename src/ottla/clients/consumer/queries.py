"""A consumer's waiting calls: commits, committed offsets, offset queries.

Kafka: the blocking calls of org.apache.kafka.clients.consumer.KafkaConsumer.
"""

from __future__ import annotations

# ruff: noqa: ASYNC109 - as in Kafka, a call's timeout covers its retries; it is no cancellation
from typing import TYPE_CHECKING, Any

from ottla.clients.arguments import as_partition, check_timeout, check_topic
from ottla.clients.coordinator import CoordinatorCall
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
    from collections.abc import Callable, Iterable, Mapping

    from ottla.clients.consumer.core import ConsumerCore
    from ottla.clients.metadata import PartitionMetadata
    from ottla.clients.offsets import OffsetAndTimestamp
    from ottla.purgatory.pending import Pending
    from ottla.types import TopicPartition, Uuid


def _limit_ms(core: ConsumerCore, timeout: float | None) -> float:
    """Return the time of a call in ms; raises TypeError for a timeout that is no number."""
    check_timeout(timeout)
    default_ms: int = core.settings.default_api_timeout_ms
    return default_ms if timeout is None else timeout * 1000


class Deadline:
    """The deadline of a call that waits for the client's state to change."""

    def __init__(self, core: ConsumerCore, purpose: str, timeout: float | None) -> None:
        core.require_open()
        self._limit_ms = _limit_ms(core, timeout)
        self._purpose = purpose
        self._core = core
        self._end_ms = core.now_ms() + self._limit_ms
        self._last: KafkaError | None = None
        self._failures = 0
        self._woken_ms = -MAX_INT

    async def wait_progress(self, error: KafkaError | None = None) -> None:
        """Wait for progress or the backoff; raise a fatal error, or after the deadline."""
        core = self._core
        self._last = error or self._last
        if error is not None and not is_retried(error):
            raise error
        pending_error = core.client.pending_error()
        if pending_error is not None:
            raise pending_error
        remaining_ms = self._end_ms - core.now_ms()
        if remaining_ms <= 0:
            text = f"Timeout of {int(self._limit_ms)}ms expired before {self._purpose}"
            raise core.client.timeout_error(text, self._last)
        self._failures += error is not None
        backoff_ms = core.client.backoff.after(max(self._failures, 1))
        wait_ms = min(max(backoff_ms, 1), remaining_ms)
        now_ms = core.now_ms()
        if now_ms - self._woken_ms >= wait_ms:  # every wake ends all waits, this one too
            self._woken_ms = now_ms
            core.runtime.wake()
        await core.runtime.wait_progress(wait_ms)


class Queries:
    """The waiting calls of one consumer."""

    def __init__(self, core: ConsumerCore) -> None:
        self._core = core
        self._client = core.client

    async def _call_coordinator(
        self,
        send: Callable[[int], Pending[Any]],
        error_of: Callable[[Any], int],
        purpose: str,
        timeout: float | None,
    ) -> Any:
        """Send to the coordinator, and again, with the membership of then, until it succeeds."""
        core = self._core
        core.runtime.attach()
        limit_ms = _limit_ms(core, timeout)
        call = CoordinatorCall(
            core.require_coordinator(),
            send,
            error_of,
            deadline_ms=core.now_ms() + limit_ms,
            is_retried=is_retried,
            timeout_text=f"Timeout of {int(limit_ms)}ms expired before {purpose}",
        )
        call.is_sent_late = True  # as by a Java consumer: commit(timeout=0) sends the offsets
        return await core.runtime.run(call)

    async def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None,
        timeout: float | None,
    ) -> None:
        """Commit with retries."""
        core = self._core
        core.require_open()
        check_timeout(timeout)
        core.require_coordinator()
        requested = core.consumed() if offsets is None else as_offsets(offsets)
        if not requested:
            return

        def error_of(answer: Any) -> int:
            error = first_commit_error(answer)
            return 0 if error is None else error.code

        await self._call_coordinator(
            lambda timeout_ms: core.send_commit(requested, timeout_ms),
            error_of,
            "successfully committing offsets",
            timeout,
        )

    async def committed(
        self, partitions: Iterable[TopicPartition], timeout: float | None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Fetch committed offsets from the coordinator, with retries."""
        requested = [as_partition(partition) for partition in partitions]
        self._core.require_open()
        coordinator = self._core.require_coordinator()
        names: dict[Uuid, str] = {}

        def send(timeout_ms: int) -> Pending[Any]:
            metadata = self._client.metadata  # a topic may have a new id by the next attempt
            names.update(metadata.topic_names)
            request, limit = offset_fetch_request(coordinator.key, requested, metadata)
            return coordinator.send(request, timeout_ms=timeout_ms, max_version=limit)

        def error_of(answer: Any) -> int:
            group = answer.groups[0]
            rows = (partition for topic in group.topics for partition in topic.partitions)
            return group.error_code or next((row.error_code for row in rows if row.error_code), 0)

        answer = await self._call_coordinator(
            send, error_of, "the last committed offsets could be determined", timeout
        )
        offsets = read_offset_fetch(answer, names)
        good = {key: value for key, value in offsets.items() if not isinstance(value, KafkaError)}
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
            await deadline.wait_progress()

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
                await deadline.wait_progress(KafkaError(code) if code else None)
            return list(metadata.topics[topic].partitions)
