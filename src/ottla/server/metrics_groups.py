"""Consumer groups: what they committed, how far behind they are in records and in time.

Apache Kafka has no such metric; people run exporters that ask over the network. Here the offsets
lie in memory. The time is that of the first record which the group has not consumed: its batch's
header is read once for each committed offset, and within a batch the time is interpolated.

Kafka: GroupMetadataManager's gauges; kafka_exporter and kafka-lag-exporter for the lag.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from ottla.coordinator.group.classic_group import ClassicState
from ottla.coordinator.runtime.active import ShardState
from ottla.metrics.families import Series, client_gauge, gauge, label_text, own

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.clock import Clock
    from ottla.coordinator.group.coordinator import GroupCoordinator
    from ottla.coordinator.group.shard import GroupShard
    from ottla.replication.replica_set import ReplicaSet
    from ottla.storage.partition_log import PartitionLog
    from ottla.types import TopicPartition

_ONE = ("",)
_A_SLICE = 200
"""Offsets looked at between two turns of the loop."""
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
_CLASSIC = (label_text(protocol="classic"),)


class _Place(NamedTuple):
    """A position of a group, and the time of the record there."""

    offset: int
    timestamp_ms: int


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


class GroupMetrics:
    """Reads a coordinator's shards; owned by the loop."""

    def __init__(self, groups: GroupCoordinator, replicas: ReplicaSet, clock: Clock) -> None:
        self._groups = groups
        self._replicas = replicas
        self._clock = clock
        self._labels: dict[tuple[str, TopicPartition], str] = {}
        self._places: dict[tuple[str, TopicPartition], _Place] = {}

    def collect(self) -> Iterator[Series | None]:
        """Yield all series; None now and then, where the loop may take a turn."""
        rows, places = _Rows(), self._places
        self._places = {}
        labels, self._labels = self._labels, {}
        for shard in self._shards():
            for group_id in list(shard.offsets.by_group):
                offsets = shard.offsets.by_group.get(group_id) or {}
                for number, (partition, committed) in enumerate(list(offsets.items())):
                    key = (group_id, partition)
                    text = labels.get(key) or _label(group_id, partition)
                    self._labels[key] = text
                    self._add(rows, key, committed.offset, text, places.get(key))
                    if number % _A_SLICE == _A_SLICE - 1:
                        yield None
                yield None
        yield from _lag_series(rows)
        yield from self._group_series()

    def _shards(self) -> list[GroupShard]:
        runtime = self._groups.runtime
        return [
            runtime.shard(partition)
            for partition, state in runtime.partitions.items()
            if state is ShardState.ACTIVE
        ]

    def _add(
        self,
        rows: _Rows,
        key: tuple[str, TopicPartition],
        offset: int,
        text: str,
        known: _Place | None,
    ) -> None:
        group_id, (topic, index) = key
        partition = self._replicas.find(topic, index)
        if partition is None or not partition.is_leader:
            return
        lag = max(0, partition.log.high_watermark - offset)
        rows.labels.append(text)
        rows.lags.append(lag)
        rows.offsets.append(offset)
        rows.lag_sums[group_id, topic] += lag
        rows.offset_sums[group_id, topic] += offset
        place = known if known is not None and known.offset == offset else None
        if lag and place is None:
            place = _place(partition.log, offset)
        if lag and place is None:
            return  # the disk does not tell, or the record has no time
        if place is not None:
            self._places[key] = place
        age_ms = max(0, self._clock.now_ms() - place.timestamp_ms) if lag and place else 0
        rows.timed_labels.append(text)
        rows.millis.append(age_ms)

    def _group_series(self) -> Iterator[Series]:
        shards = self._shards()
        ids = [group_id for shard in shards for group_id in shard.groups.ids()]
        live = [group for shard in shards for group in shard.classic.live.values()]
        states = Counter(group.state for group in live)
        states[ClassicState.EMPTY] += len(ids) - len(live)  # those that only have offsets
        offset_count = sum(
            len(offsets) for shard in shards for offsets in shard.offsets.by_group.values()
        )
        labels = tuple(label_text(consumergroup=group.group_id) for group in live)
        yield Series(_MEMBERS, labels, [len(group.members) for group in live])
        yield Series(_GROUPS, _ONE, (len(ids),))
        yield Series(_OFFSETS, _ONE, (offset_count,))
        for state, family in _IN_STATE.items():
            yield Series(family, _ONE, (states[state],))
        yield Series(_GROUP_COUNT_NAME, _CLASSIC, (len(ids),))


def _lag_series(rows: _Rows) -> Iterator[Series]:
    labels, timed = tuple(rows.labels), tuple(rows.timed_labels)
    yield Series(_LAG, labels, rows.lags)
    yield Series(_OFFSET, labels, rows.offsets)
    yield Series(_LAG_MILLIS, timed, rows.millis)
    yield Series(_LAG_SECONDS, timed, [millis / 1000 for millis in rows.millis])
    sums = tuple(label_text(consumergroup=group, topic=topic) for group, topic in rows.lag_sums)
    yield Series(_LAG_SUM, sums, list(rows.lag_sums.values()))
    yield Series(_OFFSET_SUM, sums, list(rows.offset_sums.values()))


def _label(group_id: str, partition: TopicPartition) -> str:
    return label_text(consumergroup=group_id, topic=partition.topic, partition=partition.partition)


def _place(log: PartitionLog, offset: int) -> _Place | None:
    """Return when the record at an offset was made; None when the log does not tell."""
    wanted = max(offset, log.log_start_offset)
    try:
        header = log.segments[log.segments.number_for(wanted)].batch_at(wanted)
    except (OSError, IndexError):
        return None
    if header is None or header.max_timestamp < 0:
        return None
    if header.attributes & _LOG_APPEND_TIME or header.base_timestamp < 0:
        return _Place(offset, header.max_timestamp)
    span = header.last_offset - header.base_offset
    share = max(0, wanted - header.base_offset) / span if span else 0.0
    spread_ms = header.max_timestamp - header.base_timestamp
    return _Place(offset, header.base_timestamp + int(share * spread_ms))
