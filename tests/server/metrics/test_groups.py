"""The lag in time of groups: a damaged log has none, and a read of the disk ends a slice."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ottla.server.metrics import groups
from ottla.server.metrics.groups import GroupMetrics
from ottla.testing.disk import SimulatedDisk
from ottla.types import TopicPartition
from tests.coordinator.harness import VirtualClock
from tests.storage.logs import flush, new_log, put

SEGMENT = "t-0/00000000000000000000.log"
MAGIC_POSITION = 16


def _metrics(log: Any, offsets: dict[TopicPartition, int]) -> GroupMetrics:
    committed = {key: SimpleNamespace(offset=offset) for key, offset in offsets.items()}
    shard = SimpleNamespace(offsets=SimpleNamespace(by_group={"g": committed}))
    runtime = SimpleNamespace(active_shards=lambda: [shard])
    replica = SimpleNamespace(is_leader=True, log=log)
    replicas: Any = SimpleNamespace(find=lambda *_name: replica)
    coordinator: Any = SimpleNamespace(runtime=runtime)
    return GroupMetrics(coordinator, replicas, VirtualClock())


def test_a_damaged_log_has_no_lag_in_time() -> None:
    """A scrape must not fail for one batch that cannot be read."""
    disk = SimulatedDisk()
    log = new_log(disk)
    put(log)
    flush(log)
    assert groups._timestamp_ms(log, 0) == 1_000_000
    disk.open(SEGMENT).write_at(MAGIC_POSITION, b"\x09")
    assert groups._timestamp_ms(log, 0) is None


def test_the_loop_may_take_a_turn_after_each_read() -> None:
    """The first scrape reads a header for each offset behind the end, the next one none."""
    log = new_log()
    put(log)
    log.update_high_watermark(1)
    count = 3 * groups._A_SLICE
    offsets = {TopicPartition("t", index): 0 for index in range(count)}
    metrics = _metrics(log, offsets)
    pauses = []
    for _ in range(2):
        slices = 0
        for one in metrics.collect():
            if one is not None:
                break
            slices += 1
        pauses.append(slices)
    assert pauses == [count + 1, 4]
