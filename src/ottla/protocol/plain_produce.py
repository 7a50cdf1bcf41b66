"""The produce request that nearly every producer sends, read and answered without the codec.

Plain is: versions 9 to 13, one partition, no transaction, no tagged fields. What is not plain, or
not sound, is None here and read by the codec, which says what is wrong with it. The bytes are
those of `ProduceRequest` and `ProduceResponse`: tests/protocol/test_plain_produce.py holds the two
against each other.

Hot path: benchmarks/against_kafka. Kafka: ProduceRequest.json, ProduceResponse.json.
"""

from __future__ import annotations

from struct import Struct, error
from typing import Final, NamedTuple

LOWEST: Final = 9
HIGHEST: Final = 13
_IDS_FROM: Final = 13
_PRODUCE: Final = 0
_ID_BYTES: Final = 16
_ONE_BYTE_LENGTHS: Final = 128
_MOST_BYTES_BEFORE: Final = 3  # a length of four bytes is the longest that is read here
# what stands before a field is named with it: tags of the header, no transaction
_HEADER: Final = Struct(">hhih")  # key, version, correlation id, length of the client's id
_BODY: Final = Struct(">bbhib")  # no tags, no transaction, acks, timeout, one topic
_PARTITION: Final = Struct(">bi")  # one partition, its index
_ONE: Final = 2  # a compact array of one, its length and one
_TAGS_BEHIND: Final = b"\0\0\0"  # of partition, topic and request
BYTES_BEHIND: Final = len(_TAGS_BEHIND)
"""What stands behind the records of a plain request."""
_ANSWER_BEFORE: Final = Struct(">iibb")  # size, correlation id, no tags, one topic
# one partition, its index, no error, offsets and time, no errors of records, no message, no tags,
# no tags of the topic, no throttling, no tags of the answer
_ANSWER_BEHIND: Final = Struct(">bihqqqbbbbib")
_new_tuple: Final = tuple.__new__


class PlainProduce(NamedTuple):
    """What a plain request says; topic is an id from version 13 on, else a name."""

    correlation_id: int
    acks: int
    topic: bytes
    partition: int
    start: int
    """Where the records begin in the frame; BYTES_BEHIND before its end they end."""
    has_name: bool


def split_plain(frame: memoryview) -> PlainProduce | None:
    """Read a frame (without its size); None for every request that is not plain."""
    try:
        key, version, correlation_id, length = _HEADER.unpack_from(frame)
        if key != _PRODUCE or not LOWEST <= version <= HIGHEST:
            return None
        position = 10 + length if length > 0 else 10
        tags, transaction, acks, _, topics = _BODY.unpack_from(frame, position)
        position += 9
        has_name = version < _IDS_FROM
        if has_name:
            size = frame[position] - 1
            position += 1
            if not 0 < size < _ONE_BYTE_LENGTHS - 1:
                return None
        else:
            size = _ID_BYTES
        topic = bytes(frame[position : position + size])
        position += size
        partitions, index = _PARTITION.unpack_from(frame, position)
        position += 5
        records = frame[position]
        position += 1
        shift = 7
        if records >= _ONE_BYTE_LENGTHS:
            records &= 0x7F
            while shift <= 7 * _MOST_BYTES_BEFORE:
                byte = frame[position]
                position += 1
                records |= (byte & 0x7F) << shift
                if byte < _ONE_BYTE_LENGTHS:
                    break
                shift += 7
            else:
                return None
    except (error, IndexError):
        return None
    end = position + records - 1
    if (
        tags
        or transaction
        or topics != _ONE
        or partitions != _ONE
        or records < 2
        or end + BYTES_BEHIND != len(frame)
        or frame[end:].tobytes() != _TAGS_BEHIND
    ):
        return None
    return _new_tuple(PlainProduce, (correlation_id, acks, topic, index, position, has_name))


def client_id_of(frame: memoryview) -> str:
    """Return the client's id in a frame that `split_plain` has read, "" for none."""
    length = _HEADER.unpack_from(frame)[3]
    return str(frame[10 : 10 + length], "utf-8", "replace") if length > 0 else ""


def plain_answer(request: PlainProduce, base_offset: int, log_start_offset: int) -> bytes:
    """Return the whole frame that tells a plain request where its records are."""
    topic = request.topic
    if request.has_name:
        topic = bytes((len(topic) + 1,)) + topic
    size = _ANSWER_BEFORE.size - 4 + len(topic) + _ANSWER_BEHIND.size
    behind = _ANSWER_BEHIND.pack(
        _ONE, request.partition, 0, base_offset, -1, log_start_offset, 1, 0, 0, 0, 0, 0
    )
    return _ANSWER_BEFORE.pack(size, request.correlation_id, 0, _ONE) + topic + behind
