"""Tests of network.framing."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.errors import KafkaError
from ottla.network.framing import FIRST_BYTES, FrameReader


def reader_of(max_bytes: int) -> FrameReader:
    """Return a reader without a budget: nothing has to wait for room."""
    return FrameReader(max_bytes, None, pytest.fail)


def feed(reader: FrameReader, data: bytes, chunk: int) -> list[bytes]:
    """Give a stream to the reader the way a connection does."""
    frames = []
    position = 0
    while position < len(data):
        space = reader.space()
        if space is not None:
            count = min(len(space), chunk, len(data) - position)
            space[:count] = data[position : position + count]
            frame = reader.advance(count)
        else:
            count = min(chunk, len(data) - position)
            frame = reader.take(memoryview(data)[position : position + count])
        position += count
        while frame is not None:
            frames.append(bytes(frame))
            frame = reader.next_frame()
    return frames


@given(
    bodies=st.lists(st.binary(max_size=300), max_size=20),
    chunk=st.integers(min_value=1, max_value=700),
)
def test_any_chunking_gives_the_same_frames(bodies: list[bytes], chunk: int) -> None:
    """Frames come out whole and in order however the stream was cut."""
    stream = b"".join(struct.pack(">i", len(body)) + body for body in bodies)
    assert feed(reader_of(1000), stream, chunk) == bodies


@pytest.mark.parametrize("size", [-1, -5, -(2**31), 1001, 2**31 - 1])
def test_an_illegal_size_is_refused(size: int) -> None:
    """Negative sizes and those over the limit raise before anything is allocated."""
    with pytest.raises(KafkaError):
        reader_of(1000).take(memoryview(struct.pack(">i", size)))


@pytest.mark.parametrize(
    ("start", "hint"),
    [
        (b"\x16\x03\x01\x00\xa5", ": the client speaks TLS, the listener does not; check its"),
        (b"GET / HTTP/1.0", ": the client speaks HTTP; check its port"),
        (b"\x7f\xff\xff\xff", " larger than 1000)"),
    ],
)
def test_another_protocol_is_named(start: bytes, hint: str) -> None:
    """The text stands in the node's log: operators look for the cause there."""
    with pytest.raises(KafkaError) as caught:
        reader_of(1000).take(memoryview(start))
    assert hint in caught.value.message


def test_the_buffer_grows_with_what_arrived() -> None:
    """A hundred announced megabytes with two bytes sent cost one small buffer."""
    reader = reader_of(1 << 30)
    assert reader.take(memoryview(struct.pack(">i", 100 << 20) + b"ab")) is None
    space = reader.space()
    assert space is not None
    assert len(space) == FIRST_BYTES - 2
    assert reader.is_inside_frame


def test_frames_own_their_buffers() -> None:
    """A frame stays as it was when later bytes arrive."""
    reader = reader_of(1000)
    first = reader.take(memoryview(struct.pack(">i", 2) + b"ab"))
    reader.take(memoryview(struct.pack(">i", 2) + b"cd"))
    assert first is not None
    assert bytes(first) == b"ab"
