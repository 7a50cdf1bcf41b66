"""The state of a quorum member: identity, log, voters and role.

Methods that change the role also add the effect that persists it.

Kafka: org.apache.kafka.raft.QuorumState; org.apache.kafka.raft.RequestManager.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from ottla.errors import ErrorCode
from ottla.raft.leader import Leader
from ottla.raft.messages import (
    AnnounceEpoch,
    AnnounceHighWatermark,
    AnnounceResignation,
    FlushLog,
    PersistElection,
    Send,
)
from ottla.raft.quorum_state import NO_NODE, ElectionState
from ottla.raft.requests import NO_LEADER, LeaderAndEpoch, ReplicaKey
from ottla.raft.roles import (
    TRANSITIONS,
    Ballot,
    Candidate,
    Follower,
    Prospective,
    Resigned,
    Unattached,
)
from ottla.raft.timeouts import SUCCESSOR_DELAY_MS, QuorumTimeouts
from ottla.types import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from ottla.raft.messages import Effect
    from ottla.raft.requests import Request
    from ottla.raft.voter_set import VoterAddress, VoterHistory
    from ottla.types import OffsetAndEpoch


class Sent(NamedTuple):
    """A request in flight."""

    node_id: int
    request: Request
    correlation_id: int
    expires_ms: int


class _RequestsInFlight:
    """The request in flight to each node. The response to an expired one is ignored."""

    __slots__ = ("_last_id", "_paused_until_ms", "_sent", "_timeouts")

    def __init__(self, timeouts: QuorumTimeouts) -> None:
        self._timeouts = timeouts
        self._sent: dict[int, Sent] = {}
        self._paused_until_ms: dict[int, int] = {}
        self._last_id = 0

    def ready_ms(self, node_id: int, now_ms: int) -> int:
        """Return when the next request may be sent to a node: now_ms or later."""
        sent = self._sent.get(node_id)
        busy_ms = now_ms if sent is None else sent.expires_ms
        return max(now_ms, busy_ms, self._paused_until_ms.get(node_id, 0))

    def has_any(self, now_ms: int) -> bool:
        """Whether a response is awaited from any node."""
        return any(sent.expires_ms > now_ms for sent in self._sent.values())

    def add(self, node_id: int, request: Request, now_ms: int) -> int:
        """Record a request; return its correlation id."""
        self._last_id += 1
        expires_ms = now_ms + self._timeouts.request_ms
        self._sent[node_id] = Sent(node_id, request, self._last_id, expires_ms)
        return self._last_id

    def completed(self, correlation_id: int) -> Sent | None:
        """Return the request of a response, None when it is no longer awaited."""
        for sent in self._sent.values():
            if sent.correlation_id == correlation_id:
                del self._sent[sent.node_id]
                return sent
        return None

    def pause(self, node_id: int, now_ms: int) -> None:
        """Send nothing to a node for retry_backoff_ms: its last answer was an error."""
        self._paused_until_ms[node_id] = now_ms + self._timeouts.retry_backoff_ms

    def forget(self) -> None:
        """Forget everything: the role has changed, and responses no longer matter."""
        self._sent.clear()
        self._paused_until_ms.clear()


log = logging.getLogger("ottla.raft")


class LogView(Protocol):
    """What the machine reads of the metadata log; it is changed by effects alone."""

    @property
    def start_offset(self) -> int:
        """The offset of the first record that is still here."""

    @property
    def end_offset(self) -> int:
        """The offset of the next record."""

    @property
    def latest_snapshot(self) -> OffsetAndEpoch | None:
        """The newest snapshot."""

    def epoch_at_end(self) -> int:
        """Return the epoch of the last record, 0 in an empty log."""

    def divergence(self, offset: int, epoch: int) -> OffsetAndEpoch | None:
        """Return where this log leaves another one, None when it does not before offset."""

    def needs_snapshot(self, offset: int, epoch: int) -> bool:
        """Whether a replica at this position lacks records that the log no longer has."""

    def snapshot_size(self, snapshot_id: OffsetAndEpoch) -> int | None:
        """Return the size of a snapshot in bytes, None when there is none."""

    def truncation_offset(self, diverging: OffsetAndEpoch) -> int:
        """Return where to cut this log so that it agrees with the leader's."""


