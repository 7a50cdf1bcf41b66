"""Batches that arrive encoded (Spark's sink): sequences, retries, and sizes that brokers reject."""

from __future__ import annotations

import random

import pytest

from ottla.errors import ErrorCode
from ottla.protocol.apis.produce import ProduceRequest
from ottla.records.batch import RecordBatch
from ottla.records.builder import encode_batch
from ottla.records.compression import Compression
from ottla.types import TopicPartition
from tests.clients.producer.test_producer import T0, Rig, _refuse
from tests.clients.simulated import LOSE_ANSWER, LOSE_REQUEST, NEVER_ANSWER


def _encoded(number: int, count: int = 3) -> bytearray:
    return encode_batch([(0, None, b"%d-%d" % (number, n), ()) for n in range(count)])


def _send(rig: Rig, number: int) -> object:
    rig.accumulator.now_ms = rig.sim.now_ms
    batch = rig.accumulator.append_encoded(T0, _encoded(number))
    assert batch is not None
    return batch


def test_the_producer_of_a_batch_is_set_with_a_valid_checksum() -> None:
    """Id, epoch and first sequence, in any place of a buffer."""
    data = bytearray(5) + _encoded(1)
    RecordBatch(data, 5).set_producer(7, 3, 11)
    batch = RecordBatch(data, 5)
    batch.check_crc()
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (7, 3, 11)


@pytest.mark.parametrize("seed", range(6))
def test_encoded_batches_are_stored_once_and_in_order(seed: int) -> None:
    """Lost requests and responses, five requests in flight."""
    rng = random.Random(seed)
    rig = Rig(request_timeout_ms=500)
    kinds = [None, None, LOSE_REQUEST, LOSE_ANSWER, NEVER_ANSWER, _refuse(ErrorCode(6))]
    rig.cluster.faults[ProduceRequest] = [rng.choice(kinds) for _ in range(20)]
    for number in range(30):
        _send(rig, number)
    rig.finish()
    expected = [b"%d-%d" % (number, n) for number in range(30) for n in range(3)]
    assert rig.cluster.logs[T0].values == expected
    assert rig.accumulator.used_bytes == 0


def test_a_lost_producer_state_numbers_encoded_batches_again() -> None:
    """KIP-360: UNKNOWN_PRODUCER_ID starts a new epoch; the same bytes get new sequences."""
    rig = Rig()
    rig.cluster.faults[ProduceRequest] = [None, _refuse(ErrorCode.UNKNOWN_PRODUCER_ID)]
    for number in range(4):
        _send(rig, number)
        rig.finish()
    assert len(rig.cluster.logs[T0].values) == 12


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.LZ4])
def test_a_batch_that_is_too_large_is_split(codec: Compression) -> None:
    """As one of records; those after it keep their order, and each is stored once."""
    rig = Rig()
    refused = _refuse(ErrorCode.MESSAGE_TOO_LARGE)
    rig.cluster.faults[ProduceRequest] = [refused, refused, LOSE_ANSWER]
    headers = (("h", b"1"), ("n", None))
    records = [(7 * n, b"k%d" % n, None if n == 3 else b"v%d" % n, headers) for n in range(9)]
    batch = rig.accumulator.append_encoded(T0, encode_batch(records, compression=codec))
    assert batch is not None
    _send(rig, 1)
    rig.finish()
    stored = [one for data in rig.cluster.logs[T0].batches for one in RecordBatch(data).records()]
    assert [(one.timestamp, one.key, one.value, one.headers) for one in stored[:9]] == records
    assert [one.value for one in stored[9:]] == [b"1-%d" % n for n in range(3)]
    assert (batch.error, batch.record_count) == (None, 9)
    assert rig.accumulator.used_bytes == 0


def test_an_encoded_record_that_is_too_large_fails() -> None:
    """Alone in its batch it cannot be split: the error names the topic's setting."""
    rig = Rig()
    rig.cluster.faults[ProduceRequest] = [_refuse(ErrorCode.MESSAGE_TOO_LARGE)]
    batch = rig.accumulator.append_encoded(T0, encode_batch([(0, None, b"v", ())]))
    assert batch is not None
    rig.finish()
    assert batch.error is not None
    assert batch.error.code == ErrorCode.MESSAGE_TOO_LARGE
    assert "max.message.bytes" in batch.error.message


def test_an_unknown_topic_takes_no_encoded_batch() -> None:
    """The caller waits for its metadata first."""
    rig = Rig()
    assert rig.accumulator.append_encoded(TopicPartition("unknown", 0), _encoded(1)) is None
