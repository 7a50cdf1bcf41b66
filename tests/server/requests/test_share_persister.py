"""Requests to share coordinators: each share partition has a result, whatever they answer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.delete_share_group_state import (
    DeleteShareGroupStateRequest,
    DeleteShareGroupStateResponse,
)
from ottla.protocol.apis.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
)
from ottla.protocol.apis.read_share_group_state import (
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
)
from ottla.purgatory.pending import Pending
from ottla.purgatory.timing_wheel import TimingWheel
from ottla.server.share.persister import StatePersister
from ottla.types import Uuid
from tests.coordinator.harness import VirtualClock, results_class

TOPIC = Uuid(bytes(range(16)))
_Topic = ReadShareGroupStateRequest.ReadStateData
_Result = ReadShareGroupStateResponse.ReadStateResult


def _result(partition: int, code: ErrorCode = ErrorCode.NONE) -> Any:
    return _Result.PartitionResult(
        partition=partition,
        error_code=int(code),
        state_epoch=1,
        start_offset=7,
        state_batches=[],
    )


@pytest.mark.parametrize(
    ("answers", "codes", "attempts"),
    [
        ([[0, 1]], [ErrorCode.NONE, ErrorCode.NONE], 1),
        ([[]], [ErrorCode.UNKNOWN_SERVER_ERROR] * 2, 1),
        ([[1, 5]], [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NONE], 1),
        ([None, [0, 1]], [ErrorCode.NONE, ErrorCode.NONE], 2),
        ([None] * 5, [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2, 5),
    ],
)
def test_every_share_partition_has_a_result(
    answers: list[list[int] | None], codes: list[ErrorCode], attempts: int
) -> None:
    """Also one that the coordinator leaves out; a coordinator that is away is asked again."""
    clock, timer, sent = VirtualClock(), TimingWheel(0), 0

    def send(_broker_id: int, _request: Any) -> Pending[Any]:
        nonlocal sent
        answer, sent = answers[sent], sent + 1
        if answer is None:
            return Pending.failed(KafkaError(ErrorCode.BROKER_NOT_AVAILABLE))
        found = [_Result(topic_id=TOPIC, partitions=[_result(one) for one in answer])]
        return Pending.of(ReadShareGroupStateResponse(results=found))

    channel: Any = SimpleNamespace(send=send, leader_of=lambda _partition: 1)
    persister = StatePersister(channel, timer, clock, lambda _key: 0, lambda: None)
    parts = [_Topic.PartitionData(partition=index, leader_epoch=1) for index in range(2)]
    topics = [_Topic(topic_id=TOPIC, partitions=parts)]
    done = persister.read(ReadShareGroupStateRequest(group_id="g", topics=topics))
    while not done.done:
        assert all(call.is_awaited for call in persister.calls)
        clock.time_ms += 1000
        timer.advance(clock.time_ms)
    assert not persister.calls
    assert sent == attempts
    assert [one.error_code for one in done.value.results[0].partitions] == codes


def test_a_state_is_begun_after_its_deletion_has_ended() -> None:
    """A deletion that is repeated after a refusal removes no state that was begun meanwhile."""
    clock, timer = VirtualClock(), TimingWheel(0)
    applied: list[str] = []
    codes = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]

    def send(_broker_id: int, request: Any) -> Pending[Any]:
        code = codes.pop() if codes else ErrorCode.NONE
        is_deletion = isinstance(request, DeleteShareGroupStateRequest)
        if not code:
            applied.append("deleted" if is_deletion else "begun")
        response: Any = InitializeShareGroupStateResponse
        if is_deletion:
            response = DeleteShareGroupStateResponse
        result = results_class(response)
        part = result.PartitionResult(partition=0, error_code=int(code))
        return Pending.of(response(results=[result(topic_id=TOPIC, partitions=[part])]))

    channel: Any = SimpleNamespace(send=send, leader_of=lambda _partition: 1)
    persister = StatePersister(channel, timer, clock, lambda _key: 0, lambda: None)
    topic = DeleteShareGroupStateRequest.DeleteStateData
    part = topic.PartitionData(partition=0)
    deleted = persister.delete(
        DeleteShareGroupStateRequest(
            group_id="g", topics=[topic(topic_id=TOPIC, partitions=[part])]
        )
    )
    kind = InitializeShareGroupStateRequest.InitializeStateData
    state = kind.PartitionData(partition=0, state_epoch=2, start_offset=-1)
    begun = persister.initialize(
        InitializeShareGroupStateRequest(
            group_id="g", topics=[kind(topic_id=TOPIC, partitions=[state])]
        )
    )
    assert not list(persister.stalls())
    while not (deleted.done and begun.done):
        clock.time_ms += 1000
        timer.advance(clock.time_ms)
    assert applied == ["deleted", "begun"]
    assert not persister.calls


def test_a_deletion_ends_where_another_node_coordinates_the_group() -> None:
    """A refused deletion is not repeated: it would remove a state that was begun there since."""
    clock, timer, sent = VirtualClock(), TimingWheel(0), 0

    def send(_broker_id: int, _request: Any) -> Pending[Any]:
        nonlocal sent
        sent += 1
        return Pending.failed(KafkaError(ErrorCode.BROKER_NOT_AVAILABLE))

    channel: Any = SimpleNamespace(send=send, leader_of=lambda _partition: 1)
    persister = StatePersister(channel, timer, clock, lambda _key: 0, lambda: None)
    topic = DeleteShareGroupStateRequest.DeleteStateData
    part = topic.PartitionData(partition=0)
    request = DeleteShareGroupStateRequest(
        group_id="g", topics=[topic(topic_id=TOPIC, partitions=[part])]
    )
    deleted = persister.delete(request)
    persister.leads = lambda group_id: group_id != "g"
    clock.time_ms += 1000
    timer.advance(clock.time_ms)
    assert sent == 1
    assert not persister.calls
    part = deleted.value.results[0].partitions[0]
    assert part.error_code == ErrorCode.NOT_COORDINATOR
