"""Acquired records: batches that cannot be decoded, and ranges that no broker would send."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

from ottla.clients.consumer.deserializing import Deserializers
from ottla.clients.share import records as share_records
from ottla.clients.share.records import AcquiredPartitionRecords, PartitionKey
from ottla.errors import CorruptMessage, ErrorCode, KafkaError
from ottla.records.batch import RecordBatch
from ottla.records.builder import encode_batch
from ottla.records.compression import DecompressionLimitExceeded
from ottla.types import ZERO_UUID, AcknowledgeType, TopicPartition
from tests.records.batch_changes import assign_offset

KEY = PartitionKey(1, ZERO_UUID, TopicPartition("t", 0))
LAST_OFFSET_DELTA = slice(23, 27)


def _acquired(data: bytes, *ranges: tuple[int, int]) -> AcquiredPartitionRecords:
    listed = [
        SimpleNamespace(first_offset=first, last_offset=last, delivery_count=1)
        for first, last in ranges
    ]
    return AcquiredPartitionRecords(KEY, memoryview(data), listed)


def _batch(base_offset: int, *values: bytes) -> bytearray:
    data = encode_batch([(1000, None, value, ()) for value in values])
    assign_offset(RecordBatch(data), base_offset, 0)
    return data


def _offsets(acquired: AcquiredPartitionRecords) -> list[int]:
    nothing = Deserializers(None, None)
    return [record.offset for record in acquired.take(100, nothing, check_crcs=True)]


def test_a_damaged_batch_is_rejected_as_far_as_it_was_acquired() -> None:
    """Its header is damaged, too: it claims two billion records."""
    damaged = _batch(0, b"a", b"b")
    damaged[LAST_OFFSET_DELTA] = b"\x7f\xff\xff\xff"
    acquired = _acquired(bytes(damaged), (0, 1))
    began = time.process_time()
    assert _offsets(acquired) == []
    assert time.process_time() - began < 30
    assert isinstance(acquired.error, CorruptMessage)
    assert acquired.unreadable == {0, 1}
    assert set(acquired.decided.values()) == {AcknowledgeType.REJECT}


def test_bytes_without_a_size_reject_the_rest() -> None:
    """What precedes them is returned."""
    data = bytes(_batch(0, b"a")) + bytes(8) + b"\xff\xff\xff\xff" + bytes(60)
    acquired = _acquired(data, (0, 2))
    assert _offsets(acquired) == [0]
    assert acquired.unreadable == {1, 2}
    assert isinstance(acquired.error, CorruptMessage)


def test_a_batch_that_grows_too_large_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its error is not that of damaged bytes; it ended the poll, and lost other records of it."""

    def refuse(*_: object) -> None:
        raise DecompressionLimitExceeded("too large")

    monkeypatch.setattr(share_records, "records_of", refuse)
    acquired = _acquired(bytes(_batch(3, b"a")), (3, 3))
    assert _offsets(acquired) == []
    assert isinstance(acquired.error, KafkaError)
    assert acquired.error.code == ErrorCode.INVALID_RECORD
    assert acquired.error.message == "t-0 at offset 3: too large"
    assert acquired.unreadable == {3}


@pytest.mark.parametrize("ranges", [((0, 10**12), (10**12, 0)), ((0, 10**7),), ((5, 4),)])
def test_ranges_are_bounded(ranges: tuple[tuple[int, int], ...]) -> None:
    """A range that ends before it begins must not hide a huge one."""
    with pytest.raises(CorruptMessage, match="acquired offsets"):
        _acquired(b"", *ranges)
