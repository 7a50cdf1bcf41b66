"""Requests of other members of the quorum, served by this node's state machine.

Kafka: ControllerApis.handleRaftRequest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.errors import ErrorCode, KafkaError
from ottla.purgatory.pending import Pending
from ottla.raft.wire import requests, responses

if TYPE_CHECKING:
    from ottla.raft.driver import RaftDriver
    from ottla.raft.wire.requests import RequestMessage


def answer_of(
    driver: RaftDriver, message: RequestMessage, cluster_id: str, version: int, listener: str
) -> Pending[Any]:
    """Pass a message to the machine; complete with its response or refusal.

    Fails with BROKER_NOT_AVAILABLE after a failure of the disk.
    """
    if driver.failure is not None:
        return Pending.failed(KafkaError(ErrorCode.BROKER_NOT_AVAILABLE))
    try:
        request = requests.from_message(message, cluster_id=cluster_id)
    except KafkaError as error:
        leader = driver.node.role.leader
        return Pending.of(responses.refusal(message, error, leader, version, listener))
    return driver.request(request).then(
        lambda response: responses.to_message(message, response, version, listener)
    )


class QuorumRequests:
    """Passes messages to the driver."""

    __slots__ = ("_cluster_id", "_driver")

    def __init__(self, driver: RaftDriver, *, cluster_id: str) -> None:
        self._driver = driver
        self._cluster_id = cluster_id

    def serve(self, message: RequestMessage, version: int, listener: str) -> Pending[Any]:
        """Complete with the response to a message of a version and a listener, as `answer_of`."""
        return answer_of(self._driver, message, self._cluster_id, version, listener)
