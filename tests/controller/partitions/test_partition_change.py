"""Elections and in-sync replicas, with and without eligible leader replicas (KIP-966)."""

from __future__ import annotations

from ottla.controller.partitions.partition_change import Election, PartitionChange
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


def test_an_eligible_replica_does_not_lead_while_another_is_in_sync() -> None:
    """The replica in sync may come back with more records."""
    partition = _partition(isr=(1,), eligible_leader_replicas=(2,))
    after = _apply(_change(partition, [1], {2}), partition)
    assert (after.leader, after.isr, after.eligible_leader_replicas) == (NO_LEADER, (1,), (2,))
    assert after.last_known_elr == (1,)
    back = _apply(_change(after, [1], {1, 2}), after)
    assert (back.leader, back.isr, back.last_known_elr) == (1, (1,), ())


def test_an_unclean_leader_leaves_no_eligible_replicas() -> None:
    """They may have records that it lacks."""
    partition = _partition(isr=(1,), eligible_leader_replicas=(2,))
    change = _change(partition, [1], {3})
    change.election = Election.UNCLEAN
    after = _apply(change, partition)
    assert (after.leader, after.isr, after.eligible_leader_replicas) == (3, (3,), ())


def test_a_replica_that_is_no_longer_assigned_is_not_eligible() -> None:
    """If it is assigned again it starts without its data."""
    partition = _partition(isr=(1, 2, 3), removing_replicas=(2, 3))
    after = _apply(_change(partition, [1, 2, 3], {1, 2, 3}), partition)
    assert (after.replicas, after.isr, after.eligible_leader_replicas) == ((1,), (1,), ())
    assert (after.leader, after.leader_epoch) == (1, 6)


def test_a_smaller_isr_is_a_new_epoch_before_3_6() -> None:
    """Leaders of that time wait for it (KAFKA-15021)."""
    partition = _partition()
    change = _change(partition, [1, 2], {1, 2, 3}, elr=False)
    change.bumps_epoch_on_shrink = True
    assert _apply(change, partition).leader_epoch == 6


def test_new_replicas_get_the_default_directory() -> None:
    """Those of before keep theirs; records of old versions have none."""
    partition = _partition()._replace(directories=(Uuid(b"a" * 16), Uuid(b"b" * 16), Uuid()))
    default = Uuid(b"d" * 16)
    for version, directories in ((2, [Uuid(b"b" * 16), default, Uuid()]), (0, None)):
        change = PartitionChange(TOPIC_ID, 0, partition, lambda _: True, lambda _: default)
        change.replicas, change.isr = [2, 4, 3], [2, 3]
        record = change.build(version)
        assert record is not None
        assert isinstance(record.message, PartitionChangeRecord)
        assert record.message.directories == directories
