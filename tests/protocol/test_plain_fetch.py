"""Plain fetch requests: what is read and answered without the codec is what the codec says."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from ottla.errors import CorruptMessage
from ottla.protocol import codec, frames
from ottla.protocol.apis.fetch import FetchRequest, FetchResponse
from ottla.protocol.plain_fetch import ANSWER_BEHIND, PlainFetch, plain_answer_head, split_plain
from ottla.types import Uuid
from tests.protocol.messages import damage, frame_of, random_message

Topic = FetchRequest.FetchTopic
Partition = Topic.FetchPartition
TopicAnswer = FetchResponse.FetchableTopicResponse
PartitionAnswer = TopicAnswer.PartitionData
VERSIONS = range(13, 19)
ONE = Partition(partition=0, fetch_offset=1, partition_max_bytes=5)


def request_of(rng: Random) -> FetchRequest:
    """Return a request of one partition or none."""
    partition = Partition(
        partition=rng.randrange(1 << 31),
        current_leader_epoch=rng.randrange(-1, 5),
        fetch_offset=rng.randrange(1 << 62),
        last_fetched_epoch=rng.choice((-1, 3)),
        partition_max_bytes=rng.randrange(1 << 31),
    )
    topic = Topic(topic_id=Uuid(rng.randbytes(16)), partitions=[partition])
    return FetchRequest(
        max_wait_ms=rng.randrange(1000),
        min_bytes=rng.randrange(1 << 31),
        max_bytes=rng.randrange(1 << 31),
        isolation_level=rng.choice((0, 1)),
        session_id=rng.choice((0, 77)),
        session_epoch=rng.randrange(-1, 9),
        topics=[topic] * rng.choice((0, 1)),
        rack_id="r" * rng.choice((0, 3, 126)),
    )


def decode(frame: bytearray) -> tuple[FetchRequest, int]:
    """Read a frame by the codec; return the request and where it ends."""
    _, version, _, _, position = frames.split_header(memoryview(frame))
    request, end = codec.decode_at(FetchRequest, version, memoryview(frame), position)
    return request, end


def assert_as_codec(plain: PlainFetch, frame: bytearray) -> None:
    """Every field is what the codec reads."""
    key, version, correlation_id, _, _ = frames.split_header(memoryview(frame))
    assert key == 1
    assert version in VERSIONS
    request, end = decode(frame)
    assert end == len(frame)
    assert (request.replica_id, request.replica_state.replica_id) == (-1, -1)
    assert request.cluster_id is None
    assert not request.forgotten_topics_data
    assert plain[:1] + plain[2:7] == (
        correlation_id,
        request.min_bytes,
        request.max_bytes,
        request.isolation_level != 0,
        request.session_id,
        request.session_epoch,
    )
    assert bool(plain.topic_id) == bool(request.topics)
    for topic in request.topics:
        (one,) = topic.partitions
        assert (plain.topic_id, plain.partition) == (topic.topic_id, one.partition)
        assert plain.asked == (
            one.current_leader_epoch,
            one.fetch_offset,
            one.last_fetched_epoch,
            one.partition_max_bytes,
        )


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("client_id", [None, "", "me", "grüße" * 50])
def test_every_plain_request_is_read(version: int, client_id: str | None) -> None:
    """One partition or none, with and without a session, whatever the client is called."""
    rng = Random(version)
    for _ in range(40):
        frame = frame_of(request_of(rng), version, client_id)
        plain = split_plain(memoryview(frame))
        assert plain is not None
        assert_as_codec(plain, frame)
        assert plain.client_id == (client_id or "").encode()


@pytest.mark.parametrize("version", range(4, 19))
def test_what_is_not_plain_is_left(version: int) -> None:
    """Random messages: taken only where the codec reads one partition and nothing more."""
    rng = Random(version)
    for _ in range(400):
        request: Any = random_message(FetchRequest, version, rng)
        frame = frame_of(request, version)
        plain = split_plain(memoryview(frame))
        if plain is not None:
            assert_as_codec(plain, frame)


@pytest.mark.parametrize("version", VERSIONS)
def test_damaged_requests_are_never_misread(version: int) -> None:
    """Flipped, cut and spliced frames are read as the codec reads them, or left to it."""
    rng, found = Random(version), 0
    for _ in range(1000):
        frame = frame_of(request_of(rng), version)
        damage(frame, rng)
        plain = split_plain(memoryview(frame))
        if plain is not None:
            found += 1
            assert_as_codec(plain, frame)
    assert found


@pytest.mark.parametrize(
    "change",
    [
        {"topics": [Topic(partitions=[ONE] * 2)]},
        {"topics": [Topic(partitions=[])]},
        {"topics": [Topic(partitions=[])] * 2},
        {"topics": [Topic(partitions=[ONE])] * 2},
        {"forgotten_topics_data": [FetchRequest.ForgottenTopic(partitions=[0])]},
        {"cluster_id": "c"},
        {"rack_id": "r" * 127},
        {"replica_id": 1},
        {"replica_state": FetchRequest.ReplicaState(replica_id=1)},
    ],
)
def test_the_codec_has_the_rest(change: dict[str, Any]) -> None:
    """Followers, many partitions, forgotten ones, long racks."""
    request = request_of(Random(0))
    for name, value in change.items():
        setattr(request, name, value)
    version = 13 if "replica_id" in change else 15
    assert split_plain(memoryview(frame_of(request, version))) is None


@pytest.mark.parametrize("size", range(100))
def test_short_bytes_are_nothing(size: int) -> None:
    """Any beginning of a request is left to the codec, which says what is wrong."""
    request = request_of(Random(1))
    request.topics = [Topic(partitions=[ONE])]
    frame = frame_of(request, 13)
    del frame[min(size, len(frame) - 1) :]
    assert split_plain(memoryview(frame)) is None
    with pytest.raises(CorruptMessage):
        decode(frame)


@pytest.mark.parametrize("version", VERSIONS)
def test_answers_have_the_codecs_bytes(version: int) -> None:
    """The same frame as the response class makes, for records of any size."""
    rng = Random(version)
    for size in (1, 100, 126, 127, 128, 16382, 16383, 70_000, 3_000_000):
        request = request_of(rng)
        plain = split_plain(memoryview(frame_of(request, version)))
        assert plain is not None
        offsets = (rng.randrange(1 << 60), rng.randrange(1 << 60), rng.randrange(1 << 60))
        topic_id, partition = Uuid(rng.randbytes(16)), rng.randrange(1 << 31)
        data = PartitionAnswer(
            partition_index=partition,
            high_watermark=offsets[0],
            last_stable_offset=offsets[1],
            log_start_offset=offsets[2],
            aborted_transactions=[] if request.isolation_level else None,
            records=bytes(size),
        )
        response = FetchResponse(
            session_id=request.session_id,
            responses=[TopicAnswer(topic_id=topic_id, partitions=[data])],
        )
        parts: list[Any] = frames.encode_response(-7, 1, version, response)
        head = plain_answer_head(plain, topic_id, partition, offsets, size)
        assert head + bytes(size) + ANSWER_BEHIND == b"".join(parts)
