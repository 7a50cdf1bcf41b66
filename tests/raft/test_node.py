"""The machine of a lone voter: elections, group commit, high watermark."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.records.raft import KRaftVersionRecord, LeaderChangeMessage, VotersRecord
from ottla.raft.member import MemberSettings
from ottla.raft.messages import (
    AnnounceEpoch,
    AnnounceHighWatermark,
    AnnounceLeader,
    AnnounceResignation,
    AppendBatch,
    FlushLog,
    LogFlushed,
    PersistElection,
    RecordsOffered,
    ShutdownRequested,
)
from ottla.raft.node import RaftNode
from ottla.raft.quorum_state import ElectionState
from ottla.raft.requests import ReplicaKey
from ottla.raft.roles import Resigned
from ottla.raft.voter_set import Voter, VoterHistory, VoterSet, decode_control_message
from ottla.records.batch import RecordBatch
from ottla.types import Uuid

if TYPE_CHECKING:
    from ottla.raft.messages import Effect
    from ottla.types import OffsetAndEpoch

DISK = Uuid(b"d" * 16)


class Log:
    """A log of which only the end is known."""

    start_offset = 0
    latest_snapshot = None

    def __init__(self, end_offset: int = 0) -> None:
        self.end_offset = end_offset

    def epoch_at_end(self) -> int:
        """Return no epoch."""
        return 0

    def divergence(self, offset: int, epoch: int) -> OffsetAndEpoch | None:
        """Agree with every log."""
        del offset, epoch
        return None

    def needs_snapshot(self, offset: int, epoch: int) -> bool:
        """Have none."""
        del offset, epoch
        return False

    def snapshot_size(self, snapshot_id: OffsetAndEpoch) -> int | None:
        """Have none."""
        del snapshot_id
        return None

    def truncation_offset(self, diverging: OffsetAndEpoch) -> int:
        """Cut where the leader says."""
        return diverging.offset

    def carry_out(self, effects: list[Effect]) -> None:
        """Move the end by what is appended."""
        for effect in effects:
            if isinstance(effect, AppendBatch):
                self.end_offset = effect.last_offset + 1


def _node(
    log: Log | None = None,
    *,
    epoch: int = 0,
    voters: VoterSet | None = None,
    kraft_version: int = 0,
    voters_in_log: bool = False,
) -> RaftNode:
    history = VoterHistory(voters or VoterSet([Voter(1)]), kraft_version)
    if voters_in_log:
        history.restart(2, history.latest, kraft_version)
    return RaftNode(
        MemberSettings(ReplicaKey(1, DISK)),
        log=log or Log(),
        voters=history,
        election=ElectionState(leader_epoch=epoch),
        rng=Random(1),
        now_ms=0,
        wall_ms=lambda: 99,
    )


def _led(log: Log, **settings: Any) -> tuple[RaftNode, list[Effect]]:
    """Return a lone voter that leads, and its effects."""
    node = _node(log, **settings)
    effects = node.poll(0)
    log.carry_out(effects)
    return node, effects + node.poll(0)


def _kinds(effects: list[Effect]) -> list[type]:
    return [type(effect) for effect in effects]


def test_a_lone_voter_leads_at_once() -> None:
    """Its vote is stored first, then its leadership; then comes the leader-change record."""
    _, effects = _led(Log(10), epoch=4)
    assert _kinds(effects) == [
        PersistElection,
        AnnounceEpoch,
        PersistElection,
        AppendBatch,
        FlushLog,
    ]
    assert effects[0] == PersistElection(ElectionState(5, -1, 1, DISK, (1,)))
    assert effects[2] == PersistElection(ElectionState(5, 1, 1, DISK, (1,)))
    appended = effects[3]
    assert isinstance(appended, AppendBatch)
    batch = RecordBatch(memoryview(appended.data))
    assert (batch.base_offset, batch.leader_epoch, batch.is_control) == (10, 5, True)
    message = decode_control_message(batch.records()[0])
    assert isinstance(message, LeaderChangeMessage)
    assert (message.version, message.leader_id) == (0, 1)


def test_a_leader_that_restarts_does_not_vote_again() -> None:
    """It begins as resigned, in its epoch, and leads in the next one."""
    log = Log(3)
    node = RaftNode(
        MemberSettings(ReplicaKey(1, DISK)),
        log=log,
        voters=VoterHistory(VoterSet([Voter(1)])),
        election=ElectionState(7, 1, 1, DISK),
        rng=Random(1),
        now_ms=0,
        wall_ms=lambda: 99,
    )
    assert isinstance(node.role, Resigned)
    assert PersistElection(ElectionState(8, -1, 1, DISK, (1,))) in node.poll(0)


def test_the_high_watermark_waits_for_the_first_record_of_the_epoch() -> None:
    """Older records are only committed together with the leader change (KAFKA-12619)."""
    node, _ = _led(Log(10))
    assert node.high_watermark == -1
    assert node.handle(LogFlushed(10, 0), 0) == []
    node, _ = _led(Log(10))
    assert node.handle(LogFlushed(11, 0), 0) == [AnnounceHighWatermark(11), AnnounceLeader(1, 10)]
    assert node.high_watermark == 11


def test_many_offers_share_one_flush() -> None:
    """What comes while a flush runs goes into one batch with the next one."""
    log = Log()
    node, _ = _led(log)
    for number in range(100):
        node.handle(RecordsOffered([b"%d" % number], number), 0)
        assert node.poll(0) == []
    assert node.next_offset == 101
    assert node.handle(LogFlushed(1, 0), 500)[0] == AnnounceHighWatermark(1)
    append, flush = node.poll(500)
    assert isinstance(append, AppendBatch)
    assert (append.base_offset, append.last_offset) == (1, 100)
    assert flush == FlushLog(0)
    batch = RecordBatch(memoryview(append.data))
    assert {record.timestamp for record in batch.records()} == {0}, "Kafka wants one time a batch"
    assert node.handle(LogFlushed(101, 0), 600) == [AnnounceHighWatermark(101)]


def test_dynamic_voters_are_written_into_an_empty_log_once() -> None:
    """With kraft.version 1 version and voters follow the first leader change, and never again."""
    voters = VoterSet([Voter(1, DISK)])
    _, effects = _led(Log(), voters=voters, kraft_version=1)
    append = next(e for e in effects if isinstance(e, AppendBatch))
    records = RecordBatch(memoryview(append.data)).records()
    assert [type(decode_control_message(record)) for record in records] == [
        LeaderChangeMessage,
        KRaftVersionRecord,
        VotersRecord,
    ]
    _, effects = _led(Log(3), voters=voters, kraft_version=1, voters_in_log=True)
    append = next(e for e in effects if isinstance(e, AppendBatch))
    assert append.base_offset == append.last_offset == 3


def test_after_resigning_no_records_are_accepted() -> None:
    """A node that resigned leads no more in its epoch."""
    node, _ = _led(Log())
    node.handle(LogFlushed(1, 0), 0)
    assert node.handle(ShutdownRequested(), 0) == [AnnounceResignation(1)]
    assert node.handle(LogFlushed(1, 0), 0) == []
    with pytest.raises(KafkaError) as caught:
        node.handle(RecordsOffered([b"x"], 0), 0)
    assert caught.value.code == ErrorCode.NOT_CONTROLLER
