"""Share partitions by the partitions that they belong to: a leader change ends those of one."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from ottla.config.broker import parse_broker_config
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.features import SHARE_VERSION
from ottla.metadata.image.image import MetadataImage
from ottla.protocol.apis.read_share_group_state import ReadShareGroupStateResponse
from ottla.protocol.apis.write_share_group_state import WriteShareGroupStateResponse
from ottla.purgatory.pending import Pending
from ottla.purgatory.timing_wheel import TimingWheel
from ottla.records.builder import encode_batch
from ottla.replication.share import acknowledging
from ottla.replication.share.acknowledging import Acknowledgement
from ottla.replication.share.acquiring import AcquireRequest, Fetched, FetchedBatch, acquire
from ottla.replication.share.session import MemberKey, ShareSession, TopicIdPartition
from ottla.replication.share.states import SharePartitionKey
from ottla.server.share.delayed_fetch import DelayedShareFetch, ShareFetchLimits
from ottla.server.share.partitions import SharePartitions
from ottla.types import TopicPartition, Uuid
from tests.coordinator.harness import VirtualClock

if TYPE_CHECKING:
    from ottla.replication.share.partition import SharePartition

SETTINGS = {
    "process.roles": "broker",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.bootstrap.servers": "localhost:9093",
    "listeners": "PLAINTEXT://localhost:9092",
}
_READ = ReadShareGroupStateResponse.ReadStateResult
_WRITTEN = WriteShareGroupStateResponse.WriteStateResult
TOPIC = Uuid(bytes(range(16)))


def _replica(index: int) -> Any:
    return SimpleNamespace(
        topic_id=TOPIC,
        topic_partition=TopicPartition("t", index),
        is_leader=True,
        leader_epoch=1,
        check_leader=lambda: None,
        log=SimpleNamespace(high_watermark=0),
    )


def test_a_leader_change_ends_the_share_partitions_of_its_partition() -> None:
    """Of all groups, and no others; they can be opened again, and all can be ended."""
    replicas = {index: _replica(index) for index in range(3)}
    any_: Any = SimpleNamespace(
        config=SimpleNamespace(group_share_max_share_sessions=10),
        by_topic_id={TOPIC: replicas},
        on_high_watermark=lambda _listener, _waiting: None,
    )
    timer: Any = SimpleNamespace()
    share = SharePartitions(any_, any_, any_, any_, timer=timer, clock=VirtualClock())
    keys = [SharePartitionKey(group, TOPIC, index) for group in ("g", "h") for index in range(3)]
    opened = {key: share.open(key) for key in keys}
    share.leader_changed(replicas[1])
    assert len(share) == 6
    replicas[1].leader_epoch = 2
    share.leader_changed(replicas[1])
    assert {one.key for one in share} == {key for key in keys if key.partition != 1}
    assert share.open(keys[1]) is not opened[keys[1]]
    assert share.open(keys[0]) is opened[keys[0]]
    replicas[0].is_leader = False
    share.leader_changed(replicas[0])
    assert len(share) == 3
    delta: Any = SimpleNamespace(features_changed={SHARE_VERSION})
    share.metadata_changed(delta, MetadataImage())  # of a cluster without the feature
    assert not list(share)
    assert not share._keys_of


class _Share:
    """The share partitions of a broker whose share coordinator answers when it is let."""

    def __init__(self) -> None:
        self.replica = _replica(0)
        self.replica.log.log_end_offset = 1000
        self.reads: list[Pending[Any]] = []
        self.writes: list[Pending[Any]] = []
        any_: Any = SimpleNamespace(
            config=parse_broker_config(SETTINGS),
            image=SimpleNamespace(configs=SimpleNamespace(of=lambda _kind, _name: {})),
            by_topic_id={TOPIC: {0: self.replica}},
            on_high_watermark=lambda _listener, _waiting: None,
            read=lambda _request: self._later(self.reads),
            write=lambda _request: self._later(self.writes),
        )
        self.partitions = SharePartitions(
            any_, any_, any_, any_, timer=TimingWheel(0), clock=VirtualClock()
        )
        self.key = SharePartitionKey("g", TOPIC, 0)

    def _later(self, answers: list[Pending[Any]]) -> Pending[Any]:
        answers.append(Pending())
        return answers[-1]

    def begin_session(self, member_id: str) -> ShareSession:
        member = MemberKey("g", member_id)
        return self.partitions.sessions.begin(member, [TopicIdPartition(TOPIC, 0)], object())

    def load(self) -> SharePartition:
        found = self.partitions.open(self.key)
        done = found.initialize()
        result = _READ(topic_id=TOPIC, partitions=[_loaded()])
        self.reads.pop().complete(ReadShareGroupStateResponse(results=[result]))
        assert done.error is None
        return found

    def acquire(self, partition: SharePartition, member_id: str) -> list[Any]:
        fetched = Fetched([FetchedBatch(0, 9, 0, 10, -1, False, False)])
        return acquire(partition, AcquireRequest(member_id, 500, 500, False), 0, fetched)

    def written(self, code: ErrorCode = ErrorCode.NONE) -> None:
        part = _WRITTEN.PartitionResult(partition=0, error_code=int(code))
        result = _WRITTEN(topic_id=TOPIC, partitions=[part])
        self.writes.pop(0).complete(WriteShareGroupStateResponse(results=[result]))


def _loaded() -> Any:
    return _READ.PartitionResult(partition=0, state_epoch=1, start_offset=0, state_batches=[])


def test_share_partitions_end_with_the_last_session_of_their_group() -> None:
    """An administrator may reset the offsets of an empty group: the next member loads them.

    What a member has acknowledged is stored before that.
    """
    share = _Share()
    first, second = share.begin_session("a"), share.begin_session("b")
    partition = share.load()
    assert share.acquire(partition, "a")
    done = share.partitions.acknowledge(share.key, "a", [Acknowledgement(0, 9, [1])])
    share.partitions.end_session(second)
    share.partitions.end_session(first)
    assert share.partitions.find(share.key) is partition
    share.written()
    assert done.succeeded
    assert share.partitions.find(share.key) is None
    assert share.load() is not partition


def test_a_late_end_of_a_session_does_not_end_its_member_s_next_one() -> None:
    """The records of the next session would go to other members."""
    share = _Share()
    before = share.begin_session("a")
    partition = share.load()
    after = share.begin_session("a")
    assert share.acquire(partition, "a")
    share.partitions.end_session(before)
    assert share.partitions.sessions.is_current(after)
    assert not share.acquire(partition, "b")
    assert share.partitions.find(share.key) is partition


def test_a_fetch_acquires_nothing_after_the_end_of_its_session() -> None:
    """No other member would get the records until the locks of the one that is gone expire."""
    share = _Share()
    data = bytes(encode_batch([(0, None, b"value", ())] * 10))
    share.replica.check_leader = lambda _epoch=0: None
    share.replica.read = lambda *_arguments: (data, None)
    gone, _ = share.begin_session("a"), share.begin_session("b")
    partition = share.load()
    is_wanted = partial(share.partitions.sessions.is_current, gone)
    limits = ShareFetchLimits("a", 500, 10_000, 10_000, 500, 500, False, is_wanted)
    waiting = DelayedShareFetch(
        lambda _key, _error: None,
        {"t-0": partition},
        limits,
        500,
        lambda _volume, job, done: done(job(), None),
    )
    share.partitions.fetches.try_complete_else_watch(waiting, [share.key])
    assert not waiting.answer.done
    share.partitions.end_session(gone)
    assert waiting.answer.value["t-0"].acquired == []
    assert share.acquire(partition, "b")


def test_a_session_that_is_refused_leaves_the_earlier_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends with its connection, which releases its records."""
    share = _Share()
    before = share.begin_session("a")
    partition = share.load()
    assert share.acquire(partition, "a")
    monkeypatch.setattr("ottla.replication.share.session.MAX_PARTITIONS", 0)
    with pytest.raises(KafkaError):
        share.begin_session("a")
    share.partitions.connection_closed(before.connection)
    share.written()
    assert share.partitions.find(share.key) is None
    assert share.partitions.sessions.partition_count == 0


