"""AlterPartition: which changes of in-sync replicas the controller takes from a leader."""

from __future__ import annotations

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.alter_partition import AlterPartitionRequest
from ottla.types import ZERO_UUID, Uuid
from tests.controller.brokers import Brokers, PartitionData, TopicData


@pytest.fixture
def brokers() -> Brokers:
    """Run four brokers, the topic t on three of them."""
    brokers = Brokers(4)
    brokers.assigned("t", [1, 2, 3], min_insync_replicas="2")
    return brokers


def test_a_leader_shrinks_and_expands_its_isr(brokers: Brokers) -> None:
    """The answer is the partition after the change; the leader epoch stays."""
    shrunk = brokers.alter(1, "t", 1, 2)
    assert (shrunk.error_code, shrunk.leader_id, shrunk.isr) == (0, 1, [1, 2])
    assert (shrunk.leader_epoch, shrunk.partition_epoch) == (0, 1)
    assert brokers.partition("t").isr == (1, 2)
    grown = brokers.alter(1, "t", 1, 2, 3)
    assert (grown.isr, grown.leader_epoch, grown.partition_epoch) == ([1, 2, 3], 0, 2)


def test_a_change_to_the_same_isr_writes_nothing(brokers: Brokers) -> None:
    """It is answered with the partition as it is."""
    end = brokers.node.quorum.log_end_offset
    answer = brokers.alter(1, "t", 1, 2, 3)
    assert (answer.error_code, answer.isr, answer.partition_epoch) == (0, [1, 2, 3], 0)
    assert brokers.node.quorum.log_end_offset == end


