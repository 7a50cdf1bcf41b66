"""Metrics of partitions, topics and replicas, and of share groups at the leaders.

Label texts are built when the set of partitions changes, values that depend only on metadata when
metadata change, and all others in one comprehension for each family. Messages and bytes are counted
by the partitions, where clients and coordinators append; copies by followers do not count.

Kafka: kafka.cluster.Partition, UnifiedLog, ReplicaManager and BrokerTopicMetrics; and what
kafka_exporter reports about topics; org.apache.kafka.server.share.metrics.{ShareGroupMetrics,
SharePartitionMetrics}, org.apache.kafka.server.share.session.ShareSessionCache.
"""

from __future__ import annotations

from collections import Counter
from operator import attrgetter, sub
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.metrics.families import (
    Family,
    Series,
    gauge,
    label_text,
    meter,
    own,
    quantile_labels,
    rate,
    summary,
)
from ottla.metrics.samples import QUANTILES, Meter
from ottla.types import AcknowledgeType

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ottla.replication.partition import Partition
    from ottla.replication.replica_set import ReplicaSet
    from ottla.replication.share.partition import ShareMeasures
    from ottla.server.share.partitions import SharePartitions
    from ottla.storage.log.partition_log import PartitionLog

_A_SLICE: Final = 500
"""Share partitions between two turns of the loop."""
_QUANTILES: Final = quantile_labels(QUANTILES)
_CACHE: Final = ("kafka.server", "ShareSessionCache")
_SESSIONS = gauge(*_CACHE, "ShareSessionsCount", "Share sessions kept.")
_SHARE_PARTITIONS = gauge(*_CACHE, "SharePartitionsCount", "Partitions in them.")
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
    yield Series(_SHARE_PARTITIONS, _ONE, (share.sessions.partition_count,))
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
    yield Series(_LOCKS, labels, [partition.lock_timeout_count for partition in partitions])
    yield Series(_RECORDS, labels, [partition.in_flight_count for partition in partitions])
    yield Series(_BATCHES, labels, [len(partition.batches) for partition in partitions])
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


AUTO_LEVEL_LIMIT = 20_000
"""Above this number `metrics.partition.level=auto` omits the metrics of partitions."""
_ONE = ("",)
_READ_SIZE = attrgetter("size_bytes")
_READ_START = attrgetter("log_start_offset")
_READ_END = attrgetter("log_end_offset")
_READ_WATERMARK = attrgetter("high_watermark")
_READ_STABLE = attrgetter("last_stable_offset")

_LOG = ("kafka.log", "Log")
_CLUSTER = ("kafka.cluster", "Partition")
_MANAGER = ("kafka.server", "ReplicaManager")
_SIZE = gauge(*_LOG, "Size", "Bytes of the partition's log.")
_START = gauge(*_LOG, "LogStartOffset", "First offset that can be read.")
_END = gauge(*_LOG, "LogEndOffset", "Offset after the last record.")
_STABLE_LAG = gauge(*_CLUSTER, "LastStableOffsetLag", "High watermark less last stable offset.")
_UNDER_REPLICATED = gauge(*_CLUSTER, "UnderReplicated", "1 while a replica is out of sync.")
_UNDER_MIN_ISR = gauge(*_CLUSTER, "UnderMinIsr", "1 with fewer in sync than min.insync.replicas.")
_AT_MIN_ISR = gauge(*_CLUSTER, "AtMinIsr", "1 with just min.insync.replicas in sync.")
_REPLICAS = gauge(*_CLUSTER, "ReplicasCount", "Replicas of the partition.")
_IN_SYNC = gauge(*_CLUSTER, "InSyncReplicasCount", "Replicas in sync.")

