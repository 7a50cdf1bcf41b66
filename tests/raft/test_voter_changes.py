"""Changes of the voters on a leader: what is refused, with Kafka's texts, and what is written."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.purgatory.pending import Pending
from ottla.raft.leader import Leader
from ottla.raft.member import MemberSettings
from ottla.raft.messages import (
    AppendBatch,
    KRaftVersionOffered,
    LogFlushed,
    RequestReceived,
    Respond,
    ResponseReceived,
    Send,
    ShutdownRequested,
)
from ottla.raft.node import RaftNode
from ottla.raft.quorum_state import ElectionState
from ottla.raft.requests import (
    NO_LEADER,
    AddVoter,
    BeginQuorumEpoch,
    DescribeVersions,
    EndQuorumEpoch,
    Fetch,
    FetchSnapshot,
    LeaderAndEpoch,
    RemoveVoter,
    ReplicaKey,
    Request,
    UpdateVoter,
    VersionsResponse,
    Vote,
    VoterChangeResponse,
)
from ottla.raft.roles import Follower, Resigned
from ottla.raft.voter_set import Voter, VoterAddress, VoterHistory, VoterSet
from ottla.types import ZERO_UUID, OffsetAndEpoch, Uuid
from tests.raft.test_node import Log

OWN, OTHER = Uuid(bytes(15) + b"\x01"), Uuid(bytes(15) + b"\x02")
HERE, THERE = VoterAddress("CONTROLLER", "h", 9), VoterAddress("CONTROLLER", "i", 9)
NEW = Voter(2, OTHER, (THERE,))
FOLLOWER = ReplicaKey(2, OTHER)
NOT_KNOWN = LeaderAndEpoch(NO_LEADER, -1)
CAN = VersionsResponse(ErrorCode.NONE, NOT_KNOWN, 0, 1)
KEY = "ReplicaKey(id={}, directoryId={})"


class Led:
    """A lone voter that leads its log, whose disk is as fast as its effects."""

    def __init__(self, kraft_version: int = 1, *, is_flushed: bool = True) -> None:
        own = Voter(1, OWN if kraft_version else ZERO_UUID, (HERE,))
        self.log = Log()
        self.sent: list[Send] = []
        self.is_flushed = is_flushed
        self.now_ms = 1000
        self.node = RaftNode(
            MemberSettings(ReplicaKey(1, OWN), (HERE,)),
            log=self.log,
            voters=VoterHistory(VoterSet([own]), kraft_version),
            election=ElectionState(),
            rng=Random(1),
            now_ms=self.now_ms,
            wall_ms=lambda: 99,
        )
        self.settle([])

    def settle(self, effects: list[Any]) -> None:
        """Carry out effects until nothing is due."""
        while True:
            effects = effects + self.node.poll(self.now_ms)
            if not effects:
                return
            self.log.carry_out(effects)
            self.sent += [one for one in effects if isinstance(one, Send)]
            for one in effects:
                if isinstance(one, Respond):
                    one.token.complete(one.response)
            is_appended = any(isinstance(one, AppendBatch) for one in effects)
            effects = []
            if is_appended and self.is_flushed:
                effects = self.node.handle(LogFlushed(self.log.end_offset, 0), self.now_ms)

    def ask(self, request: Request) -> Pending[Any]:
        """Send a request to the leader."""
        token: Pending[Any] = Pending()
        self.settle(self.node.handle(RequestReceived(request, token), self.now_ms))
        return token

    def describe(self, response: VersionsResponse | None = CAN) -> None:
        """Answer the leader's last request."""
        sent = self.sent[-1]
        assert isinstance(sent.request, DescribeVersions)
        assert sent.node_id == 2
        self.settle(self.node.handle(ResponseReceived(sent.correlation_id, response), self.now_ms))

    def fetch(self, key: ReplicaKey = FOLLOWER) -> None:
        """Fetch at the end of the log."""
        epoch = self.node.epoch
        self.ask(Fetch(key, epoch, self.log.end_offset, epoch, -1, 0))

    def add(self) -> Pending[Any]:
        """Add a voter that follows, up to its commit."""
        self.fetch()
        added = self.ask(AddVoter(NEW, True, 1))
        self.describe()
        return added


