"""The requests and responses of KRaft as flat tuples.

`wire` maps them to the messages of the protocol. Kafka: org.apache.kafka.raft.RaftUtil.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ottla.types import ZERO_UUID, OffsetAndEpoch, Uuid

if TYPE_CHECKING:
    from ottla.errors import ErrorCode
    from ottla.raft.voter_set import Voter, VoterAddress
    from ottla.types import Buffer

NO_LEADER = -1
FIRST_BOOTSTRAP_ID = -2
"""The first of controller.quorum.bootstrap.servers; the next ones have -3, -4, ..."""


class ReplicaKey(NamedTuple):
    """A node with one of its log directories; without the directory, any of them."""

    node_id: int
    directory_id: Uuid = ZERO_UUID


class LeaderAndEpoch(NamedTuple):
    """The leader of an epoch, -1 when it is not known, and where it can be reached."""

    leader_id: int
    epoch: int
    endpoints: tuple[VoterAddress, ...] = ()


class Vote(NamedTuple):
    """Requests a vote in an epoch, or a pre-vote (KIP-996)."""

    candidate: ReplicaKey
    epoch: int
    log_end: OffsetAndEpoch
    """The end offset of the candidate's log and the epoch of its last record."""
    is_pre_vote: bool
    voter: ReplicaKey
    """For whom the request is meant."""

    @property
    def sender_id(self) -> int:
        """The node that sends it."""
        return self.candidate.node_id


class BeginQuorumEpoch(NamedTuple):
    """The new leader announces its election to a voter."""

    leader: LeaderAndEpoch
    voter: ReplicaKey

    @property
    def epoch(self) -> int:
        """The leader's epoch."""
        return self.leader.epoch


class EndQuorumEpoch(NamedTuple):
    """The leader resigns; the preferred successors come first."""

    leader: LeaderAndEpoch
    preferred: tuple[ReplicaKey, ...]

    @property
    def epoch(self) -> int:
        """The leader's epoch."""
        return self.leader.epoch


class Fetch(NamedTuple):
    """A replica requests records from an offset, which acknowledges all records below it."""

    replica: ReplicaKey
    epoch: int
    offset: int
    last_epoch: int
    """The epoch of the record before offset."""
    high_watermark: int
    """The replica's high watermark; an older one is answered at once (KIP-1166)."""
    max_wait_ms: int

    @property
    def sender_id(self) -> int:
        """The node that sends it, -1 for a consumer."""
        return self.replica.node_id


class FetchSnapshot(NamedTuple):
    """A replica requests a part of a snapshot."""

    replica: ReplicaKey
    epoch: int
    snapshot_id: OffsetAndEpoch
    position: int

    @property
    def sender_id(self) -> int:
        """The node that sends it."""
        return self.replica.node_id


class UpdateVoter(NamedTuple):
    """A voter sends the leader its endpoints and the kraft.version levels that it supports."""

    voter: Voter
    epoch: int


class AddVoter(NamedTuple):
    """An operator or the node itself adds a voter, an observer with the whole log."""

    voter: Voter
    ack_when_committed: bool
    """Whether to answer when the new voters are committed, or when they are written."""
    timeout_ms: int
    """Carried and not used: as in Kafka the leader's own request timeout counts."""


class RemoveVoter(NamedTuple):
    """An operator removes a voter, or a node its own former directory."""

    key: ReplicaKey


class DescribeVersions(NamedTuple):
    """The leader requests the kraft.version levels of a new voter (ApiVersions)."""

    epoch: int


Request: TypeAlias = (
    Vote
    | BeginQuorumEpoch
    | EndQuorumEpoch
    | Fetch
    | FetchSnapshot
    | UpdateVoter
    | AddVoter
    | RemoveVoter
    | DescribeVersions
)


class VoteResponse(NamedTuple):
    """Whether the vote is granted."""

    error: ErrorCode
    leader: LeaderAndEpoch
    is_granted: bool = False


class EpochResponse(NamedTuple):
    """The response to BeginQuorumEpoch and EndQuorumEpoch."""

    error: ErrorCode
    leader: LeaderAndEpoch


class FetchResponse(NamedTuple):
    """Records; or where the logs diverge; or the snapshot to fetch first."""

    error: ErrorCode
    leader: LeaderAndEpoch
    high_watermark: int = -1
    log_start_offset: int = -1
    diverging: OffsetAndEpoch | None = None
    snapshot_id: OffsetAndEpoch | None = None
    read_offset: int = -1
    """On the leader: the records from here on are read into `records` before it is sent."""
    records: Buffer = b""


class FetchSnapshotResponse(NamedTuple):
    """A part of a snapshot of size_bytes."""

    error: ErrorCode
    leader: LeaderAndEpoch
    snapshot_id: OffsetAndEpoch
    size_bytes: int = 0
    position: int = 0
    data: Buffer = b""


class VoterChangeResponse(NamedTuple):
    """Whether the voters were changed; the text says why not."""

    error: ErrorCode
    leader: LeaderAndEpoch
    message: str | None = None


class VersionsResponse(NamedTuple):
    """The kraft.version levels that a node supports."""

    error: ErrorCode
    leader: LeaderAndEpoch
    lowest: int = 0
    highest: int = 1


Response: TypeAlias = (
    VoteResponse
    | EpochResponse
    | FetchResponse
    | FetchSnapshotResponse
    | VoterChangeResponse
    | VersionsResponse
)
