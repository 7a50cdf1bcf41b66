"""Metrics of tiered storage; without it there are none.

Kafka: org.apache.kafka.server.log.remote.storage.RemoteStorageMetrics,
org.apache.kafka.server.log.remote.quota.RLMQuotaMetrics.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any

from ottla.metrics.families import (
    Series,
    client_gauge,
    gauge,
    label_text,
    meter,
    own,
    quantile_labels,
    summary,
)
from ottla.metrics.samples import QUANTILES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.metrics.families import Family
    from ottla.metrics.sampled_stat import SampledStat
    from ottla.server.broker.broker import Broker
    from ottla.server.remote.figures import RemoteSizes

_ONE = ("",)
_TOPICS = ("kafka.server", "BrokerTopicMetrics")
_MANAGER = ("kafka.log.remote", "RemoteLogManager")
_THREADS = ("kafka.log.remote", "RemoteStorageThreadPool")

_COUNTS = tuple(
    (meter(*_TOPICS, name, text), attrgetter(attribute))
    for name, attribute, text in (
        ("RemoteCopyBytesPerSec", "copied_bytes", "Bytes copied to remote storage."),
        ("RemoteCopyRequestsPerSec", "copy_count", "Segments whose copy began."),
        ("RemoteCopyErrorsPerSec", "failed_copy_count", "Copies that failed."),
        ("RemoteFetchBytesPerSec", "read_bytes", "Bytes read from remote storage for fetches."),
        ("RemoteFetchRequestsPerSec", "read_count", "Reads of remote storage for fetches."),
        (
            "RemoteFetchErrorsPerSec",
            "failed_read_count",
            "Those that failed, searches by time included.",
        ),
        ("RemoteDeleteRequestsPerSec", "delete_count", "Deletions of remote segments."),
        ("RemoteDeleteErrorsPerSec", "failed_delete_count", "Those that failed."),
        (
            "BuildRemoteLogAuxStateRequestsPerSec",
            "build_count",
            "States of followers built from remote storage.",
        ),
        ("BuildRemoteLogAuxStateErrorsPerSec", "failed_build_count", "Those that failed."),
    )
)
_SIZES = tuple(
    (gauge(*_TOPICS, name, text), attrgetter(attribute))
    for name, attribute, text in (
        ("RemoteCopyLagBytes", "copy_lag_bytes", "Sealed bytes that are not copied yet."),
        ("RemoteCopyLagSegments", "copy_lag_segments", "Sealed segments that are not copied yet."),
        ("RemoteDeleteLagBytes", "delete_lag_bytes", "Expired bytes in remote storage."),
        ("RemoteDeleteLagSegments", "delete_lag_segments", "Expired segments there."),
        ("RemoteLogMetadataCount", "metadata_count", "Segments with metadata."),
        ("RemoteLogSizeBytes", "size_bytes", "Bytes in remote storage."),
        ("RemoteLogSizeComputationTime", "computation_ms", "Milliseconds of the last expiry."),
    )
)
_PERCENTS = tuple(
    (gauge(*_MANAGER, name, text), attrgetter(attribute))
    for name, attribute, text in (
        ("RetentionSizeInPercent", "retention_percent", "Both tiers against retention.bytes."),
        (
            "LocalRetentionSizeInPercent",
            "local_retention_percent",
            "This disk's part against local.retention.bytes.",
        ),
    )
)
_TASKS_IDLE = gauge(
    *_MANAGER, "RemoteLogManagerTasksAvgIdlePercent", "Copier threads that are idle, 0 to 1."
)
_READ_TIMES = summary(
    *_MANAGER, "RemoteLogReaderFetchRateAndTimeMs", "Duration of reads for fetches."
)
_READ_LABELS = quantile_labels(QUANTILES)
_QUEUE = gauge(
    *_THREADS, "RemoteLogReaderTaskQueueSize", "Reads of remote storage that wait for a thread."
)
_READERS_IDLE = gauge(
    *_THREADS, "RemoteLogReaderAvgIdlePercent", "Reader threads that are idle, 0 to 1."
)
_COPY_RATE = client_gauge("RLMCopy", "byte-rate", "Bytes a second copied to remote storage.")
_FETCH_RATE = client_gauge("RLMFetch", "byte-rate", "Bytes a second read from there for fetches.")
_COPY_WAITS, _FETCH_WAITS = (
    tuple(
        client_gauge(
            "RemoteLogManager", f"remote-{kind}-throttle-time-{name}", f"{text} of {kind}."
        )
        for name, text in (
            ("avg", "Mean wait for the quota"),
            ("max", "Longest wait for the quota"),
        )
    )
    for kind in ("copy", "fetch")
)
_OLDEST = own(
    "ottla_remote_call_oldest_seconds", "Age of the oldest call to remote storage that runs."
)
_WAITING = own("ottla_remote_calls_waiting", "Calls to remote storage that wait for a thread.")
_AWAY = own(
    "ottla_remote_storage_away",
    "1 while remote storage was not reached, or copies or deletions of any partition fail.",
)


def remote_series(broker: Broker) -> Iterator[Series | None]:
    """Yield the series of a broker with tiered storage; None where the loop may take a turn."""
    manager, reader = broker.remote_logs, broker.remote_reader
    if manager is None or reader is None:
        return
    sizes = manager.sizes()
    by_topic: dict[str, list[RemoteSizes]] = {topic: [] for topic in manager.counts}
    for found in sizes:
        by_topic.setdefault(found.topic, []).append(found)
    labels = ("", *(label_text(topic=topic) for topic in by_topic))
    counts = [manager.counts[topic] for topic in by_topic]
    for family, read in _COUNTS:
        values = [read(count) for count in counts]
        yield Series(family, labels, [sum(values), *values])
    yield None
    for family, read in _SIZES:
        values = [sum(map(read, some)) for some in by_topic.values()]
        yield Series(family, labels, [sum(values), *values])
    yield None
    names = tuple(label_text(topic=one.topic, partition=one.partition) for one in sizes)
    for family, read in _PERCENTS:
        yield Series(family, names, [read(one) for one in sizes])
    calls = manager.tier.calls
    yield Series(_TASKS_IDLE, _ONE, (calls["copier"].idle_share,))
    times = reader.times_ms
    yield Series(_READ_TIMES, _READ_LABELS, [*times.quantiles(), times.total, times.count])
    yield Series(_QUEUE, _ONE, (calls["reader"].waiting_count,))
    yield Series(_READERS_IDLE, _ONE, (calls["reader"].idle_share,))
    kinds = tuple(label_text(kind=kind) for kind in calls)
    yield Series(_OLDEST, kinds, [one.oldest_ms / 1000 for one in calls.values()])
    yield Series(_WAITING, kinds, [one.waiting_count for one in calls.values()])
    yield Series(_AWAY, _ONE, (int(manager.is_away),))
    now_ms = broker.clock.monotonic_ms()
    for family, quota in ((_COPY_RATE, manager.copy_quota), (_FETCH_RATE, reader.quota)):
        yield Series(family, _ONE, (round(quota.rate(now_ms), 3),))
    yield from _waits(_COPY_WAITS, manager.copy_waits_ms, now_ms)
    yield from _waits(_FETCH_WAITS, reader.waits_ms, now_ms)


def _waits(families: tuple[Family, ...], waits_ms: SampledStat, now_ms: int) -> Iterator[Series]:
    """Yield mean and maximum over the window; nothing without waits."""
    samples: list[Any] = waits_ms.recorded(now_ms)
    if samples:
        mean = sum(one.total for one in samples) / sum(one.count for one in samples)
        for family, value in zip(
            families, (mean, max(one.highest for one in samples)), strict=True
        ):
            yield Series(family, _ONE, (round(value, 3),))
