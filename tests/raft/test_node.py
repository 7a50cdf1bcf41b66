"""The machine of a lone voter: elections, group commit, high watermark."""

from __future__ import annotations

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.records.raft import KRaftVersionRecord, LeaderChangeMessage, VotersRecord
from ottla.raft.control_records import decode_control_message
from ottla.raft.messages import (
    AnnounceHighWatermark,
    AnnounceLeader,
    AnnounceResignation,
    AppendBatch,
    FlushLog,
    LogFlushed,
    PersistElection,
    RecordsOffered,
    ShutdownRequested,
    Started,
)
from ottla.raft.node import RaftNode
from ottla.raft.quorum_state import ElectionState
from ottla.raft.voter_set import Voter, VoterSet
from ottla.records.batch import RecordBatch
from ottla.types import ZERO_UUID, Uuid

DISK = Uuid(b"d" * 16)


def _node(
    *,
    epoch: int = 0,
    voters: VoterSet | None = None,
    kraft_version: int = 0,
    voters_in_log: bool = False,
) -> RaftNode:
    return RaftNode(
        node_id=1,
        directory_id=DISK,
        election=ElectionState(leader_epoch=epoch),
        voters=voters or VoterSet([Voter(1)]),
        kraft_version=kraft_version,
        voters_in_log=voters_in_log,
    )


def _kinds(effects: list[object]) -> list[type]:
    return [type(effect) for effect in effects]


def test_a_lone_voter_leads_at_once() -> None:
    """Its vote is durable first, then its leadership, then the leader-change record."""
    node = _node(epoch=4)
    effects = node.handle(Started(10), 99)
    assert _kinds(list(effects)) == [
        PersistElection,
        PersistElection,
        AppendBatch,
        FlushLog,
        AnnounceLeader,
    ]
    assert effects[0] == PersistElection(ElectionState(5, -1, 1, DISK, (1,)))
    assert effects[1] == PersistElection(ElectionState(5, 1, -1, ZERO_UUID, (1,)))
    appended = effects[2]
    assert isinstance(appended, AppendBatch)
    batch = RecordBatch(memoryview(appended.data))
    assert (batch.base_offset, batch.leader_epoch, batch.is_control) == (10, 5, True)
    message = decode_control_message(batch.records()[0])
    assert isinstance(message, LeaderChangeMessage)
    assert (message.version, message.leader_id) == (0, 1)
    assert effects[4] == AnnounceLeader(5, 10)


def test_the_high_watermark_waits_for_the_first_record_of_the_epoch() -> None:
    """Older records are only committed together with the leader change (KAFKA-12619)."""
    node = _node()
    node.handle(Started(10), 0)
    assert node.high_watermark == -1
    assert not [
        effect
        for effect in node.handle(LogFlushed(10), 0)
        if isinstance(effect, AnnounceHighWatermark)
    ]
    node = _node()
    node.handle(Started(10), 0)
    assert node.handle(LogFlushed(11), 0) == [AnnounceHighWatermark(11)]
    assert node.high_watermark == 11


def test_many_offers_share_one_flush() -> None:
    """What comes while a flush runs goes into one batch with the next one."""
    node = _node()
    node.handle(Started(0), 0)
    for number in range(100):
        assert node.handle(RecordsOffered([b"%d" % number]), number) == []
    assert node.next_offset == 101
    high_watermark, append, flush = node.handle(LogFlushed(1), 500)
    assert high_watermark == AnnounceHighWatermark(1)
    assert isinstance(append, AppendBatch)
    assert (append.base_offset, append.last_offset) == (1, 100)
    assert flush == FlushLog()
    batch = RecordBatch(memoryview(append.data))
    assert {record.timestamp for record in batch.records()} == {0}, "Kafka wants one time a batch"
    assert node.handle(LogFlushed(101), 600) == [AnnounceHighWatermark(101)]


def test_dynamic_voters_are_written_into_an_empty_log_once() -> None:
    """With kraft.version 1 version and voters follow the first leader change, and never again."""
    voters = VoterSet([Voter(1, DISK)])
    node = _node(voters=voters, kraft_version=1)
    append = next(e for e in node.handle(Started(0), 0) if isinstance(e, AppendBatch))
    records = RecordBatch(memoryview(append.data)).records()
    assert [type(decode_control_message(record)) for record in records] == [
        LeaderChangeMessage,
        KRaftVersionRecord,
        VotersRecord,
    ]
    node = _node(voters=voters, kraft_version=1, voters_in_log=True)
    append = next(e for e in node.handle(Started(3), 0) if isinstance(e, AppendBatch))
    assert append.base_offset == append.last_offset == 3


@pytest.mark.parametrize(
    "voters",
    [
        VoterSet([Voter(2)]),
        VoterSet([Voter(1, Uuid(b"e" * 16))]),
        VoterSet([Voter(1), Voter(2)]),
    ],
    ids=["not a voter", "another disk", "more than one"],
)
def test_a_quorum_it_cannot_serve_is_refused(voters: VoterSet) -> None:
    """A voter with another disk has lost its vote; several voters are not served yet."""
    node = _node(voters=voters)
    with pytest.raises(KafkaError) as caught:
        node.handle(Started(0), 0)
    assert caught.value.code == ErrorCode.INCONSISTENT_VOTER_SET


def test_after_resigning_no_records_are_accepted() -> None:
    """A node that resigned leads no more in its epoch."""
    node = _node()
    node.handle(Started(0), 0)
    assert node.handle(ShutdownRequested(), 0) == [AnnounceResignation(1)]
    assert node.handle(LogFlushed(1), 0) == []
    with pytest.raises(KafkaError) as caught:
        node.handle(RecordsOffered([b"x"]), 0)
    assert caught.value.code == ErrorCode.NOT_CONTROLLER
