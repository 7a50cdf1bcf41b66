"""What is committed of logs that are compacted, compared record by record.

The log cleaner of each broker removes records in its own time, so batches of two replicas may
differ. What must hold: no record changes, and one is removed only where a later committed one has
its key, or where it says that its key is deleted, or that a transaction has ended, or belongs to a
transaction that was aborted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.records.batches import batch_at
from ottla.records.control import ControlRecordType, decode_control_type
from tests.simulation.clusters.committed_logs import CommittedLog

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.simulation.clusters.committed_logs import Batch, Replica

    Content = tuple[int, bytes | None, bytes | None]
    """Leader epoch, key and value: a later leader may write an equal record at the same offset."""

_IS_CONTROL = 0x20
_IS_TRANSACTIONAL = 0x10


class CompactedLog(CommittedLog):
    """What is committed of one log that is compacted."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._records: dict[int, Content] = {}
        self._markers: set[int] = set()
        self._last_offsets: dict[bytes | None, int] = {}
        """By key, of records that are not of an open or aborted transaction."""
        self._open: dict[int, list[int]] = {}
        """Producer id → the offsets of its open transaction."""
        self._aborted: set[int] = set()

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
        contents = _contents(replica)
        self._records.update(contents)
        producer_id = batch_at(memoryview(replica.last_bytes()), 0).producer_id
        if batch.attributes & _IS_CONTROL:
            self._markers.update(contents)
            self._end(producer_id, next(iter(contents.values()))[1])
        elif batch.attributes & _IS_TRANSACTIONAL:
            self._open.setdefault(producer_id, []).extend(contents)
        else:
            self._commit(contents)

    def _commit(self, offsets: Iterable[int]) -> None:
        for offset in offsets:
            _, key, _ = self._records[offset]
            self._last_offsets[key] = max(offset, self._last_offsets.get(key, -1))

    def _end(self, producer_id: int, key: bytes | None) -> None:
        """Take a marker of a transaction."""
        offsets = self._open.pop(producer_id, [])
        if decode_control_type(key) is ControlRecordType.COMMIT:
            self._commit(offsets)
        else:
            self._aborted.update(offsets)

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
        _, key, value = self._records[offset]
        if offset in self._markers or offset in self._aborted or value is None:
            return True
        return self._last_offsets.get(key, -1) > offset


def _contents(replica: Replica) -> dict[int, Content]:
    """Return the records by offset of the batch that was compared last."""
    batch = batch_at(memoryview(replica.last_bytes()), 0)
    return {one.offset: (batch.leader_epoch, one.key, one.value) for one in batch.records()}
