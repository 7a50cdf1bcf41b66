"""Metrics of transactions.

Kafka: TransactionMarkerChannelManager, AddPartitionsToTxnManager, ReplicaManager.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.metrics.families import (
    Series,
    gauge,
    meter,
    quantile_labels,
    rate,
    summary,
)
from ottla.metrics.rates import Meter
from ottla.metrics.samples import QUANTILES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.server.broker.broker import Broker

_ONE: Final = ("",)
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
