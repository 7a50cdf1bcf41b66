"""Elections and in-sync sets, counted from the changes of the metadata."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image.image import MetadataImage
from ottla.metadata.partition import NO_LEADER, PartitionRegistration, TopicImage
from ottla.server.metrics.cluster import ClusterMetrics
from ottla.types import Uuid

NODE = 1
TOPIC_ID = Uuid(bytes(15) + b"\x09")


def partition(
    leader: int, isr: tuple[int, ...], elr: tuple[int, ...] = ()
) -> PartitionRegistration:
    """Return a partition on the nodes 1, 2 and 3."""
    return PartitionRegistration((1, 2, 3), (), isr, leader, 0, 0, eligible_leader_replicas=elr)


def metrics() -> ClusterMetrics:
    """Return metrics over a controller that is not asked."""
    controller: Any = SimpleNamespace(quorum=SimpleNamespace(log_end_offset=0))
    replication: Any = SimpleNamespace(max_lag=0)
    return ClusterMetrics(NODE, controller, replication, now_s=0.0)


def change(
    counted: ClusterMetrics, before: PartitionRegistration | None, now: PartitionRegistration
) -> None:
    """Tell of one changed partition."""
    image, delta = MetadataImage(), MetadataDelta()
    topic = image.topics.by_id[TOPIC_ID] = TopicImage("t", TOPIC_ID)
    topic.partitions[0] = now
    delta.partitions_changed[TOPIC_ID] = {0: before}
    counted.metadata_changed(delta, image)


@pytest.mark.parametrize(
    ("before", "now", "unclean", "eligible", "shrinks", "expands"),
    [
        (None, partition(1, (1,)), 0, 0, 0, 0),
        (partition(2, (1, 2)), partition(1, (1,)), 0, 0, 0, 0),
        (partition(NO_LEADER, (2,)), partition(1, (1,)), 1, 0, 0, 0),
        (partition(NO_LEADER, (), (3,)), partition(3, (3,)), 0, 1, 0, 0),
        (partition(2, (2,)), partition(NO_LEADER, (2,)), 0, 0, 0, 0),
        (partition(1, (1, 2, 3)), partition(1, (1, 2)), 0, 0, 1, 0),
        (partition(1, (1,)), partition(1, (1, 3)), 0, 0, 0, 1),
        (partition(2, (2, 3)), partition(2, (2,)), 0, 0, 0, 0),
    ],
    ids=[
        "a new partition",
        "a clean election",
        "an unclean election",
        "an eligible replica",
        "a lost leader",
        "a shrink led here",
        "an expansion led here",
        "a shrink led elsewhere",
    ],
)
def test_changes_are_counted_as_kafka_counts_them(
    before: PartitionRegistration | None,
    now: PartitionRegistration,
    unclean: int,
    eligible: int,
    shrinks: int,
    expands: int,
) -> None:
    """Each kind of change adds to its counter only."""
    counted = metrics()
    change(counted, before, now)
    found = (
        counted.unclean_elections,
        counted.eligible_elections,
        counted.isr_shrinks,
        counted.isr_expands,
    )
    assert found == (unclean, eligible, shrinks, expands)
