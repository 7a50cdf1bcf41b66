"""The producer's cores against scripted brokers: order, retries, idempotence, memory."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from ottla.clients.producer.accumulator import Accumulator
from ottla.clients.producer.batches import Deliveries
from ottla.clients.producer.sender import Sender
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.api_versions import ApiVersionsRequest
from ottla.protocol.apis.metadata import MetadataRequest
from ottla.protocol.apis.produce import ProduceRequest, ProduceResponse
from ottla.purgatory.pending import Pending
from ottla.types import TopicPartition
from tests.clients.simulated import (
    LOSE_ANSWER,
    LOSE_REQUEST,
    NEVER_ANSWER,
    FakeCluster,
    Simulation,
    producer_settings,
)

if TYPE_CHECKING:
    from ottla.clients.producer.batches import Delivery
    from ottla.clients.settings import ValidatedSettings

T0 = TopicPartition("t", 0)


class Rig:
    """A producer without a façade."""

    def __init__(self, *, brokers: int = 1, partitions: int = 1, **settings: object) -> None:
        self.cluster = FakeCluster(brokers)
        self.cluster.create("t", partitions)
        read: ValidatedSettings = producer_settings(
            **{"linger_ms": 0, "batch_size": 200, **settings}
        )
        self.sim = Simulation(self.cluster, read)
        client = self.sim.client
        self.accumulator = Accumulator(
            read, client.metadata, rng=random.Random(7), wake=self.sim.wake, wall_ns=lambda: 0
        )
        self.accumulator.growth_limit = read.batch_size
        self.sender = Sender(read, client, self.accumulator)
        client.machines.append(self.sender)
        client.metadata.add_topics(["t"])
        self.sim.run(lambda: client.metadata.partition_count("t"))

    def send(self, value: bytes, partition: int | None = 0, key: bytes | None = None) -> Delivery:
        """Append one record that must find room."""
        self.accumulator.now_ms = self.sim.now_ms
        delivery = self.accumulator.append("t", value, key, partition, self.sim.now_ms)
        assert delivery is not None
        return delivery

    def finish(self, limit_ms: int = 200_000) -> None:
        """Run until nothing is unfinished."""
        self.sim.run(lambda: not self.accumulator.unfinished, limit_ms)


def _refuse(code: ErrorCode) -> object:
    def answer(request: ProduceRequest) -> ProduceResponse:
        cls = ProduceResponse.TopicProduceResponse
        return ProduceResponse(
            responses=[
                cls(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partition_responses=[
                        cls.PartitionProduceResponse(
                            index=part.index, error_code=code, base_offset=-1
                        )
                        for part in topic.partition_data
                    ],
                )
                for topic in request.topic_data
            ]
        )

    return answer


def test_records_arrive_in_order_with_their_offsets() -> None:
    """Several batches, one partition: offsets as sent."""
    rig = Rig()
    deliveries = [rig.send(b"%d" % n) for n in range(100)]
    rig.finish()
    assert rig.cluster.logs[T0].values == [b"%d" % n for n in range(100)]
    assert [d.metadata.offset for d in deliveries] == list(range(100))
    assert rig.accumulator.used_bytes == 0


@pytest.mark.parametrize("fault", [LOSE_REQUEST, LOSE_ANSWER, NEVER_ANSWER])
@pytest.mark.parametrize("position", [0, 1, 3])
def test_a_lost_request_or_answer_neither_loses_nor_doubles_nor_reorders(
    fault: str, position: int
) -> None:
    """Idempotence with five in flight: what the broker has is exactly what was sent."""
    rig = Rig(request_timeout_ms=1000)
    rig.cluster.faults[ProduceRequest] = [None] * position + [fault]
    for n in range(60):
        rig.send(b"%03d" % n)
    rig.finish()
    assert rig.cluster.logs[T0].values == [b"%03d" % n for n in range(60)]


def test_many_random_faults_keep_exactly_once_and_order() -> None:
    """Seeds of losses over three brokers; per partition the log equals what was sent."""
    for seed in range(12):
        rng = random.Random(seed)
        rig = Rig(brokers=3, partitions=3, request_timeout_ms=800)
        kinds = [
            None,
            None,
            None,
            LOSE_REQUEST,
            LOSE_ANSWER,
            _refuse(ErrorCode.NOT_ENOUGH_REPLICAS),
        ]
        rig.cluster.faults[ProduceRequest] = [rng.choice(kinds) for _ in range(40)]
        sent: dict[int, list[bytes]] = {0: [], 1: [], 2: []}
        for n in range(150):
            partition = rng.randrange(3)
            value = b"%d" % n
            sent[partition].append(value)
            rig.send(value, partition)
            if rng.random() < 0.2:
                rig.sim.run_for(rng.randrange(30))
        rig.finish()
        for partition, values in sent.items():
            assert rig.cluster.logs[TopicPartition("t", partition)].values == values, seed


def test_a_forgotten_producer_goes_on_under_the_next_epoch() -> None:
    """KIP-360: UNKNOWN_PRODUCER_ID costs no record."""
    rig = Rig()
    rig.send(b"a")
    rig.finish()
    rig.cluster.logs[T0].sequences.clear()
    later = rig.send(b"b")
    rig.finish()
    assert later.metadata.offset == 1
    assert rig.cluster.logs[T0].values == [b"a", b"b"]
    assert rig.sender.producer_epoch == 1


def test_a_refused_batch_does_not_take_the_following_ones_along() -> None:
    """A hole in the sequences is closed by the next epoch."""
    rig = Rig()
    rig.cluster.faults[ProduceRequest] = [_refuse(ErrorCode.INVALID_RECORD)]
    bad = rig.send(b"x" * 150)
    good = [rig.send(b"y" * 150) for _ in range(4)]
    rig.finish()
    assert bad.error is not None
    assert bad.error.code == ErrorCode.INVALID_RECORD
    assert [d.metadata.offset for d in good] == [0, 1, 2, 3]


def test_a_leader_that_moved_is_found_again() -> None:
    """NOT_LEADER_OR_FOLLOWER refreshes the metadata and retries there."""
    rig = Rig(brokers=2)
    rig.send(b"a")
    rig.finish()
    rig.cluster.leaders[T0] = 2
    rig.cluster.logs[T0].leader_epoch += 1
    rig.send(b"b")
    rig.finish()
    assert rig.cluster.seen[-1][0] == 2
    assert rig.cluster.logs[T0].values == [b"a", b"b"]


def test_a_leader_that_a_refusal_names_is_sent_to_at_once() -> None:
    """KIP-951: without a backoff, also where the metadata lacks the leader's address."""
    rig = Rig(retry_backoff_ms=1000)
    rig.send(b"a")
    rig.finish()
    rig.cluster.brokers[2] = ("broker", 9002)
    rig.cluster.leaders[T0] = 2
    rig.cluster.logs[T0].leader_epoch += 1
    rig.cluster.names_leaders = True
    rig.cluster.faults[MetadataRequest] = [NEVER_ANSWER]
    rig.send(b"b")
    rig.finish(limit_ms=20)
    assert rig.cluster.logs[T0].values == [b"a", b"b"]


