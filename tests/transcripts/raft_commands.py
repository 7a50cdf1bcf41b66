"""The commands of the quorum's transcripts: real members, messages that are delivered by hand."""

from __future__ import annotations

from collections import deque
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.errors import ErrorCode, KafkaError
from ottla.purgatory.pending import Pending
from ottla.raft.driver import RaftDriver
from ottla.raft.member import MemberSettings
from ottla.raft.node import RaftNode
from ottla.raft.quorum_state import QuorumStateStore
from ottla.raft.replicated_log import ReplicatedLog
from ottla.raft.requests import (
    BeginQuorumEpoch,
    EndQuorumEpoch,
    Fetch,
    FetchResponse,
    FetchSnapshot,
    FetchSnapshotResponse,
    ReplicaKey,
    Vote,
    VoteResponse,
)
from ottla.raft.snapshot import encode_snapshot
from ottla.raft.timeouts import QuorumTimeouts
from ottla.raft.voter_set import VoterHistory, VoterSet, decode_control_message
from ottla.storage.layout import METADATA_LOG
from ottla.testing.disk import SimulatedDisk
from ottla.types import OffsetAndEpoch
from tests.simulation.quorum import directory_id, voter
from tests.simulation.quorum_faults import SimulatedClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.raft.requests import LeaderAndEpoch

PART_BYTES = 200
MAX_DELIVERIES = 300


class Message(NamedTuple):
    """A request, or a response when there is one, on its way."""

    source: int
    target: int
    request: Any
    pending: Pending[Any]
    response: Any = None


class Member:
    """A node; its disk outlives its processes."""

    def __init__(self, world: Transcript, node_id: int) -> None:
        self.world = world
        self.node_id = node_id
        self.disk = SimulatedDisk(node_id)
        self.driver: RaftDriver | None = None

    def start(self) -> None:
        """Recover the log and take part."""
        world = self.world
        log = ReplicatedLog.open(self.disk, now_ms=world.clock.ms)
        store = QuorumStateStore(self.disk, METADATA_LOG)
        voters = VoterHistory(VoterSet(map(voter, world.voters)), 1)
        for batch in log.read(log.start_offset):
            for record in batch.records() if batch.is_control else ():
                voters.apply(record.offset, decode_control_message(record))
        bootstrap_count = 0 if self.node_id in world.voters else len(world.voters)
        key = ReplicaKey(self.node_id, directory_id(self.node_id))
        settings = MemberSettings(
            key, voter(self.node_id).endpoints, bootstrap_count, QuorumTimeouts()
        )
        election = store.read_at_start(
            log_end_offset=log.end_offset, epoch_at_end=log.epoch_at_end()
        )
        node = RaftNode(
            settings,
            log=log,
            voters=voters,
            election=election,
            rng=Random(self.node_id),
            now_ms=world.clock.ms,
            wall_ms=world.clock.now_ms,
        )
        self.driver = RaftDriver(
            node,
            log,
            store,
            clock=world.clock,
            run_in_worker=world.run_in_worker,
            listener=self,
            send=self._send,
            on_deadline=lambda _: None,
            part_bytes=PART_BYTES,
        )

    def _send(self, node_id: int, _endpoints: object, request: Any) -> Pending[Any]:
        target = self.world.voters[-2 - node_id] if node_id < 0 else node_id
        pending: Pending[Any] = Pending()
        self.world.network.append(Message(self.node_id, target, request, pending))
        return pending

    def became_leader(self, epoch: int, start_offset: int, /) -> None:
        self.world.say(f"{self.node_id} leads epoch {epoch}, which begins at {start_offset}")

    def batch_appended(self, last_offset: int, _size_bytes: int, /) -> None:
        self.world.say(f"{self.node_id} writes up to {last_offset}")

    def high_watermark_moved(self, offset: int, /) -> None:
        self.world.say(f"{self.node_id} high watermark {offset}")

    def epoch_changed(self, leader: LeaderAndEpoch, /) -> None:
        name = f"leader {leader.leader_id}" if leader.leader_id >= 0 else "no leader"
        self.world.say(f"{self.node_id} epoch {leader.epoch}, {name}")

    def snapshot_loaded(self, snapshot_id: OffsetAndEpoch, /) -> None:
        self.world.say(f"{self.node_id} begins at the snapshot {_position(snapshot_id)}")

    def resigned(self, epoch: int, /) -> None:
        self.world.say(f"{self.node_id} leads epoch {epoch} no more")

    def failed(self, error: Exception) -> None:
        self.world.say(f"{self.node_id} failed: {error}")


