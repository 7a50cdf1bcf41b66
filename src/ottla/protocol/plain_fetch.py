"""The fetch request of a consumer of one partition, read and answered without the codec.

Plain is: versions 13 to 18, at most one partition, none forgotten, no tagged fields. What is not
plain, or not sound, is None here and read by the codec, which says what is wrong with it. The bytes
are those of `FetchRequest` and `FetchResponse`: tests/protocol/test_plain_fetch.py holds the two
against each other.

Hot path: benchmarks/against_kafka. Kafka: FetchRequest.json, FetchResponse.json.
"""

from __future__ import annotations

from struct import Struct, error
from typing import Final, NamedTuple

from ottla.protocol.frames import REQUEST_HEADER
from ottla.protocol.primitives import encode_uvarint

LOWEST: Final = 13
HIGHEST: Final = 18
_FETCH: Final = 1
_REPLICA_IN_TAG_FROM: Final = 15
_NO_REPLICA: Final = -1
_MORE_FOLLOWS: Final = 128  # a byte of a length that is not its last
# no tags of the header, (replica before version 15,) wait, least and most bytes, isolation,
# session and its epoch, topics and one
_OLDER_BODY: Final = Struct(">biiiibiiB")
_BODY: Final = Struct(">biiibiiB")
# topic id, partitions and one, index, leader epoch, offset, last epoch, log start, most bytes, no
# tags of partition and topic
_PARTITION: Final = Struct(">16sBiiqiqiBB")
_NONE, _ONE = 1, 2  # compact arrays: their lengths and one
# size, correlation id, no tags, no throttling, no error, session, one topic, its id, one
# partition, its index, no error, high watermark, last stable offset, log start offset, aborted
# transactions, no preferred replica
_ANSWER_BEFORE: Final = Struct(">iibihib16sbihqqqbi")
ANSWER_BEHIND: Final = b"\0\0\0"
"""What stands behind the records of an answer: no tags of partition, topic and answer."""
_SIZE_BYTES: Final = 4
_new_tuple: Final = tuple.__new__


class PlainFetch(NamedTuple):
    """What a plain request says; partition and asked mean nothing where topic_id is b""."""

    correlation_id: int
    client_id: bytes
    """As it stands there; nothing for none."""
    min_bytes: int
    max_bytes: int
    is_filtered: bool
    """Whether it asks for committed transactions only."""
    session_id: int
    session_epoch: int
    topic_id: bytes
    partition: int
    asked: tuple[int, int, int, int]
    """Leader epoch, offset, epoch of the last batch fetched, most bytes."""


def split_plain(frame: memoryview) -> PlainFetch | None:
    """Read a frame (without its size); None for every request that is not plain."""
    try:
        key, version, correlation_id, length = REQUEST_HEADER.unpack_from(frame)
        if key != _FETCH or not LOWEST <= version <= HIGHEST:
            return None
        position = 10 + length if length > 0 else 10
        client_id = bytes(frame[10:position])
        replica_id = _NO_REPLICA
        if version < _REPLICA_IN_TAG_FROM:
            tags, replica_id, _, least, most, isolation, session_id, epoch, topics = (
                _OLDER_BODY.unpack_from(frame, position)
            )
            position += _OLDER_BODY.size
        else:
            tags, _, least, most, isolation, session_id, epoch, topics = _BODY.unpack_from(
                frame, position
            )
            position += _BODY.size
        if topics == _ONE:
            topic_id, count, index, leader_epoch, offset, last_epoch, _, size, first, second = (
                _PARTITION.unpack_from(frame, position)
            )
            position += _PARTITION.size
            if count != _ONE or first or second:
                return None
        elif topics == _NONE:
            topic_id = b""
            index = leader_epoch = offset = last_epoch = size = 0
        else:
            return None
        rack = frame[position + 1]
        if (
            tags
            or replica_id != _NO_REPLICA
            or frame[position] != _NONE  # forgotten partitions
            or not 0 < rack < _MORE_FOLLOWS
            or position + rack + 2 != len(frame)
            or frame[-1]
        ):
            return None
    except (error, IndexError):
        return None
    return _new_tuple(
        PlainFetch,
        (
            correlation_id,
            client_id,
            least,
            most,
            isolation != 0,
            session_id,
            epoch,
            topic_id,
            index,
            (leader_epoch, offset, last_epoch, size),
        ),
    )


def plain_answer_head(
    request: PlainFetch,
    topic_id: bytes,
    partition: int,
    offsets: tuple[int, int, int],
    records_size: int,
) -> bytes:
    """Return what stands before the records in the frame of an answer.

    `offsets`: high watermark, last stable offset, log start offset. Whoever asks for committed
    transactions is told that none was aborted. ANSWER_BEHIND follows the records.
    """
    length = encode_uvarint(records_size + 1)
    size = _ANSWER_BEFORE.size - _SIZE_BYTES + len(length) + records_size + len(ANSWER_BEHIND)
    is_filtered, session_id = request.is_filtered, request.session_id
    return (
        _ANSWER_BEFORE.pack(
            size,
            request.correlation_id,
            0,
            0,
            0,
            session_id,
            _ONE,
            topic_id,
            _ONE,
            partition,
            0,
            *offsets,
            is_filtered,
            -1,
        )
        + length
    )
