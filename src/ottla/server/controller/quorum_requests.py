"""What other members of the quorum request of this node: served by its state machine.

Kafka: ControllerApis.handleRaftRequest, org.apache.kafka.raft.TimingWheelExpirationService.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.errors import ErrorCode, KafkaError
from ottla.purgatory.pending import Pending
from ottla.raft.timeouts import NEVER_MS
from ottla.raft.wire import requests, responses

if TYPE_CHECKING:
    from ottla.clock import Clock
    from ottla.purgatory.timing_wheel import TimingWheel
    from ottla.raft.driver import RaftDriver
    from ottla.raft.wire.requests import RequestMessage


def answer_of(
    driver: RaftDriver, message: RequestMessage, cluster_id: str, version: int, listener: str
) -> Pending[Any]:
    """Hand a message to the machine; complete with the response, also for one that is refused."""
    if driver.failure is not None:
        raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE)
    try:
        request = requests.from_message(message, cluster_id=cluster_id)
    except KafkaError as error:
        leader = driver.node.role.leader
        return Pending.of(responses.refusal(message, error, leader, version, listener))
    return driver.request(request).then(
        lambda response: responses.to_message(message, response, version, listener)
    )


class QuorumRequests:
    """Hands messages to the driver, and ticks it when a request set a deadline."""

    __slots__ = ("_clock", "_cluster_id", "_driver", "_due_ms", "_timer")

    def __init__(
        self, driver: RaftDriver, *, cluster_id: str, clock: Clock, timer: TimingWheel
    ) -> None:
        self._driver = driver
        self._cluster_id = cluster_id
        self._clock = clock
        self._timer = timer
        self._due_ms = 0

    def serve(self, message: RequestMessage, version: int, listener: str) -> Pending[Any]:
        """Complete with the response to a message that came on a listener in a version.

        KafkaError BROKER_NOT_AVAILABLE after a failure of the disk.
        """
        answer = answer_of(self._driver, message, self._cluster_id, version, listener)
        self._watch()
        return answer

    def _watch(self) -> None:
        """Tick at the machine's deadline: the end of a long poll, or the next election."""
        now_ms, due_ms = self._clock.monotonic_ms(), self._driver.node.deadline_ms
        if due_ms < NEVER_MS and not now_ms < self._due_ms <= due_ms:
            self._due_ms = max(due_ms, now_ms + 1)
            self._timer.add(self._due_ms, self._tick)

    def _tick(self, _now_ms: int) -> None:
        self._driver.tick()
        self._watch()