class Transcript:
    """Members by number; `run` executes a command and returns its trace."""

    def __init__(self) -> None:
        self.trace: list[str] = []
        self.do_new()

    def run(self, command: str) -> list[str]:
        verb, *words = command.split()
        options = dict(word.split("=", 1) for word in words if "=" in word)
        names = [word for word in words if "=" not in word]
        self.trace = []
        getattr(self, "do_" + verb)(*names, **options)
        return self.trace

    def say(self, text: str) -> None:
        self.trace.append(text)

    def run_in_worker(
        self, job: Callable[[], Any], done: Callable[[Any, Exception | None], None]
    ) -> None:
        self.jobs.append(lambda: done(job(), None))

    def _settle(self) -> None:
        """Let the workers finish."""
        while self.jobs:
            self.jobs.popleft()()

    def _running(self) -> list[RaftDriver]:
        return [one.driver for one in self.members.values() if one.driver is not None]

    def _driver(self, number: str) -> RaftDriver:
        driver = self.members[int(number)].driver
        assert driver is not None
        return driver

    # The quorum

    def do_new(self, voters: str = "3", observers: str = "0") -> None:
        self.clock = SimulatedClock()
        self.jobs: deque[Callable[[], None]] = deque()
        self.network: deque[Message] = deque()
        self.away: set[int] = set()
        self.voters = list(range(1, int(voters) + 1))
        count = int(voters) + int(observers)
        self.members = {number: Member(self, number) for number in range(1, count + 1)}
        for member in self.members.values():
            member.start()

    def do_advance(self, delay_ms: str) -> None:
        """Let time pass; then everyone does what is due."""
        self.clock.ms += int(delay_ms)
        for driver in self._running():
            driver.tick()
            self._settle()

    def do_expire(self, *numbers: str) -> None:
        """Let the election or fetch timeout of nodes end now."""
        for number in numbers:
            driver = self._driver(number)
            driver.node.role.deadline_ms = self.clock.ms
            driver.tick()
            self._settle()

    def do_elect(self, number: str) -> None:
        """Expire a node's timeout and deliver everything, without a trace."""
        self.do_expire(number)
        self.do_deliver()
        self.trace = []

    def do_crash(self, number: str) -> None:
        self.members[int(number)].driver = None
        self.members[int(number)].disk.kill()
        self.network = deque(one for one in self.network if one.source != int(number))

    def do_start(self, number: str) -> None:
        self.members[int(number)].start()
        self._driver(number).tick()
        self._settle()

    def do_stop(self, number: str) -> None:
        self._driver(number).stop()
        self._settle()

    def do_offer(self, number: str, *values: str) -> None:
        self._driver(number).offer([value.encode() for value in values], self.clock.ms)
        self._settle()

    def do_snapshot(self, number: str) -> None:
        """Write a snapshot at the high watermark, and remove the log before it."""
        log = self._driver(number).log
        end_offset = log.log.high_watermark
        epoch = log.log.leader_epochs.epoch_for_offset(end_offset - 1)
        snapshot_id = OffsetAndEpoch(end_offset, epoch)
        data = encode_snapshot([b"state" * 60], now_ms=self.clock.ms, leader_epoch=epoch)
        write, written = log.snapshot_writer(snapshot_id, [data])
        write()
        written()
        log.clean(now_ms=self.clock.ms, max_bytes=0, max_age_ms=-1)
        self.say(f"{number} has the snapshot {_position(snapshot_id)}")

    # The network

    def do_away(self, *numbers: str) -> None:
        """Lose what is sent to or from these nodes, and only these."""
        self.away = {int(number) for number in numbers}

    def do_deliver(self, count: str = str(MAX_DELIVERIES)) -> None:
        """Deliver messages until none is under way; long polls wait."""
        for _ in range(int(count)):
            if not self.network:
                break
            self._deliver(self.network.popleft())
            self._settle()

    def _deliver(self, message: Message) -> None:
        source, target, request, pending, response = message
        text = _text(request) if response is None else _text(response)
        if {source, target} & self.away:
            self.say(f"{source}->{target} {text}: lost")
            return
        self.say(f"{source}->{target} {text}")
        if response is not None:
            if self.members[target].driver is not None:
                pending.complete(response)
            return
        driver = self.members[target].driver
        if driver is None:
            pending.fail(KafkaError(ErrorCode.BROKER_NOT_AVAILABLE))
            return
        driver.request(request).on_done(partial(self._answer, message))

    def _answer(self, message: Message, done: Pending[Any]) -> None:
        source, target = message.target, message.source
        answer = Message(source, target, message.request, message.pending, done.value)
        self.network.append(answer)

    # What there is

    def do_show(self) -> None:
        """Print roles and logs; 5@2 is the end offset 5, after a record of epoch 2."""
        for number, member in self.members.items():
            if member.driver is None:
                self.say(f"{number} is down")
                continue
            node, log = member.driver.node, member.driver.log
            role = type(node.role).__name__
            end = OffsetAndEpoch(log.end_offset, log.epoch_at_end())
            committed = "-" if node.high_watermark < 0 else node.high_watermark
            self.say(
                f"{number} {role} epoch={node.epoch} log={log.start_offset}..{_position(end)} "
                f"high_watermark={committed}"
            )

    def do_log(self, number: str) -> None:
        """Print the batches of a log."""
        for batch in self._driver(number).log.read(self._driver(number).log.start_offset):
            if batch.is_control:
                found = [type(decode_control_message(one)).__name__ for one in batch.records()]
            else:
                found = [bytes(one.value or b"").decode() for one in batch.records()]
            self.say(f"{batch.base_offset}@{batch.leader_epoch} {' '.join(found)}")


