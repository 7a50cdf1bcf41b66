"""Untrusted frames: a header and a body, or CorruptMessage, for every API."""

from __future__ import annotations

import tracemalloc
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ottla.errors import CorruptMessage, UnsupportedVersion
from ottla.protocol import codec, frames
from ottla.protocol.api_keys import ApiKey, request_class, response_class
from ottla.protocol.request_header import split_header
from tests.protocol.messages import random_message

ALLOWED = (CorruptMessage, UnsupportedVersion)
HUGE = b"\x7f\xff\xff\xff"
HUGE_VARINT = b"\xff\xff\xff\xff\x0f"


def receive(frame: bytes) -> None:
    """Read a request as a broker does: header, version, body."""
    key, version, _, _, reader = split_header(memoryview(frame))
    message, end = codec.decode_at(request_class(key), version, reader.source, reader.position)
    assert end <= len(frame)
    codec.encode(message, version)


def receive_hostile(frame: bytes) -> None:
    """Read an arbitrary frame; only the allowed errors may be raised."""
    try:
        receive(frame)
    except ALLOWED:
        return


def frame_of(key: ApiKey, seed: int) -> bytearray:
    """Return a valid request of a random version."""
    rng = Random(seed)
    cls = request_class(key)
    version = rng.randint(cls.versions.lowest, cls.versions.highest)
    message = random_message(cls, version, rng)
    parts = frames.encode_request(message, version, rng.getrandbits(31), "client")  # type: ignore[arg-type] # a request of that class
    return bytearray(b"".join(bytes(part) for part in parts[1:]))  # type: ignore[arg-type] # no slices


@settings(max_examples=400, deadline=None)
@given(st.binary(max_size=200))
@example(b"")
def test_arbitrary_frames(frame: bytes) -> None:
    """Arbitrary bytes raise only allowed errors from the request reader."""
    receive_hostile(frame)


@settings(max_examples=500, deadline=None)
@given(
    st.sampled_from(list(ApiKey)),
    st.integers(-2, 20),
    st.binary(max_size=150),
)
def test_arbitrary_bodies(key: ApiKey, version: int, body: bytes) -> None:
    """Arbitrary bodies raise only allowed errors from every decoder."""
    head = key.to_bytes(2, "big") + version.to_bytes(2, "big", signed=True)
    receive_hostile(head + b"\0\0\0\1" + b"\0\1c" + body)


@settings(max_examples=500, deadline=None)
@given(st.sampled_from(list(ApiKey)), st.integers(0, 2**32), st.data())
def test_damaged_frames(key: ApiKey, seed: int, data: st.DataObject) -> None:
    """A mutated frame is refused or decodes to another valid request."""
    frame = frame_of(key, seed)
    place = data.draw(st.integers(0, len(frame)), label="place")
    kind = data.draw(st.sampled_from(("cut", "insert", "overwrite", "length")), label="kind")
    noise = data.draw(st.binary(max_size=8), label="noise")
    if kind == "cut":
        del frame[place:]
    elif kind == "insert":
        frame[place:place] = noise
    elif kind == "overwrite":
        frame[place : place + len(noise)] = noise
    else:
        lie = data.draw(st.sampled_from((HUGE, HUGE_VARINT)), label="lie")
        frame[place : place + len(lie)] = lie
    receive_hostile(bytes(frame))


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(list(ApiKey)), st.integers(0, 20), st.binary(max_size=150))
def test_arbitrary_responses(key: ApiKey, version: int, body: bytes) -> None:
    """Clients also survive arbitrary responses."""
    try:
        codec.decode(response_class(key), version, body)
    except ALLOWED:
        return


@pytest.mark.parametrize("key", list(ApiKey), ids=lambda key: key.name)
def test_lying_lengths_allocate_nothing(key: ApiKey) -> None:
    """A small frame takes little memory whatever lengths it announces."""
    frame = frame_of(key, seed=1)
    receive(bytes(frame))
    tracemalloc.start()
    try:
        for place in range(8, len(frame), max(1, len(frame) // 40)):
            for lie in (HUGE, HUGE_VARINT):
                lying = bytearray(frame)
                lying[place : place + len(lie)] = lie
                receive_hostile(bytes(lying))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4_000_000
