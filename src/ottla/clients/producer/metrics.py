"""Producer metrics: records sent, retried and failed, batch sizes, buffer memory.

Kafka: org.apache.kafka.clients.producer.internals.SenderMetricsRegistry, BufferPool.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.clients.metric_windows import MetricWindow, counted, metered, sized

if TYPE_CHECKING:
    from ottla.clients.client import Client
    from ottla.clients.producer.accumulator import Accumulator
    from ottla.clients.producer.batches import ProducerBatch

GROUP, TOPIC_GROUP = "producer-metrics", "producer-topic-metrics"
SENT, RETRIED, FAILED = metered("record-send"), metered("record-retry"), metered("record-error")
COMPRESSION = "compression-rate"


class TopicWindows:
    """The metrics of one topic."""

    __slots__ = ("compression", "failed", "retried", "sent", "sent_bytes")

    def __init__(self, client: Client, topic: str) -> None:
        window = client.metrics.window
        self.sent = window(TOPIC_GROUP, SENT, topic=topic)
        self.sent_bytes = window(TOPIC_GROUP, metered("byte"), topic=topic)
        self.compression = window(TOPIC_GROUP, {COMPRESSION: MetricWindow.mean}, topic=topic)
        self.retried = window(TOPIC_GROUP, RETRIED, topic=topic)
        self.failed = window(TOPIC_GROUP, FAILED, topic=topic)


class SenderMetrics:
    """The sender's metrics, updated once per batch or request."""

    def __init__(self, client: Client, accumulator: Accumulator) -> None:
        self._client = client
        self._topics: dict[str, TopicWindows] = {}
        window = client.metrics.window
        self._sent = window(GROUP, SENT)
        self._retried = window(GROUP, RETRIED)
        self._failed = window(GROUP, FAILED)
        self._split = window(GROUP, counted("batch-split"))
        self._batch_size = window(GROUP, sized("batch-size"))
        self._queue_time_ms = window(GROUP, sized("record-queue-time"))
        self._compression = window(GROUP, {f"{COMPRESSION}-avg": MetricWindow.mean})
        self._records_per_request = window(GROUP, {"records-per-request-avg": MetricWindow.mean})
        gauge, memory = client.metrics.gauge, accumulator.buffer_memory
        gauge(GROUP, "buffer-total-bytes", lambda _: float(memory))
        gauge(GROUP, "buffer-available-bytes", lambda _: float(memory - accumulator.used_bytes))
        gauge(GROUP, "requests-in-flight", lambda _: float(client.all_in_flight))
        gauge(GROUP, "metadata-age", lambda now_ms: (now_ms - client.metadata.updated_ms) / 1000)

    def _topic(self, batch: ProducerBatch) -> TopicWindows:
        name = batch.topic_partition.topic
        found = self._topics.get(name)
        if found is None:
            found = self._topics[name] = TopicWindows(self._client, name)
        return found

    def sent(self, batches: list[ProducerBatch]) -> None:
        """Record a request with these encoded batches."""
        now_ms = self._client.now_ms
        records = 0
        for batch in batches:
            count, size = batch.record_count, len(batch.payload or b"")
            ratio = size / max(batch.size, 1)
            topic = self._topic(batch)
            records += count
            topic.sent.record(count, now_ms)
            topic.sent_bytes.record(size, now_ms)
            topic.compression.record(ratio, now_ms)
            self._compression.record(ratio, now_ms)
            self._batch_size.record(size, now_ms)
            self._queue_time_ms.record(now_ms - batch.created_ms, now_ms)
        self._sent.record(records, now_ms)
        self._records_per_request.record(records, now_ms)

    def retried(self, batch: ProducerBatch) -> None:
        """Record a batch that is retried."""
        now_ms, count = self._client.now_ms, batch.record_count
        self._retried.record(count, now_ms)
        self._topic(batch).retried.record(count, now_ms)

    def failed(self, batch: ProducerBatch) -> None:
        """Record a failed batch."""
        now_ms, count = self._client.now_ms, batch.record_count
        self._failed.record(count, now_ms)
        self._topic(batch).failed.record(count, now_ms)

    def split(self) -> None:
        """Record a batch that is split."""
        self._split.record(1, self._client.now_ms)
