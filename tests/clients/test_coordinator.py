"""Calls of a coordinator: lookup, retries, errors that end them, deadline, close."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ottla.clients.coordinator import CoordinatorCall, CoordinatorLookup
from ottla.errors import ClosedError, ErrorCode, KafkaError
from ottla.protocol.apis.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from tests.clients.simulated import LOSE_REQUEST, FakeCluster, Simulation, consumer_settings

if TYPE_CHECKING:
    from collections.abc import Callable

_Found = FindCoordinatorResponse.Coordinator


class Rig:
    """A client, and a broker that answers heartbeats by a list of codes, then with success."""

    def __init__(self, *codes: int) -> None:
        self.codes = list(codes)
        self.ended_ms: list[int] = []
        self.cluster = FakeCluster()
        self.cluster.handlers[HeartbeatRequest] = self.heartbeat
        self.sim = Simulation(self.cluster, consumer_settings())
        self.lookup = CoordinatorLookup(self.sim.client, "g")

    def heartbeat(self, _request: Any) -> HeartbeatResponse:
        """Answer with the next code."""
        return HeartbeatResponse(error_code=self.codes.pop(0) if self.codes else 0)

    def start(self, timeout_ms: int = 5000, *, is_sent_late: bool = False) -> CoordinatorCall:
        """Start a call."""
        call = CoordinatorCall(
            self.lookup,
            HeartbeatRequest(group_id="g", generation_id=1, member_id="m"),
            lambda answer: int(answer.error_code),
            deadline_ms=self.sim.now_ms + timeout_ms,
        )
        call.is_sent_late = is_sent_late
        self.sim.client.start(call)
        call.result.on_done(lambda _: self.ended_ms.append(self.sim.now_ms))
        return call

    def run(self, timeout_ms: int = 5000) -> CoordinatorCall:
        """Run a call to its end."""
        call = self.start(timeout_ms)
        self.sim.run(lambda: call.result.done)
        assert call not in self.sim.client.machines
        return call


def test_the_coordinator_is_looked_up_once() -> None:
    """Later calls use what is known."""
    rig = Rig()
    for _ in range(3):
        assert rig.run().result.value.error_code == 0
    assert len(rig.cluster.requests(FindCoordinatorRequest)) == 1


@pytest.mark.parametrize(
    ("code", "lookups"),
    [(ErrorCode.NOT_COORDINATOR, 2), (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 1)],
)
def test_a_retriable_code_repeats_the_request(code: ErrorCode, lookups: int) -> None:
    """After a code that says so the coordinator is looked up again."""
    rig = Rig(code, code)
    assert rig.run().result.value.error_code == 0
    assert len(rig.cluster.requests(HeartbeatRequest)) == 3
    assert len(rig.cluster.requests(FindCoordinatorRequest)) == lookups * 2 - 1


def test_a_lost_connection_repeats_the_request() -> None:
    """The coordinator is looked up again, too."""
    rig = Rig()
    rig.cluster.faults[HeartbeatRequest] = [LOSE_REQUEST]
    assert rig.run().result.value.error_code == 0
    assert len(rig.cluster.requests(FindCoordinatorRequest)) == 2


def _refused(code: ErrorCode) -> Callable[[Any], FindCoordinatorResponse]:
    def answer(_request: Any) -> FindCoordinatorResponse:
        found = _Found(key="g", node_id=-1, host="", port=-1, error_code=code, error_message=None)
        return FindCoordinatorResponse(coordinators=[found])

    return answer


def test_other_codes_end_the_call() -> None:
    """Of the request, and of the lookup, which the next call repeats."""
    rig = Rig(ErrorCode.UNKNOWN_MEMBER_ID)
    error = rig.run().result.error
    assert isinstance(error, KafkaError)
    assert error.code == ErrorCode.UNKNOWN_MEMBER_ID
    rig.lookup.lost()
    rig.cluster.faults[FindCoordinatorRequest] = [_refused(ErrorCode.GROUP_AUTHORIZATION_FAILED)]
    error = rig.run().result.error
    assert isinstance(error, KafkaError)
    assert error.code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert rig.run().result.value.error_code == 0


def test_the_deadline_names_the_last_failure() -> None:
    """Its code, its text and the error itself."""
    rig = Rig(*[ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 100)
    start_ms = rig.sim.now_ms
    error = rig.run(700).result.error
    assert isinstance(error, TimeoutError)
    assert isinstance(error, KafkaError)
    assert error.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert isinstance(error.__cause__, KafkaError)
    assert rig.ended_ms == [start_ms + 700]


def test_the_deadline_names_a_coordinator_that_is_not_found() -> None:
    """The lookup was refused until then."""
    rig = Rig()
    missing = _refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    rig.cluster.faults[FindCoordinatorRequest] = [missing] * 100
    error = rig.run(700).result.error
    assert isinstance(error, TimeoutError)
    assert "the coordinator of group 'g' was not found in time" in str(error)


def test_closing_the_client_ends_a_call_that_waits() -> None:
    """Also one between two attempts, of which no request is in flight."""
    rig = Rig(*[ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 100)
    call = rig.start()
    rig.sim.run(lambda: rig.cluster.requests(HeartbeatRequest))
    rig.sim.run_for(20)
    rig.sim.client.close()
    assert isinstance(call.result.error, ClosedError)
    assert isinstance(rig.start().result.error, ClosedError)


def test_a_call_without_time_is_sent_once_and_fails() -> None:
    """The commit of a consumer that does not wait arrives; its connection stays."""
    rig = Rig(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    rig.run()
    before = len(rig.cluster.requests(HeartbeatRequest))
    call = rig.start(0, is_sent_late=True)
    rig.sim.run(lambda: call.result.done)
    assert isinstance(call.result.error, TimeoutError)
    rig.sim.run(lambda: len(rig.cluster.requests(HeartbeatRequest)) == before + 1)
    assert rig.run().result.value.error_code == 0
    assert len(rig.cluster.requests(FindCoordinatorRequest)) == 1
    assert isinstance(rig.run(0).result.error, TimeoutError)
    assert len(rig.cluster.requests(HeartbeatRequest)) == before + 2
