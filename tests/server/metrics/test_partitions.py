"""The series of partitions while partitions come and go."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import pytest

from ottla.server.metrics.partitions import TRAFFIC, PartitionMetrics
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from ottla.metrics.families import Series
    from ottla.replication.replica_set import ReplicaSet


@dataclass(eq=False)
class FakeLog:
    """A log's figures."""

    log_end_offset: int
    log_start_offset: int = 0
    high_watermark: int = 0
    last_stable_offset: int = 0
    size_bytes: int = 0
    failure: None = None


@dataclass(eq=False)
class FakePartition:
    """A partition's figures."""

    topic_partition: TopicPartition
    log: FakeLog
    messages_in: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    append_count: int = 0
    read_count: int = 0
    failed_append_count: int = 0
    is_leader: bool = True
    leader_id: int = 1
    effective_min_isr: int = 1
    replicas: tuple[int, ...] = (1,)
    adding: tuple[int, ...] = ()
    is_reassigning: bool = False
    isr: list[int] = field(default_factory=lambda: [1])


class FakeReplicas(list[FakePartition]):
    """A node's partitions."""

    exchange_count = 0


def started() -> tuple[FakeReplicas, PartitionMetrics]:
    """Return a node's partitions, b-0 with 5 records since its start, and their metrics."""
    there = FakeReplicas(FakePartition(TopicPartition(name, 0), FakeLog(7)) for name in "abc")
    replicas = cast("ReplicaSet", cast("Any", there))
    metrics = PartitionMetrics(replicas, level="partition", now_s=0.0)
    metrics.refresh()
    there[1].messages_in += 5
    return there, metrics


def shown(series: list[Series]) -> list[tuple[str, list[float]]]:
    """Return the series that can be compared: the rates follow the clock."""
    rates = {family for one in TRAFFIC for family in one.rates}
    return [(one.family.classic, list(one.values)) for one in series if one.family not in rates]


WHOLE = len(list(started()[1].collect()))


@pytest.mark.parametrize("told_before", range(1, WHOLE))
def test_a_scrape_tells_one_moment(told_before: int) -> None:
    """A topic that goes between two slices of a scrape is in all of it, and counted once."""
    there, metrics = started()
    expected = shown(list(metrics.collect()))
    source = metrics.collect()
    series = [next(source) for _ in range(told_before)]
    del there[1]
    metrics.metadata_changed()
    metrics.tick(1.0)
    series += source
    assert shown(series) == expected
    messages = TRAFFIC[0].family.classic
    after = dict(shown(list(metrics.collect())))
    assert dict(expected)[messages] == [5, 0, 5, 0]
    assert after[messages] == [5, 0, 0]


def test_a_replica_that_moved_to_another_directory_has_another_log() -> None:
    """Its figures are those of the new log from then on; no record is counted twice."""
    there, metrics = started()
    there[1].log = FakeLog(13, size_bytes=99)
    there.exchange_count += 1
    found = dict(shown(list(metrics.collect())))
    assert found[TRAFFIC[0].family.classic] == [5, 0, 5, 0]
    assert found["kafka_log_log_size"] == [0, 99, 0]


def test_what_a_follower_copies_is_not_counted_as_produced() -> None:
    """MessagesInPerSec and BytesInPerSec are what clients and coordinators append, as in Kafka."""
    there, metrics = started()
    there[0].is_leader = False
    there[0].log.log_end_offset += 100
    metrics.metadata_changed()
    found = dict(shown(list(metrics.collect())))
    assert found[TRAFFIC[0].family.classic] == [5, 0, 5, 0]


def test_replicas_that_a_reassignment_adds_are_not_missed() -> None:
    """KIP-352: they do not make a partition under-replicated; a removal is a move, too."""
    there, metrics = started()
    there[0].replicas, there[0].adding, there[0].is_reassigning = (1, 2, 3), (2, 3), True
    there[1].replicas, there[1].adding, there[1].is_reassigning = (1, 2, 3), (3,), True
    there[2].replicas, there[2].isr, there[2].is_reassigning = (1, 2), [1, 2], True
    metrics.metadata_changed()
    found = dict(shown(list(metrics.collect())))
    manager = "kafka_server_replicamanager_"
    assert found[f"{manager}reassigningpartitions"] == [3]
    assert found[f"{manager}underreplicatedpartitions"] == [1]
    assert found["kafka_cluster_partition_underreplicated"] == [0, 1, 0]
    assert found["kafka_cluster_partition_replicascount"] == [1, 2, 2]
    assert found["kafka_topic_partition_replicas"] == [3, 3, 2]
    assert found["kafka_topic_partition_under_replicated_partition"] == [1, 1, 0]
