"""What becomes of sequences when batches are given up, are in flight for long, or wrap."""

from __future__ import annotations

import random

import pytest

from ottla.errors import ErrorCode
from ottla.protocol.apis.produce import ProduceRequest
from tests.clients.producer.test_producer import T0, Rig, _refuse
from tests.clients.simulated import LOSE_ANSWER, LOSE_REQUEST, NEVER_ANSWER
from tests.soaks import with_soaks

LARGEST = 0x7FFF_FFFF


def _patient_rig(**settings: int) -> Rig:
    """Return a producer that tries every 50 ms and gives a record 5 s."""
    timing = {
        "request_timeout_ms": 1000,
        "delivery_timeout_ms": 5000,
        "retry_backoff_ms": 50,
        "retry_backoff_max_ms": 50,
        "reconnect_backoff_ms": 20,
        "reconnect_backoff_max_ms": 20,
    }
    rig = Rig(**{**timing, **settings})
    rig.send(b"warm")
    rig.finish()
    return rig


@pytest.mark.parametrize("is_stored", [True, False])
def test_what_follows_a_batch_given_up_is_stored_once(*, is_stored: bool) -> None:
    """The outcome of the expired batch is unknown: the next one keeps its sequence."""
    rig = _patient_rig()
    rig.cluster.faults[ProduceRequest] = [NEVER_ANSWER if is_stored else LOSE_REQUEST] * 2
    rig.sim.latency_ms = 5
    first = rig.send(b"A")
    rig.sim.run_for(1)
    later = rig.send(b"B")
    rig.sim.run_for(10)
    rig.sim.kill(1)
    assert later.batch.base_sequence == first.batch.base_sequence + 1
    while not first.done:
        rig.sim.run_for(1)
    assert first.error is not None
    rig.cluster.down.clear()
    rig.cluster.faults.clear()
    later.batch.created_ms += 1000  # it has time left
    rig.finish()
    last = rig.send(b"C")
    rig.finish()
    assert later.error is None
    assert last.error is None
    stored = [b"warm", b"A", b"B", b"C"] if is_stored else [b"warm", b"B", b"C"]
    assert rig.cluster.logs[T0].values == stored
    assert rig.sender.producer_epoch == (0 if is_stored else 1)


def test_a_refused_batch_does_not_double_the_one_before_it() -> None:
    """The batch is stored, but its response is lost, and then its leader lacks replicas."""
    rig = _patient_rig()
    refusals = [_refuse(ErrorCode.NOT_ENOUGH_REPLICAS), _refuse(ErrorCode.INVALID_RECORD)]
    rig.cluster.faults[ProduceRequest] = [NEVER_ANSWER, NEVER_ANSWER, None, *refusals]
    values = [name * 150 for name in (b"A", b"B", b"C", b"D")]
    stored = [rig.send(value) for value in values[:2]]
    rig.sim.run_for(20)
    rig.sim.kill(1)
    rig.cluster.down.clear()
    refused, last = [rig.send(value) for value in values[2:]]
    rig.finish()
    assert not rig.cluster.faults[ProduceRequest]
    assert refused.error is not None
    assert not any(one.error for one in (*stored, last))
    assert rig.cluster.logs[T0].values == [b"warm", *values[:2], values[3]]


def test_a_batch_given_up_with_none_behind_it_begins_a_new_epoch() -> None:
    """Nothing could find out whether it is stored, and new ones must not be refused for it."""
    rig = _patient_rig()
    rig.cluster.faults[ProduceRequest] = [LOSE_REQUEST]
    rig.send(b"A")
    rig.sim.run_for(1)
    rig.sim.kill(1)
    rig.finish()
    rig.cluster.down.clear()
    later = rig.send(b"B")
    rig.finish()
    assert later.error is None
    assert rig.cluster.logs[T0].values == [b"warm", b"B"]
    assert rig.sender.producer_epoch == 1


def test_a_batch_in_flight_is_given_up_in_time_and_its_answer_ignored() -> None:
    """delivery.timeout.ms is counted while a request waits, too; memory is given back once."""
    rig = _patient_rig(request_timeout_ms=4900)
    rig.sim.latency_ms = 2600  # the answer is there after 5200 ms
    delivery = rig.send(b"A")
    while not delivery.done:
        rig.sim.run_for(1)
    assert delivery.batch.created_ms + 5000 <= rig.sim.now_ms <= delivery.batch.created_ms + 5001
    assert delivery.error is not None
    assert "delivery.timeout.ms" in delivery.error.message
    rig.sim.run_for(3000)
    rig.sim.latency_ms = 1
    later = rig.send(b"B")
    rig.finish()
    assert later.error is None
    assert rig.cluster.logs[T0].values == [b"warm", b"A", b"B"]
    assert rig.accumulator.used_bytes == 0
    assert delivery.error is not None


