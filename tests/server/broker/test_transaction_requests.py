"""What a leader asks a transaction's coordinator, and what it answers to one that has decided."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from ottla.coordinator.runtime import EndTransaction
from ottla.coordinator.runtime.log import TransactionSupport
from ottla.coordinator.transaction.decisions import ProducerKey
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from ottla.protocol.apis.write_txn_markers import WriteTxnMarkersRequest
from ottla.purgatory.expiries import Expiries
from ottla.purgatory.loop import Loop
from ottla.purgatory.pending import Pending
from ottla.purgatory.timing_wheel import TimingWheel
from ottla.purgatory.work import Worker
from ottla.server.broker.transaction_markers import MarkerWriter
from ottla.server.broker.transaction_verification import TransactionVerification
from ottla.storage.producers.append import Verification
from ottla.types import TopicPartition
from tests.coordinator.harness import VirtualClock, loop_of

if TYPE_CHECKING:
    from collections.abc import Callable

ADDS = TransactionSupport.ADDS_PARTITIONS
PRODUCER = ProducerKey(7, 0)
RETRY_MS, MAX_RETRY_MS = 20, 100


class World:
    """A leader of partitions whose coordinator is on broker 1; its requests wait in `asked`."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.timer = TimingWheel(self.clock.monotonic_ms())
        self.asked: list[tuple[AddPartitionsToTxnRequest, Pending[Any]]] = []
        self.guards: dict[int, Verification] = {}
        self.added: Pending[ErrorCode] | None = None
        """The answer of a coordinator on this broker."""
        self.added_count = 0
        config = SimpleNamespace(
            transaction_partition_verification_enable=True,
            add_partitions_to_txn_retry_backoff_ms=RETRY_MS,
            add_partitions_to_txn_retry_backoff_max_ms=MAX_RETRY_MS,
        )
        channel: Any = SimpleNamespace(
            leader_of=lambda _partition: 1,
            add_own_partitions=self._add_own,
            send=self._send,
        )
        owner = TopicPartition("__transaction_state", 0)
        settings: Callable[[], Any] = lambda: config  # noqa: E731 - a stand-in
        self.verification = TransactionVerification(
            channel, lambda _name: owner, loop_of(self.timer, self.clock), settings
        )

    def _add_own(self, *_: object) -> Pending[ErrorCode] | None:
        if self.added is not None:
            self.added_count += 1
        return self.added

    def _send(self, _broker_id: int, request: AddPartitionsToTxnRequest) -> Pending[Any]:
        answer: Pending[Any] = Pending()
        self.asked.append((request, answer))
        return answer

    def begin(self, index: int, name: str = "t") -> Pending[Any]:
        """Begin to verify a partition."""
        guard = self.guards.setdefault(index, Verification(0, 0, 0, supports_epoch_bump=True))
        state = SimpleNamespace(start_verification=lambda *_, **__: guard)
        partition: Any = SimpleNamespace(
            is_leader=True,
            topic_partition=TopicPartition("a", index),
            log=SimpleNamespace(is_ready=True, producer_state=state),
        )
        begun = self.verification.begin(partition, name, PRODUCER, 0, ADDS)
        assert begun is not None
        return begun

    def answer(self, codes: dict[int, ErrorCode]) -> None:
        """Answer the oldest request."""
        results = [
            AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=int(code))
            for index, code in codes.items()
        ]
        topic = AddPartitionsToTxnTopicResult(name="a", results_by_partition=results)
        result = AddPartitionsToTxnResponse.AddPartitionsToTxnResult(
            transactional_id="t", topic_results=[topic]
        )
        self.asked.pop(0)[1].complete(AddPartitionsToTxnResponse(results_by_transaction=[result]))

    def pass_time(self, duration_ms: int) -> None:
        """Let timers run."""
        self.clock.time_ms += duration_ms
        self.timer.advance(self.clock.monotonic_ms())


def _code(refused: Pending[Any]) -> ErrorCode:
    assert isinstance(refused.error, KafkaError)
    return refused.error.code


def _partitions(request: AddPartitionsToTxnRequest) -> list[tuple[str, list[int]]]:
    return [
        (one.transactional_id, [index for topic in one.topics for index in topic.partitions])
        for one in request.transactions
    ]


