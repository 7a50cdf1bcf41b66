"""A crash at each operation of a tiered log's life, on the disk and in the tier; a sample here.

The log's records are compared with a list: whatever was acknowledged and has not expired is read,
once, and the tier has nothing that no metadata names. All operations: `scripts/simulate --crashes`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from ottla import TopicPartition
from ottla.server.remote import log_manager
from ottla.testing.disk import Fault
from tests.simulation.test_cluster_tiers import TieredCluster
from tests.soaks import with_soaks
from tests.waits import until

if TYPE_CHECKING:
    from ottla.testing.disk import Call
    from ottla.testing.simulation.node import SimulatedNode

STEP = int(os.environ.get("OTTLA_CRASH_STEP", "41"))
"""1 for every operation."""
RECORDS = 7
KEPT_RECORDS = 3
"""The fewest whose batches, of 69 bytes, have retention.bytes."""
SETTINGS = {
    "metadata.max.idle.interval.ms": "0",
    "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "1",
}
TOPIC = {"flush.messages": "1", "retention.bytes": "200"}


class CrashAt:
    """Strikes at the n-th operation on the disk but the metadata log's, or call of the tier."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.count = 0
        self.is_planted = False

    def plant(self, cluster: TieredCluster) -> None:
        self.is_planted = True
        node = cluster[1]
        node.disk.fail(self._matches, 0)
        cluster.store.on_call = lambda: self._called(node)

    def _matches(self, call: Call) -> bool:
        if "__cluster_metadata" in call.path or not self.is_planted:
            return False
        self.count += 1
        return self.count == self.number

    def _called(self, node: SimulatedNode) -> None:
        if self.is_planted:
            self.count += 1
            if self.count == self.number:
                node.disk.strike(Fault(lambda _: True, 0, partial=False, times=1))


def crash_at(number: int, *, power: bool, deletes: bool) -> int:
    """Crash at an operation of a tiered log's life, or of its topic's deletion; check what is left.

    Returns how many operations there are.
    """
    cluster = TieredCluster(1, nodes=1, **SETTINGS)
    crash = CrashAt(number)
    node = cluster[1]

    async def restarted() -> None:
        """Start the node again as soon as it has died."""
        await until(lambda: not node.is_alive, 600)
        node.kill(power=power)
        await node.start()

    async def work() -> None:
        await cluster.start()
        await cluster.create(1, 1, **TOPIC)
        await until(lambda: cluster.replica(node) is not None)
        if not deletes:
            crash.plant(cluster)
        restart = cluster.loop.create_task(restarted())
        await cluster.write(RECORDS)
        await until(lambda: _is_settled(cluster))
        if deletes:
            crash.plant(cluster)
            async with cluster.admin() as admin:
                await admin.delete_topics(["t"])
            await until(lambda: not cluster.store.files)
        crash.is_planted = False
        if number:
            assert crash.count >= number, "no crash"
            await restart
        restart.cancel()
        if not deletes:
            await until(lambda: _is_settled(cluster))
            await _check(cluster)
        await cluster.stop()

    cluster.run(work())
    return crash.count


def _is_settled(cluster: TieredCluster) -> bool:
    """Whether all is copied, has left the disk, and nothing more expires."""
    replica = cluster.replica(cluster[1])
    if replica is None or not cluster.is_copied() or not cluster.is_clean():
        return False
    log = replica.log
    return log.log_start_offset == RECORDS - KEPT_RECORDS and len(log.segments.base_offsets) == 1


async def _check(cluster: TieredCluster) -> None:
    manager = cluster[1].node.remote_logs  # type: ignore[union-attr]
    assert manager is not None
    table = manager.table((cluster.leading().topic_id, 0)).segments()
    ids = {str(segment.segment_id) for segment in table}
    assert all(any(one in name for one in ids) for name in cluster.store.files)
    start = RECORDS - KEPT_RECORDS
    async with cluster.consumer(auto_offset_reset="none") as consumer:
        consumer.assign([TopicPartition("t", 0)])
        consumer.seek(TopicPartition("t", 0), start)
        found: list[tuple[int, bytes]] = []
        while len(found) < KEPT_RECORDS:
            polled = await consumer.poll(timeout=5)
            found += [(record.offset, bytes(record.value or b"")) for record in polled]
    assert found == [(number, b"%d" % number) for number in range(start, RECORDS)]


@pytest.mark.parametrize("deletes", with_soaks([True, False]))
@pytest.mark.parametrize("power", with_soaks([False, True]))
def test_a_crash_at_an_operation_of_a_tiered_log(
    power: bool,  # noqa: FBT001 - parametrized
    deletes: bool,  # noqa: FBT001 - parametrized
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Roll, copy, local retention, expiry, deletion: nothing is lost, twice or left in the tier."""
    monkeypatch.setattr(log_manager, "ORPHAN_MS", 20_000)
    count = crash_at(0, power=False, deletes=deletes)
    assert count > 20
    for number in range(1 + power * STEP // 2, count + 1, STEP):
        try:
            crash_at(number, power=power, deletes=deletes)
        except BaseException as error:
            error.add_note(f"operation {number} of {count}")
            raise