def test_delivery_timeout_gives_records_up() -> None:
    """A dead cluster ends in an error that says where it was."""
    rig = Rig(delivery_timeout_ms=20_000)
    rig.sim.kill(1)
    delivery = rig.send(b"a")
    rig.finish(limit_ms=30_000)
    assert delivery.error is not None
    assert delivery.error.code == ErrorCode.REQUEST_TIMED_OUT
    assert "cannot reach broker:9001" in delivery.error.message
    assert rig.accumulator.used_bytes == 0


def test_a_batch_that_is_too_large_for_the_topic_is_split() -> None:
    """MESSAGE_TOO_LARGE halves the batch; handles still find their offsets."""
    rig = Rig(batch_size=2000)
    rig.cluster.faults[ProduceRequest] = [_refuse(ErrorCode.MESSAGE_TOO_LARGE)]
    deliveries = [rig.send(b"%02d" % n) for n in range(20)]
    rig.finish()
    assert rig.cluster.logs[T0].values == [b"%02d" % n for n in range(20)]
    assert [d.metadata.offset for d in deliveries] == list(range(20))
    assert rig.accumulator.used_bytes == 0


def test_memory_is_bounded_and_given_back() -> None:
    """Append says wait when buffer.memory is used up, and works again after delivery."""
    rig = Rig(buffer_memory=1000)
    count = 0
    while rig.accumulator.append("t", b"v" * 88, None, 0, 0) is not None:
        count += 1
    assert 4 <= count <= 10
    rig.finish()
    assert rig.accumulator.append("t", b"v" * 88, None, 0, 0) is not None


def test_a_record_that_can_never_fit_is_refused_at_once() -> None:
    """max.request.size and buffer.memory are named."""
    rig = Rig(max_request_size=1000, buffer_memory=1500)
    with pytest.raises(
        KafkaError, match=r"topic 't': The message is 1273 bytes .* than 1000, .*max\.request\.size"
    ):
        rig.send(b"v" * 1200)
    with pytest.raises(
        KafkaError,
        match=r"topic .t.: The message is 2073 bytes .*buffer\.memory configuration \(1500 bytes\)",
    ):
        rig.send(b"v" * 2000)


