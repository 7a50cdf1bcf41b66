"""Every message class at every version: round trips, and untrusted bytes."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.errors import CorruptMessage
from ottla.protocol import codec
from tests.protocol.messages import message_classes, random_message

if TYPE_CHECKING:
    from ottla.protocol.schema import Struct

CLASSES = message_classes()
VERSIONS = [
    (cls, version)
    for _, cls in sorted(CLASSES.items())
    for version in range(cls.versions.lowest, cls.versions.highest + 1)
]


@pytest.mark.parametrize("name", sorted(CLASSES))
@settings(max_examples=4, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_round_trip(name: str, seed: int) -> None:
    """What was encoded is decoded, to the last byte, in every version."""
    cls, rng = CLASSES[name], Random(seed)
    for version in range(cls.versions.lowest, cls.versions.highest + 1):
        message = random_message(cls, version, rng)
        data = codec.to_bytes(message, version)
        decoded, end = codec.decode_at(cls, version, memoryview(b"--" + data + b"-"), 2)
        assert decoded == message
        assert end == len(data) + 2
        assert codec.to_bytes(decoded, version) == data


def decode_hostile(cls: type[Struct], version: int, data: bytes) -> None:
    """Decode bytes that may be anything; what could be read must be writable again."""
    try:
        message = codec.decode(cls, version, data)
    except CorruptMessage:
        return
    codec.encode(message, version)


@settings(max_examples=500, deadline=None)
@given(st.sampled_from(VERSIONS), st.binary(max_size=120))
def test_arbitrary_bytes_raise_only_corrupt_message(
    which: tuple[type[Struct], int], data: bytes
) -> None:
    """Arbitrary bytes are a message or CorruptMessage, nothing else."""
    decode_hostile(*which, data)


@settings(max_examples=500, deadline=None)
@given(
    st.sampled_from(VERSIONS),
    st.integers(0, 2**32),
    st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), max_size=4),
)
def test_damaged_messages_raise_only_corrupt_message(
    which: tuple[type[Struct], int], seed: int, damage: list[tuple[float, int]]
) -> None:
    """A message with a few wrong bytes is a message or CorruptMessage, nothing else."""
    cls, version = which
    data = bytearray(codec.to_bytes(random_message(cls, version, Random(seed)), version))
    for place, value in damage:
        if data:
            data[int(place * len(data))] = value
    decode_hostile(cls, version, bytes(data))
