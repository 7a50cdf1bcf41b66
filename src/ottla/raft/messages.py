"""The quorum state machine's events (past tense) and effects (imperative).

Kafka: the inbound and outbound queues of org.apache.kafka.raft.KafkaRaftClient.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.raft.quorum_state import ElectionState
    from ottla.types import Buffer


class Started(NamedTuple):
    """The node has started; its log ends at log_end_offset."""

    log_end_offset: int


class RecordsOffered(NamedTuple):
    """The controller submits encoded records that must be written in one batch."""

    values: Sequence[Buffer]


class LogFlushed(NamedTuple):
    """The log is durable below end_offset."""

    end_offset: int


class ShutdownRequested(NamedTuple):
    """The node is shutting down."""


Event: TypeAlias = Started | RecordsOffered | LogFlushed | ShutdownRequested


class PersistElection(NamedTuple):
    """Write the election state durably before any later effect."""

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
    """This node no longer leads; uncommitted records may be lost."""

    epoch: int


Effect: TypeAlias = (
    PersistElection
    | AppendBatch
    | FlushLog
    | AnnounceLeader
    | AnnounceHighWatermark
    | AnnounceResignation
)
