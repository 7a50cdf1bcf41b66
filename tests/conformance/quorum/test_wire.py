"""Our requests of the quorum, answered by a real controller; its metadata log, replayed by us."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING

import pytest

from ottla.errors import ErrorCode
from ottla.protocol.apis.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from ottla.raft.requests import (
    BeginQuorumEpoch,
    EndQuorumEpoch,
    EpochResponse,
    Fetch,
    FetchResponse,
    FetchSnapshot,
    FetchSnapshotResponse,
    LeaderAndEpoch,
    ReplicaKey,
    Vote,
    VoteResponse,
)
from ottla.raft.snapshot import decode_snapshot, snapshot_name
from ottla.raft.voter_set import VoterAddress
from ottla.server.controller.quorum_view import QuorumAccess, QuorumChannel
from ottla.server.node.format import read_meta_properties
from ottla.server.system.files import RealDirectory
from ottla.server.system.timers import LoopTimer, SystemClock
from ottla.types import METADATA_TOPIC, OffsetAndEpoch, Uuid
from tests.conformance.kafka import running_kafka
from tests.conformance.pair import Speaker
from tests.conformance.quorum.observer import LISTENER, OBSERVER, Observer, ask

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conformance.kafka import Kafka, RealKafka
    from tests.conformance.pair import Conversation

pytestmark = pytest.mark.conformance
METADATA = "__cluster_metadata-0"
NONE = ErrorCode.NONE
NEVER_MS = 1 << 61


class Controller:
    """The real controller as an observer of its quorum sees it."""

    def __init__(self, node: RealKafka, conversation: Conversation) -> None:
        self.node = node
        self.conversation = conversation
        meta = read_meta_properties(RealDirectory(str(node.log_dir)))
        assert meta is not None
        assert meta.directory_id is not None
        self.cluster_id = meta.cluster_id
        self.key = ReplicaKey(1, meta.directory_id)
        self.log = node.log_dir / METADATA

    @property
    def epoch(self) -> int:
        """The quorum's epoch."""
        return int(self.described().leader_epoch)

    @property
    def leader(self) -> LeaderAndEpoch:
        """The leader as responses name it."""
        end = VoterAddress(LISTENER, "127.0.0.1", self.node.controller_port)
        return LeaderAndEpoch(1, self.epoch, (end,))

    def described(self) -> DescribeQuorumResponse.TopicData.PartitionData:
        """Return what the controller says of the quorum."""
        topic = DescribeQuorumRequest.TopicData
        partition = topic.PartitionData(partition_index=0)
        request = DescribeQuorumRequest(
            topics=[topic(topic_name=METADATA_TOPIC, partitions=[partition])]
        )
        answer = self.conversation.ask(request)
        assert isinstance(answer, DescribeQuorumResponse)
        return answer.topics[0].partitions[0]

    def files(self, start_offset: int = 0) -> bytes:
        """Return the batches of the log from the start of a segment on."""
        paths = sorted(self.log.glob("*.log"))
        return b"".join(path.read_bytes() for path in paths if int(path.stem) >= start_offset)


@pytest.fixture
def controller(untouched_kafka: RealKafka) -> Iterator[Controller]:
    """Connect to the controller's listener."""
    address = f"127.0.0.1:{untouched_kafka.controller_port}"
    with Speaker(address).connected() as conversation:
        yield Controller(untouched_kafka, conversation)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_vote_in_a_past_epoch_is_fenced(controller: Controller, version: int) -> None:
    """Who leads comes with its address from version 1 on."""
    leader = controller.leader
    vote = Vote(OBSERVER, leader.epoch - 1, OffsetAndEpoch(0, -1), False, controller.key)
    vote = vote._replace(log_end=OffsetAndEpoch(0, max(leader.epoch - 2, -1)))
    error = ErrorCode.FENCED_LEADER_EPOCH if leader.epoch > 1 else ErrorCode.INVALID_REQUEST
    known = leader if version else leader._replace(endpoints=())
    answer = ask(controller.conversation, vote, controller.cluster_id, version)
    assert answer == VoteResponse(error, known)


