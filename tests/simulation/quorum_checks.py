"""What must hold in every quorum: one leader an epoch, one vote, nothing committed ever changes.

What is durable is read from the simulated disks, not asked of the members.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.errors import ErrorCode
from ottla.protocol.records.raft import VotersRecord
from ottla.raft.leader import Leader
from ottla.raft.requests import Fetch, FetchSnapshot, ReplicaKey, UpdateVoter, Vote
from ottla.raft.roles import Candidate, Follower
from ottla.raft.voter_set import decode_control_message, voter_set_of
from tests.simulation.durable_state import (
    durable_election,
    has_unsynced_cut,
    has_unsynced_records,
    holds_durably,
)

if TYPE_CHECKING:
    from ottla.raft.requests import Request
    from ottla.raft.snapshot import SnapshotContent
    from ottla.raft.voter_set import VoterSet
    from ottla.records.batch import RecordBatch
    from ottla.types import OffsetAndEpoch, Uuid
    from tests.simulation.quorum import SimulatedMember, SimulatedQuorum


UNKNOWN_ID = 99
"""The id of no node."""


class Commit(NamedTuple):
    """What a leader committed, with a record of its own epoch at the end."""

    by_epoch: int
    end_offset: int


class QuorumChecks:
    """Raises AssertionError at the first event after which an invariant does not hold."""

    def __init__(self, quorum: SimulatedQuorum) -> None:
        self._quorum = quorum
        self._leaders: dict[int, int] = {}
        self._votes: dict[tuple[int, Uuid], int] = {}
        self._committed: dict[int, tuple[int, int]] = {}
        """Base offset of a committed batch → (epoch, checksum)."""
        self._voters: list[tuple[int, VoterSet]] = []
        """The committed voters by the offset of their record."""
        self._fetched_ms: dict[tuple[int, int], int] = {}
        """(leader, voter) → when a fetch last arrived."""
        self._led_since_ms: dict[tuple[int, int, int], int] = {}
        """(leader, epoch, offset of its voters) → when it was first seen to lead."""
        self._candidates: dict[tuple[int, int, int], int] = {}
        """(node, life, epoch) → since when it is a candidate."""
        self._commits: list[Commit] = []
        """The newest of each leader's."""
        self.end_offset = 0
        """The highest offset that any member knows as committed."""
        self.last_batch_offset = -1
        """The base offset of the newest committed batch."""

    def started(self, member: SimulatedMember) -> None:
        """Check what a process begins with."""
        assert member.driver is not None
        log, role = member.driver.log, member.driver.node.role
        stored = durable_election(member.disk)
        if stored.leader_epoch == role.epoch and (stored.voted_id, stored.leader_id) != (-1, -1):
            other = ReplicaKey(UNKNOWN_ID)
            assert not role.grants(other, is_up_to_date=True, is_pre_vote=False), (
                f"node {member.node_id} starts and may vote again in epoch {role.epoch}"
            )
        entries = log.log.leader_epochs.entries
        assert not entries or entries[0].start_offset <= log.start_offset, (
            f"the log begins at {log.start_offset}, its epochs at {entries[0].start_offset}"
        )

    def led(self, member: SimulatedMember, epoch: int) -> None:
        """No two nodes lead one epoch; a leader has all that is committed."""
        known = self._leaders.setdefault(epoch, member.node_id)
        assert known == member.node_id, f"{known} and {member.node_id} lead epoch {epoch}"
        stored = durable_election(member.disk)
        assert stored.leader_epoch > epoch or stored.voted_id == member.node_id, (
            f"{member.node_id} leads epoch {epoch} and does not store its own vote"
        )
        assert member.driver is not None
        log = member.driver.log
        before = [one for one in self._commits if one.by_epoch < epoch]
        if not before:
            return
        newest = before[-1]
        assert log.end_offset >= newest.end_offset, (
            f"{member.node_id} leads epoch {epoch} with a log that ends at {log.end_offset}; "
            f"{newest.end_offset} is committed"
        )
        if log.start_offset < newest.end_offset:
            own = log.log.leader_epochs.epoch_for_offset(newest.end_offset - 1)
            assert own == newest.by_epoch, (
                f"{member.node_id} leads epoch {epoch} with a record of epoch {own} before "
                f"{newest.end_offset}; committed is one of epoch {newest.by_epoch}"
            )

    def committed(self, member: SimulatedMember, offset: int) -> None:
        """Check that every node commits the same at the same offsets, and none goes back."""
        assert member.driver is not None
        node, log = member.driver.node, member.driver.log
        assert offset > member.committed_offset, "a high watermark goes back"
        assert offset <= log.end_offset, "more is committed than is there"
        member.committed_offset = offset
        epoch = -1
        for batch in log.read(max(member.checked_offset, log.start_offset)):
            if batch.base_offset >= offset:
                break
            self._compare(member, batch)
            epoch = batch.leader_epoch
            member.checked_offset = batch.next_offset
        if isinstance(node.role, Leader) and offset > self.end_offset:
            assert epoch == node.epoch, f"a leader of epoch {node.epoch} commits by epoch {epoch}"
            self._held_by_majority(node.voters, offset, epoch)
            if self._commits and self._commits[-1].by_epoch == epoch:
                self._commits.pop()
            self._commits.append(Commit(epoch, offset))
        self.end_offset = max(self.end_offset, offset)

    def _compare(self, member: SimulatedMember, batch: RecordBatch) -> None:
        found = (batch.leader_epoch, batch.crc)
        known = self._committed.setdefault(batch.base_offset, found)
        assert known == found, (
            f"node {member.node_id} commits {found} at {batch.base_offset}; committed was {known}"
        )
        if batch.base_offset <= self.last_batch_offset:
            return
        self.last_batch_offset = batch.base_offset
        for record in batch.records() if batch.is_control else ():
            message = decode_control_message(record)
            if isinstance(message, VotersRecord):
                self._voters.append((record.offset, voter_set_of(message)))

    def _held_by_majority(self, voters: VoterSet, offset: int, epoch: int) -> None:
        """Check that what a leader commits is durable on more than half of the voters."""
        holding = 0
        for voter in voters:
            member = self._quorum.members[voter.voter_id]
            if member.key.directory_id == voter.directory_id:
                holding += holds_durably(member.disk, offset, epoch)
            if holding >= voters.majority:
                return
        raise AssertionError(f"{offset} is committed and durable on {holding} voters")

    def snapshot_written(self, snapshot_id: OffsetAndEpoch, content: SnapshotContent) -> None:
        """Check that a snapshot names the voters that are committed below its end."""
        below = [voters for offset, voters in self._voters if offset < snapshot_id.offset]
        if below:
            assert content.voters == below[-1], (
                f"the snapshot at {snapshot_id.offset} names the voters {content.voters}; "
                f"committed are {below[-1]}"
            )

    def loaded(self, member: SimulatedMember, snapshot_id: OffsetAndEpoch) -> None:
        """Check that a snapshot holds nothing uncommitted and takes nothing committed away."""
        assert snapshot_id.offset <= self.end_offset
        assert member.driver is not None
        assert snapshot_id.offset >= member.committed_offset, "a snapshot removes what is committed"
        content = member.driver.log.snapshot_reader(snapshot_id).content()
        self.snapshot_written(snapshot_id, content)
        self._quorum.check_state(snapshot_id, content.values)
        member.checked_offset = max(member.checked_offset, snapshot_id.offset)

    def cut(self, member: SimulatedMember, end_offset: int) -> None:
        """Check that only a follower loses records, and none that are committed."""
        assert member.driver is not None
        assert isinstance(member.driver.node.role, Follower), "a log is cut that follows no leader"
        assert end_offset >= member.committed_offset, "what is committed is cut"

    def appends(self, member: SimulatedMember) -> None:
        """Check that nothing is written over records that may come back."""
        assert not has_unsynced_cut(member.disk), "records are written over a cut not yet durable"

    def sent(self, source: SimulatedMember, request: Request) -> None:
        """Check what a member claims about its own disk."""
        assert source.driver is not None
        node, log = source.driver.node, source.driver.log
        if not isinstance(node.role, Leader):
            voters_offset = node._member.voters.latest_offset
            assert voters_offset < log.end_offset, (
                f"voters of offset {voters_offset} are in force; the log ends at {log.end_offset}"
            )
        if isinstance(request, Fetch):
            assert request.offset >= source.committed_offset, "what is committed is truncated"
            is_durable = not has_unsynced_records(source.disk) or holds_durably(
                source.disk, request.offset, request.last_epoch
            )
            assert is_durable, (
                f"node {source.node_id} acknowledges {request.offset} before it is durable"
            )
        elif isinstance(request, Vote) and not request.is_pre_vote:
            self._vote(source, request)

    def asked(self, source: SimulatedMember, target: SimulatedMember, request: Request) -> None:
        """Note when the leader last heard of a voter: also of a snapshot, or of its address."""
        if isinstance(request, (Fetch, FetchSnapshot, UpdateVoter)):
            self._fetched_ms[target.node_id, source.node_id] = self._quorum.clock.ms

    def answered(self, target: SimulatedMember, request: Request, response: Any) -> None:
        """Check that a disk gives one vote an epoch, and holds it."""
        if isinstance(request, Vote) and not request.is_pre_vote and response.is_granted:
            assert response.error is ErrorCode.NONE
            self._vote(target, request)
        if isinstance(request, Fetch) and response.error is ErrorCode.NONE:
            assert request.epoch == response.leader.epoch, "a fetch of another epoch is served"
            diverging = response.diverging
            assert diverging is None or diverging.offset >= request.high_watermark, (
                f"the leader of epoch {request.epoch} has another log from {diverging.offset} on "
                f"than node {request.replica.node_id}, where {request.high_watermark} is committed"
            )

    def _vote(self, member: SimulatedMember, request: Vote) -> None:
        disk, epoch, candidate = member.key.directory_id, request.epoch, request.candidate.node_id
        known = self._votes.setdefault((epoch, disk), candidate)
        assert known == candidate, f"{disk} votes for {known} and {candidate} in epoch {epoch}"
        stored = durable_election(member.disk)
        assert stored.leader_epoch >= epoch, f"a vote in epoch {epoch} is not durable"
        if stored.leader_epoch == epoch:
            assert stored.voted_id == candidate, f"stored is a vote for {stored.voted_id}"

    def elections_end(self) -> None:
        """Check that no member is a candidate of one epoch for longer than an election lasts."""
        now_ms, candidates = self._quorum.clock.ms, {}
        limit_ms = 4 * self._quorum.timeouts.election_ms
        for member in self._quorum.members.values():
            if member.driver is None or not isinstance(member.driver.node.role, Candidate):
                continue
            key = member.node_id, member.life, member.driver.node.epoch
            since_ms = candidates[key] = self._candidates.get(key, now_ms)
            assert now_ms - since_ms <= limit_ms, (
                f"node {member.node_id} is a candidate of epoch {key[2]} for {now_ms - since_ms} ms"
            )
        self._candidates = candidates

    def supported(self) -> None:
        """Check that each leader heard of a majority of its voters not long ago."""
        now_ms = self._quorum.clock.ms
        limit_ms = 2 * self._quorum.timeouts.check_quorum_ms
        for member in self._quorum.leaders():
            assert member.driver is not None
            voters = member.driver.node.voters
            heard = sum(
                voter.voter_id == member.node_id
                or now_ms - self._fetched_ms.get((member.node_id, voter.voter_id), 0) <= limit_ms
                for voter in voters
            )
            node = member.driver.node
            key = member.node_id, node.epoch, node._member.voters.latest_offset
            since_ms = now_ms - self._led_since_ms.setdefault(key, now_ms)
            assert heard >= voters.majority or since_ms <= limit_ms, (
                f"node {member.node_id} leads on although {heard} of {len(voters)} are there"
            )

    def agreed(self) -> None:
        """All members have the same log up to the end."""
        ends = set()
        for member in self._quorum.members.values():
            assert member.driver is not None
            log = member.driver.log
            ends.add((log.end_offset, log.log.high_watermark, log.epoch_at_end()))
        assert len(ends) == 1, f"the logs end differently: {ends}"
        self._voters_are_known_by_their_addresses()

    def _voters_are_known_by_their_addresses(self) -> None:
        leader = self._quorum.leaders()[0].driver
        assert leader is not None
        for known in leader.node.voters:
            port = self._quorum.members[known.voter_id].port
            assert [one.port for one in known.endpoints] == [port]


def state_at(snapshot_id: OffsetAndEpoch) -> list[bytes]:
    """Return what a snapshot holds in this simulation: enough for several parts."""
    return [f"state at {snapshot_id.offset} in {snapshot_id.leader_epoch}".encode() * 8]
