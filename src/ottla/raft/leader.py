"""The leader role: accepts records and commits what a majority holds durably.

Kafka: org.apache.kafka.raft.LeaderState.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.raft.batch_accumulator import BatchAccumulator
from ottla.raft.messages import AnnounceHighWatermark, AppendBatch, FlushLog
from ottla.raft.quorum_state import NO_NODE, ElectionState

if TYPE_CHECKING:
    from ottla.raft.messages import Effect
    from ottla.raft.voter_set import VoterSet
    from ottla.types import Buffer


class Leader:
    """Runs one flush at a time, of one batch: a batch proves that those before it are flushed.

    Records that arrive during a flush share the next one.
    """

    __slots__ = (
        "_durable_end_offsets",
        "_is_flushing",
        "accumulator",
        "epoch",
        "epoch_start_offset",
        "high_watermark",
        "node_id",
        "voters",
    )

    def __init__(
        self, *, epoch: int, node_id: int, voters: VoterSet, epoch_start_offset: int
    ) -> None:
        self.epoch = epoch
        self.node_id = node_id
        self.voters = voters
        self.epoch_start_offset = epoch_start_offset
        self.high_watermark: int | None = None
        """None until a record of this epoch is committed: older records are not exposed before."""
        self.accumulator = BatchAccumulator(epoch=epoch, next_offset=epoch_start_offset)
        self._durable_end_offsets = {voter.voter_id: 0 for voter in voters}
        self._is_flushing = False

    def election_state(self) -> ElectionState:
        """Return the election state to store."""
        return ElectionState(
            self.epoch,
            self.node_id,
            NO_NODE,
            voter_ids=tuple(voter.voter_id for voter in self.voters),
        )

    def write_first(self, batch: Buffer, record_count: int) -> list[Effect]:
        """Write the epoch's first batch, which holds control records."""
        base = self.accumulator.next_offset
        self.accumulator.next_offset = base + record_count
        self._is_flushing = True
        return [AppendBatch(batch, base, base + record_count - 1), FlushLog()]

    def offer(self, values: list[Buffer], now_ms: int) -> list[Effect]:
        """Accept the controller's records."""
        self.accumulator.append(values, now_ms)
        return self._drain()

    def flushed(self, end_offset: int) -> list[Effect]:
        """Handle a completed flush: this node holds the log durably below end_offset."""
        self._is_flushing = False
        self._durable_end_offsets[self.node_id] = end_offset
        effects: list[Effect] = []
        committed = self._majority_end_offset()
        if committed > self.epoch_start_offset and committed > (self.high_watermark or 0):
            self.high_watermark = committed
            effects.append(AnnounceHighWatermark(committed))
        return effects + self._drain()

    def _majority_end_offset(self) -> int:
        """Return the highest offset below which more than half of the voters are durable."""
        ends = sorted(self._durable_end_offsets.values(), reverse=True)
        return ends[len(ends) // 2]

    def _drain(self) -> list[Effect]:
        if self._is_flushing or self.accumulator.is_empty:
            return []
        self._is_flushing = True
        return [AppendBatch(*self.accumulator.next_batch()), FlushLog()]