def _refusal(pending: Pending[Any]) -> tuple[ErrorCode, str | None]:
    response = pending.value
    assert isinstance(response, VoterChangeResponse)
    return response.error, response.message


def test_a_new_voter_is_asked_for_its_versions_then_written_then_committed() -> None:
    """The response comes with the commit, for which the new voter counts."""
    led = Led()
    added = led.add()
    assert [one.voter_id for one in led.node.voters] == [1, 2]
    assert not added.done, "a majority of two has not got the record"
    led.fetch()
    assert _refusal(added) == (ErrorCode.NONE, None)


def test_an_addition_may_be_acknowledged_when_it_is_written() -> None:
    """KIP-1186: who joins by itself has to fetch the record before it can commit."""
    led = Led()
    led.fetch()
    added = led.ask(AddVoter(NEW, False, 1))
    assert not added.done
    led.describe()
    assert _refusal(added) == (ErrorCode.NONE, None)
    busy = led.ask(RemoveVoter(ReplicaKey(1, OWN)))
    text = "Request timed out waiting for leader to handle previous voter change request"
    assert _refusal(busy) == (ErrorCode.REQUEST_TIMED_OUT, text)


REFUSED = [
    (
        AddVoter(NEW._replace(voter_id=-1), True, 1),
        "Add voter request didn't include a valid voter",
    ),
    (
        AddVoter(NEW._replace(directory_id=ZERO_UUID), True, 1),
        "Add voter request didn't include a valid voter",
    ),
    (
        AddVoter(NEW._replace(endpoints=(VoterAddress("OTHER", "h", 9),)), True, 1),
        (
            "Add voter request didn't include the endpoint (Endpoints(endpoints={ListenerName("
            "OTHER)=h/<unresolved>:9})) for the default listener ListenerName(CONTROLLER)"
        ),
    ),
    (RemoveVoter(ReplicaKey(-1, OWN)), "Remove voter request didn't include a valid voter"),
    (RemoveVoter(ReplicaKey(1)), "Remove voter request didn't include a valid voter"),
]


@pytest.mark.parametrize(("request_", "text"), REFUSED)
def test_a_change_without_a_voter_is_refused(request_: Request, text: str) -> None:
    """With or without kraft.version 1: an id, a directory and an address are needed."""
    for kraft_version in (0, 1):
        assert _refusal(Led(kraft_version).ask(request_)) == (ErrorCode.INVALID_REQUEST, text)


@pytest.mark.parametrize(
    "voter",
    [
        NEW._replace(voter_id=-1),
        NEW._replace(directory_id=ZERO_UUID),
        NEW._replace(endpoints=()),
        NEW._replace(endpoints=(VoterAddress("OTHER", "h", 9),)),
        NEW._replace(lowest_kraft_version=-1),
        NEW._replace(lowest_kraft_version=2),
        Voter(1, OWN, (HERE,), 0, 0),
    ],
)
def test_an_update_without_what_a_voter_needs_is_refused(voter: Voter) -> None:
    """An address on the controllers' own listener is among it, and the quorum's level."""
    led = Led()
    refused = led.ask(UpdateVoter(voter, led.node.epoch))
    assert refused.value.error is ErrorCode.INVALID_REQUEST


def test_voters_of_the_configuration_are_neither_added_nor_removed() -> None:
    """kraft.version 0."""
    led = Led(0)
    text = "Cluster doesn't support {} voter because the kraft.version feature is 0"
    assert _refusal(led.ask(AddVoter(NEW, True, 1))) == (
        ErrorCode.UNSUPPORTED_VERSION,
        text.format("adding"),
    )
    assert _refusal(led.ask(RemoveVoter(ReplicaKey(1, OWN)))) == (
        ErrorCode.UNSUPPORTED_VERSION,
        text.format("removing"),
    )


def test_a_known_voter_is_not_added_and_an_unknown_one_not_removed() -> None:
    """Another directory of a voter's node is not the voter; the last voter stays."""
    led = Led()
    shown = KEY.format(1, OWN)
    added = led.ask(AddVoter(Voter(1, OTHER, (HERE,)), True, 1))
    assert _refusal(added) == (
        ErrorCode.DUPLICATE_VOTER,
        f"The voter id for {KEY.format(1, OTHER)} is already part of the set of voters [{shown}].",
    )
    for key in (ReplicaKey(1, OWN), ReplicaKey(1, OTHER), ReplicaKey(3, OTHER)):
        assert _refusal(led.ask(RemoveVoter(key))) == (
            ErrorCode.VOTER_NOT_FOUND,
            f"Cannot remove voter {KEY.format(*key)} from the set of voters [{shown}]",
        )
    update = led.ask(UpdateVoter(NEW, led.node.epoch))
    assert update.value.error is ErrorCode.VOTER_NOT_FOUND


