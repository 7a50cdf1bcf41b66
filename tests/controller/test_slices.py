"""Decisions on many partitions take several turns of the loop; others are made in between."""

from __future__ import annotations

import pytest

from ottla.controller import runtime
from ottla.controller.partitions import alter_partition, leadership
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.framing import MessageAndVersion, encode_record
from ottla.protocol.apis.alter_partition import AlterPartitionRequest
from ottla.protocol.apis.create_topics import CreateTopicsRequest
from ottla.protocol.apis.delete_topics import DeleteTopicsRequest
from ottla.protocol.apis.unregister_broker import UnregisterBrokerRequest
from ottla.protocol.records.metadata import BrokerRegistrationChangeRecord
from ottla.types import ZERO_UUID
from tests.controller.brokers import Brokers, PartitionData, TopicData, registration
from tests.controller.cluster_model import ClusterModel, check_replay
from tests.controller.harness import _none, assigned_topic

MODULES = (alter_partition, alter_partition, leadership, leadership)


@pytest.fixture(autouse=True)
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a slice have two partitions."""
    for module in MODULES:
        monkeypatch.setattr(module, "PARTITIONS_PER_SLICE", 2)


def _with_partitions(count: int = 5) -> Brokers:
    brokers = Brokers(3)
    brokers.assigned("t", *([1, 2, 3] for _ in range(count)))
    return brokers


def _leaders(brokers: Brokers) -> list[int]:
    """Return the leaders in the controller's state, committed or not."""
    topic = brokers.node._runtime.controller.topics.by_name("t")
    return [] if topic is None else [one.leader for one in topic.partitions.values()]


def _unregister(broker_id: int) -> UnregisterBrokerRequest:
    return UnregisterBrokerRequest(broker_id=broker_id)


def test_a_broker_is_fenced_slice_by_slice() -> None:
    """The fence itself comes last, as in Kafka's order of records."""
    brokers = _with_partitions()
    answer = brokers.send(brokers.heartbeat_of(1, fence=True))
    assert _leaders(brokers) == [2, 2, 1, 1, 1]
    brokers.run_turn()
    assert answer.value.is_fenced
    assert _leaders(brokers) == [2] * 5
    assert brokers.image.cluster.brokers[1].fenced
    assert [brokers.partition("t", number).isr for number in range(5)] == [(2, 3)] * 5


def test_a_broker_that_is_being_fenced_neither_joins_nor_leads() -> None:
    """Kafka fences in one step; here other requests are decided in between."""
    brokers = _with_partitions()
    brokers.send(brokers.heartbeat_of(1, fence=True))
    topic = brokers.node._runtime.controller.topics.by_name("t")
    assert topic is not None
    partition = topic.partitions[0]
    data = PartitionData(
        partition_index=0,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        new_isr_with_epochs=[
            PartitionData.BrokerState(broker_id=one, broker_epoch=brokers.epochs[one])
            for one in (1, 2, 3)
        ],
    )
    topics = [TopicData(topic_id=topic.topic_id, partitions=[data])]
    request = AlterPartitionRequest(broker_id=2, broker_epoch=brokers.epochs[2], topics=topics)
    alter = brokers.send(request)
    created = brokers.send(CreateTopicsRequest(topics=[assigned_topic("u", [1, 2])]))
    beat = brokers.send(brokers.heartbeat_of(1))
    brokers.run_turn()
    assert alter.value.topics[0].partitions[0].error_code == ErrorCode.INELIGIBLE_REPLICA
    assert created.value.topics[0].error_code == 0
    assert brokers.partition("u").leader == 2
    assert not beat.value.is_fenced
    assert brokers.image.cluster.brokers[1].fenced


