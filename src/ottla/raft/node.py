"""The state machine of one quorum member: events in, effects out.

Kafka: org.apache.kafka.raft.KafkaRaftClient. A quorum of more than one voter is not supported
yet; it needs further events (votes, fetches, timeouts), effects (requests) and two more roles.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.records.raft import KRaftVersionRecord
from ottla.raft.candidate import Candidate
from ottla.raft.control_records import encode_control_messages, leader_change
from ottla.raft.leader import Leader
from ottla.raft.messages import (
    AnnounceLeader,
    AnnounceResignation,
    LogFlushed,
    PersistElection,
    RecordsOffered,
    ShutdownRequested,
    Started,
)
from ottla.raft.roles import TRANSITIONS, Resigned, Unattached

if TYPE_CHECKING:
    from ottla.raft.control_records import ControlMessage
    from ottla.raft.messages import Effect, Event
    from ottla.raft.quorum_state import ElectionState
    from ottla.raft.voter_set import VoterSet
    from ottla.types import Uuid

log = logging.getLogger("ottla.raft")


class RaftNode:
    """A deterministic state machine: the same events give the same effects."""

    __slots__ = ("directory_id", "kraft_version", "node_id", "role", "voters", "voters_in_log")

    def __init__(
        self,
        *,
        node_id: int,
        directory_id: Uuid,
        election: ElectionState,
        voters: VoterSet,
        kraft_version: int,
        voters_in_log: bool,
    ) -> None:
        """Initialize from the stored state; voters_in_log: the log holds the voter set."""
        self.node_id = node_id
        self.directory_id = directory_id
        self.voters = voters
        self.kraft_version = kraft_version
        self.voters_in_log = voters_in_log
        self.role: Unattached | Candidate | Leader | Resigned = Unattached(
            election.leader_epoch, election.voted_id
        )

    @property
    def epoch(self) -> int:
        """The newest epoch this node knows."""
        return self.role.epoch

    @property
    def leader_id(self) -> int:
        """The leader's id, -1 when it is unknown."""
        return self.node_id if isinstance(self.role, Leader) else -1

    @property
    def next_offset(self) -> int:
        """The offset that the next offered record will get; only a leader has one."""
        return self._leader().accumulator.next_offset

    @property
    def high_watermark(self) -> int:
        """The committed end of the log as far as this epoch has shown, -1 when it has not."""
        if isinstance(self.role, Leader) and self.role.high_watermark is not None:
            return self.role.high_watermark
        return -1

    def handle(self, event: Event, now_ms: int) -> list[Effect]:
        """Process one event.

        KafkaError NOT_CONTROLLER when records are offered to a node that does not lead.
        """
        match event:
            case RecordsOffered(values):
                return self._leader().offer(list(values), now_ms)
            case LogFlushed(end_offset):
                return self.role.flushed(end_offset) if isinstance(self.role, Leader) else []
            case Started(log_end_offset):
                return self._start(log_end_offset, now_ms)
            case ShutdownRequested():
                return self._resign()

    def _leader(self) -> Leader:
        if not isinstance(self.role, Leader):
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        return self.role

    def _become(self, role: Candidate | Leader | Resigned) -> None:
        old, new = type(self.role).__name__, type(role).__name__
        assert new in TRANSITIONS[old], f"illegal transition from {old} to {new}"
        assert role.epoch >= self.role.epoch, "epochs never decrease"
        text = "quorum: node %d changes from %s to %s in epoch %d"
        log.info(text, self.node_id, old, new, role.epoch, extra={"event": "quorum.role"})
        self.role = role

    def _start(self, log_end_offset: int, now_ms: int) -> list[Effect]:
        if not self.voters.is_voter(self.node_id, self.directory_id):
            raise KafkaError(
                ErrorCode.INCONSISTENT_VOTER_SET,
                f"node {self.node_id} with directory {self.directory_id} is not a voter of "
                f"{self.voters}: the disk it voted with is not here",
            )
        if len(self.voters) > 1:
            raise KafkaError(
                ErrorCode.INCONSISTENT_VOTER_SET,
                f"a quorum of {len(self.voters)} voters is not supported yet; configure one",
            )
        candidate = Candidate(
            epoch=self.epoch + 1,
            node_id=self.node_id,
            directory_id=self.directory_id,
            voters=self.voters,
        )
        self._become(candidate)
        effects: list[Effect] = [PersistElection(candidate.election_state())]
        if candidate.has_won:  # a single voter needs no other vote
            effects += self._lead(log_end_offset, now_ms)
        return effects

    def _lead(self, log_end_offset: int, now_ms: int) -> list[Effect]:
        leader = Leader(
            epoch=self.epoch,
            node_id=self.node_id,
            voters=self.voters,
            epoch_start_offset=log_end_offset,
        )
        self._become(leader)
        messages: list[ControlMessage] = [leader_change(self.node_id, self.voters)]
        if self.kraft_version > 0 and not self.voters_in_log:
            messages.append(KRaftVersionRecord(version=0, kraft_version=self.kraft_version))
            messages.append(self.voters.to_record())
            self.voters_in_log = True
        batch = encode_control_messages(
            messages, base_offset=log_end_offset, leader_epoch=leader.epoch, timestamp=now_ms
        )
        return [
            PersistElection(leader.election_state()),
            *leader.write_first(batch, len(messages)),
            AnnounceLeader(leader.epoch, log_end_offset),
        ]

    def _resign(self) -> list[Effect]:
        if not isinstance(self.role, Leader):
            return []
        epoch = self.role.epoch
        self._become(Resigned(epoch))
        return [AnnounceResignation(epoch)]
