"""Many transactions at once: no turn of the event loop does the work of all of them."""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
import re2

from ottla.coordinator.bounded_patterns import MAX_COST, BoundedPattern
from ottla.coordinator.transaction import queries
from ottla.coordinator.transaction.decisions import EndRequest, ProducerKey
from ottla.coordinator.transaction.markers import (
    PARTITIONS_IN_A_REQUEST,
    RETRY_MS,
    Markers,
)
from ottla.coordinator.transaction.state import Transaction, TransactionState
from ottla.errors import ErrorCode
from ottla.protocol.apis.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from ottla.protocol.apis.list_transactions import ListTransactionsRequest
from ottla.purgatory.work import MAX_STEPS, TURN_S
from ottla.server.broker.transaction_partitions import TransactionPartitions
from ottla.types import TopicPartition
from tests.coordinator.transaction.world import World

if TYPE_CHECKING:
    from types import FrameType

COUNT = 600
MAX_IN_A_TURN = 100


def world_of(count: int, partition_count: int = 5) -> World:
    """Return a coordinator with that many open transactions."""
    world = World(partition_count).elect()
    for number in range(count):
        begin(world, f"t{number}", [TopicPartition("a", 0)])
        if number % 20 == 0:
            world.advance(1)
    return world


def begin(world: World, name: str, partitions: list[TopicPartition]) -> ProducerKey:
    """Begin a transaction."""
    found = world.coordinator.init_producer_id(name, 60_000, None).value
    producer = ProducerKey(found.producer_id, found.producer_epoch)
    world.coordinator.add_partitions(name, producer, partitions, 2)
    return producer


def written(world: World) -> int:
    """Return how many batches the log has."""
    return sum(map(len, world.log.batches.values()))


def most_in_a_turn(world: World, delay_ms: int) -> int:
    """Return how many batches are written in one turn at most."""
    most, before, target_ms = 0, written(world), world.clock.time_ms + delay_ms
    while (deadline_ms := world.timer.next_deadline()) is not None and deadline_ms <= target_ms:
        world.clock.time_ms = max(world.clock.time_ms, deadline_ms)
        world.timer.advance(world.clock.time_ms)
        most, before = max(most, written(world) - before), written(world)
    return most


def test_many_ids_are_listed_in_slices() -> None:
    """A list of all ids is read some hundred in a turn."""
    world = world_of(COUNT)
    request = ListTransactionsRequest(
        state_filters=["Ongoing"], producer_id_filters=[], duration_filter=-1
    )
    listed = queries.list_transactions(world.coordinator, request, world.clock.now_ms())
    assert not listed.done
    world.advance(20)
    names = {one.transactional_id for one in listed.value.transaction_states}
    assert names == {f"t{number}" for number in range(COUNT)}


