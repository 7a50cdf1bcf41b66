"""Metrics of the runtimes of the group, transaction and share coordinators, and of share states.

Kafka: CoordinatorRuntimeMetricsImpl, ShareCoordinatorMetrics. Those of its threads, of their queue
and of the buffers of its batches have no counterpart: the loop runs each operation at once.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from ottla.coordinator.runtime.active import ShardState
from ottla.metrics.families import (
    Family,
    Series,
    client_gauge,
    gauge,
    label_text,
    meter,
    quantile_labels,
    rate,
    summary,
)
from ottla.metrics.samples import QUANTILES, Meter
from ottla.server.broker.topic_auto_creation import SHARE_STATE_TOPIC

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ottla.coordinator.runtime.loader import LoadTimes
    from ottla.server.broker.broker import Broker

LATE_MS: Final = 5 * 60_000
"""Time after transaction.max.timeout.ms from which an open transaction counts as late."""
_QUANTILES: Final = quantile_labels(QUANTILES)
_MARKERS: Final = ("kafka.coordinator.transaction", "TransactionMarkerChannelManager")
_UNKNOWN = gauge(
    *_MARKERS, "UnknownDestinationQueueSize", "Markers of partitions that have no leader."
)
_APPEND = gauge(
    *_MARKERS, "LogAppendRetryQueueSize", "Ended transactions whose record is not appended yet."
)
_VERIFICATION: Final = ("kafka.server", "AddPartitionsToTxnManager")
_TIME = summary(
    *_VERIFICATION, "VerificationTimeMs", "How long transaction coordinators take to verify."
)
_FAILURE = (*_VERIFICATION, "VerificationFailureRate")
_FAILURES = meter(*_FAILURE, "Verifications that were refused or not answered.")
_FAILURE_RATE = rate(*_FAILURE, "oneminuterate", "The same a second.")
_LATE = gauge(
    "kafka.server",
    "ReplicaManager",
    "PartitionsWithLateTransactionsCount",
    "Led here, with a transaction open for longer than any may be.",
)


class TransactionMetrics:
    """The metrics of one broker; used on the node's loop only."""

    def __init__(self, broker: Broker, *, now_s: float) -> None:
        self._broker = broker
        self._failures = Meter(now_s)

    def tick(self, now_s: float) -> None:
        """Sample the counters."""
        self._failures.update(self._broker.verification.failed_count, now_s)

    def collect(self) -> Iterator[Series]:
        """Yield all series."""
        broker = self._broker
        coordinator, verification = broker.transactions, broker.verification
        yield Series(_UNKNOWN, _ONE, (coordinator.markers.unknown_destination_count,))
        yield Series(_APPEND, _ONE, (coordinator.append_retry_count,))
        recent = verification.times_ms
        yield Series(_TIME, _QUANTILES, (*recent.quantiles(), recent.total, recent.count))
        yield Series(_FAILURES, _ONE, (verification.failed_count,))
        yield Series(_FAILURE_RATE, _ONE, (self._failures.one_minute_rate,))
        yield Series(_LATE, _ONE, (self._late_count(),))

    def _late_count(self) -> int:
        limit_ms = self._broker.metadata.config.transaction_max_timeout_ms + LATE_MS
        before_ms = self._broker.clock.now_ms() - limit_ms
        return sum(
            one.log.producer_state.has_transaction_since_before(before_ms)
            for one in self._broker.replicas
            if one.is_leader and one.log.first_unstable_offset is not None
        )


_ONE = ("",)
_KINDS: Final = ("group", "transaction", "share")
_STATES: Final = (ShardState.LOADING, ShardState.ACTIVE, ShardState.FAILED)
_STATE_LABELS: Final = tuple(label_text(state=state.value.lower()) for state in _STATES)


def _families(name: str, text: str) -> dict[str, Family]:
    return {kind: client_gauge(f"{kind}-coordinator-metrics", name, text) for kind in _KINDS}


_LATELY = ", of those loaded in the last 30 seconds."
_LOAD_AVERAGE = _families(
    "partition-load-time-avg", f"Milliseconds that a partition took to load{_LATELY}"
)
_LOAD_HIGHEST = _families(
    "partition-load-time-max", f"Milliseconds that the slowest partition took to load{_LATELY}"
)
_PARTITIONS = _families("num-partitions", "Partitions of the coordinator's topic by state.")
_SHARE: Final = "share-coordinator-metrics"
_WRITES = client_gauge(_SHARE, "write-total", "Writes of share states.")
_WRITE_RATE = client_gauge(_SHARE, "write-rate", "The same a second.")
_WRITE_AVERAGE = client_gauge(_SHARE, "write-latency-avg", "Milliseconds that a write took.")
_WRITE_HIGHEST = client_gauge(_SHARE, "write-latency-max", "Those of the slowest write.")
_PRUNED = client_gauge(_SHARE, "last-pruned-offset", "First offset after the last pruning.")


class CoordinatorMetrics:
    """The metrics of one broker; used on the node's loop only."""

    def __init__(self, broker: Broker, *, now_s: float) -> None:
        self._broker = broker
        self._writes = Meter(now_s)

    def tick(self, now_s: float) -> None:
        """Sample the counters."""
        self._writes.update(self._broker.share.coordinator.write_times.count, now_s)

    def collect(self) -> Iterator[Series]:
        """Yield all series."""
        broker = self._broker
        share = broker.share.coordinator
        for kind, one in (
            ("group", broker.groups),
            ("transaction", broker.transactions),
            ("share", share),
        ):
            yield from self._figures(kind, one.runtime.load_times, one.runtime.partitions)
        writes = share.write_times
        average_ms, highest_ms = writes.figures(broker.clock.monotonic_ms())
        yield Series(_WRITES, _ONE, (writes.count,))
        yield Series(_WRITE_RATE, _ONE, (self._writes.one_minute_rate,))
        yield Series(_WRITE_AVERAGE, _ONE, (average_ms,))
        yield Series(_WRITE_HIGHEST, _ONE, (highest_ms,))
        pruned = share.pruned_offsets
        labels = tuple(label_text(topic=SHARE_STATE_TOPIC, partition=one) for one in pruned)
        yield Series(_PRUNED, labels, tuple(pruned.values()))

    def _figures(
        self, kind: str, times: LoadTimes, partitions: Mapping[int, ShardState]
    ) -> Iterator[Series]:
        average_ms, highest_ms = times.figures(self._broker.clock.monotonic_ms())
        yield Series(_LOAD_AVERAGE[kind], _ONE, (average_ms,))
        yield Series(_LOAD_HIGHEST[kind], _ONE, (highest_ms,))
        counts = Counter(partitions.values())
        yield Series(_PARTITIONS[kind], _STATE_LABELS, [counts[state] for state in _STATES])
