"""A transaction coordinator on a log in memory, whose markers wait until the test answers them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.coordinator.runtime.active import ShardState
from ottla.coordinator.transaction.coordinator import TransactionCoordinator
from ottla.coordinator.transaction.shard import TransactionCoordinatorConfig
from ottla.protocol.apis.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from ottla.purgatory.pending import Pending
from ottla.purgatory.timing_wheel import TimingWheel
from tests.coordinator.harness import MemoryLog, VirtualClock, loop_of

if TYPE_CHECKING:
    from ottla.coordinator.runtime import EndTransaction
    from ottla.types import TopicPartition

_LOADING_TURNS = 2_000
_Result = WriteTxnMarkersResponse.WritableTxnMarkerResult


class World:
    """One coordinator that leads every partition of its topic; broker 1 leads all others."""

    def __init__(self, partition_count: int = 1) -> None:
        self.clock = VirtualClock()
        self.timer = TimingWheel(0)
        self.log = MemoryLog()
        self.partition_count = partition_count
        self.leader_epoch = 0
        self.producer_id_count = 0
        self.version = 2
        self.sent: list[tuple[WriteTxnMarkersRequest, Pending[WriteTxnMarkersResponse]]] = []
        """The requests with markers that were not answered yet."""
        self.leaders = 1
        """The broker that leads all other partitions."""
        self.elapsed_s = 0.0
        """What the stopwatch of the loop shows."""
        self.asked_brokers: list[int] = []
        """Those to which requests with markers went."""
        self.coordinator = self.make()

    def make(self) -> TransactionCoordinator:
        """Return a coordinator that has loaded nothing."""
        coordinator = TransactionCoordinator(
            TransactionCoordinatorConfig(num_partitions=self.partition_count),
            log=self.log,
            loop=loop_of(self.timer, self.clock, lambda: self.elapsed_s),
            channel=self,
            new_producer_id=self._new_producer_id,
            transaction_version=lambda: self.version,
            may_take_over=lambda: True,
            partition_count=lambda: self.partition_count,
            on_fault=self._fault,
        )
        self.log.on_high_watermark = coordinator.on_high_watermark
        return coordinator

    def _fault(self, error: Exception) -> None:
        raise error

    def _new_producer_id(self) -> Pending[int]:
        self.producer_id_count += 1
        return Pending.of(self.producer_id_count)

    def leader_of(self, _partition: TopicPartition) -> int:
        """Return the broker that leads a partition with data."""
        return self.leaders

    def write_own_markers(
        self, _broker_id: int, _end: EndTransaction, partitions: list[TopicPartition]
    ) -> list[TopicPartition]:
        """Need a request for all of them."""
        return partitions

    def send_markers(
        self, broker_id: int, request: WriteTxnMarkersRequest
    ) -> Pending[WriteTxnMarkersResponse]:
        """Keep a request for the test."""
        answer: Pending[WriteTxnMarkersResponse] = Pending()
        self.sent.append((request, answer))
        self.asked_brokers.append(broker_id)
        return answer

    def write_markers(self, code: int = 0) -> None:
        """Answer all requests with markers."""
        sent, self.sent = self.sent, []
        for request, answer in sent:
            answer.complete(_answer(request, code))

    def elect(self, *, loads: bool = True) -> World:
        """Elect the coordinator for all partitions, and wait until they are loaded."""
        self.leader_epoch += 1
        for partition in range(self.partition_count):
            self.coordinator.on_elected(partition, self.leader_epoch)
        for _ in range(_LOADING_TURNS if loads else 0):
            if ShardState.LOADING not in self.coordinator.runtime.partitions.values():
                break
            self.advance(1)
        return self

    def advance(self, delay_ms: int) -> None:
        """Advance the clock timer by timer, so that each runs at its own deadline."""
        target_ms = self.clock.time_ms + delay_ms
        while (deadline_ms := self.timer.next_deadline()) is not None and deadline_ms <= target_ms:
            self.clock.time_ms = max(self.clock.time_ms, deadline_ms)
            self.timer.advance(self.clock.time_ms)
        self.clock.time_ms = target_ms


def _answer(request: WriteTxnMarkersRequest, code: int) -> WriteTxnMarkersResponse:
    topic = _Result.WritableTxnMarkerTopicResult
    partition = topic.WritableTxnMarkerPartitionResult
    return WriteTxnMarkersResponse(
        markers=[
            _Result(
                producer_id=marker.producer_id,
                topics=[
                    topic(
                        name=one.name,
                        partitions=[
                            partition(partition_index=index, error_code=code)
                            for index in one.partition_indexes
                        ],
                    )
                    for one in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )
