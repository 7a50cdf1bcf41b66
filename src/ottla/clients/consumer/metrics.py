"""Consumer metrics: records consumed, fetch sizes and rates, lag and lead.

Kafka: org.apache.kafka.clients.consumer.internals.{FetchMetricsManager, ConsumerRebalanceMetrics}.

Bytes count the batches as received, compressed; Kafka's consumer counts decompressed bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.clients.metric_windows import NOT_A_NUMBER, MetricName, MetricWindow, metered, sized

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.clients.client import Client
    from ottla.clients.consumer.subscription import PartitionState, Subscription

FETCHES, GROUP = "consumer-fetch-manager-metrics", "consumer-coordinator-metrics"
RECORDS, BYTES = metered("records-consumed"), metered("bytes-consumed")
FETCH_SIZE = sized("fetch-size")


class FetcherMetrics:
    """Fetch metrics, updated once per response and once per taken batch."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._topics: dict[str, tuple[MetricWindow, MetricWindow]] = {}
        window = client.metrics.window
        self._records = window(FETCHES, RECORDS)
        self._bytes = window(FETCHES, BYTES)
        self._size = window(FETCHES, FETCH_SIZE)
        self._lag = window(FETCHES, {"records-lag-max": MetricWindow.highest})
        self._lead = window(FETCHES, {"records-lead-min": MetricWindow.lowest})

    def fetched_bytes(self, size: int) -> None:
        """Record the bytes of records in a response."""
        self._size.record(size, self._client.now_ms)

    def taken(self, state: PartitionState, records: int, size: int) -> None:
        """Record the number and bytes of the records returned to the user."""
        now_ms = self._client.now_ms
        name = state.topic_partition.topic
        topic = self._topics.get(name)
        if topic is None:
            window = self._client.metrics.window
            topic = (window(FETCHES, RECORDS, topic=name), window(FETCHES, BYTES, topic=name))
            self._topics[name] = topic
        if records:
            self._records.record(records, now_ms)
            topic[0].record(records, now_ms)
        if size:
            self._bytes.record(size, now_ms)
            topic[1].record(size, now_ms)
        lag, lead = lag_of(state), lead_of(state)
        if lag is not None:
            self._lag.record(lag, now_ms)
        if lead is not None:
            self._lead.record(lead, now_ms)


def lag_of(state: PartitionState) -> int | None:
    """Return the offsets between the position and the end; None while the end is unknown."""
    if state.high_watermark is None or state.position is None:
        return None
    return max(state.high_watermark - state.position, 0)


def lead_of(state: PartitionState) -> int | None:
    """Return the offsets between the log start and the position; None while unknown."""
    if state.log_start_offset is None or state.position is None:
        return None
    return max(state.position - state.log_start_offset, 0)


def partition_metrics(subscription: Subscription, client_id: str) -> dict[MetricName, float | str]:
    """Return the current lag and lead of each assigned partition."""
    found: dict[MetricName, float | str] = {}
    looks: dict[str, Callable[[PartitionState], int | None]]
    looks = {"records-lag": lag_of, "records-lead": lead_of}
    for (topic, partition), state in subscription.partitions.items():
        tags = (("client-id", client_id), ("topic", topic), ("partition", str(partition)))
        for name, look in looks.items():
            value = look(state)
            found[MetricName(FETCHES, name, tags)] = NOT_A_NUMBER if value is None else float(value)
        found[MetricName(FETCHES, "preferred-read-replica", tags)] = str(state.preferred_replica)
    return found