def test_the_partitions_of_a_transaction_are_asked_for_together() -> None:
    """Each question has all partitions of a transaction that were begun, and leaves with `send`."""
    world = World()
    first, second, other = world.begin(0), world.begin(1), world.begin(0, "u")
    assert not world.asked
    world.verification.send()
    world.verification.send()
    assert [_partitions(request) for request, _ in world.asked] == [[("t", [0, 1])], [("u", [0])]]
    world.answer({0: ErrorCode.NONE, 1: ErrorCode.NONE})
    assert (first.value, second.value, other.done) == (world.guards[0], world.guards[1], False)


def test_only_what_waits_for_the_previous_transaction_is_asked_for_again() -> None:
    """What is refused for another reason is answered at once; in the end all is."""
    world = World()
    refused, waiting, missing = world.begin(0), world.begin(1), world.begin(2)
    world.verification.send()
    concurrent = ErrorCode.CONCURRENT_TRANSACTIONS
    world.answer({0: ErrorCode.PRODUCER_FENCED, 1: concurrent})
    assert (_code(refused), waiting.done) == (ErrorCode.INVALID_PRODUCER_EPOCH, False)
    assert _code(missing) is ErrorCode.NOT_ENOUGH_REPLICAS
    world.pass_time(RETRY_MS)
    assert _partitions(world.asked[0][0]) == [("t", [1])]
    world.pass_time(MAX_RETRY_MS)
    world.answer({1: concurrent})
    assert _code(waiting) is concurrent
    assert world.verification.failed_count == 4


@pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.PRODUCER_FENCED])
@pytest.mark.parametrize("is_late", [False, True])
def test_a_coordinator_on_this_broker_is_asked_once_and_without_a_request(
    code: ErrorCode, *, is_late: bool
) -> None:
    """Also where its answer waits for replicas, or refuses: the partitions then wait for it."""
    world = World()
    world.added = Pending() if is_late else Pending.of(code)
    partitions = [TopicPartition("a", 0), TopicPartition("a", 1)]
    is_added = world.verification.add_at_once("t", PRODUCER, partitions)
    assert is_added == (code is ErrorCode.NONE and not is_late)
    if not is_added:
        begun = [world.begin(0), world.begin(1)]
        world.verification.send()
        world.added.complete(code)
        if code is ErrorCode.NONE:
            assert [one.value for one in begun] == [world.guards[0], world.guards[1]]
        else:
            assert {_code(one) for one in begun} == {ErrorCode.INVALID_PRODUCER_EPOCH}
    assert (world.added_count, world.asked) == (1, [])


class Leader:
    """The state of a leader whose followers have not fetched yet."""

    def __init__(self) -> None:
        self.waits: list[tuple[Any, int]] = []
        self.acknowledgements = SimpleNamespace(forget_expired=lambda: None)

    def acknowledge(self, _offset: int, wait: Any, position: int) -> None:
        """Take who waits."""
        self.waits.append((wait, position))


