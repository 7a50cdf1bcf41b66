"""Client metrics: requests, connections, and those that its state machines add.

Kafka: org.apache.kafka.common.metrics.Metrics, .network.Selector's SelectorMetrics,
clients.consumer.internals.{FetchMetricsManager, ConsumerCoordinatorMetrics}.

Names and groups are Kafka's. A client's `metrics()` returns the values; nothing is sent to brokers;
and `--print-metrics` of the measuring tools prints them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla._version import __version__
from ottla.clients.metric_windows import MetricName, MetricWindow, counted, metered, sized
from ottla.protocol.apis.fetch import FetchRequest
from ottla.protocol.apis.heartbeat import HeartbeatRequest
from ottla.protocol.apis.join_group import JoinGroupRequest
from ottla.protocol.apis.offset_commit import OffsetCommitRequest
from ottla.protocol.apis.produce import ProduceRequest
from ottla.protocol.apis.sync_group import SyncGroupRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ottla.clients.settings import ValidatedSettings

    Views = Mapping[str, Callable[[MetricWindow, int], float]]

COORDINATOR_PURPOSE = "group"
LARGEST_INT = 0x7FFF_FFFF

_FETCHES = "consumer-fetch-manager-metrics"
_GROUP = "consumer-coordinator-metrics"
_TIMED: dict[str, dict[int, tuple[str, Views]]] = {
    "producer": {ProduceRequest.message_key: ("producer-metrics", sized("request-latency"))},
    "consumer": {
        FetchRequest.message_key: (_FETCHES, sized("fetch-latency") | counted("fetch")),
        OffsetCommitRequest.message_key: (_GROUP, sized("commit-latency") | counted("commit")),
        HeartbeatRequest.message_key: (
            _GROUP,
            {"heartbeat-response-time-max": MetricWindow.highest} | counted("heartbeat"),
        ),
        JoinGroupRequest.message_key: (_GROUP, sized("join-time") | counted("join")),
        SyncGroupRequest.message_key: (_GROUP, sized("sync-time") | counted("sync")),
    },
}
"""The APIs whose response times are measured, and their metrics (ms)."""

_COUNTED_WHEN_GRANTED = frozenset({JoinGroupRequest.message_key, SyncGroupRequest.message_key})

_THROTTLED = {
    "producer": (ProduceRequest.message_key, "producer-metrics", "produce-throttle-time"),
    "consumer": (FetchRequest.message_key, _FETCHES, "fetch-throttle-time"),
}
_REQUESTS: Views = counted("request") | sized("request-size") | metered("outgoing-byte")
_RESPONSES: Views = counted("response") | metered("incoming-byte")


class ClientMetrics:
    """All windows and gauges of one client."""

    def __init__(self, settings: ValidatedSettings) -> None:
        self.kind: str = settings.kind
        self._client_id = settings.client_id
        self._samples = settings.metrics_num_samples
        self._width_ms = settings.metrics_sample_window_ms
        self._windows: list[tuple[str, tuple[tuple[str, str], ...], MetricWindow, Views]] = []
        self._gauges: list[tuple[MetricName, Callable[[int], float | str]]] = []
        self._meters: dict[str, NodeRequestMeter] = {}
        group = f"{self.kind}-metrics"
        self.requests = self.window(group, _REQUESTS)
        self.responses = self.window(group, _RESPONSES)
        self.exchanges = self.window(group, counted("network-io"))
        self.opened = self.window(group, counted("connection-creation"))
        self.closed = self.window(group, counted("connection-close"))
        self.timed = {key: self.window(*one) for key, one in _TIMED.get(self.kind, {}).items()}
        self.throttled_key = -1
        if self.kind in _THROTTLED:
            self.throttled_key, group, name = _THROTTLED[self.kind]
            self.throttled = self.window(group, sized(name))
        self.gauge("app-info", "version", lambda _now_ms: __version__)

    def window(self, group: str, views: Views, **tags: object) -> MetricWindow:
        """Add a quantity with its metrics."""
        made = MetricWindow(self._samples, self._width_ms)
        self._windows.append((group, self._tags(tags), made, views))
        return made

    def gauge(
        self, group: str, name: str, read: Callable[[int], float | str], **tags: object
    ) -> None:
        """Add a value that is computed from the time in ms when the metrics are collected."""
        self._gauges.append((MetricName(group, name, self._tags(tags)), read))

    def _tags(self, tags: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
        more = ((name.replace("_", "-"), str(value)) for name, value in tags.items())
        return (("client-id", self._client_id), *more)

    def meter(self, node_id: int, purpose: str) -> NodeRequestMeter:
        """Return the meter of the requests to a node; coordinator connections have their own."""
        if purpose.startswith(COORDINATOR_PURPOSE):
            node_id = LARGEST_INT - node_id
        name = f"node-{node_id}"
        found = self._meters.get(name)
        if found is None:
            found = self._meters[name] = NodeRequestMeter(self, name)
        return found

    def collect(self, now_ms: int) -> dict[MetricName, float | str]:
        """Return all values, by name."""
        found: dict[MetricName, float | str] = {}
        for group, tags, window, views in self._windows:
            for name, view in views.items():
                found[MetricName(group, name, tags)] = view(window, now_ms)
        for metric_name, read in self._gauges:
            found[metric_name] = read(now_ms)
        count_name = MetricName("kafka-metrics-count", "count", self._tags({}))
        found[count_name] = float(len(found) + 1)
        return found


class NodeRequestMeter:
    """Measures the requests to one node, and adds them to those of the client."""

    def __init__(self, metrics: ClientMetrics, node: str) -> None:
        self._all = metrics
        group = f"{metrics.kind}-node-metrics"
        self._requests = metrics.window(group, _REQUESTS, node_id=node)
        self._responses = metrics.window(group, _RESPONSES, node_id=node)
        self._latency = metrics.window(group, sized("request-latency"), node_id=node)

    def sent(self, size: int, now_ms: int) -> None:
        """Record a sent request."""
        self._all.requests.record(size, now_ms)
        self._all.exchanges.record(1, now_ms)
        self._requests.record(size, now_ms)

    def answered(
        self, key: int, size: int, *, refused: bool, sent_ms: int, throttle_ms: int, now_ms: int
    ) -> None:
        """Record a response to a request of an API."""
        every = self._all
        every.responses.record(size, now_ms)
        every.exchanges.record(1, now_ms)
        self._responses.record(size, now_ms)
        timed = every.timed.get(key)
        if timed is not None and not (refused and key in _COUNTED_WHEN_GRANTED):
            timed.record(now_ms - sent_ms, now_ms)
        if key == every.throttled_key:
            every.throttled.record(throttle_ms, now_ms)
            self._latency.record(now_ms - sent_ms, now_ms)
