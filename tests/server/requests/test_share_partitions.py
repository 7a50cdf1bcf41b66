"""Share partitions by the partitions that they belong to: a leader change ends those of one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ottla.replication.share.environment import SharePartitionKey
from ottla.server.share.partitions import SharePartitions
from ottla.types import TopicPartition, Uuid
from tests.coordinator.harness import VirtualClock

TOPIC = Uuid(bytes(range(16)))


def _replica(index: int) -> Any:
    return SimpleNamespace(
        topic_id=TOPIC,
        topic_partition=TopicPartition("t", index),
        is_leader=True,
        leader_epoch=1,
        check_leader=lambda: None,
        log=SimpleNamespace(high_watermark=0),
    )


def test_a_leader_change_ends_the_share_partitions_of_its_partition() -> None:
    """Of all groups, and no others; they can be opened again, and all can be ended."""
    replicas = {index: _replica(index) for index in range(3)}
    any_: Any = SimpleNamespace(
        config=SimpleNamespace(group_share_max_share_sessions=10),
        by_topic_id={TOPIC: replicas},
        on_high_watermark=lambda _listener: None,
    )
    timer: Any = SimpleNamespace()
    share = SharePartitions(any_, any_, any_, any_, timer=timer, clock=VirtualClock())
    keys = [SharePartitionKey(group, TOPIC, index) for group in ("g", "h") for index in range(3)]
    opened = {key: share.open(key) for key in keys}
    share.leader_changed(replicas[1])
    assert len(share) == 6
    replicas[1].leader_epoch = 2
    share.leader_changed(replicas[1])
    assert {one.key for one in share} == {key for key in keys if key.partition != 1}
    assert share.open(keys[1]) is not opened[keys[1]]
    assert share.open(keys[0]) is opened[keys[0]]
    replicas[0].is_leader = False
    share.leader_changed(replicas[0])
    assert len(share) == 3
    share.clear()
    assert not list(share)
    assert not share._keys_of
