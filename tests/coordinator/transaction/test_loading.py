"""A coordinator that takes over a partition, and what it does about the transactions in it."""

from __future__ import annotations

from ottla.coordinator.runtime.active import ShardState
from ottla.coordinator.runtime.shard import Result
from ottla.coordinator.transaction import queries, state
from ottla.coordinator.transaction.decisions import EndRequest, ProducerKey
from ottla.coordinator.transaction.state import TransactionState
from ottla.errors import ErrorCode
from ottla.protocol.apis.list_transactions import ListTransactionsRequest
from ottla.types import TopicPartition
from tests.coordinator.transaction.world import World


def begin(world: World, name: str) -> ProducerKey:
    """Begin a transaction in one partition."""
    found = world.coordinator.init_producer_id(name, 60_000, None).value
    producer = ProducerKey(found.producer_id, found.producer_epoch)
    added = world.coordinator.add_partitions(name, producer, [TopicPartition("a", 0)], 2)
    assert added.value is ErrorCode.NONE
    return producer


def test_markers_wait_for_a_decision_that_comes_right_after_the_load() -> None:
    """Requests are served before the soft state is rebuilt: their decisions are not committed."""
    world = World().elect()
    producers = {f"t{number}": begin(world, f"t{number}") for number in range(400)}
    world.coordinator = world.make()
    world.elect(loads=False)
    while world.coordinator.runtime.partitions[0] is not ShardState.ACTIVE:
        world.advance(1)
    world.log.is_holding = True
    request = EndRequest(producers["t7"], committed=True, client_version=2)
    ended = world.coordinator.end_transaction("t7", request)
    world.advance(50)
    assert not ended.done
    assert not world.sent
    world.log.commit(0)
    assert ended.value.code is ErrorCode.NONE
    assert len(world.sent) == 1


def test_markers_of_a_loaded_decision_are_written_once() -> None:
    """A decision in the log is carried out by the coordinator that loads it."""
    world = World().elect()
    producer = begin(world, "t")
    world.coordinator.end_transaction("t", EndRequest(producer, committed=True, client_version=2))
    world.sent.clear()  # with the broker that sent them
    world.coordinator = world.make()
    world.elect()
    world.advance(50)
    assert len(world.sent) == 1
    world.write_markers()
    assert not world.sent
    world.coordinator = world.make()
    world.elect().advance(50)
    assert not world.sent


def test_an_election_that_is_known_changes_nothing() -> None:
    """The markers that are under way are still written, and complete their transaction."""
    world = World().elect()
    producer = begin(world, "t")
    world.coordinator.end_transaction("t", EndRequest(producer, committed=True, client_version=2))
    for leader_epoch in (world.leader_epoch, world.leader_epoch - 1):
        world.coordinator.on_elected(0, leader_epoch)
    world.write_markers()
    described = queries.describe(world.coordinator, "t").value
    assert described.transaction_state == "CompleteCommit"


def test_a_dead_id_is_not_shown() -> None:
    """Kafka has no such records; one that is in the log is neither listed nor described."""
    world = World().elect()
    begin(world, "t")
    begin(world, "dead")
    shard = world.coordinator.runtime.shard(0)
    dead = shard.transactions["dead"]._replace(state=TransactionState.DEAD)
    world.coordinator.runtime.write(0, lambda _: Result(None, [state.record_of(dead, 1)]))
    world.advance(1)
    every = ListTransactionsRequest(state_filters=[], producer_id_filters=[], duration_filter=-1)
    listed = queries.list_transactions(world.coordinator, every, world.clock.now_ms()).value
    assert [one.transactional_id for one in listed.transaction_states] == ["t"]
    described = queries.describe(world.coordinator, "dead").value
    assert described.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


def test_a_late_completion_does_not_complete_the_next_transaction() -> None:
    """Two transactions of an epoch look alike: a completion names the record of its decision."""
    world = World()
    world.version = 1
    world.elect()
    found = world.coordinator.init_producer_id("t", 60_000, None).value
    producer = ProducerKey(found.producer_id, found.producer_epoch)
    partition, commit = TopicPartition("a", 0), EndRequest(producer, True, 0)
    assert world.coordinator.add_partitions("t", producer, [partition], 0).value is ErrorCode.NONE
    assert world.coordinator.end_transaction("t", commit).value.code is ErrorCode.NONE
    world.log.is_holding = True
    world.write_markers()
    world.advance(30_001)  # the completion is not committed in time, and is to be tried again
    world.log.is_holding = False
    world.log.commit(0)
    assert world.coordinator.add_partitions("t", producer, [partition], 0).value is ErrorCode.NONE
    assert world.coordinator.end_transaction("t", commit).value.code is ErrorCode.NONE
    world.advance(200)
    transactions = world.coordinator.runtime.shard(0).transactions
    assert transactions["t"].state.text == "PrepareCommit"
    world.write_markers()
    assert transactions["t"].state.text == "CompleteCommit"