def _position(end: OffsetAndEpoch) -> str:
    return f"{end.offset}@{end.leader_epoch}"


def _text(message: Any) -> str:  # noqa: PLR0911 - one for each message
    match message:
        case Vote(_, epoch, log_end, is_pre_vote):
            kind = "PreVote" if is_pre_vote else "Vote"
            return f"{kind} epoch={epoch} log={_position(log_end)}"
        case VoteResponse(error, leader, is_granted):
            word = "granted" if is_granted else "refused"
            return f"{word} epoch={leader.epoch}{_error(error)}"
        case BeginQuorumEpoch(leader):
            return f"BeginQuorumEpoch epoch={leader.epoch} leader={leader.leader_id}"
        case EndQuorumEpoch(leader, preferred):
            first = ",".join(str(key.node_id) for key in preferred)
            return f"EndQuorumEpoch epoch={leader.epoch} successors={first}"
        case Fetch():
            end = OffsetAndEpoch(message.offset, message.last_epoch)
            return f"Fetch epoch={message.epoch} from={_position(end)}"
        case FetchResponse():
            return _fetched(message)
        case FetchSnapshot(_, epoch, snapshot_id, position):
            return f"FetchSnapshot epoch={epoch} {_position(snapshot_id)} from byte {position}"
        case FetchSnapshotResponse():
            size = f"{len(message.data)} of {message.size_bytes} bytes"
            return f"part from byte {message.position}, {size}{_error(message.error)}"
        case _:
            return f"answered epoch={message.leader.epoch}{_error(message.error)}"


def _fetched(response: FetchResponse) -> str:
    if response.error is not ErrorCode.NONE:
        leader = response.leader
        return f"leader={leader.leader_id} epoch={leader.epoch}{_error(response.error)}"
    if response.diverging is not None:
        return f"diverging after {_position(response.diverging)}"
    if response.snapshot_id is not None:
        return f"begin with the snapshot {_position(response.snapshot_id)}"
    return f"records={len(response.records)} bytes, high watermark {response.high_watermark}"


def _error(error: ErrorCode) -> str:
    return "" if error is ErrorCode.NONE else f" {error.name}"