def test_a_pre_vote_is_refused_by_a_leader(controller: Controller) -> None:
    """In its own epoch, and in a past one as fenced."""
    leader = controller.leader
    vote = Vote(OBSERVER, leader.epoch, OffsetAndEpoch(1 << 40, 0), True, controller.key)
    answer = ask(controller.conversation, vote, controller.cluster_id)
    assert answer == VoteResponse(NONE, leader)
    answer = ask(controller.conversation, vote._replace(epoch=0), controller.cluster_id)
    assert answer == VoteResponse(ErrorCode.FENCED_LEADER_EPOCH, leader)


def test_a_vote_for_another_directory_is_refused(controller: Controller) -> None:
    """The request names for which disk it is meant."""
    leader = controller.leader
    other = ReplicaKey(1, Uuid(b"another disk's i"))
    vote = Vote(OBSERVER, leader.epoch, OffsetAndEpoch(0, 0), True, other)
    answer = ask(controller.conversation, vote, controller.cluster_id)
    assert answer == VoteResponse(ErrorCode.INVALID_VOTER_KEY, leader)


@pytest.mark.parametrize("version", [0, 1])
def test_epochs_begin_and_end_fenced(controller: Controller, version: int) -> None:
    """A leader of a past epoch is told who leads now."""
    leader = controller.leader
    known = leader if version else leader._replace(endpoints=())
    past = LeaderAndEpoch(9, 0)
    for request in (BeginQuorumEpoch(past, controller.key), EndQuorumEpoch(past, (OBSERVER,))):
        answer = ask(controller.conversation, request, controller.cluster_id, version)
        assert answer == EpochResponse(ErrorCode.FENCED_LEADER_EPOCH, known)


@pytest.mark.parametrize("version", range(13, 19))
def test_an_observer_fetches_the_log(controller: Controller, version: int) -> None:
    """The batches of the answer are those of the segment file, byte by byte."""
    leader = controller.leader
    fetch = Fetch(OBSERVER, leader.epoch, 0, 0, -1, 0)
    answer = ask(controller.conversation, fetch, controller.cluster_id, version)
    assert isinstance(answer, FetchResponse)
    known = leader if version >= 17 else leader._replace(endpoints=())
    assert (answer.error, answer.leader, answer.log_start_offset) == (NONE, known, 0)
    assert answer.high_watermark > 0
    assert len(answer.records) > 1000
    assert controller.files().startswith(answer.records)


def test_a_fetch_elsewhere_is_answered_with_what_is_wrong(controller: Controller) -> None:
    """Another epoch, an epoch that is not in the log, a position beyond its end."""
    leader = controller.leader
    fetch = Fetch(OBSERVER, leader.epoch, 0, 0, -1, 0)
    expected = {
        fetch._replace(epoch=0): ErrorCode.FENCED_LEADER_EPOCH,
        fetch._replace(epoch=leader.epoch + 5): ErrorCode.UNKNOWN_LEADER_EPOCH,
        fetch._replace(last_epoch=leader.epoch + 5): ErrorCode.INVALID_REQUEST,
        fetch._replace(offset=-1): ErrorCode.INVALID_REQUEST,
        fetch._replace(max_wait_ms=-1): ErrorCode.INVALID_REQUEST,
    }
    for request, error in expected.items():
        answer = ask(controller.conversation, request, controller.cluster_id)
        assert answer == FetchResponse(error, leader, log_start_offset=0), request
    beyond = fetch._replace(offset=1 << 40, last_epoch=leader.epoch)
    answer = ask(controller.conversation, beyond, controller.cluster_id)
    assert isinstance(answer, FetchResponse)
    assert answer.error is NONE
    assert answer.diverging is not None
    assert answer.diverging.leader_epoch == leader.epoch


def test_a_snapshot_that_is_not_there(controller: Controller) -> None:
    """Kafka 4.3.0 has codes for it, but cannot write a response without records (null)."""
    unwritable = FetchSnapshotResponse(
        ErrorCode.UNKNOWN_SERVER_ERROR, LeaderAndEpoch(-1, -1), OffsetAndEpoch(0, 0)
    )
    request = FetchSnapshot(OBSERVER, controller.epoch, OffsetAndEpoch(7, 1), 0)
    for one in (request, request._replace(epoch=0)):
        for version in (0, 1):
            answer = ask(controller.conversation, one, controller.cluster_id, version)
            assert answer == unwritable


