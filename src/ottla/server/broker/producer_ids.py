"""Assigns producer ids from blocks that the controller allocates.

Kafka: org.apache.kafka.coordinator.transaction.RPCProducerIdManager.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.allocate_producer_ids import AllocateProducerIdsRequest
from ottla.purgatory.pending import Pending

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.protocol.apis.allocate_producer_ids import AllocateProducerIdsResponse
    from ottla.server.controller.channel import ControllerChannel


class ProducerIdManager:
    """The current block of ids, and the requests that wait for the next block."""

    def __init__(
        self, node_id: int, broker_epoch: Callable[[], int], controller: ControllerChannel
    ) -> None:
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._controller = controller
        self._next = 0
        self._end = 0
        self._waiting: deque[Pending[int]] = deque()

    def next_id(self) -> Pending[int]:
        """Return the next id.

        Fails with COORDINATOR_LOAD_IN_PROGRESS, which clients retry, when no block is allocated.
        """
        pending: Pending[int] = Pending()
        self._waiting.append(pending)
        self._serve()
        if len(self._waiting) == 1 and not pending.done:
            self._request_block()
        return pending

    def _serve(self) -> None:
        while self._waiting and self._next < self._end:
            self._next += 1
            self._waiting.popleft().complete(self._next - 1)

    def _request_block(self) -> None:
        request = AllocateProducerIdsRequest(
            broker_id=self._node_id, broker_epoch=self._broker_epoch()
        )
        self._controller.send(request).on_done(self._received)

    def _received(self, done: Pending[AllocateProducerIdsResponse]) -> None:
        response = None if done.error is not None else done.value
        if response is None or response.error_code:
            waiting, self._waiting = self._waiting, deque()
            for pending in waiting:
                pending.fail(KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
            return
        self._next = response.producer_id_start
        self._end = self._next + response.producer_id_len
        self._serve()
        if self._waiting:
            self._request_block()
