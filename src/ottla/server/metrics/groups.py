"""Metrics of groups (offsets, lag), of their events, and of coordinators and transactions.

Apache Kafka has no such metrics; separate exporters request the offsets over the network. Here the
offsets are in memory. The lag in time is the age of the first record that the group has not
consumed. Its batch header is read once for each committed offset, and each read ends a slice: it
may wait for the disk. Within a batch the time is interpolated.

Kafka: GroupMetadataManager's gauges; kafka_exporter and kafka-lag-exporter for the lag;
TransactionMarkerChannelManager, AddPartitionsToTxnManager, ReplicaManager;
org.apache.kafka.coordinator.group.metrics.GroupCoordinatorMetrics; CoordinatorRuntimeMetricsImpl,
ShareCoordinatorMetrics. Those of its threads, of their queue and of the buffers of its batches have
no counterpart: the loop runs each operation at once.
"""

from __future__ import annotations

import re
from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from ottla.coordinator.group.classic.group import ClassicState
from ottla.coordinator.group.classic.groups import ClassicGroups
from ottla.coordinator.group.groups import KINDS
from ottla.coordinator.runtime.active import ShardState
from ottla.errors import CorruptMessage
from ottla.metrics.families import (
    Family,
    Series,
    client_gauge,
    gauge,
    label_text,
    meter,
    own,
    quantile_labels,
    rate,
    summary,
)
from ottla.metrics.sampled_stat import SampledStat, SampleWindow
from ottla.metrics.samples import QUANTILES, Meter
from ottla.server.broker.topic_auto_creation import SHARE_STATE_TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ottla.clock import Clock
    from ottla.coordinator.group.coordinator import GroupCoordinator
    from ottla.coordinator.group.group_kind import GroupKind
    from ottla.coordinator.group.shard import GroupShard
    from ottla.coordinator.runtime.loader import LoadTimes
    from ottla.replication.partition import Partition
    from ottla.replication.replica_set import ReplicaSet
    from ottla.server.broker.broker import Broker
    from ottla.storage.log.partition_log import PartitionLog
    from ottla.types import TopicPartition

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
            replica.log.producer_state.has_transaction_since_before(before_ms)
            for replica in self._broker.replicas
            if replica.is_leader and replica.log.first_unstable_offset is not None
        )


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
        labels = tuple(
            label_text(topic=SHARE_STATE_TOPIC, partition=partition) for partition in pruned
        )
        yield Series(_PRUNED, labels, tuple(pruned.values()))

    def _figures(
        self, kind: str, times: LoadTimes, partitions: Mapping[int, ShardState]
    ) -> Iterator[Series]:
        average_ms, highest_ms = times.figures(self._broker.clock.monotonic_ms())
        yield Series(_LOAD_AVERAGE[kind], _ONE, (average_ms,))
        yield Series(_LOAD_HIGHEST[kind], _ONE, (highest_ms,))
        counts = Counter(partitions.values())
        yield Series(_PARTITIONS[kind], _STATE_LABELS, [counts[state] for state in _STATES])


_GROUP: Final = "group-coordinator-metrics"
_WINDOW: Final = SampleWindow(2, 30_000)


class _Event(NamedTuple):
    """An event, and where a shard counts it."""

    name: str
    text: str
    count: Callable[[GroupShard], int]


_EVENTS: Final = (
    _Event(
        "group-completed-rebalance",
        "Completed rebalances of classic groups",
        lambda shard: shard.classic.rebalances,
    ),
    _Event(
        "consumer-group-rebalance",
        "Raised consumer group epochs",
        lambda shard: shard.consumer.rebalances,
    ),
    _Event(
        "share-group-rebalance",
        "Raised share group epochs",
        lambda shard: shard.share.rebalances,
    ),
    _Event(
        "streams-group-rebalance",
        "Raised streams group epochs",
        lambda shard: shard.streams.rebalances,
    ),
    _Event("offset-commit", "Committed offsets", lambda shard: shard.offsets.commits),
    _Event("offset-deletion", "Deleted offsets", lambda shard: shard.offsets.deletions),
    _Event("offset-expiration", "Expired offsets", lambda shard: shard.offsets.expirations),
)


def _family(name: str, text: str) -> Family:
    found = client_gauge(_GROUP, name, text)
    return found._replace(classic=found.reporter)


_COUNTS: Final = [_family(f"{event.name}-count", f"{event.text}.") for event in _EVENTS]
_RATES: Final = [_family(f"{event.name}-rate", f"{event.text} a second.") for event in _EVENTS]


