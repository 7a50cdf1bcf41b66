"""What a leader decides about its followers, one step at a time."""

from __future__ import annotations

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.records.builder import encode_batch
from ottla.replication.leader_state import CommittedIsr, LeaderState, ProposedIsr
from ottla.replication.partition import Partition
from ottla.storage.log.config import LogConfig
from ottla.storage.log.partition_log import PartitionLog
from ottla.testing.disk import SimulatedDisk
from ottla.types import TopicPartition, Uuid

NOW_MS = 1_000_000
LAG_MS = 500
EPOCHS = {1: 11, 2: 12, 3: 13}


class Environment:
    """All brokers run, unless a test says otherwise."""

    node_id = 1
    max_lag_ms = LAG_MS
    broker_epoch = EPOCHS[1]

    def __init__(self) -> None:
        self.epochs = dict(EPOCHS)
        self.leaving: set[int] = set()
        """Brokers in controlled shutdown."""
        self.proposed: list[ProposedIsr] = []

    def may_join(self, broker_id: int, broker_epoch: int) -> bool:
        """Whether it is the incarnation that is registered."""
        is_active = self.is_unfenced(broker_id) and broker_id not in self.leaving
        return is_active and broker_epoch in (-1, self.epochs[broker_id])

    def is_unfenced(self, broker_id: int) -> bool:
        """Whether it is registered."""
        return broker_id in self.epochs

    def is_stale(self, broker_id: int, broker_epoch: int) -> bool:
        """Whether a later incarnation is registered."""
        return self.epochs.get(broker_id, -1) > broker_epoch

    def propose(self, _leading: LeaderState, proposal: ProposedIsr) -> None:
        """Note what goes to the controller."""
        self.proposed.append(proposal)

    def high_watermark_moved(self, _partition: object, /) -> None:
        """Take note of nothing."""


class Waits:
    """Notes acknowledgements."""

    is_over = False

    def __init__(self) -> None:
        self.codes: list[tuple[int, ErrorCode]] = []

    def acknowledged(self, position: int, code: ErrorCode) -> None:
        """Take the result."""
        self.codes.append((position, code))


class World:
    """Broker 1 leads a partition with replicas on 1, 2 and 3 in epoch 5."""

    def __init__(self, isr: tuple[int, ...] = (1, 2, 3), min_isr: int = 2) -> None:
        self.environment = Environment()
        log = PartitionLog.open(SimulatedDisk(), "t-0", config=LogConfig(), now_ms=NOW_MS)
        self.partition = Partition(
            TopicPartition("t", 0), Uuid(b"0123456789abcdef"), log, environment=self.environment
        )
        self.partition.reconfigure(min_isr)
        self.partition.assign((1, 2, 3), isr, 7)
        self.partition.become_leader(1, 5, now_ms=NOW_MS)

    @property
    def leading(self) -> LeaderState:
        """Return the leader's state."""
        assert self.partition.leading is not None
        return self.partition.leading

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        """Return who the high watermark waits for."""
        return self.leading.maximal_isr

    @property
    def high_watermark(self) -> int:
        """Return it."""
        return self.partition.log.high_watermark

    def append(self, count: int = 1) -> None:
        """Append records."""
        for _ in range(count):
            batch = encode_batch([(NOW_MS, None, b"v", ())])
            self.partition.log.writes.append_as_leader(memoryview(batch), 5, NOW_MS)
            self.leading.appended()

    def fetch(
        self,
        broker_id: int,
        offset: int,
        now_ms: int = NOW_MS,
        epoch: int = -1,
        *,
        log_start_offset: int = 0,
    ) -> None:
        """Fetch as a follower."""
        requested = (5, offset, -1, log_start_offset, 1000)
        epoch = EPOCHS[broker_id] if epoch < 0 else epoch
        self.partition.read_for_follower(broker_id, epoch, requested, 1000, now_ms=now_ms)


def test_the_high_watermark_is_the_lowest_end_of_the_in_sync_set() -> None:
    """Two of three are not enough: all that may be elected have it."""
    world = World()
    world.append(10)
    assert world.high_watermark == 0
    world.fetch(2, 10)
    assert world.high_watermark == 0
    world.fetch(3, 4)
    assert world.high_watermark == 4


def test_acknowledgements_wait_in_the_order_of_offsets() -> None:
    """The high watermark completes them; the end of the leadership fails the others."""
    world, waits = World(), Waits()
    world.append(3)
    for offset in (1, 2, 3):
        world.leading.acknowledge(offset, waits, offset)
    for broker_id in (2, 3):
        world.fetch(broker_id, 2)
    assert waits.codes == [(1, ErrorCode.NONE), (2, ErrorCode.NONE)]
    world.partition.resign(2, 6)
    assert waits.codes[2:] == [(3, ErrorCode.NOT_LEADER_OR_FOLLOWER)]