def test_our_member_follows_as_an_observer(controller: Controller, tmp_path: Path) -> None:
    """It finds the leader, and its log is Kafka's; the leader lists it among its observers."""
    observer = Observer(tmp_path, controller.conversation, controller.cluster_id)
    end_offset = controller.described().high_watermark
    observer.follow(end_offset)
    ours = (tmp_path / METADATA / f"{0:020d}.log").read_bytes()
    assert len(ours) > 1000
    assert controller.files().startswith(ours)
    node = observer.driver.node
    assert (node.epoch, node.leader_id) == (controller.epoch, 1)
    assert [voter.voter_id for voter in node.voters] == [1], "the voters are read from the log"
    assert node.kraft_version == 1
    listed = controller.described().observers
    assert OBSERVER in [ReplicaKey(one.replica_id, one.replica_directory_id) for one in listed]


def test_our_member_follows_over_the_channel(controller: Controller, tmp_path: Path) -> None:
    """On a loop, with the connections, versions and timers of a node."""
    expected = controller.described().high_watermark
    end = ("127.0.0.1", controller.node.controller_port)

    async def follow() -> Observer:
        loop, clock = asyncio.get_running_loop(), SystemClock()
        timer = LoopTimer(loop, clock)
        settings = QuorumAccess(
            node_id=OBSERVER.node_id,
            cluster_id=controller.cluster_id,
            listener=LISTENER,
            bootstrap=[end],
            request_timeout_ms=30_000,
        )
        channel = QuorumChannel(settings, loop=loop, clock=clock, timer=timer)

        def wake_at(due_ms: int) -> None:
            if due_ms < NEVER_MS:
                timer.add(due_ms, lambda _now_ms: observer.driver.tick())

        observer = Observer(tmp_path, send=channel.send, on_deadline=wake_at)
        observer.driver.tick()
        for _ in range(6000):
            if observer.high_watermark >= expected:
                break
            await asyncio.sleep(0.01)
        channel.close()
        timer.close()
        await asyncio.sleep(0)
        return observer

    observer = asyncio.run(follow())
    assert observer.high_watermark >= expected
    assert observer.driver.node.leader_id == 1
    ours = (tmp_path / METADATA / f"{0:020d}.log").read_bytes()
    assert len(ours) > 1000
    assert controller.files().startswith(ours)


def test_our_member_begins_with_a_snapshot(kafka: Kafka, tmp_path: Path) -> None:
    """An empty log is filled from the newest snapshot, which arrives byte by byte."""
    properties = {"metadata.log.max.record.bytes.between.snapshots": "2000"}
    kafkas, own = tmp_path / "kafka", tmp_path / "own"
    kafkas.mkdir()
    own.mkdir()
    with running_kafka(kafka, kafkas, properties) as node:
        topics = ("org.apache.kafka.tools.TopicCommand", "--create", "--topic", "snapshots")
        node.tool(*topics, "--partitions", "60")
        with Speaker(f"127.0.0.1:{node.controller_port}").connected() as conversation:
            _follow_from_a_snapshot(Controller(node, conversation), own)


def _follow_from_a_snapshot(controller: Controller, directory: Path) -> None:
    newest = _newest_snapshot(controller.log)
    observer = Observer(directory, controller.conversation, controller.cluster_id)
    observer.follow(controller.described().high_watermark)
    loaded = observer.snapshots[-1]
    assert "FetchSnapshot" in observer.requests
    assert loaded.offset >= newest.offset
    name = snapshot_name(loaded)
    ours = (directory / METADATA / name).read_bytes()
    assert ours == (controller.log / name).read_bytes()
    assert decode_snapshot(ours).kraft_version == 1
    assert [voter.voter_id for voter in observer.driver.node.voters] == [1]
    log = (directory / METADATA / f"{loaded.offset:020d}.log").read_bytes()
    assert log in controller.files()
    state = json.loads((directory / METADATA / "quorum-state").read_bytes())
    assert state["leaderId"] == 1


def _newest_snapshot(log: Path) -> OffsetAndEpoch:
    for _ in range(100):
        found = [
            path.stem for path in log.glob("*.checkpoint") if not path.stem.startswith("0" * 20)
        ]
        if found:
            offset, _, epoch = max(found).partition("-")
            return OffsetAndEpoch(int(offset), int(epoch))
        time.sleep(0.1)
    raise AssertionError("Kafka writes no snapshot")