_TOPIC_PARTITIONS = own("kafka_topic_partitions", "Partitions of the topic that this node leads.")
_CURRENT_OFFSET = own("kafka_topic_partition_current_offset", "High watermark.")
_OLDEST_OFFSET = own("kafka_topic_partition_oldest_offset", "First offset that can be read.")
_LEADER = own("kafka_topic_partition_leader", "The broker that leads the partition.")
_TOPIC_REPLICAS = own("kafka_topic_partition_replicas", "Replicas of the partition.")
_TOPIC_IN_SYNC = own("kafka_topic_partition_in_sync_replica", "Replicas in sync.")
_IS_PREFERRED = own(
    "kafka_topic_partition_leader_is_preferred", "1 when the first replica is the leader."
)
_TOPIC_UNDER_REPLICATED = own(
    "kafka_topic_partition_under_replicated_partition", "1 while a replica is out of sync."
)

_LEADER_COUNT = gauge(*_MANAGER, "LeaderCount", "Partitions led here.")
_PARTITION_COUNT = gauge(*_MANAGER, "PartitionCount", "Partitions here.")
_OFFLINE_REPLICAS = gauge(*_MANAGER, "OfflineReplicaCount", "Replicas whose disk failed.")
_UNDER_REPLICATED_COUNT = gauge(
    *_MANAGER, "UnderReplicatedPartitions", "Led here, a replica behind."
)
_UNDER_MIN_ISR_COUNT = gauge(*_MANAGER, "UnderMinIsrPartitionCount", "Led here, too few in sync.")
_AT_MIN_ISR_COUNT = gauge(*_MANAGER, "AtMinIsrPartitionCount", "Led here, just enough in sync.")
_REASSIGNING_COUNT = gauge(*_MANAGER, "ReassigningPartitions", "Led here, being reassigned.")


class Traffic(NamedTuple):
    """One of BrokerTopicMetrics: its family, its rates and the attribute with its count."""

    family: Family
    rates: tuple[Family, ...]
    read: attrgetter[int]

    def counts(self, partitions: Iterable[Partition]) -> list[int]:
        """Return each partition's count."""
        return list(map(self.read, partitions))


_WINDOWS = ("oneminuterate", "fiveminuterate", "fifteenminuterate", "meanrate")


def _traffic(name: str, attribute: str, text: str) -> Traffic:
    place = ("kafka.server", "BrokerTopicMetrics", name)
    rates = tuple(rate(*place, window, f"{text} A second, all topics.") for window in _WINDOWS)
    return Traffic(meter(*place, text), rates, attrgetter(attribute))


TRAFFIC = (
    _traffic("MessagesInPerSec", "messages_in", "Records appended."),
    _traffic("BytesInPerSec", "bytes_in", "Bytes appended."),
    _traffic("BytesOutPerSec", "bytes_out", "Bytes read by consumers."),
    _traffic("TotalProduceRequestsPerSec", "append_count", "Appends, refused ones included."),
    _traffic("TotalFetchRequestsPerSec", "read_count", "Reads, refused ones included."),
    _traffic(
        "FailedProduceRequestsPerSec",
        "failed_append_count",
        "Appends refused by errors that clients do not expect.",
    ),
)


class _View(NamedTuple):
    """Values that depend on the set of partitions; rebuilt when it changes."""

    partitions: list[Partition]
    logs: list[PartitionLog]
    labels: tuple[str, ...]
    leaders: list[Partition]
    leader_logs: list[PartitionLog]
    leader_labels: tuple[str, ...]
    topics: list[tuple[str, int, int]]
    """Name, and the range of its partitions in `partitions`."""
    traffic_labels: tuple[str, ...]
    """None for all topics, then one for each topic."""
    led_labels: tuple[str, ...]
    led_counts: tuple[int, ...]
    """Partitions led here, by topic."""
    ended: tuple[int, ...]
    """By traffic: the counts of removed partitions."""


class _Standing(NamedTuple):
    """Values that depend on the partitions' metadata; rebuilt when metadata change."""

    replicas: list[int]
    settled_replicas: list[int]
    """Without those that a reassignment adds (KIP-352)."""
    in_sync: list[int]
    under_replicated: list[int]
    """Fewer in sync than there are settled ones."""
    is_incomplete: list[int]
    """Fewer in sync than all replicas."""
    under_min_isr: list[int]
    at_min_isr: list[int]
    leader: list[int]
    is_preferred: list[int]
    reassigning_count: int