def test_ids_are_matched_with_a_costly_pattern_in_more_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So much of it in a turn as of a usual list, and ids that it matches are found."""
    world = world_of(COUNT)
    pattern = "(.?.?){250}"
    request = ListTransactionsRequest(
        state_filters=[], producer_id_filters=[], transactional_id_pattern=pattern
    )
    costs: Counter[int] = Counter()
    matches = BoundedPattern.matches

    def counted(self: BoundedPattern, name: str) -> bool:
        costs[world.clock.time_ms] += self.cost(name)
        world.elapsed_s += self.cost(name) / MAX_COST * TURN_S
        return matches(self, name)

    monkeypatch.setattr(BoundedPattern, "matches", counted)
    listed = queries.list_transactions(world.coordinator, request, world.clock.now_ms())
    world.advance(1_000)
    assert len(listed.value.transaction_states) == COUNT
    assert max(costs.values()) <= MAX_COST * 1.1


@pytest.mark.parametrize("pattern", ["x{1000}" * 3_000, r"\pL{1000}", "(.*?.*?){1000}"])
def test_a_pattern_that_would_stop_the_loop_is_refused(pattern: str) -> None:
    """ListTransactions needs no right to be compiled for."""
    request = ListTransactionsRequest(
        state_filters=[], producer_id_filters=[], transactional_id_pattern=pattern
    )
    world = world_of(1)
    listed = queries.list_transactions(world.coordinator, request, world.clock.now_ms())
    assert listed.value.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


def test_an_id_that_is_too_long_for_a_pattern_is_refused_not_left_out() -> None:
    """A list without it would be wrong."""
    pattern = BoundedPattern("(.?.?){250}")
    with pytest.raises(re2.error, match="too large"):
        pattern.matches("t" * 32_000)
    assert BoundedPattern(".*x.*").matches("t" * 32_000 + "x")


def test_many_ids_are_described_in_slices() -> None:
    """In the order of the request, unknown ones too; few are described at once."""
    world = world_of(1)
    names = ["t0", *(f"absent-{number}" for number in range(COUNT)), "t0"]
    described = queries.describe_all(world.coordinator, names)
    assert not described.done
    world.advance(20)
    states = described.value.transaction_states
    assert [one.transactional_id for one in states] == names
    assert (states[0].transaction_state, states[-1].transaction_state) == ("Ongoing", "Ongoing")
    assert queries.describe_all(world.coordinator, names[:3]).done


def test_many_timeouts_are_carried_out_in_slices() -> None:
    """All partitions check at the same time, and all transactions are too old."""
    world = world_of(COUNT)
    first = written(world)
    assert 0 < most_in_a_turn(world, 80_000) <= MAX_IN_A_TURN
    assert written(world) - first == COUNT


def test_many_ids_expire_in_slices() -> None:
    """As above, for ids that were not used for a week."""
    world = World(5).elect()
    for number in range(COUNT):
        world.coordinator.init_producer_id(f"t{number}", 60_000, None)
    first = written(world)
    world.clock.time_ms += 8 * 24 * 3_600_000
    assert 0 < most_in_a_turn(world, 3_600_000) <= MAX_IN_A_TURN
    assert written(world) - first == COUNT


def test_a_transaction_of_many_partitions_needs_several_requests() -> None:
    """Their leader writes the markers of a request in one turn."""
    world = World().elect()
    partitions = [TopicPartition("a", index) for index in range(300)]
    producer = begin(world, "t", partitions)
    ended = world.coordinator.end_transaction("t", EndRequest(producer, True, 2))
    assert ended.done
    marked: list[int] = []
    while world.sent:
        ((request, _),) = world.sent
        (marker,) = request.markers
        (topic,) = marker.topics
        assert len(topic.partition_indexes) <= PARTITIONS_IN_A_REQUEST
        marked += topic.partition_indexes
        world.write_markers()
    assert sorted(marked) == list(range(300))
    assert queries.describe(world.coordinator, "t").value.transaction_state == "CompleteCommit"


def test_markers_follow_a_leader_that_moves_while_they_wait() -> None:
    """What is queued for a broker that does not answer goes to the new leader."""
    world = World().elect()
    producer = begin(world, "t", [TopicPartition("a", index) for index in range(100)])
    world.coordinator.end_transaction("t", EndRequest(producer, True, 2))
    world.leaders = 2
    ((_, hanging),) = world.sent
    world.sent.clear()
    hanging.fail(ConnectionError())
    world.advance(200)
    assert set(world.asked_brokers[1:]) == {2}
    while world.sent:
        world.write_markers()
        world.advance(1)
    assert queries.describe(world.coordinator, "t").value.transaction_state == "CompleteCommit"


def markers_of(world: World, count: int) -> Markers:
    """Return decided transactions of shard 0, whose broker has not answered the first request."""
    markers = world.coordinator.markers
    for number in range(count):
        decided = Transaction(
            f"t{number}",
            number,
            0,
            60_000,
            TransactionState.PREPARE_COMMIT,
            frozenset({TopicPartition("a", 0)}),
        )
        markers.begin(0, 1, decided)
    return markers


def steps_of_cancel(markers: Markers, shard: int) -> int:
    """Return how many instructions of Python it takes to forget a shard's transactions."""
    steps = 0

    def trace(frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal steps
        frame.f_trace_opcodes = True
        steps += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        markers.cancel(shard)
    finally:
        sys.settrace(before)
    return steps


def test_forgetting_a_shard_takes_the_same_time_with_many_ids() -> None:
    """A node that loses fifty partitions at once would look at all ids fifty times."""
    few, many = (markers_of(World().elect(), count) for count in (2, COUNT))
    for shard in (0, 1):
        assert 0 < steps_of_cancel(few, shard) == steps_of_cancel(many, shard)


def test_markers_that_are_forgotten_are_skipped_in_slices() -> None:
    """They are still in the queue of their broker, which gets the marker behind them."""
    world = World().elect()
    markers = markers_of(world, 20 * MAX_STEPS + 2)
    markers.cancel(0)
    current = Transaction(
        "u", 1, 0, 60_000, TransactionState.PREPARE_COMMIT, frozenset({TopicPartition("a", 0)})
    )
    markers.begin(1, 1, current)
    world.write_markers()
    assert world.sent == []
    turns = 0
    while not world.sent:
        world.advance(1)
        turns += 1
    assert 1 < turns < RETRY_MS
    ((request, _),) = world.sent
    assert [one.producer_id for one in request.markers] == [1]


def batch_of(names: list[str], *, verify_only: bool) -> AddPartitionsToTxnRequest:
    """Return the request of a broker for the producers of many transactions."""
    topic = AddPartitionsToTxnTopic(name="b", partitions=[0])
    return AddPartitionsToTxnRequest(
        transactions=[
            AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
                transactional_id=name,
                producer_id=number + 1,
                producer_epoch=0,
                verify_only=verify_only,
                topics=[topic],
            )
            for number, name in enumerate(names)
        ]
    )


