"""Control batches and their keys."""

from __future__ import annotations

import pytest

from ottla.errors import CorruptMessage, ErrorCode, KafkaError
from ottla.records.batch import RecordBatch
from ottla.records.control import (
    ControlRecordType,
    decode_control_type,
    decode_end_txn_marker,
    encode_control_batch,
    encode_control_key,
    encode_end_txn_marker,
)
from ottla.records.record import Record


@pytest.mark.parametrize("commit", [True, False])
def test_end_of_transaction(commit: bool) -> None:  # noqa: FBT001 - a parameter of the table
    """A marker carries its producer in the header, its outcome and coordinator in the record."""
    batch = RecordBatch(
        encode_end_txn_marker(
            commit=commit, coordinator_epoch=12, producer_id=5, producer_epoch=3, timestamp=99
        )
    )
    batch.check_crc()
    assert (batch.is_control, batch.is_transactional, batch.base_sequence) == (True, True, -1)
    assert (batch.producer_id, batch.producer_epoch, batch.max_timestamp) == (5, 3, 99)
    kind, epoch = decode_end_txn_marker(batch.records()[0])
    assert (kind is ControlRecordType.COMMIT, epoch) == (commit, 12)


def test_control_batch_of_several() -> None:
    """The metadata log's control records stand together in one batch."""
    rows = [(ControlRecordType.KRAFT_VERSION, b"a"), (ControlRecordType.KRAFT_VOTERS, b"b")]
    batch = RecordBatch(encode_control_batch(rows, timestamp=1, base_offset=7, leader_epoch=2))
    assert (batch.is_control, batch.is_transactional, batch.base_offset) == (True, False, 7)
    found = [(decode_control_type(record.key), record.value) for record in batch.records()]
    assert found == rows


def test_keys() -> None:
    """Types of newer releases are unknown; invalid keys are refused."""
    assert encode_control_key(ControlRecordType.LEADER_CHANGE) == b"\x00\x00\x00\x02"
    assert decode_control_type(b"\x00\x00\x00\x63") is ControlRecordType.UNKNOWN
    assert decode_control_type(b"\x00\x01\x00\x01more") is ControlRecordType.COMMIT
    with pytest.raises(ValueError, match="UNKNOWN"):
        encode_control_key(ControlRecordType.UNKNOWN)
    with pytest.raises(CorruptMessage):
        decode_control_type(None)
    for key in (b"\x00\x00\x00", b"\xff\xff\x00\x01"):
        with pytest.raises(KafkaError) as error:
            decode_control_type(key)
        assert error.value.code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"\x00\x00\x00\x02", bytes(6)),
        (b"\x00\x00\x00\x01", bytes(5)),
        (b"\x00\x00\x00\x01", None),
        (b"\x00\x00\x00\x01", b"\xff\xff\x00\x00\x00\x00"),
    ],
)
def test_markers_that_are_none(key: bytes, value: bytes | None) -> None:
    """Only COMMIT and ABORT end a transaction, and only with a whole value."""
    with pytest.raises(KafkaError) as error:
        decode_end_txn_marker(Record(0, 0, key, value))
    assert error.value.code == ErrorCode.INVALID_RECORD