class PartitionMetrics:
    """The metrics of a ReplicaSet; used on the node's loop only."""

    def __init__(self, replicas: ReplicaSet, *, level: str, now_s: float) -> None:
        self._replicas = replicas
        self._level = level
        self._view = _view([], (0,) * len(TRAFFIC))
        self._standing: _Standing | None = None
        self._meters = [Meter(now_s) for _ in TRAFFIC]
        self._is_stale = True
        """Whether metadata have changed since the last scrape: only then partitions change."""
        self._exchange_count = replicas.exchange_count

    def metadata_changed(self) -> None:
        """Read partitions, replicas and in-sync sets again with the next scrape."""
        self._standing = None
        self._is_stale = True

    def refresh(self) -> None:
        """Find added and removed partitions; the counts of removed ones stay in the totals."""
        has_moved = self._exchange_count != self._replicas.exchange_count
        if not self._is_stale and not has_moved:
            return
        self._is_stale, self._exchange_count = False, self._replicas.exchange_count
        partitions = list(self._replicas)
        leaders = [partition for partition in partitions if partition.is_leader]
        if has_moved or partitions != self._view.partitions or leaders != self._view.leaders:
            there, view = set(partitions), self._view
            gone = [partition for partition in view.partitions if partition not in there]
            ended = tuple(
                before + sum(one.counts(gone))
                for one, before in zip(TRAFFIC, view.ended, strict=True)
            )
            self._view = _view(partitions, ended)
            self._standing = None

    def tick(self, now_s: float) -> None:
        """Update the rates from the counts since the last tick."""
        self.refresh()
        for number, one in enumerate(self._meters):
            one.update(self._total(number), now_s)

    def _total(self, number: int) -> int:
        view = self._view
        return view.ended[number] + sum(TRAFFIC[number].counts(view.partitions))

    def collect(self) -> Iterator[Series]:
        """Yield all series of one set of partitions, each within about a millisecond.

        A tick between two of them may find other partitions; the next scrape has them.
        """
        self.refresh()
        view = self._view
        standing = self._standing
        if standing is None or len(standing.replicas) != len(view.leaders):
            standing = self._standing = _standing(view.leaders)
        yield from self._broker(view, standing)
        for number, one in enumerate(TRAFFIC):
            yield from self._topics(number, one, view)
        many = len(view.partitions) > AUTO_LEVEL_LIMIT
        if self._level == "partition" or (self._level == "auto" and not many):
            yield from _logs(view)
            yield from _leaders(view, standing)

    def _broker(self, view: _View, standing: _Standing) -> Iterator[Series]:
        offline = len(view.logs) - [log.failure for log in view.logs].count(None)
        yield Series(_LEADER_COUNT, _ONE, (len(view.leaders),))
        yield Series(_PARTITION_COUNT, _ONE, (len(view.partitions),))
        yield Series(_OFFLINE_REPLICAS, _ONE, (offline,))
        yield Series(_UNDER_REPLICATED_COUNT, _ONE, (sum(standing.under_replicated),))
        yield Series(_UNDER_MIN_ISR_COUNT, _ONE, (sum(standing.under_min_isr),))
        yield Series(_AT_MIN_ISR_COUNT, _ONE, (sum(standing.at_min_isr),))
        yield Series(_REASSIGNING_COUNT, _ONE, (standing.reassigning_count,))

    def _topics(self, number: int, traffic: Traffic, view: _View) -> Iterator[Series]:
        counts = traffic.counts(view.partitions)
        by_topic = [sum(counts[first:end]) for _, first, end in view.topics]
        total = view.ended[number] + sum(by_topic)
        yield Series(traffic.family, view.traffic_labels, [total, *by_topic])
        one = self._meters[number]
        values = (
            one.one_minute_rate,
            one.five_minute_rate,
            one.fifteen_minute_rate,
            one.mean_rate,
        )
        for family, value in zip(traffic.rates, values, strict=True):
            yield Series(family, _ONE, (value,))


