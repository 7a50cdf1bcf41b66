"""Share consumer metrics: records and bytes, fetches, acknowledgements.

Kafka: org.apache.kafka.clients.consumer.internals.{ShareFetchMetricsManager,
ShareFetchMetricsRegistry}.

Bytes count the batches as received, compressed; Kafka's consumer counts decompressed bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.clients.metric_windows import counted, metered, sized

if TYPE_CHECKING:
    from ottla.clients.client import Client

GROUP = "consumer-share-fetch-manager-metrics"
COORDINATOR_GROUP = "consumer-share-coordinator-metrics"


class ShareFetchMetrics:
    """Updated once per response and once per poll."""

    def __init__(self, client: Client) -> None:
        self._client = client
        window = client.metrics.window
        self._size = window(GROUP, sized("fetch-size"))
        self._bytes = window(GROUP, metered("bytes-consumed"))
        self._records = window(GROUP, metered("records-consumed"))
        self._per_request = window(GROUP, sized("records-per-request"))
        self._fetches = window(GROUP, {**sized("fetch-latency"), **counted("fetch")})
        self._throttled = window(GROUP, sized("fetch-throttle-time"))
        self._sent = window(GROUP, metered("acknowledgements-send"))
        self._failed = window(GROUP, metered("acknowledgements-error"))

    def fetched(self, size: int, latency_ms: int, throttle_time_ms: int) -> None:
        """Record a response."""
        now_ms = self._client.now_ms
        self._fetches.record(latency_ms, now_ms)
        self._throttled.record(throttle_time_ms, now_ms)
        if size:
            self._size.record(size, now_ms)
            self._bytes.record(size, now_ms)

    def taken(self, count: int) -> None:
        """Record the records returned to the user."""
        self._records.record(count, self._client.now_ms)
        self._per_request.record(count, self._client.now_ms)

    def acknowledged(self, count: int, *, is_error: bool) -> None:
        """Record acknowledgements that were answered."""
        self._sent.record(count, self._client.now_ms)
        if is_error:
            self._failed.record(count, self._client.now_ms)
