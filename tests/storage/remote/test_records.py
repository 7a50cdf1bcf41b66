"""Records of the remote log metadata topic."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ottla.clients.producer.partitioner import murmur2
from ottla.errors import CorruptMessage
from ottla.storage.remote import records
from ottla.storage.remote.records import (
    decode_remote_metadata,
    encode_remote_metadata,
    metadata_partition,
)
from ottla.storage.remote.segment import RemoteSegment, SegmentState, SegmentUpdate
from ottla.types import Uuid

TOPIC_ID = Uuid(bytes(range(16)))
SEGMENT = RemoteSegment(
    topic_id=TOPIC_ID,
    topic="t1",
    partition=0,
    segment_id=Uuid(bytes(range(16, 32))),
    start_offset=0,
    end_offset=1025,
    leader_epochs=((0, 0),),
    size_bytes=1_038_528,
    max_timestamp_ms=1_700_000_000_000,
    broker_id=1,
    event_timestamp_ms=1_700_000_000_001,
    state=SegmentState.COPY_SEGMENT_STARTED,
    is_transaction_index_empty=True,
)
UPDATE = SegmentUpdate(
    topic_id=TOPIC_ID,
    topic="t1",
    partition=0,
    segment_id=SEGMENT.segment_id,
    broker_id=1,
    event_timestamp_ms=1_700_000_000_002,
    state=SegmentState.COPY_SEGMENT_FINISHED,
)


def test_an_update_has_kafkas_bytes() -> None:
    """The record that Kafka 4.3.0 wrote, field by field, 59 bytes for a name of two letters."""
    expected = (
        bytes((1, 1, 0))
        + b"\x03t1"
        + TOPIC_ID
        + bytes(4)
        + b"\x00"
        + UPDATE.segment_id
        + b"\x00"
        + (1).to_bytes(4)
        + UPDATE.event_timestamp_ms.to_bytes(8)
        + b"\x00\x01\x00"
    )
    assert encode_remote_metadata(UPDATE) == expected
    assert len(expected) == 59


def test_a_segment_has_kafkas_size() -> None:
    """As Kafka's 104 bytes: the empty transaction index is a tagged field."""
    assert len(encode_remote_metadata(SEGMENT)) == 104


@pytest.mark.parametrize(
    "record",
    [
        SEGMENT,
        replace(SEGMENT, leader_epochs=((0, 0), (2, 700)), custom_metadata=b"x"),
        replace(SEGMENT, is_transaction_index_empty=False, custom_metadata=b""),
        UPDATE,
        replace(UPDATE, custom_metadata=b"abc"),
    ],
)
def test_records_are_read_as_written(record: RemoteSegment | SegmentUpdate) -> None:
    """Every field comes back."""
    assert decode_remote_metadata(encode_remote_metadata(record)) == record


@pytest.mark.parametrize(
    "value",
    [b"", b"\x02\x00\x00", b"\x01\x04\x00", encode_remote_metadata(SEGMENT)[:50]],
    ids=["empty", "frame", "kind", "cut"],
)
def test_what_is_no_record_is_refused(value: bytes) -> None:
    """Other bytes are corrupt, not an error of ours."""
    with pytest.raises(CorruptMessage):
        decode_remote_metadata(value)


def test_an_unknown_state_is_refused() -> None:
    """A state that Kafka does not have is no record."""
    value = encode_remote_metadata(UPDATE)
    with pytest.raises(CorruptMessage):
        decode_remote_metadata(value[:-2] + b"\x09\x00")


def test_deletions_of_partitions_say_nothing() -> None:
    """Their records and snapshots may be there; no broker writes them."""
    assert decode_remote_metadata(b"\x01\x02\x00") is None


def test_the_hash_is_that_of_the_clients() -> None:
    """Four bytes are hashed as a key is."""
    for number in range(50):
        data = (number * 0x01234567 & 0xFFFF_FFFF).to_bytes(4)
        assert records._murmur2(data) == murmur2(data)


def test_partitions_spread_records() -> None:
    """All partitions of a topic are within the count, and not all the same."""
    found = {metadata_partition(TOPIC_ID, partition, 5) for partition in range(20)}
    assert found <= set(range(5))
    assert len(found) > 1


@pytest.mark.parametrize(
    "changes",
    [
        {"topic": "../../victim/x"},
        {"topic": ".."},
        {"topic": ""},
        {"topic": "a\0"},
        {"partition": -7},
        {"start_offset": -1},
        {"start_offset": 1026},
    ],
)
def test_what_is_no_name_of_a_segment_is_refused(changes: dict[str, Any]) -> None:
    """A storage manager makes paths of names: who writes to the topic must not choose any."""
    with pytest.raises(CorruptMessage):
        decode_remote_metadata(encode_remote_metadata(replace(SEGMENT, **changes)))
    if "start_offset" not in changes:
        with pytest.raises(CorruptMessage):
            decode_remote_metadata(encode_remote_metadata(replace(UPDATE, **changes)))