ABORTED = "Aborted add voter operation for "


@pytest.mark.parametrize(
    ("described", "code", "text"),
    [
        (
            None,
            ErrorCode.REQUEST_TIMED_OUT,
            ABORTED + "since API_VERSIONS returned an error BROKER_NOT_AVAILABLE",
        ),
        (
            CAN._replace(error=ErrorCode.UNSUPPORTED_VERSION),
            ErrorCode.REQUEST_TIMED_OUT,
            ABORTED + "since API_VERSIONS returned an error UNSUPPORTED_VERSION",
        ),
        (
            CAN._replace(highest=0),
            ErrorCode.INVALID_REQUEST,
            ABORTED + f"{KEY.format(2, OTHER)} since the kraft.version range (min: 0, max: 0) "
            "doesn't support the finalized version 1",
        ),
        (
            CAN._replace(lowest=2, highest=3),
            ErrorCode.INVALID_REQUEST,
            ABORTED + f"{KEY.format(2, OTHER)} since the kraft.version range (min: 2, max: 3 "
            "doesn't support the finalized version 1",
        ),
        (
            CAN,
            ErrorCode.REQUEST_TIMED_OUT,
            ABORTED + f"{KEY.format(2, OTHER)} since it is lagging behind",
        ),
    ],
)
def test_a_voter_that_is_not_ready_is_not_added(
    described: VersionsResponse | None, code: ErrorCode, text: str
) -> None:
    """One that does not answer, does not support the level, or has never fetched to the end."""
    led = Led()
    added = led.ask(AddVoter(NEW, True, 1))
    led.describe(described)
    assert _refusal(added) == (code, text)
    assert len(led.node.voters) == 1


def test_a_change_that_is_not_committed_in_time_is_answered() -> None:
    """The record stays: it may be committed later, and until then no other change begins."""
    led = Led()
    added = led.add()
    led.now_ms += 2000
    led.settle([])
    assert _refusal(added) == (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.REQUEST_TIMED_OUT.text)
    later = led.ask(RemoveVoter(ReplicaKey(2, OTHER)))
    text = (
        "Request timed out waiting for voters to commit the latest voter change at "
        "Optional[3] with HWM 3"
    )
    assert _refusal(later) == (ErrorCode.REQUEST_TIMED_OUT, text)


def test_a_late_answer_of_another_node_adds_no_one() -> None:
    """Only the node that is being added is described."""
    led = Led()
    led.fetch()
    led.fetch(ReplicaKey(3, OTHER))
    led.ask(AddVoter(NEW, True, 1))
    late = led.sent[-1]
    led.now_ms += 2000
    led.settle([])
    led.ask(AddVoter(Voter(3, OTHER, (THERE,)), True, 1))
    led.settle(led.node.handle(ResponseReceived(late.correlation_id, CAN), led.now_ms))
    assert len(led.node.voters) == 1


def test_a_change_waits_for_the_first_commit_of_the_epoch() -> None:
    """The high watermark is not known before."""
    led = Led(is_flushed=False)
    text = "Request timed out waiting for leader to establish HWM and fence previous voter changes"
    for request in (AddVoter(NEW, True, 1), RemoveVoter(ReplicaKey(1, OWN))):
        assert _refusal(led.ask(request)) == (ErrorCode.REQUEST_TIMED_OUT, text)


def test_only_the_leader_changes_voters() -> None:
    """Without a text, as in Kafka; what was pending is answered when it resigns."""
    led = Led()
    added = led.add()
    led.settle(led.node.handle(ShutdownRequested(), led.now_ms))
    assert added.value.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert _refusal(led.ask(AddVoter(NEW, True, 1))) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, None)


