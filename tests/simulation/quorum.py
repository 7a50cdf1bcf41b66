"""A quorum in virtual time: real members over simulated disks and a network that loses messages.

Every event (a message, a worker's job, a timer, a fault) is an entry of one heap; the seed decides
everything else. `QuorumChecks` looks at what the members announce.
"""

from __future__ import annotations

import errno
import zlib
from collections import Counter
from heapq import heappop, heappush
from random import Random
from typing import TYPE_CHECKING, Any

from ottla.errors import ErrorCode, KafkaError
from ottla.purgatory.pending import Pending
from ottla.raft.driver import RaftDriver
from ottla.raft.leader import Leader
from ottla.raft.member import MemberSettings
from ottla.raft.node import RaftNode
from ottla.raft.quorum_state import QuorumStateStore
from ottla.raft.replicated_log import ReplicatedLog
from ottla.raft.requests import FIRST_BOOTSTRAP_ID, AddVoter, Fetch, RemoveVoter, ReplicaKey
from ottla.raft.snapshot import decode_snapshot, encode_snapshot
from ottla.raft.timeouts import QuorumTimeouts
from ottla.raft.voter_set import Voter, VoterAddress, VoterHistory, VoterSet, decode_control_message
from ottla.storage.layout import METADATA_LOG
from ottla.testing.disk import SimulatedCrash, SimulatedDisk
from ottla.types import OffsetAndEpoch, Uuid
from tests.simulation.quorum_checks import QuorumChecks, state_at
from tests.simulation.quorum_faults import (
    DriftingClock,
    SimulatedClock,
    latency_ms,
    rotten,
    twin_request,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.raft.requests import LeaderAndEpoch, Request
    from ottla.raft.voter_set import ControlMessage
    from ottla.types import Buffer

SNAPSHOT_PART_BYTES = 300
MAX_EVENTS_PER_MS = 2000


def directory_id(node_id: int, disk_number: int = 0) -> Uuid:
    """Return the id of a node's disk."""
    return Uuid(bytes([node_id, disk_number]) * 8)


def voter(node_id: int, disk_number: int = 0) -> Voter:
    """Return a voter with the address by which the network knows it."""
    endpoint = VoterAddress("CONTROLLER", f"node{node_id}", 9093)
    return Voter(node_id, directory_id(node_id, disk_number), (endpoint,))


class CheckedLog(ReplicatedLog):
    """A log that reports what is cut off it."""

    __slots__ = ("member",)
    member: SimulatedMember

    def append(self, data: Buffer, *, epoch: int, now_ms: int) -> None:
        """Write a leader's batch."""
        self.member.quorum.checks.appends(self.member)
        super().append(data, epoch=epoch, now_ms=now_ms)

    def append_replicated(
        self, data: Buffer, *, epoch: int, now_ms: int
    ) -> list[tuple[int, ControlMessage]]:
        """Write batches of the leader."""
        self.member.quorum.checks.appends(self.member)
        return super().append_replicated(data, epoch=epoch, now_ms=now_ms)

    def truncate_to(self, offset: int, *, now_ms: int) -> None:
        """Cut the end off."""
        self.member.quorum.checks.cut(self.member, offset)
        super().truncate_to(offset, now_ms=now_ms)

    def restart_at(self, snapshot_id: OffsetAndEpoch, *, now_ms: int) -> None:
        """Cut all of it."""
        self.member.quorum.checks.cut(self.member, snapshot_id.offset)
        super().restart_at(snapshot_id, now_ms=now_ms)


class SimulatedMember:
    """One node: its disk outlives its processes."""

    def __init__(self, quorum: SimulatedQuorum, node_id: int) -> None:
        self.quorum = quorum
        self.node_id = node_id
        self.disk_number = 0
        self.disk = self._new_disk()
        self.life = 0
        self.driver: RaftDriver | None = None
        self.port = 9093
        self.clock = DriftingClock(quorum.clock, quorum.rng, drifts=False)
        self.checked_offset = 0
        """All below was compared with what others committed."""
        self.committed_offset = -1
        """The high watermark that this process announced."""
        self.is_told_to_lead = False
        self.loaded_count = 0
        """Snapshots that were fetched from a leader."""
        self._tick_ms = -1
        self._offered = 0

    @property
    def is_alive(self) -> bool:
        """Whether its process runs."""
        return self.driver is not None

    @property
    def key(self) -> ReplicaKey:
        """Its id with its disk's."""
        return ReplicaKey(self.node_id, directory_id(self.node_id, self.disk_number))

    def start(self) -> None:
        """Recover the log and take part."""
        quorum = self.quorum
        self.life += 1
        self._tick_ms = -1
        self.committed_offset = -1
        self.is_told_to_lead = False
        self.clock = DriftingClock(quorum.clock, quorum.rng, drifts=quorum.clocks_drift)
        self.disk.make(METADATA_LOG)
        self.disk.sync()  # as formatting does
        log = CheckedLog.open(self.disk, now_ms=quorum.clock.ms)
        assert isinstance(log, CheckedLog)
        log.member = self
        store = QuorumStateStore(self.disk, METADATA_LOG)
        bootstrap_count = 0 if self.node_id in quorum.first_voters else len(quorum.first_voters)
        endpoints = (VoterAddress("CONTROLLER", f"node{self.node_id}", self.port),)
        node = RaftNode(
            MemberSettings(
                self.key, endpoints, bootstrap_count, quorum.timeouts, quorum.joins_by_itself
            ),
            log=log,
            voters=self._voters(log),
            election=store.read_at_start(
                log_end_offset=log.end_offset, epoch_at_end=log.epoch_at_end()
            ),
            rng=Random(f"{quorum.seed}-{self.node_id}-{self.life}"),
            now_ms=self.clock.monotonic_ms(),
            wall_ms=self.clock.now_ms,
        )
        self.checked_offset = log.start_offset
        self.driver = self.make_driver(node, log, store)
        quorum.checks.started(self)
        quorum.happen(0, self._tick, self.life)

    def make_driver(
        self, node: RaftNode, log: ReplicatedLog, store: QuorumStateStore
    ) -> RaftDriver:
        """Connect machine and log."""
        return RaftDriver(
            node,
            log,
            store,
            clock=self.clock,
            run_in_worker=self.run_in_worker,
            listener=self,
            send=self.send,
            on_deadline=self.on_deadline,
            part_bytes=SNAPSHOT_PART_BYTES,
        )

    def _voters(self, log: ReplicatedLog) -> VoterHistory:
        history = VoterHistory(VoterSet(map(voter, self.quorum.first_voters)), 1)
        found = log.checked_snapshot
        position = 0
        if found is not None:
            position = found[0].offset
            history.restart(position, found[1].voters or history.configured, found[1].kraft_version)
        for batch in log.read(max(position, log.start_offset)):
            if batch.is_control:
                for record in batch.records():
                    history.apply(record.offset, decode_control_message(record))
        return history

    def replace_disk(self) -> None:
        """Come back with an empty disk, formatted to join the quorum."""
        self.stop(power_cut=True)
        self.disk_number += 1
        self.disk = self._new_disk()
        self.start()

    def _new_disk(self) -> SimulatedDisk:
        disk = SimulatedDisk(self.quorum.rng.randrange(1 << 30))
        disk.cold_probability = self.quorum.cold_probability
        return disk

    def stop(self, *, power_cut: bool) -> None:
        """End the process, with the power or alone."""
        self.driver = None
        self.life += 1
        if power_cut:
            self.disk.crash()
        else:
            self.disk.kill()

    def guarded(self, life: int, action: Callable[..., None], *arguments: Any) -> None:
        """Do something in this process, if it still runs; a crash of the disk ends it."""
        if life != self.life or self.driver is None:
            return
        try:
            action(*arguments)
        except SimulatedCrash:
            self.stop(power_cut=True)
            self.quorum.restart_later(self)
        except OSError:
            self._halt(life)

    def _halt(self, life: int) -> None:
        """End the process after an error of the disk, as a node does."""
        if life == self.life and self.driver is not None:
            assert self.quorum.disks_fill_up
            self.stop(power_cut=False)
            self.quorum.restart_later(self)

    # What the driver asks for

    def _tick(self, life: int) -> None:
        if self.driver is not None:
            self.guarded(life, self.driver.tick)

    def on_deadline(self, due_ms: int) -> None:
        now_ms = self.clock.monotonic_ms()
        if due_ms >= 1 << 61 or now_ms < self._tick_ms <= due_ms:
            return
        self._tick_ms = max(due_ms, now_ms + 1)
        self.quorum.happen(self.clock.true_delay_ms(self._tick_ms), self._tick, self.life)

    def run_in_worker(
        self, job: Callable[[], Any], done: Callable[[Any, Exception | None], None]
    ) -> None:
        life = self.life

        def run() -> None:
            try:
                result = job()
            except (OSError, KafkaError) as error:
                done(None, error)
            else:
                done(result, None)

        self.quorum.happen(self.quorum.disk_latency_ms(), self.guarded, life, run)

    def send(self, node_id: int, _endpoints: object, request: Request) -> Pending[Any]:
        if node_id <= FIRST_BOOTSTRAP_ID:
            node_id = self.quorum.first_voters[FIRST_BOOTSTRAP_ID - node_id]
        self.quorum.checks.sent(self, request)
        return self.quorum.exchange(self, self.quorum.members[node_id], request)

    # What the driver announces

    def became_leader(self, epoch: int, _epoch_start_offset: int, /) -> None:
        """Check that no other node led this epoch, and that all that is committed is here."""
        self.is_told_to_lead = True
        self.quorum.checks.led(self, epoch)

    def batch_appended(self, last_offset: int, size_bytes: int, /) -> None:
        """Note it in the trace."""
        self.quorum.note(f"{self.node_id} appended {last_offset} {size_bytes}")

    def high_watermark_moved(self, offset: int, /) -> None:
        """Compare what is committed here with what is committed elsewhere."""
        self.quorum.note(f"{self.node_id} committed {offset}")
        self.quorum.checks.committed(self, offset)

    def epoch_changed(self, leader: LeaderAndEpoch, /) -> None:
        """Note it in the trace."""
        self.quorum.note(f"{self.node_id} epoch {leader.epoch} leader {leader.leader_id}")

    def snapshot_loaded(self, snapshot_id: OffsetAndEpoch, /) -> None:
        """Its content was committed; a leader has it, and is not asked to load it."""
        assert not self.is_told_to_lead, "a leader that knows that it leads loads a snapshot"
        self.loaded_count += 1
        self.quorum.note(f"{self.node_id} snapshot {snapshot_id.offset}")
        self.quorum.checks.loaded(self, snapshot_id)

    def resigned(self, epoch: int, /) -> None:
        """Note it in the trace."""
        self.is_told_to_lead = False
        self.quorum.note(f"{self.node_id} resigned {epoch}")

    def failed(self, error: Exception) -> None:
        """End the process when its disk is full; there are no other errors but crashes."""
        if not self.quorum.disks_fill_up:
            raise AssertionError(f"node {self.node_id} failed: {error!r}") from error
        self.quorum.note(f"{self.node_id} failed")
        self.quorum.happen(0, self._halt, self.life)

    # What its controller does

    def offer(self) -> None:
        """Offer a record, if this node leads."""
        if self.driver is None or not isinstance(self.driver.node.role, Leader):
            return
        self._offered += 1
        value = f"{self.node_id}.{self.life}.{self._offered}".encode()
        self.driver.offer([value] * self.quorum.rng.randrange(1, 4), self.quorum.clock.ms)

    def change_voters(self) -> None:
        """Add an observer as a voter, or remove a voter, if this node leads."""
        if self.driver is None or not isinstance(self.driver.node.role, Leader):
            return
        rng, voters = self.quorum.rng, self.driver.node.voters
        other = rng.choice(list(self.quorum.members.values()))
        if voters.get(other.node_id) is None:
            added = Voter(other.node_id, other.key.directory_id, voter(other.node_id).endpoints)
            request: AddVoter | RemoveVoter = AddVoter(added, rng.random() < 0.5, 5000)
        elif len(voters) > 2 or (len(voters) == 2 and other is not self):
            request = RemoveVoter(other.key)
        else:
            return
        self.driver.request(request).on_done(self._voters_changed)

    def _voters_changed(self, done: Pending[Any]) -> None:
        code = done.value.error.name
        self.quorum.voter_changes[code] += 1
        self.quorum.note(f"{self.node_id} voters {code}")

    def write_snapshot(self) -> None:
        """Write a snapshot of what is committed, and let go of the log before it."""
        driver = self.driver
        if driver is None:
            return
        offset = driver.log.log.high_watermark
        latest = driver.log.latest_snapshot
        if offset <= driver.log.start_offset or (latest and latest.offset >= offset):
            return
        epoch = driver.log.log.leader_epochs.epoch_for_offset(offset - 1)
        quorum = driver.node.quorum_at(offset)
        snapshot_id = OffsetAndEpoch(offset, epoch)
        data = encode_snapshot(
            state_at(snapshot_id),
            now_ms=self.quorum.clock.ms,
            leader_epoch=epoch,
            kraft_version=quorum.kraft_version,
            voters=quorum.voters,
        )
        self.quorum.checks.snapshot_written(snapshot_id, decode_snapshot(data))
        write, written = driver.log.snapshot_writer(snapshot_id, [data])
        write()
        written()
        if self.quorum.rng.random() < 0.7:
            driver.log.clean(now_ms=self.quorum.clock.ms, max_bytes=0, max_age_ms=-1)


class SimulatedQuorum:
    """All members, the network and the time."""

    member_class = SimulatedMember

    def __init__(
        self, seed: int, *, voters: int = 3, observers: int = 1, joins_by_itself: bool = False
    ) -> None:
        """joins_by_itself is controller.quorum.auto.join.enable of all members."""
        self.seed = seed
        self.joins_by_itself = joins_by_itself
        self.clocks_drift = seed % 4 == 1
        self.disks_fill_up = seed % 6 == 4
        self.cold_probability = (0.0, 0.0, 0.3, 1.0)[seed % 4]
        """How often a read of a log has to wait for the disk."""
        self.rot_probability = 0.0
        """Of a flipped bit in a response."""
        self.late_probability = 0.0
        """Of a message that takes longer than anyone waits."""
        self.voter_change_probability = 0.0
        self.snapshot_probability = 0.02
        self.has_twins = seed % 7 == 3
        """Whether processes with the id and directory of each member are about."""
        self.twin_rng = Random(f"{seed}/twins")
        self.rng = Random(seed)
        self.clock = SimulatedClock()
        self.timeouts = QuorumTimeouts()
        self.first_voters = list(range(1, voters + 1))
        self.checks = QuorumChecks(self)
        self.members: dict[int, SimulatedMember] = {
            node_id: self.member_class(self, node_id)
            for node_id in range(1, voters + observers + 1)
        }
        self.events = 0
        self.events_of_ms = 0
        self.drop_probability = 0.0
        self.duplicate_probability = 0.0
        self.slow_disk_probability = 0.0
        self.cut: set[tuple[int, int]] = set()
        """Links on which nothing passes, as (from, to)."""
        self.trace = 0
        self.voter_changes: Counter[str] = Counter()
        """Answers to changes of the voters, by name of the error."""
        self._heap: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = 0
        for member in self.members.values():
            member.start()

    def note(self, text: str) -> None:
        """Add a line to the trace, of which only a checksum is kept."""
        self.trace = zlib.crc32(f"{self.clock.ms} {text}".encode(), self.trace)

    def happen(self, delay_ms: int, action: Callable[..., None], *arguments: Any) -> None:
        """Let something happen after a while."""
        self._count += 1
        heappush(self._heap, (self.clock.ms + delay_ms, self._count, action, arguments))

    def step(self) -> None:
        """Let the next event happen."""
        at_ms, _, action, arguments = heappop(self._heap)
        self.events_of_ms = self.events_of_ms + 1 if at_ms == self.clock.ms else 0
        assert self.events_of_ms < MAX_EVENTS_PER_MS, "the members are busy without end"
        self.clock.ms = at_ms
        self.events += 1
        action(*arguments)

    def run(self, duration_ms: int) -> None:
        """Let time pass."""
        end_ms = self.clock.ms + duration_ms
        while self._heap and self._heap[0][0] <= end_ms:
            self.step()
        self.clock.ms = end_ms

    def disk_latency_ms(self) -> int:
        """Return how long a worker takes."""
        if self.rng.random() < self.slow_disk_probability:
            return self.rng.randrange(100, 3000)
        return self.rng.randrange(1, 8)

    # The network

    def exchange(
        self, source: SimulatedMember, target: SimulatedMember, request: Request
    ) -> Pending[Any]:
        """Carry a request and its response; either may be lost, late or come twice."""
        pending: Pending[Any] = Pending()
        life = source.life

        def respond(done: Pending[Any]) -> None:
            self.checks.answered(target, request, done.value)
            if self._passes(target.node_id, source.node_id):
                response = done.value
                if self.rng.random() < self.rot_probability:
                    response = rotten(response, self.rng)
                self.happen(self._latency_ms(), source.guarded, life, _complete, pending, response)

        def arrive() -> None:
            if target.driver is None:
                self.happen(1, source.guarded, life, _refuse, pending)
                return
            self.checks.asked(source, target, request)
            target.driver.request(request).on_done(respond)
            if self.has_twins and isinstance(request, Fetch) and target.driver is not None:
                twin = twin_request(request, target.key, target.driver.log, self.twin_rng)
                target.driver.request(twin)

        if self._passes(source.node_id, target.node_id):
            for _ in range(1 + (self.rng.random() < self.duplicate_probability)):
                self.happen(self._latency_ms(), self._deliver, target, arrive)
        return pending

    def _deliver(self, target: SimulatedMember, arrive: Callable[[], None]) -> None:
        try:
            arrive()
        except SimulatedCrash:
            target.stop(power_cut=True)
            self.restart_later(target)

    def _passes(self, source: int, target: int) -> bool:
        return (source, target) not in self.cut and self.rng.random() >= self.drop_probability

    def _latency_ms(self) -> int:
        return latency_ms(self.rng, self.late_probability)

    # Faults

    def restart_later(self, member: SimulatedMember) -> None:
        """Start a node again after a while."""
        life = member.life
        self.happen(self.rng.randrange(1, 6000), self._restart, member, life)

    def _restart(self, member: SimulatedMember, life: int) -> None:
        if member.life != life or member.is_alive:
            return
        try:
            member.start()
        except OSError:  # the disk is still full
            assert self.disks_fill_up
            member.stop(power_cut=False)
            self.restart_later(member)

    def fault(self) -> None:
        """Do one thing of a bad day."""
        rng = self.rng
        member = rng.choice(list(self.members.values()))
        kind = rng.randrange(11)
        if kind <= 1 and member.is_alive:
            member.stop(power_cut=kind == 0)
            member.port += rng.random() < 0.2
            self.restart_later(member)
        elif kind == 2 and member.is_alive:
            member.disk.crash_at(member.disk.calls + rng.randrange(1, 30))
        elif kind == 3:
            self.cut = {
                (one, other)
                for one in self.members
                for other in self.members
                if one != other and rng.random() < 0.3
            }
        elif kind == 4:
            side = set(rng.sample(sorted(self.members), rng.randrange(1, len(self.members))))
            self.cut = {
                (one, other)
                for one in self.members
                for other in self.members
                if (one in side) != (other in side)
            }
        elif kind == 5:
            self.cut = set()
        elif kind == 8:
            self.rot_probability = rng.choice([0.0, 0.05, 0.3])
        elif kind == 9:
            self.late_probability = rng.choice([0.0, 0.05, 0.3])
        elif kind == 10 and self.disks_fill_up:
            member.disk.fail(lambda _: True, errno.ENOSPC, times=rng.randrange(1, 12))
        elif kind == 6:
            self.drop_probability = rng.choice([0.0, 0.05, 0.3])
            self.duplicate_probability = rng.choice([0.0, 0.1])
        else:
            self.slow_disk_probability = rng.choice([0.0, 0.0, 0.2])

    def heal(self) -> None:
        """End all faults; nodes that are down come back."""
        self.cut = set()
        self.drop_probability = self.duplicate_probability = self.slow_disk_probability = 0.0
        self.rot_probability = self.late_probability = 0.0
        for member in self.members.values():
            member.disk.heal()
            if not member.is_alive:
                member.start()

    def work(self) -> None:
        """Let controllers offer records and at intervals write snapshots."""
        for member in self.members.values():
            member.guarded(member.life, member.offer)
            if self.rng.random() < self.snapshot_probability:
                member.guarded(member.life, member.write_snapshot)
            if self.rng.random() < self.voter_change_probability:
                member.guarded(member.life, member.change_voters)
        self.checks.supported()
        self.checks.elections_end()

    def check_state(self, snapshot_id: OffsetAndEpoch, values: list[bytes]) -> None:
        """Check what a fetched snapshot holds."""
        assert values == state_at(snapshot_id)

    def leaders(self) -> list[SimulatedMember]:
        """Return the members that lead."""
        return [
            member
            for member in self.members.values()
            if member.driver is not None and isinstance(member.driver.node.role, Leader)
        ]


def _complete(pending: Pending[Any], response: Any) -> None:
    if not pending.done:  # of two copies the first counts
        pending.complete(response)


def _refuse(pending: Pending[Any]) -> None:
    if not pending.done:
        pending.fail(KafkaError(ErrorCode.BROKER_NOT_AVAILABLE))