def test_the_low_watermark_is_the_lowest_start_of_live_replicas() -> None:
    """Who waits for it is answered when the last of the followers has deleted."""
    world, waits = World(), Waits()
    world.append(3)
    for broker_id in (2, 3):
        world.fetch(broker_id, 3)
    world.partition.log.truncation.delete_records_before(2)
    for offset in (2, 3):
        world.leading.deletions.add(offset, waits, offset)
    world.fetch(2, 3, log_start_offset=2)
    world.environment.leaving.add(3)  # serves and fetches yet
    assert (world.leading.low_watermark, waits.codes) == (0, [])
    world.fetch(3, 3, log_start_offset=2)
    assert (world.leading.low_watermark, waits.codes) == (2, [(2, ErrorCode.NONE)])
    world.fetch(3, 3, log_start_offset=1)
    del world.environment.epochs[3]
    assert world.leading.low_watermark == 2
    world.partition.resign(2, 6)
    assert waits.codes[1:] == [(3, ErrorCode.NOT_LEADER_OR_FOLLOWER)]


def test_a_lagging_follower_counts_until_the_controller_has_removed_it() -> None:
    """The leader proposes; what the controller commits counts."""
    world = World()
    world.append(2)
    world.fetch(2, 2, now_ms=NOW_MS + LAG_MS)
    world.leading.check_lag(NOW_MS + LAG_MS + 1)
    proposal = world.environment.proposed[0]
    assert proposal.members == ((1, 11), (2, 12))
    assert world.high_watermark == 0
    world.leading.answered(proposal, CommittedIsr((1, 2), 5, 8))
    assert (world.partition.isr, world.high_watermark) == ((1, 2), 2)


def test_a_replica_that_is_proposed_to_join_counts_at_once() -> None:
    """The controller may have committed it already."""
    world = World(isr=(1, 2))
    world.append(2)
    world.fetch(2, 2)
    assert world.high_watermark == 2
    world.fetch(3, 2)
    assert world.environment.proposed[0].ids == (1, 2, 3)
    world.append(1)
    world.fetch(2, 3)
    assert world.high_watermark == 2
    world.fetch(3, 3)
    assert world.high_watermark == 3


def test_a_refused_proposal_is_forgotten_only_when_it_cannot_have_been_committed() -> None:
    """After INVALID_UPDATE_VERSION the metadata decides."""
    world = World(isr=(1, 2))
    world.fetch(3, 0)
    proposal = world.environment.proposed[0]
    world.leading.refused(proposal, ErrorCode.INVALID_UPDATE_VERSION)
    assert world.maximal_isr == (1, 2, 3)
    world.leading.refused(proposal, ErrorCode.UNKNOWN_SERVER_ERROR)
    assert world.environment.proposed == [proposal, proposal]
    world.leading.refused(proposal, ErrorCode.INELIGIBLE_REPLICA)
    assert len(world.maximal_isr) == 2


def test_old_metadata_does_not_end_a_proposal() -> None:
    """The same partition epoch again says nothing about a proposal under way."""
    world = World(isr=(1, 2))
    world.fetch(3, 0)
    assert not world.partition.assign((1, 2, 3), (1, 2), 7)
    assert world.maximal_isr == (1, 2, 3)
    assert world.partition.assign((1, 2, 3), (1, 2), 8)
    world.partition.become_leader(1, 5, now_ms=NOW_MS)
    assert len(world.maximal_isr) == 2


def test_the_high_watermark_stays_under_min_isr() -> None:
    """What fewer replicas have than min.insync.replicas asks for is not committed (KIP-966)."""
    world = World(isr=(1,))
    world.append(2)
    assert world.high_watermark == 0
    with pytest.raises(KafkaError) as caught:
        world.partition.check_writable(-1)
    assert caught.value.code is ErrorCode.NOT_ENOUGH_REPLICAS


def test_a_fetch_of_a_former_incarnation_is_refused() -> None:
    """A broker that lost its log does not join by a fetch from before (KAFKA-15221, KIP-903)."""
    world = World(isr=(1, 2))
    world.environment.epochs[3] = 20
    with pytest.raises(KafkaError) as caught:
        world.fetch(3, 0)
    assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert not world.environment.proposed
    world.fetch(3, 0, epoch=20)
    assert world.environment.proposed[0].members == ((1, 11), (2, -1), (3, 20))


def test_a_new_leader_epoch_forgets_where_followers_were() -> None:
    """They may have truncated their logs in an epoch that this leader has not seen."""
    world, waits = World(), Waits()
    world.append(2)
    world.fetch(2, 2)
    world.leading.acknowledge(2, waits, 0)
    world.partition.assign((1, 2, 3), (1, 2, 3), 9)
    world.partition.become_leader(1, 7, now_ms=NOW_MS)
    assert waits.codes == [(0, ErrorCode.NOT_LEADER_OR_FOLLOWER)]
    assert [one.log_end_offset for one in world.leading.followers.values()] == [-1, -1]
    assert world.leading.epoch_start_offset == 2


def test_a_broker_that_is_no_replica_is_refused() -> None:
    """It may know of a reassignment that has not reached the leader."""
    world = World()
    with pytest.raises(KafkaError) as caught:
        world.leading.check_follower(9, 1, knows_epoch=True)
    assert caught.value.code is ErrorCode.UNKNOWN_LEADER_EPOCH
