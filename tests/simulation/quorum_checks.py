"""What must hold in every quorum: one leader an epoch, one vote, nothing committed ever changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.errors import ErrorCode
from ottla.raft.requests import Vote

if TYPE_CHECKING:
    from ottla.raft.requests import Request
    from ottla.types import OffsetAndEpoch, Uuid
    from tests.simulation.quorum import SimulatedMember, SimulatedQuorum


class QuorumChecks:
    """Raises AssertionError at the first event after which an invariant does not hold."""

    def __init__(self, quorum: SimulatedQuorum) -> None:
        self._quorum = quorum
        self._leaders: dict[int, int] = {}
        self._votes: dict[tuple[int, Uuid], int] = {}
        self._committed: dict[int, tuple[int, int]] = {}
        """Base offset of a committed batch → (epoch, checksum)."""
        self._next: dict[int, int] = {}
        """Base offset of a committed batch → the next one's."""
        self.end_offset = 0
        """The highest offset that any member knows as committed."""

    def led(self, member: SimulatedMember, epoch: int) -> None:
        """No two nodes lead one epoch; a leader has all that is committed."""
        known = self._leaders.setdefault(epoch, member.node_id)
        assert known == member.node_id, f"{known} and {member.node_id} lead epoch {epoch}"
        assert member.driver is not None
        end_offset = member.driver.log.end_offset
        assert end_offset >= self.end_offset, (
            f"{member.node_id} leads epoch {epoch} with a log that ends at {end_offset}; "
            f"{self.end_offset} is committed"
        )

    def committed(self, member: SimulatedMember, offset: int) -> None:
        """Check that every node commits the same at the same offsets."""
        assert member.driver is not None
        log = member.driver.log
        assert offset <= log.end_offset, "more is committed than is there"
        position = max(member.checked_offset, log.start_offset)
        for batch in log.read(position):
            if batch.base_offset >= offset:
                break
            found = (batch.leader_epoch, batch.crc)
            known = self._committed.setdefault(batch.base_offset, found)
            assert known == found, (
                f"node {member.node_id} commits {found} at {batch.base_offset}; "
                f"committed was {known}"
            )
            member.checked_offset = batch.next_offset
        self.end_offset = max(self.end_offset, offset)

    def loaded(self, member: SimulatedMember, snapshot_id: OffsetAndEpoch) -> None:
        """Check that a snapshot holds nothing that is not committed."""
        assert snapshot_id.offset <= self.end_offset
        member.checked_offset = snapshot_id.offset

    def asked(self, source: SimulatedMember, request: Request) -> None:
        """Count the vote that a candidate gives itself."""
        if isinstance(request, Vote) and not request.is_pre_vote and source.driver is not None:
            self._vote(source.key.directory_id, request.epoch, request.candidate.node_id)

    def answered(self, target: SimulatedMember, request: Request, response: Any) -> None:
        """Check that a disk gives one vote an epoch."""
        if isinstance(request, Vote) and not request.is_pre_vote and response.is_granted:
            assert response.error is ErrorCode.NONE
            self._vote(target.key.directory_id, request.epoch, request.candidate.node_id)

    def _vote(self, disk: Uuid, epoch: int, candidate: int) -> None:
        known = self._votes.setdefault((epoch, disk), candidate)
        assert known == candidate, f"{disk} votes for {known} and {candidate} in epoch {epoch}"

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