def test_many_transactions_are_extended_in_slices() -> None:
    """Answered in the order of the request."""
    world = world_of(COUNT)
    partitions = TransactionPartitions(world.coordinator, lambda _topic, _partition: True)
    names = [f"t{number}" for number in range(COUNT)]
    first = written(world)
    answer = partitions.answer(batch_of(names, verify_only=False))
    assert 0 < written(world) - first <= MAX_IN_A_TURN
    assert 0 < most_in_a_turn(world, 1_000) <= MAX_IN_A_TURN
    assert written(world) - first == COUNT
    results = answer.value.results_by_transaction
    assert [one.transactional_id for one in results] == names
    assert {codes_of(one) for one in results} == {(0,)}


def test_many_transactions_are_verified_in_slices() -> None:
    """A few are verified at once."""
    world = world_of(COUNT)
    partitions = TransactionPartitions(world.coordinator, lambda _topic, _partition: True)
    names = [f"t{number}" for number in range(COUNT)]
    answer = partitions.answer(batch_of(names, verify_only=True))
    assert not answer.done
    world.advance(20)
    results = answer.value.results_by_transaction
    assert [one.transactional_id for one in results] == names
    assert {codes_of(one) for one in results} == {(ErrorCode.TRANSACTION_ABORTABLE,)}
    assert partitions.answer(batch_of(names[:3], verify_only=True)).done


def codes_of(result: AddPartitionsToTxnResponse.AddPartitionsToTxnResult) -> tuple[int, ...]:
    """Return the codes of a transaction's partitions."""
    return tuple(
        one.partition_error_code
        for topic in result.topic_results
        for one in topic.results_by_partition
    )


def test_markers_are_written_again_after_an_error_that_nobody_expects(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An own partition whose append fails is tried again, and those behind it do not wait."""
    world = World().elect()
    errors = [RuntimeError("a bug")]

    def write_own(*_: object) -> list[TopicPartition]:
        if errors:
            raise errors.pop()
        return []

    monkeypatch.setattr(world, "write_own_markers", write_own)
    for name in ("t0", "t1"):
        producer = begin(world, name, [TopicPartition("a", 0)])
        world.coordinator.end_transaction(name, EndRequest(producer, True, 2))
    world.advance(2 * RETRY_MS)
    assert not list(world.coordinator.markers.stalls())
    states = queries.describe_all(world.coordinator, ["t0", "t1"]).value.transaction_states
    assert [one.transaction_state for one in states] == ["CompleteCommit"] * 2


def test_own_markers_of_many_partitions_are_written_in_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each turn writes what a request would have, and the next one follows until none is left."""
    world = World().elect()
    written: list[TopicPartition] = []
    turns: list[int] = []

    def write_own(_broker: int, _end: object, own: list[TopicPartition]) -> list[TopicPartition]:
        written.extend(own)
        turns.append(world.clock.monotonic_ms())
        return []

    monkeypatch.setattr(world, "write_own_markers", write_own)
    partitions = [TopicPartition("a", index) for index in range(5 * PARTITIONS_IN_A_REQUEST + 1)]
    producer = begin(world, "t", partitions)
    world.coordinator.end_transaction("t", EndRequest(producer, True, 2))
    world.advance(20)
    assert not list(world.coordinator.markers.stalls())
    assert sorted(written) == partitions
    assert len(set(turns)) == len(turns) == 6
    assert queries.describe(world.coordinator, "t").value.transaction_state == "CompleteCommit"
