"""Moves one replica to another log directory of its broker (KIP-113, KIP-858).

A machine without clock or threads: `poll` does a bounded piece of work and returns what it needs
next. The future log is copied from the partition's log batch by batch, as a follower copies its
leader. When it has all records and is durable the controller is notified of the new directory; once
that is accepted, and the future log has all records again and is durable as far as the old one is,
it takes its place within one call: nothing can be appended in between. A partition that does not
move costs nothing: the copy reads the log's end, generation (truncations) and start when polled.

Kafka: kafka.server.ReplicaAlterLogDirsThread, Partition.maybeReplaceCurrentWithFutureReplica.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.errors import CorruptMessage
from ottla.replication.log_copy import append_copied, cut_to_diverging, follow_offsets
from ottla.storage.batches import leading_batches_size
from ottla.storage.log.append_info import FetchIsolation
from ottla.storage.log.truncation import RemoteState
from ottla.types import FileSlice

if TYPE_CHECKING:
    from ottla.replication.partition import Partition
    from ottla.storage.log.partition_log import PartitionLog

READ_BYTES: Final = 262_144
"""Read at a time, unless a batch is larger."""
APPEND_BATCHES: Final = 128
"""Appended at a time: the loop serves requests in between."""
_ANY_EPOCH: Final = 0x7FFF_FFFF
_NEVER: Final = -1


class MoveState(Enum):
    """The controller's progress with the new directory."""

    COPYING = "copying"
    ASSIGNING = "assigning"
    """The controller was notified and has not responded."""
    ASSIGNED = "assigned"


class Need(Enum):
    """What a move needs next, apart from a read."""

    TURN = "turn"
    """Another `poll`: there is more to append."""
    FLUSH = "flush"
    """The future log durable up to its end, then `flushed`."""
    ASSIGNMENT = "assignment"
    """The controller's answer, then `assigned`; the move goes on copying meanwhile."""
    EXCHANGE = "exchange"
    """The future log in place of the partition's, before anything else is appended."""


class Read(NamedTuple):
    """Bytes of the partition's log that are needed next, then `received`."""

    piece: FileSlice
    generation: int
    is_last: bool
    """Whether the future log has all records when these are appended."""


class DirectoryMove:
    """The move of one replica; `future` is its log in the other directory."""

    __slots__ = (
        "_data",
        "_generation",
        "_is_flushed",
        "future",
        "partition",
        "state",
    )

    def __init__(
        self, partition: Partition, future: PartitionLog, *, is_assigned: bool = False
    ) -> None:
        """is_assigned: the controller has the replica in the new directory since an earlier run."""
        self.partition = partition
        self.future = future
        self.state = MoveState.ASSIGNED if is_assigned else MoveState.COPYING
        self._data = memoryview(b"")
        self._generation = _NEVER
        self._is_flushed = False

    @property
    def lag(self) -> int:
        """Records that the future log misses; negative when it has some to be truncated."""
        return self.partition.log.log_end_offset - self.future.log_end_offset

    def poll(self, now_ms: int) -> Read | Need:
        """Do one step: append, truncate or find what to read; return what is needed next.

        KafkaError when the disk fails, CorruptMessage for damaged records of the partition's log.
        """
        current, future = self.partition.log, self.future
        if self._generation != current.generation:
            self._data = memoryview(b"")
            self._truncate_diverging(now_ms)
            self._generation = current.generation
        if not future.is_cut_durable:
            return Need.FLUSH
        if len(self._data):
            self._append(now_ms)
        if len(self._data):
            return Need.TURN
        if future.log_end_offset < current.local_log_start_offset:
            self._begin_again(now_ms)
        found, _ = current.reads.find(
            future.log_end_offset,
            READ_BYTES,
            FetchIsolation.LOG_END,
            True,
        )
        if isinstance(found, FileSlice):
            active = current.segments.active
            is_last = found.file is active.file and found.position + found.size >= active.size
            return Read(found, current.generation, is_last)
        self._follow()
        return self._need_at_end()

    def _need_at_end(self) -> Need:
        if not self._is_flushed:
            return Need.FLUSH
        if self.state is not MoveState.ASSIGNED:
            return Need.ASSIGNMENT
        if self.future.recovery_point < self.partition.log.recovery_point:
            return Need.FLUSH
        return Need.EXCHANGE

    def received(self, read: Read, data: bytes) -> None:
        """Accept the bytes of a read; no effect when the log was truncated since.

        CorruptMessage when not even the first batch is whole; the last one may be cut.
        """
        if read.generation == self.partition.log.generation == self._generation:
            size = leading_batches_size(data)
            if not size:
                raise CorruptMessage(f"no whole batch in {len(data)} bytes of {self.partition.log}")
            self._data = memoryview(data)[:size]

    def flushed(self) -> None:
        """Record that a flush of the future log has succeeded."""
        self._is_flushed = True

    # Records

    def _append(self, now_ms: int) -> None:
        size = leading_batches_size(self._data, APPEND_BATCHES)
        records, self._data = self._data[:size], self._data[size:]
        append_copied(self.future, records, leader_epoch=_ANY_EPOCH, now_ms=now_ms)
        self._follow()

    def _follow(self) -> None:
        current = self.partition.log
        follow_offsets(self.future, current.high_watermark, current.log_start_offset)

    # Truncation

    def _truncate_diverging(self, now_ms: int) -> None:
        """Truncate the future log to what it shares with the partition's, by leader epochs."""
        current, future = self.partition.log, self.future
        while future.log_end_offset > future.log_start_offset:
            end_offset, epoch = current.epoch_end_offset(future.latest_epoch)
            if epoch == future.latest_epoch >= 0 and future.log_end_offset <= end_offset:
                return
            before = future.log_end_offset
            if epoch >= 0:
                cut_to_diverging(future, epoch, end_offset, now_ms)
            if epoch < 0 or future.log_end_offset == before:
                self._begin_again(now_ms)
                return

    def _begin_again(self, now_ms: int) -> None:
        """Empty the future log, to begin where the partition's log does on its disk."""
        current, before = self.partition.log, None
        start = current.local_log_start_offset
        if start > current.log_start_offset:
            before = RemoteState(
                current.log_start_offset,
                current.leader_epochs.between(-1, start),
                current.producer_state.entries_at(start),
            )
        self.future.truncation.truncate_fully_and_start_at(start, now_ms=now_ms, before=before)
