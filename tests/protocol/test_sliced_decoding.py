"""Large messages: decoded in slices to the same objects, and refused where they cost too much."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from ottla.errors import CorruptMessage, KafkaError, TooManyElements
from ottla.protocol import codec
from ottla.protocol.apis.create_topics import CreateTopicsRequest
from ottla.protocol.apis.find_coordinator import FindCoordinatorRequest
from ottla.protocol.apis.metadata import MetadataRequest
from ottla.protocol.sliced_decoding import SlicedDecoding
from tests.protocol.messages import message_classes, random_message

if TYPE_CHECKING:
    from ottla.protocol.schema import Struct, StructMeta

CLASSES = message_classes()


def sliced(cls: StructMeta, version: int, data: bytes, per_slice: int, allowance: int) -> Any:
    """Return the message and the number of slices, or the class of the error."""
    decoding = SlicedDecoding(cls, version, memoryview(data), 0, allowance)
    slices, run = 0, decoding.run(per_slice)
    try:
        while True:
            next(run)
            slices += 1
    except StopIteration as end:
        return end.value, slices
    except KafkaError as error:
        return type(error)


def whole(cls: type[Struct], version: int, data: bytes, allowance: int) -> Any:
    """Return the message, or the class of the error."""
    try:
        return codec.decode_at(cls, version, memoryview(data), 0, allowance)[0]
    except KafkaError as error:
        return type(error)


def test_slices_equal_the_whole() -> None:
    """A random message of each class, whole and damaged: the same object or the same error."""
    for name, cls in CLASSES.items():
        rng, version = Random(name), cls.versions.highest
        data = codec.to_bytes(random_message(cls, version, rng), version)
        for _ in range(4):
            position = rng.randrange(len(data) + 1)
            wrong = data[:position] + rng.randbytes(1) + data[position + 1 :]
            for candidate in (data, data[:position], wrong):
                allowance = rng.randrange(40)
                expected = whole(cls, version, candidate, allowance)
                found = sliced(cls, version, candidate, rng.randrange(1, 5), allowance)
                found = found[0] if isinstance(found, tuple) else found
                assert repr(found) == repr(expected), (name, candidate)  # NaN is not itself


def test_a_slice_is_bounded() -> None:
    """Nested and flat arrays yield after each slice of elements."""
    topic = CreateTopicsRequest.CreatableTopic
    one = topic.CreatableReplicaAssignment(partition_index=0, broker_ids=[1, 2, 3])
    nested = CreateTopicsRequest(
        topics=[
            topic(
                name="t",
                num_partitions=-1,
                replication_factor=-1,
                assignments=[one] * 1000,
                configs=[],
            )
            for _ in range(10)
        ]
    )
    _, slices = sliced(CreateTopicsRequest, 7, codec.to_bytes(nested, 7), 100, 1 << 40)
    assert slices >= 10 * 1000 * 4 // 103  # an element may end a slice with its own three
    keys = FindCoordinatorRequest(coordinator_keys=["k"] * 10_000)
    _, slices = sliced(FindCoordinatorRequest, 4, codec.to_bytes(keys, 4), 100, 1 << 40)
    assert slices == 100


@pytest.mark.parametrize("generated", [False, True])
def test_what_is_announced_is_charged_before_it_is_made(*, generated: bool) -> None:
    """Elements, nested elements, texts, bytes and unknown tags count; single values do not."""
    decode: Any = codec.decode_at
    if generated:

        def decode(
            cls: StructMeta, version: int, view: memoryview, position: int, left: int
        ) -> Any:
            return codec.write_decoder(cls, version)(view, position, len(view), left)

    def cost(message: Struct, version: int, tail: bytes = b"") -> int:
        data = codec.to_bytes(message, version)
        data = data[: len(data) - 1] + tail if tail else data
        for allowance in range(2000):
            try:
                decode(type(message), version, memoryview(data), 0, allowance)
            except TooManyElements:
                continue
            return allowance
        raise AssertionError("never")

    topic = MetadataRequest.MetadataRequestTopic
    assert cost(MetadataRequest(topics=None), 12) == 0
    assert cost(MetadataRequest(topics=[topic(name="t")] * 7), 12) == 7
    assert cost(MetadataRequest(topics=[topic(name="t" * 1280)]), 12) == 11
    assert cost(FindCoordinatorRequest(coordinator_keys=["a", "b" * 256]), 4) == 4
    assert cost(MetadataRequest(topics=[]), 12, b"\x03\x63\0\x64\0\x65\0") == 3


def test_an_absurd_number_of_tags_is_no_message() -> None:
    """More tagged fields than bytes are refused before any is read."""
    data = codec.to_bytes(MetadataRequest(topics=[]), 12)[:-1] + b"\xff\xff\xff\xff\x0f"
    with pytest.raises(CorruptMessage, match="more tagged fields"):
        codec.decode(MetadataRequest, 12, data)
