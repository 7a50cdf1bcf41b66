"""What is committed of replicated logs, compared batch by batch over all replicas.

Whatever some leader's high watermark covers is committed: it never changes, each later leader has
it, and no follower's high watermark is beyond it. Batches are read straight from the simulated
disks' files, so that checks are no events of the simulation.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from ottla.protocol.records.raft import VotersRecord
from ottla.raft.snapshot import decode_snapshot
from ottla.raft.voter_set import decode_control_message, voter_set_of
from ottla.records.batches import batch_at
from ottla.storage.layout import METADATA_LOG

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.raft.voter_set import VoterSet
    from ottla.storage.log.partition_log import PartitionLog
    from ottla.storage.segments.segment import Segment
    from ottla.types import OffsetAndEpoch

_HEAD = Struct(">qiibIhi")
"""Base offset, length, leader epoch, magic, checksum, attributes, last offset delta."""
_LENGTH_END = 12
_IS_CONTROL = 0x20


class Batch(NamedTuple):
    """One batch of a replica; equal ones hold the same records."""

    base_offset: int
    next_offset: int
    leader_epoch: int
    crc: int
    attributes: int


class Replica:
    """One replica's log, as far as it was compared."""

    def __init__(self, owner: str, log: PartitionLog) -> None:
        self.owner = owner
        self.log = log
        self.high_watermark = 0
        self.led_epoch = -1
        """The newest epoch in which it was seen to lead."""
        self.leading_epoch: int | None = None
        """The epoch in which it led when it was looked at last."""
        self.checked_offset = 0
        self._segment: Segment | None = None
        self._position = 0
        self._size = 0

    def unchecked(self, end_offset: int) -> Iterator[Batch]:
        """Yield the batches from the last one that was compared up to an offset."""
        log = self.log
        self.checked_offset = start = max(self.checked_offset, log.log_start_offset)
        segments = log.segments.ordered
        for segment in segments[max(0, log.segments.number_for(start)) :]:
            position = self._position if segment is self._segment else 0
            data = segment.file._content.data  # type: ignore[attr-defined] # a SimulatedFile
            size = min(segment.size, len(data))
            while position + _HEAD.size <= size:
                base, length, epoch, _, crc, attributes, delta = _HEAD.unpack_from(data, position)
                if base >= end_offset:
                    return
                self._size = _LENGTH_END + length
                position += self._size
                self._segment, self._position = segment, position
                if base + delta >= start:
                    self.checked_offset = base + delta + 1
                    yield Batch(base, base + delta + 1, epoch, crc, attributes)

    def last_bytes(self) -> bytes:
        """Return the batch that was compared last."""
        assert self._segment is not None
        data = self._segment.file._content.data  # type: ignore[attr-defined] # as above
        return bytes(data[self._position - self._size : self._position])


class CommittedLog:
    """What is committed of one log, by whom."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.end_offset = 0
        self.leaders: dict[int, str] = {}
        """By epoch."""
        self._batches: dict[int, Batch] = {}
        self._ends: dict[int, int] = {}
        """Leader epoch → how far its leader committed."""

    def led(self, replica: Replica, epoch: int) -> None:
        """Check a leader of an epoch: it is the only one, and has all of earlier epochs."""
        replica.led_epoch = epoch
        known = self.leaders.setdefault(epoch, replica.owner)
        assert known == replica.owner, (
            f"{known} and {replica.owner} lead {self.name} in epoch {epoch}"
        )
        needed = self.end_of_epochs(epoch - 1)
        log = replica.log
        assert log.log_end_offset >= needed, (
            f"{replica.owner} leads {self.name} in epoch {epoch} and ends at "
            f"{log.log_end_offset}; {needed} is committed"
        )
        self._compare(replica, needed)

    def end_of_epochs(self, epoch: int) -> int:
        """Return how far the leaders up to an epoch have committed."""
        return max((end for other, end in self._ends.items() if other <= epoch), default=0)

    def observe(self, replica: Replica, *, leader_epoch: int | None) -> None:
        """Check a replica whose high watermark may have moved; None for one that follows."""
        high_watermark = replica.log.high_watermark
        before = replica.high_watermark
        assert high_watermark >= before, (
            f"the high watermark of {self.name} on {replica.owner} goes back from {before} to "
            f"{high_watermark}"
        )
        if high_watermark == before:
            return
        replica.high_watermark = high_watermark
        assert high_watermark <= replica.log.log_end_offset, (
            f"{self.name} on {replica.owner} ends below its high watermark {high_watermark}"
        )
        if leader_epoch is not None:
            self._ends[leader_epoch] = max(self._ends.get(leader_epoch, 0), high_watermark)
        else:
            assert high_watermark <= self.end_offset, (
                f"{replica.owner} follows {self.name} up to {high_watermark}; committed is "
                f"{self.end_offset}"
            )
        self._compare(replica, high_watermark)

    def shared_end(self, replica: Replica) -> int:
        """Return up to where a replica that was not compared yet has what is committed."""
        end_offset = replica.log.log_start_offset
        for batch in replica.unchecked(self.end_offset):
            if self._batches.get(batch.base_offset) != batch:
                break
            end_offset = batch.next_offset
        return end_offset

    def _compare(self, replica: Replica, end_offset: int) -> None:
        for batch in replica.unchecked(end_offset):
            base = batch.base_offset
            known = self._batches.get(base)
            if known is None and base >= self.end_offset:
                self._batches[base] = batch
                self.end_offset = batch.next_offset
                self._committed(batch, replica)
                continue
            assert known == batch, (
                f"{replica.owner} has {batch} of {self.name} below its high watermark; "
                f"committed is {known}"
            )
        assert replica.checked_offset >= end_offset, (
            f"{self.name} on {replica.owner} lacks what is committed from "
            f"{replica.checked_offset} to {end_offset}"
        )

    def _committed(self, batch: Batch, replica: Replica) -> None:
        """Take note of a batch that was not known as committed."""


class CommittedMetadata(CommittedLog):
    """The metadata log, with the voters that are committed."""

    def __init__(self) -> None:
        super().__init__(METADATA_LOG)
        self._voters: list[tuple[int, VoterSet]] = []
        """By the offset of their record."""

    def _committed(self, batch: Batch, replica: Replica) -> None:
        if not batch.attributes & _IS_CONTROL:
            return
        for record in batch_at(memoryview(replica.last_bytes()), 0).records():
            message = decode_control_message(record)
            if isinstance(message, VotersRecord):
                self._voters.append((record.offset, voter_set_of(message)))

    def check_snapshot(self, owner: str, snapshot_id: OffsetAndEpoch, data: bytes) -> None:
        """Check that a snapshot names the voters that are committed below its end."""
        assert snapshot_id.offset <= self.end_offset, f"{owner} has a snapshot at {snapshot_id}"
        last = max((base for base in self._batches if base < snapshot_id.offset), default=None)
        assert last is None or self._batches[last].leader_epoch == snapshot_id.leader_epoch, (
            f"{owner} has a snapshot {snapshot_id}; its last batch is {self._batches[last]}"
        )
        voters = decode_snapshot(data).voters
        below = [voters for offset, voters in self._voters if offset < snapshot_id.offset]
        assert not below or voters == below[-1], (
            f"the snapshot of {owner} at {snapshot_id.offset} names the voters {voters}; committed "
            f"are {below[-1]}"
        )
