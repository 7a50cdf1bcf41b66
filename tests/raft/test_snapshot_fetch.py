"""A follower that fetches a snapshot from a leader that gives nothing."""

from __future__ import annotations

from random import Random

from ottla.errors import ErrorCode
from ottla.raft.member import MemberSettings
from ottla.raft.messages import ResponseReceived, Send
from ottla.raft.node import RaftNode
from ottla.raft.quorum_state import ElectionState
from ottla.raft.requests import (
    Fetch,
    FetchResponse,
    FetchSnapshot,
    FetchSnapshotResponse,
    LeaderAndEpoch,
)
from ottla.raft.timeouts import QuorumTimeouts
from ottla.raft.voter_set import VoterHistory
from ottla.types import OffsetAndEpoch
from tests.raft.test_node import Log
from tests.raft.test_slow_disk import KEYS, VOTERS

SNAPSHOT_ID = OffsetAndEpoch(80, 3)
LEADER = LeaderAndEpoch(2, 3)


def test_an_empty_part_is_fetched_again_after_a_pause() -> None:
    """Without it the requests would follow one another without end."""
    node = RaftNode(
        MemberSettings(KEYS[0]),
        log=Log(),
        voters=VoterHistory(VOTERS, 1),
        election=ElectionState(leader_epoch=3, leader_id=2),
        rng=Random(1),
        now_ms=0,
        wall_ms=lambda: 99,
    )

    def sent(now_ms: int) -> list[Send]:
        return [effect for effect in node.poll(now_ms) if isinstance(effect, Send)]

    (fetch,) = sent(0)
    assert isinstance(fetch.request, Fetch)
    answer = FetchResponse(ErrorCode.NONE, LEADER, 80, 80, snapshot_id=SNAPSHOT_ID)
    node.handle(ResponseReceived(fetch.correlation_id, answer), 1)
    (part,) = sent(1)
    assert isinstance(part.request, FetchSnapshot)
    empty = FetchSnapshotResponse(ErrorCode.NONE, LEADER, SNAPSHOT_ID, 1000, 0, b"")
    assert node.handle(ResponseReceived(part.correlation_id, empty), 2) == []
    assert sent(2) == []
    (again,) = sent(2 + QuorumTimeouts().retry_backoff_ms)
    assert isinstance(again.request, Fetch)
