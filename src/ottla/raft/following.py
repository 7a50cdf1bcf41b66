"""The follower's side: find the leader, fetch from it, cut what diverges, take its snapshots.

A fetch acknowledges everything before its offset, so what was fetched is flushed before the next
one. Batches are written one after the other, each when the one before is durable: after a power cut
a valid batch proves that those before it are whole (`log_check`).

Kafka: the fetch methods of org.apache.kafka.raft.KafkaRaftClient (KIP-595, KIP-630).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from ottla.errors import CorruptMessage, ErrorCode
from ottla.raft.messages import (
    AnnounceSnapshot,
    AppendRecords,
    AppendRejected,
    RecordsAppended,
    RestartLog,
    SnapshotPartStored,
    SnapshotRejected,
    SnapshotVerified,
    StoreSnapshotPart,
    TruncateLog,
    VerifySnapshot,
)
from ottla.raft.requests import FIRST_BOOTSTRAP_ID, Fetch, FetchSnapshot
from ottla.raft.roles import Download, Follower
from ottla.raft.timeouts import FETCH_MAX_WAIT_MS, NEVER_MS, REFUSED_JITTER_MS
from ottla.records.batches import iterate_batches

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.raft.member import QuorumMember
    from ottla.raft.messages import Event
    from ottla.raft.requests import FetchResponse, FetchSnapshotResponse, Request
    from ottla.raft.roles import Unattached
    from ottla.raft.voter_set import VoterAddress
    from ottla.types import Buffer, OffsetAndEpoch

    Place: TypeAlias = tuple[int, tuple[VoterAddress, ...]]


class Following:
    """Keeps the log equal to the leader's."""

    __slots__ = ("_member", "_next_bootstrap")

    def __init__(self, member: QuorumMember) -> None:
        self._member = member
        self._next_bootstrap = 0

    # Polling: each method returns the next deadline

    def poll(self, role: Unattached | Follower, now_ms: int) -> int:
        """Look for the leader, or fetch from it."""
        if isinstance(role, Follower):
            return self._poll_follower(role, now_ms)
        # Look for the leader; a voter stands for election when that takes too long.
        member = self._member
        if not member.is_voter:
            return self._fetch_from_anyone(now_ms)
        if role.deadline_ms <= now_ms:
            member.become_prospective(now_ms)
            return now_ms
        return min(role.deadline_ms, self._fetch_from_anyone(now_ms))

    def _poll_follower(self, role: Follower, now_ms: int) -> int:
        """Fetch; a voter whose leader does not answer stands for election."""
        member, is_due = self._member, role.deadline_ms <= now_ms
        if is_due and member.is_voter and member.is_flushing:
            return NEVER_MS  # its own disk is slow, which could not take a vote either
        if is_due and member.is_voter:
            member.become_prospective(now_ms)
            return now_ms
        if is_due:  # it may be a voter without knowing it: its vote is no longer the leader's
            role.has_fetched = False
        if self._is_writing(role, now_ms):
            return NEVER_MS if is_due else role.deadline_ms
        if is_due:  # an observer searches for the leader
            role.snapshot = None
            return self._fetch_from_anyone(now_ms)
        leader_id = role.leader.leader_id
        ready_ms = member.in_flight.ready_ms(leader_id, now_ms)
        if ready_ms <= now_ms:
            member.send(leader_id, role.leader.endpoints, self._next_request(role), now_ms)
            ready_ms = now_ms + member.timeouts.request_ms
        return min(role.deadline_ms, ready_ms)

    def refused(self, node_id: int, now_ms: int) -> None:
        """Stand for election soon when no process listens at the leader's address any more.

        The pre-vote stays: the others grant it once the leader refuses them too.
        """
        role = self._member.role
        if isinstance(role, Follower) and role.leader.leader_id == node_id:
            role.has_fetched = False
            delay_ms = self._member.rng.randrange(REFUSED_JITTER_MS)
            role.deadline_ms = min(role.deadline_ms, now_ms + delay_ms)

    def flushed(self, role: Follower, now_ms: int) -> None:
        """Give the leader its time again when a flush, not the leader, has taken too long."""
        if role.deadline_ms <= now_ms:
            role.deadline_ms = now_ms + self._member.timeouts.fetch_ms

    def _is_writing(self, role: Follower, now_ms: int) -> bool:
        """Write what was fetched, one step after the other; return whether a step is under way."""
        member = self._member
        if role.snapshot is not None and member.is_storing:
            return True
        if member.durable_end_offset < member.log.end_offset:
            member.flush(now_ms)
            return True
        if role.unwritten:
            member.effects.append(AppendRecords(role.unwritten.popleft(), role.epoch))
            return True
        return False

    def _next_request(self, role: Follower) -> Request:
        member = self._member
        if role.snapshot is None:
            return self._fetch()
        download = role.snapshot
        return FetchSnapshot(member.key, role.epoch, download.snapshot_id, download.position)

    def _fetch(self) -> Fetch:
        member = self._member
        return Fetch(
            member.key,
            member.epoch,
            member.log.end_offset,
            member.log.epoch_at_end(),
            member.high_watermark,
            FETCH_MAX_WAIT_MS,
        )

    def _fetch_from_anyone(self, now_ms: int) -> int:
        """Fetch from one bootstrap server or voter after the other: the response names the leader.

        The log is flushed before: a leader counts the fetch offset as durable.
        """
        member = self._member
        if member.durable_end_offset < member.log.end_offset:
            member.flush(now_ms)
            return NEVER_MS
        if member.in_flight.has_any(now_ms):
            return now_ms + member.timeouts.request_ms
        places = self._places()
        due_ms = NEVER_MS
        for _ in places:
            node_id, endpoints = places[self._next_bootstrap % len(places)]
            self._next_bootstrap += 1
            ready_ms = member.in_flight.ready_ms(node_id, now_ms)
            if ready_ms <= now_ms:
                member.send(node_id, endpoints, self._fetch(), now_ms)
                return now_ms + member.timeouts.request_ms
            due_ms = min(due_ms, ready_ms)
        return due_ms

    def _places(self) -> list[Place]:
        """Return the nodes to fetch from, the leader among them.

        It need not be a bootstrap server, nor one of the voters that this log knows.
        """
        member = self._member
        if member.bootstrap_count:
            first = FIRST_BOOTSTRAP_ID
            places: list[Place] = [(first - number, ()) for number in range(member.bootstrap_count)]
        else:
            own_id, voters = member.key.node_id, member.voters.latest
            places = [
                (voter.voter_id, voter.endpoints) for voter in voters if voter.voter_id != own_id
            ]
        leader = member.leader
        if not leader.endpoints or leader.leader_id in {node_id for node_id, _ in places}:
            return places
        return [*places, (leader.leader_id, leader.endpoints)]

    # Responses

    def fetched(self, request: Fetch, response: FetchResponse, now_ms: int) -> None:
        """Apply what the leader answered to a fetch."""
        member, role = self._member, self._member.role
        if not isinstance(role, Follower) or request.epoch != role.epoch:
            return
        if not role.is_ended:
            role.deadline_ms = now_ms + member.timeouts.fetch_ms
            role.has_fetched = True
        if role.unwritten or role.snapshot is not None or not self._is_at_end(request):
            return  # the response to another fetch came first
        if response.diverging is not None:
            self._truncate(member.log.truncation_offset(response.diverging))
            return
        if response.snapshot_id is not None:
            role.snapshot = Download(response.snapshot_id)
            return
        role.leader_high_watermark = response.high_watermark
        role.unwritten.extend(_batches(response.records))
        if not role.unwritten:
            self._raise_high_watermark(role)

    def _is_at_end(self, request: Fetch) -> bool:
        log = self._member.log
        return (request.offset, request.last_epoch) == (log.end_offset, log.epoch_at_end())

    def _truncate(self, end_offset: int) -> None:
        """Cut the log: what was flushed of the removed part confirms nothing any more.

        The cut itself is flushed before records are written over the removed ones: after a power
        cut these would follow a torn batch, and prove that it is damaged.
        """
        member = self._member
        member.truncation_count += 1
        member.durable_end_offset = min(member.durable_end_offset, end_offset - 1)
        member.voters.truncate(end_offset)
        member.effects.append(TruncateLog(end_offset))

    def _raise_high_watermark(self, role: Follower) -> None:
        if role.leader_high_watermark >= 0:
            known = min(role.leader_high_watermark, self._member.log.end_offset)
            self._member.raise_high_watermark(known)

    def stored(self, event: Event, now_ms: int) -> None:
        """Go on after records or a part of a snapshot were written, or refused."""
        match event:
            case RecordsAppended(control):
                # Go on after the leader's records are in the log.
                for offset, message in control:
                    self._member.voters.apply(offset, message)
                if isinstance(self._member.role, Follower):
                    self._raise_high_watermark(self._member.role)
            case AppendRejected():
                self._rejected(now_ms)
            case SnapshotPartStored(snapshot_id):
                # Ask for the next part, or have the whole file checked.
                member, download = self._member, self._download(snapshot_id)
                if download is not None and 0 < download.size_bytes <= download.position:
                    member.effects.append(VerifySnapshot(snapshot_id))
                else:
                    member.is_storing = False
            case SnapshotVerified():
                self._verified(event)
            case SnapshotRejected(snapshot_id):
                # Fetch again after a while: the snapshot was damaged on its way.
                role = self._member.role
                self._member.is_storing = False
                if isinstance(role, Follower) and self._download(snapshot_id) is not None:
                    role.snapshot = None
                    self._rejected(now_ms)

    def _rejected(self, now_ms: int) -> None:
        """Fetch again after a while: the records were damaged on their way."""
        role = self._member.role
        if isinstance(role, Follower):
            role.unwritten.clear()
            self._member.in_flight.pause(role.leader.leader_id, now_ms)

    # Snapshots

    def snapshot_fetched(
        self, request: FetchSnapshot, response: FetchSnapshotResponse, now_ms: int
    ) -> None:
        """Store a part of a snapshot, and install it when it is whole."""
        member, role = self._member, self._member.role
        if not isinstance(role, Follower) or request.epoch != role.epoch:
            return
        role.deadline_ms = now_ms + member.timeouts.fetch_ms
        download = role.snapshot
        if download is None or request.snapshot_id != download.snapshot_id:
            return
        is_served = response.error is ErrorCode.NONE and len(response.data) > 0
        if not is_served:  # the leader no longer has it, or a part of it: fetch again after a pause
            role.snapshot = None
            member.in_flight.pause(role.leader.leader_id, now_ms)
            return
        if response.position != download.position:
            return
        member.is_storing = True
        part = StoreSnapshotPart(download.snapshot_id, download.position, response.data)
        member.effects.append(part)
        download.position += len(response.data)
        download.size_bytes = response.size_bytes

    def _download(self, snapshot_id: OffsetAndEpoch) -> Download | None:
        role = self._member.role
        if not isinstance(role, Follower) or role.snapshot is None:
            return None
        return role.snapshot if role.snapshot.snapshot_id == snapshot_id else None

    def _verified(self, event: SnapshotVerified) -> None:
        """Continue at the snapshot's end, which is committed and durable.

        A node that no longer follows that leader keeps its log.
        """
        member, role = self._member, self._member.role
        member.is_storing = False
        if self._download(event.snapshot_id) is None or not isinstance(role, Follower):
            return
        role.snapshot = None
        end_offset = event.snapshot_id.offset
        member.truncation_count += 1
        member.durable_end_offset = end_offset
        voters = event.voters or member.voters.configured
        member.voters.restart(end_offset, voters, event.kraft_version)
        member.effects += [RestartLog(event.snapshot_id), AnnounceSnapshot(event.snapshot_id)]
        member.raise_high_watermark(end_offset)


def _batches(records: Buffer) -> Iterator[Buffer]:
    """Yield the batches of a response one by one; a damaged rest is left to the log to refuse."""
    view = memoryview(records)
    try:
        for batch in iterate_batches(view, partial_tail=True):
            yield batch.buffer
    except CorruptMessage:
        yield view