class GroupEvents:
    """The counts and rates of all shards that are loaded."""

    def __init__(self, shards: Callable[[], list[GroupShard]], clock: Clock) -> None:
        self._shards = shards
        self._clock = clock
        self._counts = [0] * len(_EVENTS)
        self._rates = [SampledStat(_WINDOW) for _ in _EVENTS]

    def tick(self) -> None:
        """Sample the counters."""
        shards = self._shards()
        now_ms = self._clock.monotonic_ms()
        for position, event in enumerate(_EVENTS):
            count = sum(map(event.count, shards))
            increase = count - self._counts[position]
            self._counts[position] = count
            if increase > 0:  # the count of a shard that moves away is gone
                self._rates[position].record(increase, now_ms)

    def collect(self) -> Iterator[Series]:
        """Yield all series."""
        self.tick()
        now_ms = self._clock.monotonic_ms()
        for position, count in enumerate(self._counts):
            yield Series(_COUNTS[position], _ONE, (count,))
            yield Series(_RATES[position], _ONE, (self._rates[position].rate(now_ms),))


_ONE = ("",)
_A_SLICE = 50
"""Offsets between two turns of the loop, as long as no batch header is read."""
_LOG_APPEND_TIME = 0x08

_LAG = own("kafka_consumergroup_lag", "Records between committed offset and high watermark.")
_LAG_SUM = own("kafka_consumergroup_lag_sum", "The same, summed over the topic.")
_OFFSET = own("kafka_consumergroup_current_offset", "Committed offset.")
_OFFSET_SUM = own("kafka_consumergroup_current_offset_sum", "The same, summed over the topic.")
_LAG_MILLIS = own("kafka_consumer_lag_millis", "Age of the first record not consumed; 0 if none.")
_LAG_SECONDS = own(
    "kafka_consumergroup_group_lag_seconds", "Age of the first record not consumed; 0 if none."
)
_MEMBERS = own("kafka_consumergroup_members", "Members of the group.")

_PLACE = ("kafka.coordinator.group", "GroupMetadataManager")
_GROUPS = gauge(*_PLACE, "NumGroups", "Groups coordinated here.")
_OFFSETS = gauge(*_PLACE, "NumOffsets", "Offsets kept for them.")
_IN_STATE = {
    state: gauge(*_PLACE, f"NumGroups{state.value}", f"Groups in state {state.value}.")
    for state in ClassicState
}
_GROUP_COUNT = client_gauge("group-coordinator-metrics", "group-count", "Groups by protocol.")
_GROUP_COUNT_NAME = _GROUP_COUNT._replace(classic=_GROUP_COUNT.reporter)
_KIND_NAMES = (ClassicGroups.name, *(kind.name for kind in KINDS))
_PROTOCOLS = tuple(label_text(protocol=name.lower()) for name in _KIND_NAMES)


class _StateCount(NamedTuple):
    """The series of one kind's groups by state."""

    family: Family
    labels: tuple[str, ...]

    @classmethod
    def of(cls, kind: type[GroupKind[Any, Any, Any, Any]]) -> _StateCount:
        family = client_gauge(
            "group-coordinator-metrics",
            f"{kind.name.lower()}-group-count",
            f"{kind.name} groups by state.",
        )
        names = (re.sub("(?<=[a-z])(?=[A-Z])", "_", state.value) for state in kind.states)
        labels = tuple(label_text(state=name.lower()) for name in names)
        return cls(family._replace(classic=family.reporter), labels)


_STATE_COUNTS = {kind: _StateCount.of(kind) for kind in KINDS}


class _Entry:
    """A group's offset in one partition, with what is kept between scrapes."""

    __slots__ = ("_replica", "label", "offset", "sum_key", "timestamp_ms")

    def __init__(self, group_id: str, partition: TopicPartition, replica: Partition) -> None:
        self.label = label_text(
            consumergroup=group_id, topic=partition.topic, partition=partition.partition
        )
        self.sum_key = (group_id, partition.topic)
        self._replica = replica
        self.offset = -1
        self.timestamp_ms: int | None = None
        """The time of the record at `offset`; None when it is unknown."""

    @property
    def log(self) -> PartitionLog:
        """The partition's log: another one after a move between log directories."""
        return self._replica.log

    def move_to(self, offset: int) -> bool:
        """Read the time of the record at another offset; return whether there was a read."""
        if offset == self.offset:
            return False
        self.offset = offset
        self.timestamp_ms = _timestamp_ms(self.log, offset)
        return True

    def age_ms(self, now_ms: int) -> int | None:
        """Return the age of the record at `offset`; None when it is unknown."""
        return None if self.timestamp_ms is None else max(0, now_ms - self.timestamp_ms)


class _Rows:
    """The columns of one scrape."""

    def __init__(self) -> None:
        self.labels: list[str] = []
        self.lags: list[int] = []
        self.offsets: list[int] = []
        self.millis: list[int] = []
        self.timed_labels: list[str] = []
        self.lag_sums: Counter[tuple[str, str]] = Counter()
        self.offset_sums: Counter[tuple[str, str]] = Counter()


_Entries: TypeAlias = "dict[str, dict[TopicPartition, _Entry | None]]"