class Markers:
    """A writer of markers over two partitions of topic a."""

    def __init__(self, leader: Any = None) -> None:
        self.clock = VirtualClock()
        self.timer = TimingWheel(0)
        self.overdue: list[str] = []
        self.flush: Pending[None] = Pending()
        self.turns: list[Callable[[], None]] = []
        """What is to be called in the next turn of the loop."""
        self.written: list[int] = []
        self.broken = -1
        """The partition at which an append raises an unexpected error."""
        self.replicas = self._replica_set()
        self._leader = leader
        self._writer = MarkerWriter(
            self.replicas,
            Loop(self.clock, self.timer, Worker(self.turns.append, max_steps=4)),
            {},
            Expiries(self.timer),
            timeout_ms=1000,
        )

    def _replica_set(self) -> Any:
        """Return a stand-in whose partitions are their indexes."""
        flushes = SimpleNamespace(
            wait_for_overdue=lambda: {TopicPartition("a", 0): self.flush},
        )
        return SimpleNamespace(
            find=lambda _topic, index: index,
            append=self._append,
            overdue_flushes=self.overdue,
            logs=SimpleNamespace(flushes=flushes),
        )

    def _append(self, index: int, *_: object, **__: object) -> tuple[Any, Any]:
        if index == self.broken:
            raise RuntimeError("a defect")
        self.written.append(index)
        return SimpleNamespace(last_offset=0), self._leader

    def write_own(self, partitions: list[Any]) -> list[int]:
        """Write markers without a request; return the partitions that need one."""
        names = [TopicPartition("a", index) for index in range(len(partitions))]
        found = dict(zip(names, partitions, strict=True))
        self.replicas.find = lambda *at: found[TopicPartition(*at)]
        end = EndTransaction(1, 1, 0, committed=True, transaction_version=2)
        return [at.partition for at in self._writer.write_own(end, names)]

    def write(self, count: int = 2) -> Pending[Any]:
        """Write the markers of one transaction."""
        marker = WriteTxnMarkersRequest.WritableTxnMarker
        topics = [marker.WritableTxnMarkerTopic(name="a", partition_indexes=list(range(count)))]
        producer: dict[str, Any] = {"producer_id": 1, "producer_epoch": 1, "coordinator_epoch": 0}
        one = marker(**producer, transaction_result=True, topics=topics)
        return self._writer.write(WriteTxnMarkersRequest(markers=[one]))


def _codes(answer: Pending[Any]) -> list[int]:
    return [one.error_code for one in answer.value.markers[0].topics[0].partitions]


def test_markers_that_are_committed_at_once_need_no_request() -> None:
    """Those that wait for replicas or a flush, that are refused, or of no partition here do."""

    def partition(end_offset: int = 0, leading: object = None) -> Any:
        config = SimpleNamespace(flush_messages=10)
        log = SimpleNamespace(log_end_offset=end_offset, recovery_point=0, config=config)
        return SimpleNamespace(log=log, leading=leading)

    markers = Markers()
    partitions = [partition(), partition(9), partition(leading=Leader()), None, partition(8)]
    assert markers.write_own(partitions) == [1, 2, 3]
    assert markers.written == [partitions[0], partitions[4]]
    markers.overdue.append("a-0")
    assert markers.write_own([partition()]) == [0]


def test_a_marker_is_acknowledged_once_it_is_flushed_where_flush_messages_says_so() -> None:
    """Else a crash could take it from the log after its transaction was completed."""
    markers = Markers()
    markers.overdue.append("a-0")
    answer = markers.write()
    assert not answer.done
    markers.flush.fail(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR))
    assert _codes(answer) == [ErrorCode.KAFKA_STORAGE_ERROR] * 2


def test_markers_that_are_not_replicated_in_time_are_sent_again() -> None:
    """An acknowledgement after the request's timeout changes nothing."""
    leader = Leader()
    markers = Markers(leader)
    answer = markers.write()
    (wait, position), (late, late_position) = leader.waits
    wait.acknowledged(position, ErrorCode.NONE)
    assert not answer.done
    markers.clock.time_ms = 1000
    markers.timer.advance(1000)
    assert _codes(answer) == [ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT]
    late.acknowledged(late_position, ErrorCode.NONE)
    assert _codes(answer) == [ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT]


def test_the_markers_of_a_large_request_are_written_in_slices() -> None:
    """Kafka's coordinators send all markers for a broker at once."""
    leader = Leader()
    markers = Markers(leader)
    answer = markers.write(150)
    sizes = [len(markers.written)]
    while sizes[-1] < 150:
        markers.turns.pop()()
        sizes.append(len(markers.written))
    assert (sizes, markers.written) == ([64, 128, 150], list(range(150)))
    assert not answer.done
    for wait, position in leader.waits:
        wait.acknowledged(position, ErrorCode.NONE)
    assert _codes(answer) == [ErrorCode.NONE] * 150


@pytest.mark.parametrize("broken", [5, 100])
def test_an_unexpected_error_fails_the_whole_request(broken: int) -> None:
    """In any slice: the other coordinator repeats what it gets no result of."""
    markers = Markers()
    markers.broken = broken
    answer = markers.write(150)
    while markers.turns:
        markers.turns.pop()()
    with pytest.raises(RuntimeError, match="a defect"):
        _ = answer.value