def test_sequences_go_on_behind_the_largest() -> None:
    """Batches that are sent again stay in their order when sequences begin at zero again."""
    rig = _patient_rig(batch_size=100)
    queue = rig.accumulator.queue(T0)
    queue.next_sequence, queue.last_acked_sequence = LARGEST - 1, LARGEST - 2
    log = rig.cluster.logs[T0]
    log.sequences[queue.producer_id] = (0, LARGEST - 2, 0)
    log.batches.clear()
    rig.cluster.faults[ProduceRequest] = [LOSE_REQUEST]
    values = [b"%04d" % number + b"x" * 20 for number in range(8)]
    deliveries = [rig.send(value) for value in values]
    start_ms = rig.sim.now_ms
    rig.finish()
    assert not any(one.error for one in deliveries)
    assert log.values == values
    assert (queue.last_acked_sequence, rig.sender.producer_epoch) == (5, 0)
    assert rig.sim.now_ms - start_ms < 1000


def test_batches_cut_twice_stay_in_order_without_sequences() -> None:
    """What is sent again is ordered by its place, whether or not it has a sequence."""
    for idempotent in (True, False):
        rig = Rig(batch_size=2000, enable_idempotence=idempotent)
        log = rig.cluster.logs[T0]
        values = [b"%02d" % number for number in range(40)]

        genuine = log.append

        def append(data: bytes, genuine: object = genuine) -> tuple[int, int]:
            if len(data) > 200:
                return ErrorCode.MESSAGE_TOO_LARGE, -1
            return genuine(data)  # type: ignore[no-any-return, operator]  # the log's own

        log.append = append  # type: ignore[method-assign]  # a topic with small batches
        deliveries = [rig.send(value) for value in values]
        rig.finish()
        assert log.values == values
        assert [one.metadata.offset for one in deliveries] == list(range(40))


@pytest.mark.parametrize("seeds", with_soaks([range(10), range(10, 70)]))
def test_many_random_losses_with_short_lives_never_double_nor_reorder(seeds: range) -> None:
    """Seeds: what was acknowledged is there, nothing is twice, and the order is as sent."""
    for seed in seeds:
        rng = random.Random(seed)
        rig = _patient_rig(delivery_timeout_ms=1100)
        kinds: list[object] = [None, None, LOSE_REQUEST, LOSE_ANSWER, NEVER_ANSWER]
        kinds += [_refuse(ErrorCode.NOT_ENOUGH_REPLICAS), _refuse(ErrorCode.INVALID_RECORD)]
        rig.cluster.faults[ProduceRequest] = [rng.choice(kinds) for _ in range(60)]
        sent = []
        for number in range(60):
            sent.append((b"%03d" % number + b"x" * 60, rig.send(b"%03d" % number + b"x" * 60)))
            rig.sim.run_for(rng.randrange(60))
        rig.finish()
        stored = rig.cluster.logs[T0].values[1:]
        assert stored == sorted(set(stored)), seed  # type: ignore[type-var]  # no value is None
        acknowledged = {value for value, delivery in sent if delivery.error is None}
        assert acknowledged <= set(stored), seed
        assert rig.accumulator.used_bytes == 0


def test_the_first_batch_of_a_partition_goes_alone() -> None:
    """A broker takes any first sequence: one behind a batch that is refused would shut it out."""
    rig = Rig(linger_ms=0, retry_backoff_ms=50, delivery_timeout_ms=60_000)
    rig.sim.latency_ms = 5
    rig.cluster.faults[ProduceRequest] = [_refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER)]
    first = rig.send(b"A" * 200)
    while not first.batch.attempts:
        rig.sim.run_for(1)
    later = rig.send(b"B")
    rig.sim.run_for(2)
    assert not later.batch.attempts
    rig.finish()
    assert (first.error, later.error) == (None, None)
    assert rig.cluster.logs[T0].values == [b"A" * 200, b"B"]
