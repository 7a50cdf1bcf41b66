"""Elections and in-sync replicas, with and without eligible leader replicas (KIP-966)."""

from __future__ import annotations

from ottla.controller.partition_change import Election, PartitionChange
from ottla.metadata.partition import NO_LEADER, PartitionRegistration
from ottla.protocol.records.metadata import PartitionChangeRecord
from ottla.types import Uuid

TOPIC_ID = Uuid(b"t" * 16)


def _partition(
    isr: tuple[int, ...] = (1, 2, 3), leader: int = 1, **fields: tuple[int, ...]
) -> PartitionRegistration:
    partition = PartitionRegistration((1, 2, 3), (Uuid(),) * 3, isr, leader, 5, 7)
    return partition._replace(**fields)  # type: ignore[arg-type]  # fields of the tuple by name


def _change(
    partition: PartitionRegistration, isr: list[int], active: set[int], *, elr: bool = True
) -> PartitionChange:
    change = PartitionChange(TOPIC_ID, 0, partition, lambda broker: broker in active)
    change.isr, change.elr_enabled, change.min_isr = isr, elr, 2
    return change


def _apply(change: PartitionChange, partition: PartitionRegistration) -> PartitionRegistration:
    record = change.build(2)
    assert record is not None
    assert isinstance(record.message, PartitionChangeRecord)
    return partition.merge(record.message)


def test_nothing_to_change_makes_no_record() -> None:
    """A change to the current state makes no record."""
    partition = _partition()
    assert _change(partition, [1, 2, 3], {1, 2, 3}).build(2) is None


def test_a_follower_in_sync_takes_over() -> None:
    """When the leader fails, the first in-sync replica leads, in a new epoch."""
    partition = _partition()
    after = _apply(_change(partition, [2, 3], {2, 3}), partition)
    assert (after.leader, after.isr, after.leader_epoch) == (2, (2, 3), 6)
    assert after.eligible_leader_replicas == ()


def test_a_leader_that_stays_keeps_its_epoch() -> None:
    """A smaller ISR alone is no election."""
    partition = _partition()
    after = _apply(_change(partition, [1, 2], {1, 2}), partition)
    assert (after.leader, after.leader_epoch, after.partition_epoch) == (1, 5, 8)


def test_who_leaves_a_small_isr_stays_eligible() -> None:
    """Below min.insync.replicas the high watermark stands still, so leavers have all of it."""
    partition = _partition(isr=(1, 2))
    after = _apply(_change(partition, [1], {1}), partition)
    assert after.isr == (1,)
    assert after.eligible_leader_replicas == (2,)
    gone = _apply(_change(after, [], set()), after)
    assert (gone.leader, gone.isr) == (NO_LEADER, ())
    assert sorted(gone.eligible_leader_replicas) == [1, 2]
    assert gone.last_known_elr == (1,)
    back = _apply(_change(gone, [], {2}), gone)
    assert (back.leader, back.isr, back.leader_recovery_state) == (2, (2,), 0)
    assert back.eligible_leader_replicas == (1,)
    assert back.last_known_elr == ()


def test_without_elr_the_isr_never_becomes_empty() -> None:
    """The last in-sync replica stays in the ISR while it is offline."""
    partition = _partition(isr=(1,))
    after = _apply(_change(partition, [], set(), elr=False), partition)
    assert (after.leader, after.isr) == (NO_LEADER, (1,))


def test_unclean_election_is_recorded() -> None:
    """A replica that is out of sync leads only when that is allowed, and has to recover."""
    partition = _partition(isr=(1,))
    change = _change(partition, [1], {3}, elr=False)
    change.election = Election.UNCLEAN
    after = _apply(change, partition)
    assert (after.leader, after.isr, after.leader_recovery_state) == (3, (3,), 1)


def test_preferred_election_moves_the_leader_back() -> None:
    """The first replica leads again when it is in sync."""
    partition = _partition(leader=2)
    assert _change(partition, [1, 2, 3], {1, 2, 3}).build(2) is None
    change = _change(partition, [1, 2, 3], {1, 2, 3})
    change.election = Election.PREFERRED
    assert _apply(change, partition).leader == 1
