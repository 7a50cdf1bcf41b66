"""What the quorum's machine is told (past tense) and what it asks for (imperative).

Kafka: the inbound and outbound queues of org.apache.kafka.raft.KafkaRaftClient.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.raft.quorum_state import ElectionState
    from ottla.types import Buffer


class Started(NamedTuple):
    """The node is up; its log ends at log_end_offset."""

    log_end_offset: int


class RecordsOffered(NamedTuple):
    """The leader's state machine wants these encoded records in the log, in one batch."""

    values: Sequence[Buffer]


class LogFlushed(NamedTuple):
    """The log is durable below end_offset."""

    end_offset: int


class ShutdownRequested(NamedTuple):
    """The node is going away."""


Event: TypeAlias = Started | RecordsOffered | LogFlushed | ShutdownRequested


class PersistElection(NamedTuple):
    """Write the election's state durably before any later effect."""

    state: ElectionState


class AppendBatch(NamedTuple):
    """Write a batch at the end of the log."""

    data: Buffer
    base_offset: int
    last_offset: int


class FlushLog(NamedTuple):
    """Make the log durable, then report LogFlushed."""


class AnnounceLeader(NamedTuple):
    """This node leads epoch; its first record has the offset epoch_start_offset."""

    epoch: int
    epoch_start_offset: int


class AnnounceHighWatermark(NamedTuple):
    """Everything below offset is committed."""

    offset: int


class AnnounceResignation(NamedTuple):
    """This node leads no longer; what was not committed may never be."""

    epoch: int


Effect: TypeAlias = (
    PersistElection
    | AppendBatch
    | FlushLog
    | AnnounceLeader
    | AnnounceHighWatermark
    | AnnounceResignation
)