def test_linger_collects_records_into_one_batch() -> None:
    """Nothing leaves before the time; then one request carries all."""
    rig = Rig(linger_ms=50, batch_size=10_000)
    rig.send(b"first")
    rig.sim.run(lambda: rig.sender.producer_id >= 0)
    rig.sim.run_for(30)
    rig.send(b"second")
    assert not rig.cluster.requests(ProduceRequest)
    rig.finish()
    assert len(rig.cluster.requests(ProduceRequest)) == 1


def test_acks_zero_is_done_when_sent() -> None:
    """No answer, no offset, no idempotence."""
    rig = Rig(acks=0)
    delivery = rig.send(b"a")
    rig.finish()
    assert delivery.metadata.offset == -1
    assert rig.sender.producer_id == -1
    rig.sim.run_for(10)
    assert rig.cluster.logs[T0].values == [b"a"]


def test_a_throttled_producer_waits_and_goes_on() -> None:
    """KAFKA-17455: throttling delays the next request and never stops the producer."""
    rig = Rig(max_in_flight_requests_per_connection=1)

    def throttle(request: ProduceRequest) -> ProduceResponse:
        response = rig.cluster.produce(request)
        assert isinstance(response, ProduceResponse)
        response.throttle_time_ms = 500
        return response

    rig.cluster.faults[ProduceRequest] = [throttle]
    rig.send(b"a")
    rig.finish()
    start_ms = rig.sim.now_ms
    rig.send(b"b")
    rig.finish()
    assert 450 <= rig.sim.now_ms - start_ms <= 600
    assert rig.cluster.logs[T0].values == [b"a", b"b"]


def test_bytes_of_a_batch_live_until_its_answer() -> None:
    """CVE-2026-35554: what may be sent again is not reused while a request is in flight."""
    rig = Rig(request_timeout_ms=1000)
    rig.cluster.faults[ProduceRequest] = [NEVER_ANSWER]
    delivery = rig.send(b"mine")
    rig.sim.run(lambda: rig.cluster.requests(ProduceRequest))
    payload = delivery.batch.payload
    assert payload is not None
    rig.send(b"other" * 10)
    rig.sim.run(lambda: len(rig.cluster.requests(ProduceRequest)) >= 3)
    rig.finish()
    assert rig.cluster.logs[T0].values == [b"mine", b"other" * 10]
    assert delivery.batch.payload is None


def test_sticky_choice_changes_after_a_batch_of_bytes() -> None:
    """KIP-794: records without a key stay together for batch.size bytes."""
    rig = Rig(partitions=4, batch_size=500)
    partitions = [rig.send(b"v" * 50, None).batch.topic_partition.partition for _ in range(64)]
    runs = [1]
    for before, after in pairwise(partitions):
        if before == after:
            runs[-1] += 1
        else:
            runs.append(1)
    assert min(runs[:-1]) >= 7
    assert len(set(partitions)) > 1


def test_many_values_at_once_are_stored_as_one_by_one() -> None:
    """append_many: nothing lost or doubled, handles by index, memory respected."""
    rig = Rig(partitions=3, batch_size=300, buffer_memory=3000)
    values = [b"%03d" % n for n in range(400)]
    deliveries = Deliveries()
    start = 0
    while start < len(values):
        rig.accumulator.now_ms = rig.sim.now_ms
        upto = rig.accumulator.append_many("t", values, start, deliveries)
        if upto < len(values):
            rig.sim.run_for(5)
        start = upto
    rig.finish()
    stored = [v for log in rig.cluster.logs.values() for v in log.values]
    assert sorted(v or b"" for v in stored) == values
    assert len(deliveries) == 400
    assert deliveries.done
    assert deliveries.error is None
    for n in (0, 57, -1):
        place = deliveries[n].metadata
        log = rig.cluster.logs[TopicPartition("t", place.partition)]
        assert log.values[place.offset] == values[n]
    assert len(deliveries[10:20]) == 10


def test_no_batch_overtakes_one_that_has_waited_too_long_for_its_connection() -> None:
    """Without idempotence the broker would store it before the one that is sent again."""
    rig = Rig(enable_idempotence=False, request_timeout_ms=1000, delivery_timeout_ms=60_000)
    versions: Pending[object] = Pending()
    rig.cluster.faults[ApiVersionsRequest] = [lambda _request: versions]
    rig.sim.latency_ms = 50
    rig.send(b"A" * 190)
    rig.sim.run_for(500)
    rig.send(b"B" * 190)
    rig.sim.run_for(505)  # the first one has expired, the connection has not
    rig.sim.latency_ms = 1
    versions.complete(rig.cluster.api_versions(ApiVersionsRequest()))
    rig.finish()
    values = [value[:1] for value in rig.cluster.logs[T0].values if value]
    assert values == [b"A", b"B"]
