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

from ottla.protocol.frames import REQUEST_HEADER

LOWEST: Final = 9
HIGHEST: Final = 13
_IDS_FROM: Final = 13
_PRODUCE: Final = 0
_MORE_FOLLOWS: Final = 128  # a byte of a length that is not its last
# what stands before a field is named with it: tags of the header, no transaction
# no tags, no transaction, acks, timeout, one topic, then
_BEFORE_NAME: Final = Struct(">bbhibB")  # the length of its name and one
_PARTITION: Final = Struct(">biBBB")  # one partition, its index, bytes of a length
_WITH_ID: Final = Struct(">bbhib16sbiBBB")  # its id and the same
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
    client_id: bytes
    """As it stands there; nothing for none."""
    acks: int
    topic: bytes
    partition: int
    start: int
    """Where the records begin in the frame; BYTES_BEHIND before its end they end."""
    has_name: bool


def split_plain(frame: memoryview) -> PlainProduce | None:
    """Read a frame (without its size); None for every request that is not plain."""
    try:
        key, version, correlation_id, length = REQUEST_HEADER.unpack_from(frame)
        if key != _PRODUCE or not LOWEST <= version <= HIGHEST:
            return None
        position = 10 + length if length > 0 else 10
        client_id = bytes(frame[10:position])
        has_name = version < _IDS_FROM
        if has_name:
            tags, transaction, acks, _, topics, size = _BEFORE_NAME.unpack_from(frame, position)
            position += _BEFORE_NAME.size
            topic = bytes(frame[position : position + size - 1])
            if not 1 < size < _MORE_FOLLOWS:
                return None
            position += size - 1
            partitions, index, first, second, third = _PARTITION.unpack_from(frame, position)
            position += _PARTITION.size
        else:
            (tags, transaction, acks, _, topics, topic, partitions, index, first, second, third) = (
                _WITH_ID.unpack_from(frame, position)
            )
            position += _WITH_ID.size
    except error:
        return None
    # a length of one, two or three bytes; the others that were read are records
    if first < _MORE_FOLLOWS:
        records = first
        position -= 2
    elif second < _MORE_FOLLOWS:
        records = first & 0x7F | second << 7
        position -= 1
    else:
        records = first & 0x7F | (second & 0x7F) << 7 | third << 14
    end = position + records - 1
    if (
        tags
        or transaction
        or topics != _ONE
        or partitions != _ONE
        or records < _ONE
        or end + BYTES_BEHIND != len(frame)
        or frame[end:].tobytes() != _TAGS_BEHIND
        or (third >= _MORE_FOLLOWS and second >= _MORE_FOLLOWS and first >= _MORE_FOLLOWS)
    ):
        return None
    return _new_tuple(
        PlainProduce, (correlation_id, client_id, acks, topic, index, position, has_name)
    )


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
