"""Plain produce requests: what is read and answered without the codec is what the codec says."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from ottla.errors import CorruptMessage
from ottla.protocol import codec, frames
from ottla.protocol.apis.produce import ProduceRequest, ProduceResponse
from ottla.protocol.plain_produce import (
    BYTES_BEHIND,
    PlainProduce,
    plain_answer,
    split_plain,
)
from ottla.protocol.primitives import encode_uvarint
from ottla.types import Uuid
from tests.protocol.messages import damage, frame_of, random_message

Topic = ProduceRequest.TopicProduceData
Partition = Topic.PartitionProduceData
TopicAnswer = ProduceResponse.TopicProduceResponse
PartitionAnswer = TopicAnswer.PartitionProduceResponse
VERSIONS = range(9, 14)


def request_of(rng: Random) -> ProduceRequest:
    """Return a request of one partition."""
    records = rng.randbytes(rng.choice((1, 100, 126, 127, 128, 16382, 16383, 16384)))
    return ProduceRequest(
        acks=rng.choice((-1, 0, 1, 5)),
        timeout_ms=rng.randrange(100_000),
        topic_data=[
            Topic(
                name="t" * rng.choice((1, 8, 125)),
                topic_id=Uuid(rng.randbytes(16)),
                partition_data=[Partition(index=rng.randrange(1 << 31), records=records)],
            )
        ],
    )


def decode(frame: bytearray) -> None:
    """Read a frame by the codec."""
    _, version, _, _, position = frames.split_header(memoryview(frame))
    codec.decode_at(ProduceRequest, version, memoryview(frame), position)


def assert_as_codec(plain: PlainProduce, frame: bytearray) -> None:
    """Every field is what the codec reads."""
    view = memoryview(frame)
    key, version, correlation_id, _, position = frames.split_header(view)
    assert key == 0
    request, end = codec.decode_at(ProduceRequest, version, view, position)
    (topic,) = request.topic_data
    (partition,) = topic.partition_data
    assert request.transactional_id is None
    assert (plain.correlation_id, plain.acks) == (correlation_id, request.acks)
    assert plain.has_name is (version < 13)
    name = topic.name.encode() if plain.has_name else topic.topic_id
    assert str(plain.topic, "utf-8", "replace") == str(name, "utf-8", "replace")
    assert plain.partition == partition.index
    assert view[plain.start : -BYTES_BEHIND] == partition.records
    assert end == len(frame)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("client_id", [None, "", "me", "grüße" * 50])
def test_every_plain_request_is_read(version: int, client_id: str | None) -> None:
    """One partition, whatever the sizes of client id, name and records."""
    rng = Random(version)
    for _ in range(40):
        frame = frame_of(request_of(rng), version, client_id)
        plain = split_plain(memoryview(frame))
        assert plain is not None
        assert_as_codec(plain, frame)
        assert plain.client_id == (client_id or "").encode()


@pytest.mark.parametrize(("size", "is_plain"), [(2_000_000, True), (3_000_000, False)])
def test_records_have_a_length_of_three_bytes_at_most(size: int, *, is_plain: bool) -> None:
    """Longer ones are left to the codec."""
    request = request_of(Random(2))
    request.topic_data[0].partition_data[0].records = bytes(200)
    frame = frame_of(request, 13)
    at = frame.index(bytes((0xC9, 0x01)), 40)  # 200 and one as a varint
    length = encode_uvarint(size + 1)
    frame[at : at + 2] = length
    assert split_plain(memoryview(frame)) is None  # they are not there
    frame[at + len(length) :] = bytes(size + BYTES_BEHIND)
    plain = split_plain(memoryview(frame))
    assert (plain is not None) is is_plain
    if plain is not None:
        assert_as_codec(plain, frame)


@pytest.mark.parametrize("version", range(3, 14))
def test_what_is_not_plain_is_left(version: int) -> None:
    """Random messages: taken only where the codec reads one partition and nothing more."""
    rng = Random(version)
    for _ in range(400):
        request: Any = random_message(ProduceRequest, version, rng)
        frame = frame_of(request, version)
        plain = split_plain(memoryview(frame))
        if plain is not None:
            assert version in VERSIONS
            assert_as_codec(plain, frame)


@pytest.mark.parametrize("version", VERSIONS)
def test_damaged_requests_are_never_misread(version: int) -> None:
    """Flipped, cut and spliced frames are read as the codec reads them, or left to it."""
    rng, found = Random(version), 0
    for _ in range(1000):
        request = request_of(rng)
        request.topic_data[0].partition_data[0].records = bytes(rng.randrange(1, 200))
        frame = frame_of(request, version)
        damage(frame, rng)
        plain = split_plain(memoryview(frame))
        if plain is not None:
            found += 1
            assert_as_codec(plain, frame)
    assert found


@pytest.mark.parametrize(
    "change",
    [
        {"transactional_id": "t"},
        {"topic_data": []},
        {"topic_data": [Topic(name="a", partition_data=[])] * 2},
        {"topic_data": [Topic(name="a", partition_data=[Partition(index=0, records=None)])]},
        {"topic_data": [Topic(name="a", partition_data=[Partition(index=0, records=b"")])]},
        {"topic_data": [Topic(name="a" * 200, partition_data=[Partition(index=0, records=b"x")])]},
    ],
)
def test_the_codec_has_the_rest(change: dict[str, Any]) -> None:
    """Transactions, no or many partitions, no records, long names."""
    request = request_of(Random(0))
    for name, value in change.items():
        setattr(request, name, value)
    assert split_plain(memoryview(frame_of(request, 12))) is None


@pytest.mark.parametrize("size", range(80))
def test_short_bytes_are_nothing(size: int) -> None:
    """Any beginning of a request is left to the codec, which says what is wrong."""
    frame = frame_of(request_of(Random(1)), 13)[:size]
    assert split_plain(memoryview(frame)) is None
    with pytest.raises(CorruptMessage):
        decode(frame)


@pytest.mark.parametrize("version", VERSIONS)
def test_answers_have_the_codecs_bytes(version: int) -> None:
    """The same frame as the response class makes."""
    rng = Random(version)
    for _ in range(100):
        request = request_of(rng)
        plain = split_plain(memoryview(frame_of(request, version)))
        assert plain is not None
        base, start = rng.randrange(1 << 60), rng.randrange(1 << 60)
        (topic,) = request.topic_data
        answer = PartitionAnswer(
            index=topic.partition_data[0].index, base_offset=base, log_start_offset=start
        )
        response = ProduceResponse(
            responses=[
                TopicAnswer(name=topic.name, topic_id=topic.topic_id, partition_responses=[answer])
            ]
        )
        (expected,) = frames.encode_response(-7, 0, version, response)
        assert plain_answer(plain, base, start) == expected
