"""What must hold for the replicas of one partition, checked while it happens.

- Everything that some high watermark covers is committed: it never changes, and whoever else has a
  high watermark above it has the same there.
- Each new leader's log holds everything that is committed in epochs up to its own: one that learns
  late that it led is no new one.
- A producer is acknowledged only what is committed, and what is acknowledged has its offset.
- In one leader epoch the leader's high watermark never goes back; no replica truncates below its
  own.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

from ottla.records.batches import iterate_batches
from ottla.storage.log.append_info import FetchIsolation
from ottla.types import FileSlice

if TYPE_CHECKING:
    from ottla.storage.log.partition_log import PartitionLog
    from tests.simulation.replica_broker import SimulatedBroker

READ_BYTES = 1 << 20


class Written(NamedTuple):
    """One record at one offset."""

    epoch: int
    value: bytes


class ReplicaChecks:
    """Knows what is committed, and where."""

    def __init__(self) -> None:
        self.committed: list[Written] = []
        self._committed_in: list[int] = []
        """The leader epochs in which the offsets were committed."""
        self.acknowledged: dict[bytes, int] = {}
        """Value → offset."""
        self._checked: dict[int, int] = {}
        """Node → the offset below which its log was compared."""
        self._watermarks: dict[tuple[int, int], int] = {}
        """(node, leader epoch) → the highest watermark of that leader."""
        self._own: dict[int, int] = {}

    @property
    def end_offset(self) -> int:
        """Where what is committed ends."""
        return len(self.committed)

    def forget(self, node_id: int) -> None:
        """Compare all of a log again: its process is gone, or the log itself."""
        self._checked.pop(node_id, None)
        self._own.pop(node_id, None)
        for key in [one for one in self._watermarks if one[0] == node_id]:
            del self._watermarks[key]

    def observe(self, broker: SimulatedBroker) -> None:
        """Look at a broker after something has happened there."""
        partition = broker.partition
        if partition is None:
            return
        log, node_id = partition.log, broker.node_id
        high_watermark = log.high_watermark
        before = self._own.get(node_id, 0)
        assert high_watermark >= before, (
            f"the high watermark of {node_id} goes back from {before} to {high_watermark}"
        )
        if high_watermark > before:
            self._own[node_id] = high_watermark
            self._compare(broker, log, high_watermark, partition.leader_epoch)
        if partition.is_leader:
            key = node_id, partition.leader_epoch
            if key not in self._watermarks:
                self._led(broker, log, partition.leader_epoch)
            assert high_watermark >= self._watermarks.get(key, 0)
            self._watermarks[key] = high_watermark

    def _led(self, broker: SimulatedBroker, log: PartitionLog, leader_epoch: int) -> None:
        end_offset = bisect_right(self._committed_in, leader_epoch)
        assert log.log_end_offset >= end_offset, (
            f"the new leader {broker.node_id} of epoch {leader_epoch} ends at "
            f"{log.log_end_offset}, committed is all below {end_offset}"
        )
        self._compare(broker, log, end_offset, leader_epoch)

    def _compare(
        self, broker: SimulatedBroker, log: PartitionLog, end_offset: int, leader_epoch: int
    ) -> None:
        start = self._checked.get(broker.node_id, 0)
        if start >= end_offset:
            return
        written = read_records(log, start)
        for offset in range(start, end_offset):
            assert offset in written, f"{broker.node_id} lacks the committed offset {offset}"
            if offset == len(self.committed):
                self.committed.append(written[offset])
                self._committed_in.append(max([leader_epoch, *self._committed_in[-1:]]))
            assert self.committed[offset] == written[offset], (
                f"{broker.node_id} has {written[offset]} at {offset}, committed is "
                f"{self.committed[offset]}"
            )
        self._checked[broker.node_id] = end_offset

    def acknowledges(self, value: bytes, offset: int) -> None:
        """Check what a producer is answered."""
        assert offset < self.end_offset, f"{value!r} at {offset} is acknowledged, not committed"
        assert self.committed[offset].value == value, (
            f"{value!r} is acknowledged at {offset}, where {self.committed[offset]} is"
        )
        self.acknowledged[value] = offset


def read_records(log: PartitionLog, start: int) -> dict[int, Written]:
    """Return all records from an offset on."""
    found: dict[int, Written] = {}
    offset = start
    while offset < log.log_end_offset:
        data = log.reads.read(
            offset, READ_BYTES, isolation=FetchIsolation.LOG_END, min_one_message=True
        ).records
        view = data.read() if isinstance(data, FileSlice) else data
        before = offset
        for batch in iterate_batches(view, partial_tail=True):
            for record in batch.records():
                found[record.offset] = Written(batch.leader_epoch, bytes(record.value or b""))
            offset = batch.next_offset
        assert offset > before, f"{log} cannot be read at {offset}"
    return found
