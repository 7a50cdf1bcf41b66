"""What a follower writes and reads of Fetch, the codec and the leader read and write alike."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from ottla.errors import CorruptMessage
from ottla.protocol import codec, frames
from ottla.protocol.api_keys import request_header_version
from ottla.protocol.apis.fetch import FetchRequest, FetchResponse
from ottla.protocol.fetch_values import FetchValues, read_fetch
from ottla.protocol.follower_fetch import (
    LOWEST_VERSION,
    read_fetch_response,
    write_fetch_request,
)
from ottla.protocol.request_header import split_header
from ottla.types import Uuid
from tests.protocol.messages import random_message

VERSIONS = range(LOWEST_VERSION, FetchRequest.versions.highest + 1)
TOPICS = [Uuid(bytes([number]) * 16) for number in range(1, 4)]


def random_request(rng: Random) -> FetchValues:
    """Return a follower's request; partitions of one topic need not be neighbours."""
    keys = [("", rng.choice(TOPICS), index) for index in range(rng.randrange(5))]
    forgotten = [("", rng.choice(TOPICS), index) for index in range(rng.randrange(3))]
    partitions = {
        key: (rng.randrange(9), rng.randrange(1 << 40), rng.randrange(-1, 9), 3, 1 << 20)
        for key in keys
    }
    return FetchValues(
        None, 2, rng.randrange(1 << 40), 500, 1, 10 << 20, 0, 77, 12, partitions, forgotten, "r1"
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_a_leader_reads_the_request_that_was_written(version: int) -> None:
    """Every field arrives, whichever way it is read."""
    rng = Random(version)
    for _ in range(50):
        request = random_request(rng)
        frame = write_fetch_request(request, 99, "follower", version)
        assert int.from_bytes(frame[:4], "big") == len(frame) - 4
        key, its_version, correlation_id, client_id, reader = split_header(memoryview(frame)[4:])
        assert (key, its_version, correlation_id, client_id) == (1, version, 99, "follower")
        position = reader.position
        read = read_fetch(reader, version)
        assert read._replace(forgotten=sorted(read.forgotten)) == request._replace(
            forgotten=sorted(request.forgotten)
        )
        assert request_header_version(key, version) == 2
        message: Any = codec.decode_at(FetchRequest, version, memoryview(frame)[4:], position)[0]
        assert message.replica_state.replica_epoch == request.replica_epoch


@pytest.mark.parametrize("version", VERSIONS)
def test_responses_are_read_as_by_the_codec(version: int) -> None:
    """Random responses, with aborted transactions, unknown tags and addresses of nodes."""
    rng = Random(version)
    for _ in range(100):
        message: Any = random_message(FetchResponse, version, rng)
        frame = b"".join(frames.encode_response(5, 1, version, message))  # type: ignore[arg-type] # no files
        answer = read_fetch_response(memoryview(frame)[4:], version)
        assert (answer.error_code, answer.session_id) == (message.error_code, message.session_id)
        expected = [
            (topic.topic_id, one) for topic in message.responses for one in topic.partitions
        ]
        assert len(answer.partitions) == len(expected)
        for fetched, (topic_id, one) in zip(answer.partitions, expected, strict=True):
            assert fetched.key == ("", topic_id, one.partition_index)
            assert fetched.error_code == one.error_code
            assert fetched.high_watermark == one.high_watermark
            assert fetched.last_stable_offset == one.last_stable_offset
            assert fetched.log_start_offset == one.log_start_offset
            assert bytes(fetched.records) == bytes(one.records or b"")  # type: ignore[arg-type] # a buffer
            assert fetched.preferred_replica == one.preferred_read_replica
            assert fetched.size_bytes == len(one.records or b"")
            epoch, led = one.diverging_epoch, one.current_leader
            assert fetched.diverging in (None, (epoch.epoch, epoch.end_offset))
            assert fetched.leader in (None, (led.leader_id, led.leader_epoch))


def test_a_response_that_is_damaged_is_refused() -> None:
    """Wherever it ends, and with any byte changed, nothing else is raised."""
    rng = Random(1)
    message = random_message(FetchResponse, 17, rng)
    frame = bytearray(b"".join(frames.encode_response(5, 1, 17, message)))[4:]  # type: ignore[arg-type] # no files
    for end in range(5, len(frame)):
        with pytest.raises(CorruptMessage):
            read_fetch_response(memoryview(frame)[:end], 17)
    for _ in range(3000):
        damaged = bytearray(frame)
        damaged[rng.randrange(5, len(frame))] = rng.randrange(256)
        try:
            read_fetch_response(memoryview(damaged), 17)
        except CorruptMessage:
            continue