@pytest.mark.parametrize(
    ("leader", "isr", "fields", "error"),
    [
        (1, (1, 2), {"leader_epoch": 1}, ErrorCode.NOT_CONTROLLER),
        (1, (1, 2), {"partition_epoch": 9}, ErrorCode.NOT_CONTROLLER),
        (2, (1, 2), {"leader_epoch": -1}, ErrorCode.FENCED_LEADER_EPOCH),
        (2, (1, 2), {"partition_epoch": -1}, ErrorCode.INVALID_REQUEST),
        (1, (1, 7), {"partition_epoch": -1}, ErrorCode.INVALID_UPDATE_VERSION),
        (1, (1, 4), {}, ErrorCode.INVALID_REQUEST),
        (1, (1, 2, 2), {}, ErrorCode.INVALID_REQUEST),
        (1, (2, 3), {}, ErrorCode.INVALID_REQUEST),
        (1, (), {}, ErrorCode.INVALID_REQUEST),
        (1, (1,), {"leader_recovery_state": 1}, ErrorCode.INVALID_REQUEST),
        (1, (1, 2), {"leader_recovery_state": 1}, ErrorCode.INVALID_REQUEST),
        (1, (1, 2), {"leader_recovery_state": 5}, ErrorCode.INVALID_REQUEST),
        (1, (1, (2, 5)), {}, ErrorCode.INELIGIBLE_REPLICA),
        (1, ((1, 0), 2), {}, ErrorCode.INELIGIBLE_REPLICA),
        (1, (1, 2), {"partition_index": 7}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_refuses_changes(
    brokers: Brokers,
    leader: int,
    isr: tuple[int | tuple[int, int], ...],
    fields: dict[str, int],
    error: ErrorCode,
) -> None:
    """The first thing that is wrong is answered, in Kafka's order, and nothing changes."""
    before = brokers.partition("t")
    assert brokers.alter(leader, "t", *isr, **fields).error_code == error
    assert brokers.partition("t") == before


def test_members_must_be_active_in_the_incarnation_that_the_leader_saw(brokers: Brokers) -> None:
    """A late fetch of an earlier incarnation brings no empty replica into the ISR (KIP-903)."""
    seen = brokers.epochs[2]
    brokers.beat(2, fence=True)
    assert brokers.partition("t").isr == (1, 3)
    assert brokers.alter(1, "t", 1, 2, 3).error_code == ErrorCode.INELIGIBLE_REPLICA
    brokers.join(2)
    assert brokers.alter(1, "t", 1, (2, seen), 3).error_code == ErrorCode.INELIGIBLE_REPLICA
    assert brokers.alter(1, "t", 1, (2, -1), 3).isr == [1, 2, 3]
    brokers.assigned("led", [3, 1])
    brokers.alter(1, "t", 1, 2)
    assert not brokers.beat(3, stop=True).is_fenced
    assert brokers.alter(1, "t", 1, 2, 3).error_code == ErrorCode.INELIGIBLE_REPLICA


def test_a_repeated_request_is_refused(brokers: Brokers) -> None:
    """The leader learns the outcome of the first one before it asks again (KAFKA-12751)."""
    assert brokers.alter(1, "t", 1, 2).error_code == 0
    repeated = brokers.alter(1, "t", 1, 2, partition_epoch=0)
    assert repeated.error_code == ErrorCode.INVALID_UPDATE_VERSION


def test_version_2_names_members_without_epochs(brokers: Brokers) -> None:
    """They are eligible in any incarnation."""
    topic_id = brokers.image.topics.by_name["t"].topic_id
    data = PartitionData(partition_index=0, leader_epoch=0, partition_epoch=0, new_isr=[1, 3])
    request = AlterPartitionRequest(
        broker_id=1,
        broker_epoch=brokers.epochs[1],
        topics=[TopicData(topic_id=topic_id, partitions=[data])],
    )
    assert brokers.ask(request).topics[0].partitions[0].isr == [1, 3]


def test_unknown_topics_and_empty_requests(brokers: Brokers) -> None:
    """Each partition of an unknown topic has the error; a request without topics has none."""
    data = PartitionData(partition_index=3, leader_epoch=0, partition_epoch=0)
    topics = [
        TopicData(topic_id=topic_id, partitions=[data]) for topic_id in (ZERO_UUID, Uuid(b"x" * 16))
    ]
    request = AlterPartitionRequest(broker_id=1, broker_epoch=brokers.epochs[1], topics=topics)
    answers = [topic.partitions for topic in brokers.ask(request).topics]
    assert [[(one.partition_index, one.error_code) for one in topic] for topic in answers] == [
        [(3, ErrorCode.UNKNOWN_TOPIC_ID)]
    ] * 2
    assert brokers.ask(AlterPartitionRequest(broker_id=9, topics=[])).topics == []


@pytest.mark.parametrize("epoch", [-1, 10_000])
def test_another_incarnation_of_the_leader_is_refused(brokers: Brokers, epoch: int) -> None:
    """The whole request fails."""
    request = AlterPartitionRequest(
        broker_id=1, broker_epoch=epoch, topics=[TopicData(topic_id=ZERO_UUID, partitions=[])]
    )
    with pytest.raises(KafkaError) as caught:
        brokers.ask(request)
    assert caught.value.code == ErrorCode.STALE_BROKER_EPOCH


def test_an_unclean_leader_is_alone_until_it_has_recovered() -> None:
    """Its ISR grows only with the state RECOVERED (KIP-704)."""
    brokers = Brokers(3)
    brokers.assigned("t", [1, 2], unclean_leader_election_enable="true")
    brokers.alter(1, "t", 1)
    brokers.join(1, previous_broker_epoch=-1)  # it may have lost its records
    led = brokers.partition("t")
    assert (led.leader, led.isr, led.leader_recovery_state) == (2, (2,), 1)
    recovering = brokers.alter(2, "t", 1, 2, leader_recovery_state=1)
    assert recovering.error_code == ErrorCode.INVALID_REQUEST
    assert brokers.alter(2, "t", 2).leader_recovery_state == 1
    recovered = brokers.alter(2, "t", 1, 2, leader_recovery_state=0)
    assert (recovered.isr, recovered.leader_recovery_state) == ([1, 2], 0)
    assert brokers.partition("t").leader_recovery_state == 0


def test_the_change_that_completes_a_reassignment_moves_the_leader_away(brokers: Brokers) -> None:
    """The old leader learns that there is a new one; a leader that stays gets the partition."""
    brokers.reassign("t", [4, 2, 3])
    assert brokers.alter(1, "t", 1, 2, 3, 4).error_code == ErrorCode.NEW_LEADER_ELECTED
    after = brokers.partition("t")
    assert (after.leader, after.replicas, after.isr) == (4, (4, 2, 3), (2, 3, 4))
    assert not after.is_reassigning
    brokers.reassign("t", [4, 2, 1])
    stays = brokers.alter(4, "t", 4, 2, 3, 1)
    assert (stays.error_code, stays.leader_id, stays.isr) == (0, 4, [4, 2, 1])
    assert stays.leader_epoch == after.leader_epoch + 1  # so that followers notice