def test_a_late_error_does_not_end_the_share_partition_that_took_its_place() -> None:
    """The locks of its members would be gone, and others would get their records."""
    share = _Share()
    share.begin_session("a")
    before = share.load()
    assert share.acquire(before, "a")
    share.partitions.acknowledge(share.key, "a", [Acknowledgement(0, 4, [1])])
    share.partitions.drop(before)
    after = share.load()
    assert share.acquire(after, "a")
    share.written(ErrorCode.FENCED_LEADER_EPOCH)
    share.partitions.failed(before, KafkaError(ErrorCode.FENCED_STATE_EPOCH))
    share.partitions.drop(before)
    assert share.partitions.find(share.key) is after


def test_the_end_of_a_lock_learns_of_a_fenced_leader() -> None:
    """As acknowledgements do: the next fetch loads the state that another leader has written."""
    share = _Share()
    share.begin_session("a")
    partition = share.load()
    assert share.acquire(partition, "a")
    acknowledging.expire_lock(partition, 0, 9)
    assert not share.writes  # not over yet
    partition.environment.clock.time_ms += 30_000  # type: ignore[attr-defined] # virtual
    acknowledging.expire_lock(partition, 0, 9)
    share.written(ErrorCode.FENCED_STATE_EPOCH)
    assert share.partitions.find(share.key) is None
