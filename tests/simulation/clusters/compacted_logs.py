"""What is committed of logs that are compacted, compared record by record.

The log cleaner of each broker removes records in its own time, so batches of two replicas may
differ. What must hold: no record changes, and one is removed only where a later committed one has
its key, or where it says that its key is deleted, or that a transaction has ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.records.batches import batch_at
from tests.simulation.clusters.committed_logs import CommittedLog

if TYPE_CHECKING:
    from tests.simulation.clusters.committed_logs import Batch, Replica

    Content = tuple[bytes | None, bytes | None]
    """Key and value."""

_IS_CONTROL = 0x20


class CompactedLog(CommittedLog):
    """What is committed of one log that is compacted."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._records: dict[int, Content] = {}
        self._markers: set[int] = set()
        self._last_offsets: dict[bytes | None, int] = {}

    def shared_end(self, replica: Replica) -> int:
        """Return up to where a replica that was not compared yet has what is committed."""
        end_offset = replica.log.log_start_offset
        for batch in replica.unchecked(self.end_offset):
            if self._difference(replica, batch, end_offset) is not None:
                break
            end_offset = batch.next_offset
        return end_offset

    def _compare(self, replica: Replica, end_offset: int) -> None:
        position = max(replica.checked_offset, replica.log.log_start_offset)
        for batch in replica.unchecked(end_offset):
            if batch.base_offset >= self.end_offset:
                self._learn(replica, batch)
            else:
                difference = self._difference(replica, batch, position)
                assert difference is None, (
                    f"{replica.owner} has {batch} of {self.name} below its high watermark: "
                    f"{difference}"
                )
            position = batch.next_offset

    def _learn(self, replica: Replica, batch: Batch) -> None:
        self.end_offset = batch.next_offset
        for offset, content in _contents(replica).items():
            self._records[offset] = content
            if batch.attributes & _IS_CONTROL:
                self._markers.add(offset)
            else:
                self._last_offsets[content[0]] = offset

    def _difference(self, replica: Replica, batch: Batch, position: int) -> str | None:
        """Say in what the log from a position to the end of a batch differs from the committed."""
        held = _contents(replica)
        for offset, content in held.items():
            if self._records.get(offset) != content:
                known = self._records.get(offset)
                return f"offset {offset} holds {content!r}; committed is {known!r}"
        for offset in range(position, batch.next_offset):
            if offset in self._records and offset not in held and not self._may_be_removed(offset):
                return f"offset {offset} is missing, the last one of its key"
        return None

    def _may_be_removed(self, offset: int) -> bool:
        key, value = self._records[offset]
        return offset in self._markers or value is None or self._last_offsets[key] > offset


def _contents(replica: Replica) -> dict[int, Content]:
    """Return key and value by offset of the batch that was compared last."""
    batch = batch_at(memoryview(replica.last_bytes()), 0)
    return {record.offset: (record.key, record.value) for record in batch.records()}