def test_topics_may_be_deleted_in_between() -> None:
    """Their partitions are left out."""
    brokers = _with_partitions()
    answer = brokers.send(_unregister(1))
    topic = DeleteTopicsRequest.DeleteTopicState(name="t", topic_id=ZERO_UUID)
    deleted = brokers.send(DeleteTopicsRequest(topics=[topic], timeout_ms=1000))
    brokers.run_turn()
    assert deleted.value.responses[0].error_code == 0
    assert answer.value.error_code == 0
    assert 1 not in brokers.image.cluster.brokers


def test_decisions_in_slices_wait_for_each_other() -> None:
    """A broker that registers while its former incarnation is fenced does so afterwards."""
    brokers = _with_partitions()
    fenced = brokers.send(brokers.heartbeat_of(1, fence=True))
    brokers.node._runtime.controller.cluster.heartbeats.end_session(1)
    registered = brokers.send(registration(1, 77))
    brokers.run_turn()
    assert fenced.value.is_fenced
    epoch = registered.value.broker_epoch
    assert brokers.image.cluster.brokers[1].broker_epoch == epoch > brokers.epochs[1]


def test_a_controller_that_resigns_in_between_reverts_and_forgets() -> None:
    """Requests fail with NOT_CONTROLLER; the next one decides again."""
    brokers = _with_partitions()
    answers = [brokers.send(brokers.heartbeat_of(1, fence=True)), brokers.send(_unregister(2))]
    brokers.node._runtime.resigned(1)
    for answer in answers:
        assert isinstance(answer.error, KafkaError)
        assert answer.error.code is ErrorCode.NOT_CONTROLLER
    assert _leaders(brokers) == [1] * 5
    assert brokers.node._runtime.controller.cluster.is_active(1)


def test_slices_wait_while_much_is_uncommitted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit applies all of it in one turn."""
    monkeypatch.setattr(runtime, "_MAX_UNCOMMITTED", 3)
    brokers = _with_partitions(9)
    disk, brokers.jobs = brokers.jobs, []
    answer = brokers.send(brokers.heartbeat_of(1, fence=True))
    flushes = [job for job in brokers.jobs if job[0] is not _none]
    brokers.jobs = [job for job in brokers.jobs if job[0] is _none]
    brokers.run_turn()
    assert _leaders(brokers) == [2] * 4 + [1] * 5
    assert not answer.done
    brokers.jobs += disk + flushes
    brokers.run_turn()
    assert answer.value.is_fenced
    assert _leaders(brokers) == [2] * 9


def test_a_fault_in_the_last_slice_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next decision is made all the same."""
    brokers = _with_partitions()
    fenced = brokers.send(brokers.heartbeat_of(1, fence=True))
    unregistered = brokers.send(_unregister(2))

    def encode(record: MessageAndVersion) -> bytes:
        if isinstance(record.message, BrokerRegistrationChangeRecord):
            raise ZeroDivisionError
        return encode_record(record)

    monkeypatch.setattr(runtime, "encode_record", encode)
    brokers.run_turn()
    assert isinstance(fenced.error, ZeroDivisionError)
    assert unregistered.value.error_code == 0
    assert 2 not in brokers.image.cluster.brokers


@pytest.mark.parametrize("seed", range(3))
def test_the_size_of_slices_changes_no_decision(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The metadata is that of decisions in one turn."""
    digests = []
    for size in (1, 1000):
        for module in MODULES:
            monkeypatch.setattr(module, "PARTITIONS_PER_SLICE", size)
        model = ClusterModel(seed)
        for _ in range(120):
            model.step()
        check_replay(model)
        digests.append(model.digest())
    assert digests[0] == digests[1]


def test_an_error_of_one_answer_does_not_keep_the_others_back() -> None:
    """Also where a controller ends its leadership, and all of them fail."""
    brokers = Brokers(1)
    first, second = (
        brokers.send(CreateTopicsRequest(topics=[assigned_topic(name, [1])])) for name in "ab"
    )

    def fail(_done: object) -> None:
        raise RuntimeError("planted")

    first.on_done(fail)
    brokers.node._runtime.resigned(1)
    with pytest.raises(KafkaError):
        second.value  # noqa: B018
