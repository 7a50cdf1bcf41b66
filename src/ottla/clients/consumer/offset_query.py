"""Offset queries by timestamp: ListOffsets to partition leaders, with retries.

Kafka: org.apache.kafka.clients.consumer.internals.OffsetFetcher.fetchOffsetsByTimes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.clients.consumer.offsets import OffsetAndTimestamp, list_offsets_request
from ottla.errors import ErrorCode, KafkaError
from ottla.errors.base import topic_error
from ottla.purgatory.pending import Pending
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.clients.client import Client


def _unknown_partition(partition: TopicPartition, count: int) -> KafkaError | None:
    """Return the error of a partition that the metadata lacks: the topic may have got more."""
    if 0 <= partition.partition < count:
        return None
    return KafkaError(
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        f"{partition} does not exist: the topic has {count} partition(s)",
    )


def is_retried(error: KafkaError) -> bool:
    """Whether a call is repeated: also after BROKER_NOT_AVAILABLE, which is not retriable."""
    return error.is_retriable or error.code == ErrorCode.BROKER_NOT_AVAILABLE


class OffsetQuery:
    """The state machine of one query; the topics must stay in the metadata until it is done.

    `result` completes with all offsets. It fails with the first error that is not retriable, with
    the client's pending error, and at the deadline.
    """

    def __init__(
        self,
        client: Client,
        timestamps: Mapping[TopicPartition, int],
        *,
        committed_only: bool,
        deadline_ms: float,
    ) -> None:
        self.result: Pending[dict[TopicPartition, OffsetAndTimestamp]] = Pending()
        self._client = client
        self._remaining = dict(timestamps)
        self._found: dict[TopicPartition, OffsetAndTimestamp] = {}
        self._committed_only = committed_only
        self._deadline_ms = deadline_ms
        self._in_flight = 0
        self._failure: KafkaError | None = None
        self._retry_at_ms = 0

    def poll(self, now_ms: int) -> None:
        """Send the requests that are due; fail after the deadline."""
        if self.result.done:
            return
        error = self._client.pending_error()
        if error is None and now_ms >= self._deadline_ms:
            error = self._client.timeout_error(
                "Timeout expired before the offsets were known", self._failure
            )
        if error is not None:
            self.result.fail(error)
        elif not self._in_flight and self._retry_at_ms <= now_ms:
            self._send(now_ms)

    def next_deadline_ms(self) -> int | None:
        """Return when the query is retried or expires."""
        if self.result.done:
            return None
        waits = self._retry_at_ms > self._client.now_ms
        return min(int(self._deadline_ms), self._retry_at_ms) if waits else int(self._deadline_ms)

    def _send(self, now_ms: int) -> None:
        if not self._remaining:
            self.result.complete(self._found)
            return
        client = self._client
        by_leader: dict[int, dict[TopicPartition, int]] = {}
        for partition, timestamp in self._remaining.items():
            leader = client.metadata.leader(partition)
            if leader >= 0:
                by_leader.setdefault(leader, {})[partition] = timestamp
            elif count := client.metadata.partition_count(partition.topic):
                self._failure = _unknown_partition(partition, count) or self._failure
        error = self._topic_error()
        if error is not None:
            self.result.fail(error)
            return
        if not by_leader:
            client.metadata.mark_stale()
            return
        self._in_flight = len(by_leader)
        self._retry_at_ms = now_ms
        for leader, timestamps in by_leader.items():
            request = list_offsets_request(
                timestamps,
                client.metadata,
                committed_only=self._committed_only,
                timeout_ms=client.settings.request_timeout_ms,
            )
            client.send(leader, request).on_done(self._answered)

    def _topic_error(self) -> KafkaError | None:
        metadata = self._client.metadata
        for partition in self._remaining:
            code = metadata.error(partition.topic)
            if code and not KafkaError(code).is_retriable:
                return topic_error(partition.topic, code)
            if partition.partition < 0:  # no newer metadata has it
                return _unknown_partition(partition, metadata.partition_count(partition.topic))
        return None

    def _answered(self, done: Pending[Any]) -> None:
        self._in_flight -= 1
        if done.error is not None:
            self._failed(done.error)
        else:
            for topic in done.value.topics:
                for one in topic.partitions:
                    partition = TopicPartition(topic.name, one.partition_index)
                    if one.error_code:
                        text = f"{partition}: {KafkaError(one.error_code).message}"
                        self._failed(KafkaError(one.error_code, text))
                    elif self._remaining.pop(partition, None) is not None:
                        self._found[partition] = OffsetAndTimestamp(
                            one.offset, one.timestamp, one.leader_epoch
                        )
        if self._in_flight:
            return
        if not self._remaining:
            self.result.complete(self._found)
            return
        self._client.metadata.mark_stale()

    def _failed(self, error: Exception) -> None:
        if not isinstance(error, KafkaError) or not is_retried(error):
            self.result.fail(error)
            return
        self._failure = error
        self._retry_at_ms = self._client.now_ms + self._client.settings.retry_backoff_ms