class MemberSettings(NamedTuple):
    """Who a member is and how long it waits."""

    key: ReplicaKey
    endpoints: tuple[VoterAddress, ...] = ()
    """Where it serves as a controller."""
    bootstrap_count: int = 0
    """Number of controller.quorum.bootstrap.servers; they have the node ids -2, -3, ..."""
    timeouts: QuorumTimeouts = QuorumTimeouts()
    joins_by_itself: bool = False
    """controller.quorum.auto.join.enable: an observer asks the leader to make it a voter."""


Role: TypeAlias = Unattached | Follower | Prospective | Candidate | Leader | Resigned


class QuorumMember:
    """The state of a voter or observer and its changes; effects collect in `effects`."""

    __slots__ = (
        "bootstrap_count",
        "durable_end_offset",
        "effects",
        "endpoints",
        "flush_started_ms",
        "high_watermark",
        "in_flight",
        "is_flushing",
        "is_storing",
        "joins_by_itself",
        "key",
        "log",
        "rng",
        "role",
        "timeouts",
        "truncation_count",
        "voters",
        "wall_ms",
    )

    def __init__(
        self,
        settings: MemberSettings,
        *,
        log: LogView,
        voters: VoterHistory,
        election: ElectionState,
        rng: Random,
        now_ms: int,
        wall_ms: Callable[[], int],
    ) -> None:
        self.key, self.endpoints, self.bootstrap_count = settings[:3]
        self.timeouts, self.joins_by_itself = settings[3:]
        self.log = log
        self.voters = voters
        self.rng = rng
        self.wall_ms = wall_ms
        self.in_flight = _RequestsInFlight(self.timeouts)
        self.effects: list[Effect] = []
        self.high_watermark = -1
        self.durable_end_offset = log.end_offset
        self.is_flushing = False
        self.flush_started_ms = 0
        """When the flush under way began, in monotonic ms."""
        self.is_storing = False
        """A part of a snapshot is being written, or the whole is being checked."""
        self.truncation_count = 0
        self.role: Role = self._first_role(election, now_ms)

    def _first_role(self, election: ElectionState, now_ms: int) -> Role:
        epoch, leader_id = election.leader_epoch, election.leader_id
        deadline_ms = now_ms
        if len(self.voters.latest) > 1:  # a lone voter leads at once
            deadline_ms += self.timeouts.random_election_ms(self.rng)
        voted = None
        if election.voted_id != NO_NODE:
            voted = ReplicaKey(election.voted_id, election.voted_directory_id)
        if leader_id == self.key.node_id:  # it led: it may not vote in this epoch again
            leader = LeaderAndEpoch(leader_id, epoch)
            return Resigned(leader, now_ms, voted=voted or self.key)
        known = self.voters.latest.get(leader_id)
        if known is not None and known.endpoints:
            leader = LeaderAndEpoch(leader_id, epoch, known.endpoints)
            return Follower(leader, now_ms + self.timeouts.fetch_ms, voted)
        return Unattached(epoch, deadline_ms, leader_id=leader_id, voted=voted)

    # Questions

    @property
    def epoch(self) -> int:
        """The newest epoch this node knows."""
        return self.role.epoch

    @property
    def is_voter(self) -> bool:
        """Whether this node, with this directory, votes."""
        return self.voters.latest.is_voter(*self.key)

    @property
    def leader(self) -> LeaderAndEpoch:
        """The leader that this node reports to others."""
        return self.role.leader

    @property
    def listener(self) -> str:
        """The controllers' own listener, the first of controller.listener.names."""
        return self.endpoints[0].listener_name if self.endpoints else ""

    def leader_only_error(self, epoch: int) -> ErrorCode:
        """Return why a request to the leader of an epoch cannot be served, NONE if it can."""
        if epoch < self.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if epoch > self.epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        return ErrorCode.NONE if isinstance(self.role, Leader) else ErrorCode.NOT_LEADER_OR_FOLLOWER

    # Effects

    def send(
        self, node_id: int, endpoints: tuple[VoterAddress, ...], request: Request, now_ms: int
    ) -> None:
        """Send a request to a node that has none in flight."""
        correlation_id = self.in_flight.add(node_id, request, now_ms)
        self.effects.append(Send(node_id, endpoints, request, correlation_id))

    def flush(self, now_ms: int) -> None:
        """Make the log durable, one flush at a time."""
        if not self.is_flushing:
            self.is_flushing = True
            self.flush_started_ms = now_ms
            self.effects.append(FlushLog(self.truncation_count))

    def raise_high_watermark(self, offset: int) -> None:
        """Announce what is committed; it never goes back."""
        if offset > self.high_watermark:
            self.high_watermark = offset
            self.effects.append(AnnounceHighWatermark(offset))

    # Changes of the role

    def become_unattached(
        self,
        epoch: int,
        now_ms: int,
        *,
        leader_id: int = NO_LEADER,
        voted: ReplicaKey | None = None,
    ) -> None:
        """Enter an epoch whose leader cannot be reached yet, or give a vote in it."""
        same = epoch == self.epoch
        deadline_ms = now_ms + self.timeouts.random_election_ms(self.rng)
        if same and isinstance(self.role, Unattached):
            deadline_ms = self.role.deadline_ms
        vote = self.role.voted if same and voted is None else voted
        self._change(Unattached(epoch, deadline_ms, leader_id=leader_id, voted=vote))
        self._persist()
        self.effects.append(AnnounceEpoch(self.leader))

    def become_follower(self, leader: LeaderAndEpoch, now_ms: int) -> None:
        """Follow the leader of this or a newer epoch."""
        voted = self.role.voted if leader.epoch == self.epoch else None
        self._change(Follower(leader, now_ms + self.timeouts.fetch_ms, voted))
        self._persist()
        self.effects.append(AnnounceEpoch(leader))

    def become_prospective(self, now_ms: int) -> None:
        """Request pre-votes; nothing is stored."""
        deadline_ms = now_ms + self.timeouts.random_election_ms(self.rng)
        ballot = Ballot(self.voters.latest, self.key.node_id)
        leader = self.leader
        if leader.leader_id == self.key.node_id:
            leader = LeaderAndEpoch(NO_LEADER, self.epoch)
        self._change(Prospective(leader, deadline_ms, ballot, self.role.voted))

    def become_candidate(self, now_ms: int) -> None:
        """Start an election with this node's own vote."""
        deadline_ms = now_ms + self.timeouts.random_election_ms(self.rng)
        ballot = Ballot(self.voters.latest, self.key.node_id)
        self._change(Candidate(self.epoch + 1, deadline_ms, ballot, self.key))
        self._persist()
        self.effects.append(AnnounceEpoch(self.leader))

    def become_leader(self, now_ms: int) -> Leader:
        """Lead the epoch of the won election; its first record is the caller's."""
        leader = Leader(
            self.key,
            epoch=self.epoch,
            endpoints=self.endpoints,
            voters=self.voters.latest,
            epoch_start_offset=self.log.end_offset,
            timeouts=self.timeouts,
            now_ms=now_ms,
        )
        self._change(leader)
        self._persist()
        return leader

    def become_resigned(
        self,
        now_ms: int,
        *,
        preferred: tuple[ReplicaKey, ...] = (),
        unacknowledged: frozenset[int] = frozenset(),
    ) -> None:
        """Resign the leadership of this epoch."""
        deadline_ms = now_ms + self.timeouts.random_election_ms(self.rng)
        self._change(
            Resigned(
                self.leader,
                deadline_ms,
                voted=self.role.voted,
                preferred=preferred,
                unacknowledged=unacknowledged,
                successor_due_ms=now_ms + SUCCESSOR_DELAY_MS,
            )
        )

    def _change(self, role: Role) -> None:
        old, new = type(self.role).__name__, type(role).__name__
        assert new in TRANSITIONS[old], f"illegal transition from {old} to {new}"
        assert role.epoch >= self.epoch, "epochs never decrease"
        # A node that finds no quorum enters epoch after epoch unattached.
        level = logging.DEBUG if old == new == "Unattached" else logging.INFO
        text = "quorum: node %d changes from %s to %s in epoch %d"
        log.log(level, text, self.key.node_id, old, new, role.epoch, extra={"event": "quorum.role"})
        if isinstance(self.role, Leader):
            self.voters.truncate(self.role.accumulator.first_offset)  # the rest is never written
            if self.role.is_announced:
                self.effects.append(AnnounceResignation(self.epoch))
        self.role = role
        self.in_flight.forget()

    def _persist(self) -> None:
        voted = self.role.voted
        self.effects.append(
            PersistElection(
                ElectionState(
                    self.epoch,
                    self.leader.leader_id,
                    NO_NODE if voted is None else voted.node_id,
                    ZERO_UUID if voted is None else voted.directory_id,
                    tuple(voter.voter_id for voter in self.voters.latest),
                )
            )
        )
