"""Log directories of several brokers: where replicas lie, and directories that fail (KIP-858)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ottla.errors import ErrorCode
from ottla.metadata.partition import LOST_DIRECTORY, UNASSIGNED_DIRECTORY
from tests.controller.brokers import Brokers, directory_of

if TYPE_CHECKING:
    from ottla.types import Uuid

FIRST, SECOND = directory_of(1, 0), directory_of(1, 1)


@pytest.fixture
def brokers() -> Brokers:
    """Run three brokers, the first with two directories, and two topics."""
    brokers = Brokers(3)
    brokers.join(1, log_dirs=[FIRST, SECOND])
    brokers.assigned("t", [1, 2, 3])
    brokers.assigned("u", [1, 2, 3])
    return brokers


def test_the_only_directory_of_a_broker_is_known_without_a_report(brokers: Brokers) -> None:
    """One of several is not."""
    directories = brokers.partition("t").directories
    assert directories == (UNASSIGNED_DIRECTORY, directory_of(2), directory_of(3))


def test_a_replica_is_where_its_broker_reports_it(brokers: Brokers) -> None:
    """Leader and ISR stay; repeating it changes nothing."""
    assert brokers.place(1, "t", SECOND) == 0
    partition = brokers.partition("t")
    assert partition.directories[0] == SECOND
    assert (partition.leader, partition.isr, partition.leader_epoch) == (1, (1, 2, 3), 0)
    end = brokers.node.quorum.log_end_offset
    assert brokers.place(1, "t", SECOND) == 0
    assert brokers.node.quorum.log_end_offset == end
    brokers.join(4)
    assert brokers.place(4, "t", directory_of(4)) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert brokers.place(1, "t", SECOND, 9) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_replicas_in_a_failed_directory_give_up_leadership(brokers: Brokers) -> None:
    """Those of other directories, also of unknown ones, do not."""
    brokers.place(1, "t", FIRST)
    brokers.place(1, "u", SECOND)
    brokers.beat(1, offline=[SECOND, directory_of(9)])
    assert (brokers.partition("u").leader, brokers.partition("u").isr) == (2, (2, 3))
    assert (brokers.partition("t").leader, brokers.partition("t").isr) == (1, (1, 2, 3))
    assert brokers.image.cluster.brokers[1].log_directories == (FIRST,)
    assert brokers.elect(0, "u") == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE


@pytest.mark.parametrize("directory", [LOST_DIRECTORY, directory_of(1, 7)])
def test_a_replica_in_a_directory_that_is_offline_gives_up_leadership(
    brokers: Brokers, directory: Uuid
) -> None:
    """The broker reports where the replica is, or that it is lost."""
    assert brokers.place(1, "t", directory) == 0
    partition = brokers.partition("t")
    assert (partition.leader, partition.isr, partition.directories[0]) == (2, (2, 3), directory)


def test_a_broker_does_not_lead_from_a_failed_directory(brokers: Brokers) -> None:
    """Even when all others are gone."""
    brokers.place(1, "t", SECOND)
    brokers.beat(1, offline=[SECOND])
    for broker_id in (2, 3):
        brokers.beat(broker_id, fence=True)
    assert brokers.partition("t").leader == -1
    assert brokers.partition("u").leader == 1


def test_a_directory_that_returns_is_registered_by_the_same_incarnation(brokers: Brokers) -> None:
    """Its broker keeps epoch and leaderships, and the replicas there may be in sync again."""
    brokers.place(1, "t", FIRST)
    brokers.place(1, "u", SECOND)
    brokers.beat(1, offline=[SECOND])
    answer = brokers.register_again(1, log_dirs=[FIRST, SECOND])
    assert (answer.error_code, answer.broker_epoch) == (0, brokers.epochs[1])
    broker = brokers.image.cluster.brokers[1]
    assert broker.log_directories == (FIRST, SECOND)
    assert not broker.fenced
    assert (brokers.partition("u").leader, brokers.partition("u").isr) == (2, (2, 3))
    assert brokers.partition("t").leader == 1
    brokers.beat(1)
    assert brokers.alter(2, "u", 1, 2, 3).error_code == 0
    assert brokers.elect(0, "u") == 0
    assert brokers.partition("u").leader == 1


def test_a_partition_without_a_leader_gets_one_when_its_directory_returns() -> None:
    """The only replica has lost its directory, and is the last known leader."""
    brokers = Brokers(2)
    brokers.join(1, log_dirs=[FIRST, SECOND])
    brokers.assigned("alone", [1])
    brokers.place(1, "alone", SECOND)
    brokers.beat(1, offline=[SECOND])
    assert brokers.partition("alone").leader == -1
    brokers.register_again(1, log_dirs=[FIRST, SECOND])
    partition = brokers.partition("alone")
    assert (partition.leader, partition.isr) == (1, (1,))


def test_a_replica_whose_directory_returns_is_no_eligible_leader() -> None:
    """Its disk may have lost acknowledged records, as after an unclean shutdown (KIP-966)."""
    brokers = Brokers(3)
    brokers.join(1, log_dirs=[FIRST, SECOND])
    brokers.assigned("t", [1, 2], min_insync_replicas="2")
    brokers.place(1, "t", SECOND)
    brokers.beat(1, offline=[SECOND])
    assert (brokers.partition("t").isr, brokers.partition("t").eligible_leader_replicas) == (
        (2,),
        (1,),
    )
    brokers.beat(2, fence=True)
    assert brokers.partition("t").leader == -1
    brokers.register_again(1, log_dirs=[FIRST, SECOND])
    partition = brokers.partition("t")
    assert (partition.leader, partition.isr, partition.eligible_leader_replicas) == (-1, (), (2,))
    brokers.beat(2)
    assert brokers.partition("t").leader == 2