def _logs(view: _View) -> Iterator[Series]:
    logs, labels = view.logs, view.labels
    for family, read in ((_SIZE, _READ_SIZE), (_START, _READ_START), (_END, _READ_END)):
        yield Series(family, labels, list(map(read, logs)))


def _leaders(view: _View, standing: _Standing) -> Iterator[Series]:
    logs, labels = view.leader_logs, view.leader_labels
    high_watermarks = list(map(_READ_WATERMARK, logs))
    yield Series(_CURRENT_OFFSET, labels, high_watermarks)
    stable_lag = list(map(sub, high_watermarks, map(_READ_STABLE, logs)))
    yield Series(_STABLE_LAG, labels, stable_lag)
    yield Series(_OLDEST_OFFSET, labels, list(map(_READ_START, logs)))
    for family, values in (
        (_UNDER_REPLICATED, standing.under_replicated),
        (_UNDER_MIN_ISR, standing.under_min_isr),
        (_AT_MIN_ISR, standing.at_min_isr),
        (_REPLICAS, standing.settled_replicas),
        (_IN_SYNC, standing.in_sync),
        (_LEADER, standing.leader),
        (_TOPIC_REPLICAS, standing.replicas),
        (_TOPIC_IN_SYNC, standing.in_sync),
        (_IS_PREFERRED, standing.is_preferred),
        (_TOPIC_UNDER_REPLICATED, standing.is_incomplete),
    ):
        yield Series(family, labels, values)
    yield Series(_TOPIC_PARTITIONS, view.led_labels, view.led_counts)


def _view(partitions: list[Partition], ended: tuple[int, ...]) -> _View:
    logs = [partition.log for partition in partitions]
    labels = _labels(partitions)
    leaders = [partition for partition in partitions if partition.is_leader]
    leads_all = len(leaders) == len(partitions)
    topics: list[tuple[str, int, int]] = []
    for number, one in enumerate(partitions):
        name = one.topic_partition.topic
        if not topics or topics[-1][0] != name:
            topics.append((name, number, number + 1))
        else:
            topics[-1] = (name, topics[-1][1], number + 1)
    led = Counter(leader.topic_partition.topic for leader in leaders)
    return _View(
        partitions,
        logs,
        labels,
        leaders,
        logs if leads_all else [leader.log for leader in leaders],
        labels if leads_all else _labels(leaders),
        topics,
        ("", *(label_text(topic=name) for name, _, _ in topics)),
        tuple(label_text(topic=name) for name in led),
        tuple(led.values()),
        ended,
    )


def _labels(partitions: Sequence[Partition]) -> tuple[str, ...]:
    # topics' names need no escapes
    return tuple(
        [
            f'{{topic="{topic}",partition="{index}"}}'
            for topic, index in [partition.topic_partition for partition in partitions]
        ]
    )


def _standing(leaders: list[Partition]) -> _Standing:
    replicas = [len(leader.replicas) for leader in leaders]
    settled = [
        count if not one.adding else len({*one.replicas} - {*one.adding})
        for one, count in zip(leaders, replicas, strict=True)
    ]
    in_sync = [len(leader.isr) for leader in leaders]
    needed = [leader.effective_min_isr for leader in leaders]
    return _Standing(
        replicas,
        settled,
        in_sync,
        [int(a < b) for a, b in zip(in_sync, settled, strict=True)],
        [int(a < b) for a, b in zip(in_sync, replicas, strict=True)],
        [int(a < b) for a, b in zip(in_sync, needed, strict=True)],
        [int(a == b) for a, b in zip(in_sync, needed, strict=True)],
        [leader.leader_id for leader in leaders],
        [int(leader.replicas[:1] == (leader.leader_id,)) for leader in leaders],
        sum(leader.is_reassigning for leader in leaders),
    )