def test_a_leader_that_is_removed_leads_until_that_is_committed() -> None:
    """Then it resigns; the other voter has the log."""
    led = Led()
    led.add()
    led.fetch()
    removed = led.ask(RemoveVoter(ReplicaKey(1, OWN)))
    assert [one.voter_id for one in led.node.voters] == [2]
    assert not removed.done
    led.fetch()
    assert removed.value.error is ErrorCode.NONE
    assert isinstance(led.node.role, Resigned)


def test_a_voter_that_is_down_hears_of_the_election_once_in_half_a_fetch_timeout() -> None:
    """Kafka: beginQuorumEpochTimeoutMs; a failed request is not repeated at once."""
    led = Led()
    led.add()
    led.fetch()
    led.sent.clear()
    begin_ms = led.now_ms
    while led.now_ms < begin_ms + 2500:
        led.now_ms += 10
        count = len(led.sent)
        led.settle([])
        for one in led.sent[count:]:
            led.settle(led.node.handle(ResponseReceived(one.correlation_id, None), led.now_ms))
    kinds = [type(one.request) for one in led.sent]
    assert kinds == [BeginQuorumEpoch] * 2


def test_a_second_voter_has_the_whole_time_to_fetch() -> None:
    """A lone voter has no majority to hear of; the time it led alone does not count."""
    led = Led()
    led.now_ms += 60_000
    led.settle([])
    led.add()
    led.now_ms += 2900
    led.settle([])
    assert isinstance(led.node.role, Leader)
    led.now_ms += 200
    led.settle([])
    assert isinstance(led.node.role, Resigned)


# ---------------------------------------------------------------- kraft.version


class LedStatic(Led):
    """The leader of static voters 1 and 2."""

    def __init__(self) -> None:
        super().__init__(0)
        role = self.node.role
        assert isinstance(role, Leader)
        voters = VoterSet([Voter(1, endpoints=(HERE,)), Voter(2, endpoints=(THERE,))])
        role.change_voters(voters, self.now_ms)
        role.reported_voters = VoterSet(
            [Voter(1, OWN, (HERE,)), Voter(2, endpoints=(THERE,), highest_kraft_version=0)]
        )
        self.role = role

    def upgrade(self, level: int = 1) -> None:
        """Check the level, then write it, as the controller does."""
        self.node.check_kraft_version(level)
        self.settle(self.node.handle(KRaftVersionOffered(level), self.now_ms))


def test_static_voters_become_dynamic_ones_by_an_upgrade() -> None:
    """Level and voters, as they described themselves, are one batch; they keep their offsets."""
    led = LedStatic()
    led.ask(Fetch(FOLLOWER, led.node.epoch, led.log.end_offset, led.node.epoch, -1, 0))
    assert led.ask(UpdateVoter(NEW, led.node.epoch)).value.error is ErrorCode.NONE
    end_offset = led.log.end_offset
    led.upgrade()
    assert (led.log.end_offset, led.node.kraft_version) == (end_offset + 2, 1)
    assert led.node.voters == VoterSet([Voter(1, OWN, (HERE,)), NEW])
    assert led.role.replicas[2].end_offset == end_offset
    led.fetch()
    assert led.role.high_watermark == end_offset + 2
    led.upgrade()
    assert led.log.end_offset == end_offset + 2, "the same level again changes nothing"


def test_an_upgrade_waits_until_each_voter_has_described_itself() -> None:
    """Kafka's text names no voter; nothing is written."""
    led = LedStatic()
    end_offset = led.log.end_offset
    with pytest.raises(KafkaError) as caught:
        led.upgrade()
    assert caught.value.code is ErrorCode.INVALID_UPDATE_VERSION
    assert caught.value.message == (
        "Invalid upgrade of kraft.version to KRAFT_VERSION_1 because not all of the voters "
        "support it"
    )
    assert (led.log.end_offset, led.node.kraft_version) == (end_offset, 0)


def test_a_quorum_is_not_downgraded() -> None:
    """kraft.version 1 is for ever."""
    with pytest.raises(KafkaError, match="because the new version is a downgrade"):
        Led().node.check_kraft_version(0)


