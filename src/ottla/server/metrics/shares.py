"""Metrics of share groups at the leaders: sessions, acknowledgements, records in flight, locks.

Kafka: org.apache.kafka.server.share.metrics.{ShareGroupMetrics, SharePartitionMetrics},
org.apache.kafka.server.share.session.ShareSessionCache.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.metrics.families import Series, gauge, label_text, meter, quantile_labels, summary
from ottla.metrics.samples import QUANTILES
from ottla.types import AcknowledgeType

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ottla.replication.share.measures import ShareMeasures
    from ottla.server.share.partitions import SharePartitions

_ONE: Final = ("",)
_A_SLICE: Final = 500
"""Share partitions between two turns of the loop."""
_QUANTILES: Final = quantile_labels(QUANTILES)
_CACHE: Final = ("kafka.server", "ShareSessionCache")
_SESSIONS = gauge(*_CACHE, "ShareSessionsCount", "Share sessions kept.")
_PARTITIONS = gauge(*_CACHE, "SharePartitionsCount", "Partitions in them.")
_EVICTIONS = meter(
    *_CACHE, "ShareSessionEvictionsPerSec", "Sessions that ended with their connection."
)
_GROUP: Final = ("kafka.server", "ShareGroupMetrics")
_ACKNOWLEDGED = meter(*_GROUP, "RecordAcknowledgementsPerSec", "Acknowledgements by type.")
_TYPES: Final = tuple(AcknowledgeType)[1:]
_TYPE_LABELS: Final = tuple(label_text(ackType=kind.name.capitalize()) for kind in _TYPES)
_LOAD_TIME = summary(*_GROUP, "PartitionLoadTimeMs", "How long share partitions took to load.")
_RATIO = summary(
    *_GROUP, "RequestTopicPartitionsFetchRatio", "Percentage of partitions that a fetch got."
)
_ACQUIRE = summary(*_GROUP, "TopicPartitionsAcquireTimeMs", "How long fetches waited for records.")
_PARTITION: Final = ("kafka.server", "SharePartitionMetrics")
_LOCKS = meter(*_PARTITION, "AcquisitionLockTimeoutPerSec", "Records whose lock timed out.")
_RECORDS = gauge(*_PARTITION, "InFlightMessageCount", "Offsets in flight.")
_BATCHES = gauge(*_PARTITION, "InFlightBatchCount", "Batches in flight.")
_SIZES = summary(*_PARTITION, "InFlightBatchMessageCount", "Offsets of batches put in flight.")
_LOCK_TIMES = summary(*_PARTITION, "FetchLockTimeMs", "How long a fetch took from its read on.")
_LOCK_RATIOS = summary(*_PARTITION, "FetchLockRatio", "Percentage of the time in fetches.")


def share_series(share: SharePartitions) -> Iterator[Series | None]:
    """Yield the series of one broker, and None where the loop may take a turn."""
    yield Series(_SESSIONS, _ONE, (len(share.sessions),))
    yield Series(_PARTITIONS, _ONE, (share.sessions.partition_count,))
    yield Series(_EVICTIONS, _ONE, (share.sessions.eviction_count,))
    yield Series(_ACKNOWLEDGED, _TYPE_LABELS, [share.acknowledged[kind] for kind in _TYPES])
    times = share.load_times_ms
    yield Series(_LOAD_TIME, _QUANTILES, (*times.quantiles(), times.total, times.count))
    for family, of_groups in ((_RATIO, share.fetch_ratios), (_ACQUIRE, share.acquire_times_ms)):
        for group_id, recent in of_groups.items():
            of_group = quantile_labels(QUANTILES, group=group_id)
            yield Series(family, of_group, (*recent.quantiles(), recent.total, recent.count))
    partitions = list(share)
    names: list[dict[str, object]] = []
    labels: list[str] = []
    for number, one in enumerate(partitions, 1):
        key = one.key
        topic = share.topic_name(key.topic_id)
        name: dict[str, object] = {"group": key.group_id, "topic": topic}
        name["partition"] = key.partition
        names.append(name)
        labels.append(label_text(**name))
        if number % _A_SLICE == 0:
            yield None
    yield None
    yield Series(_LOCKS, labels, [one.lock_timeout_count for one in partitions])
    yield Series(_RECORDS, labels, [one.in_flight_count for one in partitions])
    yield Series(_BATCHES, labels, [len(one.batches) for one in partitions])
    for one, name in zip(partitions, names, strict=True):
        yield from _measured(one.measures, quantile_labels(QUANTILES, **name))


def _measured(measures: ShareMeasures, labels: Sequence[str]) -> Iterator[Series]:
    """Yield the distributions of a share partition."""
    for family, recent in (
        (_SIZES, measures.batch_sizes),
        (_LOCK_TIMES, measures.lock_times_ms),
        (_LOCK_RATIOS, measures.lock_ratios),
    ):
        yield Series(family, labels, (*recent.quantiles(), recent.total, recent.count))