class GroupMetrics:
    """The metrics of a coordinator's shards; used on the node's loop only."""

    def __init__(self, groups: GroupCoordinator, replicas: ReplicaSet, clock: Clock) -> None:
        self._groups = groups
        self._replicas = replicas
        self._clock = clock
        self._events = GroupEvents(groups.runtime.active_shards, clock)
        self._entries: _Entries = {}
        """By group and partition; None for partitions that this node does not lead."""

    def tick(self) -> None:
        """Sample the counters."""
        self._events.tick()

    def metadata_changed(self) -> None:
        """Find the partitions again: one may be deleted, led elsewhere or recreated."""
        self._entries = {}

    def collect(self) -> Iterator[Series | None]:
        """Yield all series, and None where the loop may take a turn."""
        rows, entries = _Rows(), self._entries
        seen: _Entries = {}
        for shard in self._groups.runtime.active_shards():
            for group_id in list(shard.offsets.by_group):
                known = entries.get(group_id, {})
                seen[group_id] = here = {}
                offsets = list((shard.offsets.by_group.get(group_id) or {}).items())
                for number, (partition, committed) in enumerate(offsets, 1):
                    try:
                        entry = known[partition]
                    except KeyError:
                        entry = self._find(group_id, partition)
                    here[partition] = entry
                    has_read = entry is not None and self._add(rows, entry, committed.offset)
                    if has_read or number % _A_SLICE == 0:
                        yield None
                yield None
        if self._entries is entries:  # else metadata changed between two slices
            self._entries = seen
        labels, timed = tuple(rows.labels), tuple(rows.timed_labels)
        yield Series(_LAG, labels, rows.lags)
        yield Series(_OFFSET, labels, rows.offsets)
        yield Series(_LAG_MILLIS, timed, rows.millis)
        yield Series(_LAG_SECONDS, timed, [millis / 1000 for millis in rows.millis])
        sums = tuple(label_text(consumergroup=group, topic=topic) for group, topic in rows.lag_sums)
        yield Series(_LAG_SUM, sums, list(rows.lag_sums.values()))
        yield Series(_OFFSET_SUM, sums, list(rows.offset_sums.values()))
        yield from self._group_series()

    def _find(self, group_id: str, partition: TopicPartition) -> _Entry | None:
        replica = self._replicas.find(*partition)
        if replica is None or not replica.is_leader:
            return None
        return _Entry(group_id, partition, replica)

    def _add(self, rows: _Rows, entry: _Entry, offset: int) -> bool:
        """Add the row of an offset; return whether a batch header was read for it."""
        lag = max(0, entry.log.high_watermark - offset)
        rows.labels.append(entry.label)
        rows.lags.append(lag)
        rows.offsets.append(offset)
        rows.lag_sums[entry.sum_key] += lag
        rows.offset_sums[entry.sum_key] += offset
        has_read = bool(lag) and entry.move_to(offset)
        age_ms = entry.age_ms(self._clock.now_ms()) if lag else 0
        if age_ms is not None:
            rows.timed_labels.append(entry.label)
            rows.millis.append(age_ms)
        return has_read

    def _group_series(self) -> Iterator[Series | None]:
        shards = self._groups.runtime.active_shards()
        count = sum(len(shard.groups.ids()) for shard in shards)
        states = {name: Counter[str]() for name in _KIND_NAMES}
        sizes: dict[str, int] = {}
        groups = chain.from_iterable(shard.groups.all() for shard in shards)
        for number, group in enumerate(groups, 1):
            if number % _A_SLICE == 0:
                yield None
            states.setdefault(group.group_type, Counter())[group.state_at()] += 1
            sizes[group.group_id] = len(group.members)
        classic = states[ClassicGroups.name]
        classic[ClassicState.EMPTY] += count - len(sizes)  # those that only have offsets
        labels = tuple(label_text(consumergroup=group_id) for group_id in sizes)
        yield Series(_MEMBERS, labels, list(sizes.values()))
        yield Series(_GROUPS, _ONE, (count,))
        offset_count = sum(
            len(offsets) for shard in shards for offsets in shard.offsets.by_group.values()
        )
        yield Series(_OFFSETS, _ONE, (offset_count,))
        for state, family in _IN_STATE.items():
            yield Series(family, _ONE, (classic[state],))
        counts = [states[name].total() for name in _KIND_NAMES]
        yield Series(_GROUP_COUNT_NAME, _PROTOCOLS, counts)
        for kind, (family, state_labels) in _STATE_COUNTS.items():
            in_state = states[kind.name]
            yield Series(family, state_labels, [in_state[state] for state in kind.states])
        yield from self._events.collect()


def _timestamp_ms(log: PartitionLog, offset: int) -> int | None:
    """Return the time of the record at an offset; None when it is unknown."""
    first = max(offset, log.log_start_offset)
    try:
        header = log.segments[log.segments.number_for(first)].batch_at(first)
    except (OSError, IndexError, CorruptMessage):  # reported by the requests that read the log
        return None
    if header is None or header.max_timestamp < 0:
        return None
    if header.attributes & _LOG_APPEND_TIME or header.base_timestamp < 0:
        return header.max_timestamp
    span = header.last_offset - header.base_offset
    share = max(0, first - header.base_offset) / span if span else 0.0
    return header.base_timestamp + int(share * (header.max_timestamp - header.base_timestamp))