def test_a_static_voter_describes_itself_to_each_leader_once() -> None:
    """The leader keeps it in memory, so a new leader has to learn it."""
    node = RaftNode(
        MemberSettings(FOLLOWER, (THERE,)),
        log=Log(),
        voters=VoterHistory(VoterSet([Voter(1, endpoints=(HERE,)), Voter(2, endpoints=(THERE,))])),
        election=ElectionState(),
        rng=Random(1),
        now_ms=0,
        wall_ms=lambda: 99,
    )
    for epoch in (1, 2):
        leader = LeaderAndEpoch(1, epoch, (HERE,))
        node._member.become_follower(leader, 0)
        reports = []
        for now_ms in range(0, 20_000, 500):
            role = node.role
            assert isinstance(role, Follower)
            role.deadline_ms = now_ms + 10_000
            for sent in (one for one in node.poll(now_ms) if isinstance(one, Send)):
                if isinstance(sent.request, UpdateVoter):
                    reports.append(sent.request)
                    answer = VoterChangeResponse(ErrorCode.NONE, leader)
                    node.handle(ResponseReceived(sent.correlation_id, answer), now_ms)
                else:
                    node.handle(ResponseReceived(sent.correlation_id, None), now_ms)
        assert reports == [UpdateVoter(NEW, epoch)]


@pytest.mark.parametrize("directory_id", [OWN, OTHER, ZERO_UUID])
@pytest.mark.parametrize("kraft_version", [0, 1])
def test_requests_under_the_leader_s_own_id_are_refused(
    directory_id: Uuid, kraft_version: int
) -> None:
    """Another process on a copy of its directory, or with its id, is not the leader's copy.

    The leader has flushed nothing since it was elected: it commits nothing through them.
    """
    led = Led(kraft_version, is_flushed=False)
    epoch, end_offset = led.node.epoch, led.log.end_offset
    key, log_end = ReplicaKey(1, directory_id), OffsetAndEpoch(end_offset, epoch)
    here, is_meant = LeaderAndEpoch(1, epoch, (HERE,)), directory_id in {OWN, ZERO_UUID}
    requests: dict[Request, ErrorCode] = {
        Fetch(key, epoch, end_offset, epoch, -1, 0): ErrorCode.UNKNOWN_SERVER_ERROR,
        Fetch(key, epoch - 1, end_offset, 0, -1, 0): ErrorCode.FENCED_LEADER_EPOCH,
        FetchSnapshot(key, epoch, log_end, 0): ErrorCode.UNKNOWN_SERVER_ERROR,
        Vote(key, epoch + 1, log_end, is_pre_vote=False, voter=key): ErrorCode.INVALID_REQUEST,
        Vote(key, epoch, log_end, is_pre_vote=True, voter=key): ErrorCode.INVALID_REQUEST,
        BeginQuorumEpoch(here, key): ErrorCode.NONE if is_meant else ErrorCode.INVALID_VOTER_KEY,
        EndQuorumEpoch(here, (key,)): ErrorCode.NONE,
    }
    refused = {request: led.ask(request).value.error for request in requests}
    assert refused == requests
    assert led.node.high_watermark == -1
    assert (led.node.epoch, led.log.end_offset) == (epoch, end_offset)
    assert led.node.voters.get(1) == Voter(1, OWN if kraft_version else ZERO_UUID, (HERE,))


@pytest.mark.parametrize(
    ("kraft_version", "directory_id", "code"),
    [
        (0, OWN, ErrorCode.INVALID_REQUEST),
        (1, OWN, ErrorCode.INVALID_REQUEST),
        (1, OTHER, ErrorCode.VOTER_NOT_FOUND),
    ],
)
def test_the_leader_s_own_addresses_come_from_no_request(
    kraft_version: int, directory_id: Uuid, code: ErrorCode
) -> None:
    """Another process with its id would lead all others away from it."""
    led = Led(kraft_version)
    end_offset = led.log.end_offset
    refused = led.ask(UpdateVoter(Voter(1, directory_id, (THERE,)), led.node.epoch))
    assert (refused.value.error, led.log.end_offset) == (code, end_offset)


def test_only_a_flush_counts_the_leader_s_own_copy() -> None:
    """A check of the leader itself, whatever calls it."""
    led = Led(is_flushed=False)
    role = led.node.role
    assert isinstance(role, Leader)
    with pytest.raises(AssertionError, match="itself"):
        role.fetched_by(ReplicaKey(1, OTHER), 1, 1, 0)
    with pytest.raises(AssertionError, match="itself"):
        role.followed_by(ReplicaKey(1, OWN), 0)
