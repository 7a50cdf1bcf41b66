"""Reassignments: their steps, their replacement, their cancellation and what is refused."""

from __future__ import annotations

import pytest

from ottla.errors import ErrorCode
from ottla.protocol.apis.list_partition_reassignments import ListPartitionReassignmentsRequest
from tests.controller.brokers import Brokers, directory_of


@pytest.fixture
def brokers() -> Brokers:
    """Run five brokers, the topic t on three of them."""
    brokers = Brokers(5)
    brokers.assigned("t", [1, 2, 3], [2, 3, 1])
    return brokers


def _steps(brokers: Brokers) -> tuple[tuple[int, ...], ...]:
    partition = brokers.partition("t")
    return partition.replicas, partition.adding_replicas, partition.removing_replicas


def test_replicas_are_added_first_and_removed_when_the_others_are_in_sync(
    brokers: Brokers,
) -> None:
    """The target comes first, then what leaves; the last added replica completes it."""
    assert brokers.reassign("t", [4, 5, 1]) == (0, None)
    assert _steps(brokers) == ((4, 5, 1, 2, 3), (4, 5), (2, 3))
    assert brokers.partition("t").directories == tuple(map(directory_of, (4, 5, 1, 2, 3)))
    assert brokers.partition("t").leader_epoch == 0
    brokers.alter(1, "t", 1, 2, 3, 4)
    assert _steps(brokers) == ((4, 5, 1, 2, 3), (4, 5), (2, 3))
    assert brokers.alter(1, "t", 1, 2, 3, 4, 5).isr == [1, 4, 5]
    assert _steps(brokers) == ((4, 5, 1), (), ())
    partition = brokers.partition("t")
    assert (partition.leader, partition.leader_epoch) == (1, 1)
    assert partition.directories == tuple(map(directory_of, (4, 5, 1)))


def test_only_removals_wait_until_all_that_stay_are_in_sync(brokers: Brokers) -> None:
    """Otherwise the ISR would shrink below what was acknowledged."""
    brokers.alter(1, "t", 1, 3)
    brokers.reassign("t", [1, 2])
    assert _steps(brokers) == ((1, 2, 3), (), (3,))
    brokers.alter(1, "t", 1, 2, 3)
    assert _steps(brokers) == ((1, 2), (), ())
    assert brokers.partition("t").isr == (1, 2)


def test_a_new_order_needs_no_data(brokers: Brokers) -> None:
    """It is done at once, and the preferred leader is another one."""
    assert brokers.reassign("t", [3, 1, 2]) == (0, None)
    assert _steps(brokers) == ((3, 1, 2), (), ())
    assert brokers.partition("t").leader == 1
    assert brokers.elect(0, "t") == 0
    assert brokers.partition("t").leader == 3


def test_a_reassignment_is_replaced_by_another(brokers: Brokers) -> None:
    """What the first one was adding leaves again."""
    brokers.reassign("t", [4, 2, 3])
    brokers.alter(1, "t", 1, 2, 3)
    assert brokers.reassign("t", [5, 2, 3]) == (0, None)
    assert _steps(brokers) == ((5, 2, 3, 1, 4), (5,), (1, 4))


def test_cancelling_restores_the_assignment(brokers: Brokers) -> None:
    """Added replicas leave the ISR; a leader among them gives way."""
    brokers.reassign("t", [4, 5, 1])
    brokers.alter(1, "t", 1, 2, 3, 4)
    brokers.beat(1, fence=True)
    assert brokers.partition("t").leader == 4
    assert brokers.reassign("t", None) == (0, None)
    assert _steps(brokers) == ((1, 2, 3), (), ())
    partition = brokers.partition("t")
    assert (partition.leader, partition.isr) == (2, (2, 3))


def test_a_cancellation_that_needs_an_unclean_election_is_refused(brokers: Brokers) -> None:
    """Unless the topic allows it."""
    for topic, is_allowed in (("u", "true"), ("v", "false")):
        brokers.assigned(topic, [1, 2], unclean_leader_election_enable=is_allowed)
        brokers.reassign(topic, [4, 5, 3])
        brokers.alter(1, topic, 1, 4)
        brokers.beat(1, fence=True)
        assert brokers.partition(topic).isr == (4,)
        brokers.join(1)
    assert brokers.reassign("v", None) == (
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        (
            "Unable to revert partition assignment for v:0 because it would require an unclean "
            "leader election."
        ),
    )
    assert brokers.reassign("u", None) == (0, None)
    partition = brokers.partition("u")
    assert (partition.replicas, partition.leader, partition.isr) == ((1, 2), 1, (1,))


@pytest.mark.parametrize(
    ("name", "replicas", "code", "text"),
    [
        ("t", None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, None),
        (
            "t",
            [],
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes an empty replica list.",
        ),
        (
            "t",
            [1, 9],
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            (
                "The manual partition assignment includes broker 9, but no such broker is "
                "registered."
            ),
        ),
        (
            "t",
            [4, 4],
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes the broker 4 more than once.",
        ),
        ("no", [1], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "Unable to find a topic named no."),
    ],
)
def test_refuses_reassignments(
    brokers: Brokers, name: str, replicas: list[int] | None, code: ErrorCode, text: str | None
) -> None:
    """With Kafka's texts."""
    assert brokers.reassign(name, replicas) == (code, text)


def test_unknown_partitions_have_an_error(brokers: Brokers) -> None:
    """The topic is known, the partition is not."""
    assert brokers.reassign("t", [1], 7) == (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "Unable to find partition t:7.",
    )


def test_the_replication_factor_can_be_kept(brokers: Brokers) -> None:
    """Version 1 may forbid another one; what is being added and removed counts (KIP-860)."""
    refused = (
        ErrorCode.INVALID_REPLICATION_FACTOR,
        "The replication factor is changed from 3 to 2",
    )
    assert brokers.reassign("t", [4, 5], factor=False) == refused
    assert brokers.reassign("t", [4, 5, 3], factor=False) == (0, None)
    assert brokers.reassign("t", [4, 5], factor=False) == refused
    assert brokers.reassign("t", [4, 5, 2], factor=False) == (0, None)
    assert brokers.reassign("t", [4]) == (0, None)


def test_lists_what_is_in_progress(brokers: Brokers) -> None:
    """Of all topics, or of the named partitions."""
    struct = ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics
    brokers.reassign("t", [4, 2, 3])
    every = brokers.ask(ListPartitionReassignmentsRequest(topics=None)).topics
    ongoing = [(topic.name, [one.partition_index for one in topic.partitions]) for topic in every]
    assert ongoing == [("t", [0])]
    found = every[0].partitions[0]
    assert (found.replicas, found.adding_replicas) == ([4, 2, 3, 1], [4])
    assert found.removing_replicas == [1]
    named = [
        struct(name="t", partition_indexes=[1, 0, 5]),
        struct(name="no", partition_indexes=[0]),
    ]
    topics = brokers.ask(ListPartitionReassignmentsRequest(topics=named)).topics
    assert [one.partition_index for one in topics[0].partitions] == [0]
    brokers.alter(1, "t", 1, 2, 3, 4)
    assert not brokers.ask(ListPartitionReassignmentsRequest(topics=None)).topics
