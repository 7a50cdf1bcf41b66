"""The quorum state machine's events (past tense) and effects (imperative).

Effects are executed in order. Those on the log are done at once. `PersistElection` is written by
a worker; what others can see of this event or later ones waits until it is durable: no vote and no
request leaves before.

Kafka: the inbound and outbound queues of org.apache.kafka.raft.KafkaRaftClient.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.purgatory.pending import Pending
    from ottla.raft.quorum_state import ElectionState
    from ottla.raft.requests import LeaderAndEpoch, Request, Response
    from ottla.raft.voter_set import ControlMessage, VoterAddress, VoterSet
    from ottla.types import Buffer, OffsetAndEpoch


class RecordsOffered(NamedTuple):
    """The controller submits encoded records that must be written in one batch."""

    values: Sequence[Buffer]
    timestamp_ms: int


class KRaftVersionOffered(NamedTuple):
    """The controller raises the quorum's own feature level, kraft.version."""

    level: int


class LogFlushed(NamedTuple):
    """The log is durable below end_offset, unless it was truncated since the flush began."""

    end_offset: int
    truncation_count: int


class RecordsAppended(NamedTuple):
    """Records of the leader are in the log; control are its control records with their offsets."""

    control: Sequence[tuple[int, ControlMessage]] = ()


class AppendRejected(NamedTuple):
    """Records of the leader were damaged or do not fit the log's end; nothing was written."""


class SnapshotPartStored(NamedTuple):
    """A part is in the file of a snapshot that is being fetched."""

    snapshot_id: OffsetAndEpoch


class SnapshotVerified(NamedTuple):
    """A fetched snapshot is whole; these are the voters and the kraft.version that it names."""

    snapshot_id: OffsetAndEpoch
    voters: VoterSet | None
    kraft_version: int


class SnapshotRejected(NamedTuple):
    """A fetched snapshot is damaged and was removed."""

    snapshot_id: OffsetAndEpoch


class RequestReceived(NamedTuple):
    """A request of another member; the token identifies it in the response."""

    request: Request
    token: Pending[Any]


class ResponseReceived(NamedTuple):
    """A response, or None when there will be none."""

    correlation_id: int
    response: Response | None
    is_refused: bool = False
    """Whether no process listens at the node's address."""


class ShutdownRequested(NamedTuple):
    """The node is shutting down: a leader resigns."""


Event: TypeAlias = (
    RecordsOffered
    | KRaftVersionOffered
    | LogFlushed
    | RecordsAppended
    | AppendRejected
    | SnapshotPartStored
    | SnapshotVerified
    | SnapshotRejected
    | RequestReceived
    | ResponseReceived
    | ShutdownRequested
)


class PersistElection(NamedTuple):
    """Write the election state durably before any later effect."""

    state: ElectionState


class AppendBatch(NamedTuple):
    """Write this leader's batch at the end of the log."""

    data: Buffer
    base_offset: int
    last_offset: int


class AppendRecords(NamedTuple):
    """Write the leader's batches at the end of the log, then report RecordsAppended."""

    data: Buffer
    epoch: int


class TruncateLog(NamedTuple):
    """Cut the log at its new end, which is not below the high watermark."""

    end_offset: int


class FlushLog(NamedTuple):
    """Make the log durable, then report LogFlushed."""

    truncation_count: int = 0


class StoreSnapshotPart(NamedTuple):
    """Write a part of a snapshot that is being fetched, then report SnapshotPartStored."""

    snapshot_id: OffsetAndEpoch
    position: int
    data: Buffer


class VerifySnapshot(NamedTuple):
    """Check a fetched snapshot, then report SnapshotVerified or SnapshotRejected."""

    snapshot_id: OffsetAndEpoch


class RestartLog(NamedTuple):
    """Empty the log: it begins at the end of a fetched snapshot now."""

    snapshot_id: OffsetAndEpoch


class Send(NamedTuple):
    """Send a request, then report ResponseReceived. Below -1: a bootstrap server's number."""

    node_id: int
    endpoints: tuple[VoterAddress, ...]
    request: Request
    correlation_id: int


class Respond(NamedTuple):
    """Answer a request."""

    token: Pending[Any]
    response: Response


class AnnounceLeader(NamedTuple):
    """This node leads epoch, and everything before it is committed.

    Its first record has the offset epoch_start_offset.
    """

    epoch: int
    epoch_start_offset: int


class AnnounceEpoch(NamedTuple):
    """Another node leads, or no leader is known."""

    leader: LeaderAndEpoch


class AnnounceHighWatermark(NamedTuple):
    """Everything below offset is committed."""

    offset: int


class AnnounceSnapshot(NamedTuple):
    """The log begins at the end of this snapshot now: replays start from the snapshot."""

    snapshot_id: OffsetAndEpoch


class AnnounceResignation(NamedTuple):
    """This node no longer leads; uncommitted records may be lost."""

    epoch: int


Effect: TypeAlias = (
    PersistElection
    | AppendBatch
    | AppendRecords
    | TruncateLog
    | FlushLog
    | StoreSnapshotPart
    | VerifySnapshot
    | RestartLog
    | Send
    | Respond
    | AnnounceLeader
    | AnnounceEpoch
    | AnnounceHighWatermark
    | AnnounceSnapshot
    | AnnounceResignation
)
