"""Encoders and decoders: known bytes, versions, tags, bounds."""

from __future__ import annotations

import struct
from typing import NamedTuple, TypeAlias

import pytest

from ottla.errors import CorruptMessage, UnsupportedVersion
from ottla.protocol import codec
from ottla.protocol.apis.fetch import FetchRequest, FetchResponse
from ottla.protocol.apis.heartbeat import HeartbeatRequest
from ottla.protocol.apis.metadata import MetadataRequest
from ottla.protocol.apis.produce import ProduceRequest
from ottla.protocol.records.consumer_group import ConsumerGroupMemberMetadataValue
from ottla.protocol.schema import EMPTY, Records, Struct, field, float64, int8, int32, uint16
from ottla.types import ZERO_UUID, FileSlice, Uuid

Member: TypeAlias = ConsumerGroupMemberMetadataValue.ClassicMemberMetadata


class Leaf(Struct):
    value: int32
    label: str = field("2+", default="", tag=0)


class Tree(Struct, versions="0-2", flexible="2+"):
    flag: bool
    small: int8
    wide: uint16
    ratio: float64
    topic_id: Uuid
    text: str | None
    data: bytes
    numbers: list[int32]
    names: list[str]
    leaves: list[Leaf] | None
    extra: int32 = field("1+", default=5)
    hint: int32 = field("1+", default=-1, ignorable=True)
    nested: Leaf = field("2+", default=EMPTY, tag=1)


def tree() -> Tree:
    """Return a message with every kind of field that all versions carry."""
    return Tree(
        flag=True,
        small=-2,
        wide=65535,
        ratio=0.5,
        topic_id=Uuid(bytes(range(16))),
        text="é",
        data=b"\xff",
        numbers=[1, -1],
        names=["a"],
        leaves=[Leaf(value=3)],
    )


FIXED_PART = bytes.fromhex("01 fe ffff 3fe0000000000000 000102030405060708090a0b0c0d0e0f")


def test_old_encoding() -> None:
    """Lengths of two and four bytes, no tags."""
    assert codec.to_bytes(tree(), 0) == FIXED_PART + bytes.fromhex(
        "0002c3a9 00000001ff 00000002 00000001 ffffffff 00000001 000161 00000001 00000003"
    )


def test_flexible_encoding() -> None:
    """Lengths are varints plus one, and a tagged section follows every struct."""
    message = tree()
    message.nested = Leaf(value=1, label="x")
    assert codec.to_bytes(message, 2) == FIXED_PART + bytes.fromhex(
        "03c3a9 02ff 03 00000001 ffffffff 02 0261 02 00000003 00 00000005 ffffffff"
        "01 01 09 00000001 01 00 02 0278"
    )


@pytest.mark.parametrize("version", [0, 1, 2])
def test_every_version_comes_back(version: int) -> None:
    """Fields of other versions hold their defaults."""
    message = tree()
    assert codec.decode(Tree, version, codec.to_bytes(message, version)) == message


class Lost(NamedTuple):
    """A change to a message, and the version that cannot carry it."""

    name: str
    value: object
    version: int


@pytest.mark.parametrize("lost", [Lost("extra", 6, 0), Lost("nested", Leaf(value=1), 1)], ids=str)
def test_a_value_that_would_be_lost_is_refused(lost: Lost) -> None:
    """A field that is not ignorable raises at a version without it."""
    message = tree()
    setattr(message, lost.name, lost.value)
    with pytest.raises(UnsupportedVersion, match=f"non-default {lost.name} at version"):
        codec.encode(message, lost.version)


def test_an_ignorable_value_is_dropped() -> None:
    """An ignorable field may hold anything."""
    message = tree()
    message.hint = 9
    assert codec.decode(Tree, 0, codec.to_bytes(message, 0)).hint == -1


@pytest.mark.parametrize("version", [-1, 3])
def test_versions_outside_the_range_are_refused(version: int) -> None:
    """Neither direction works for a version that the class does not have."""
    with pytest.raises(UnsupportedVersion, match="Tree has no version"):
        codec.encode(tree(), version)
    with pytest.raises(UnsupportedVersion, match="Tree has no version"):
        codec.decode(Tree, version, b"")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("small", 128),
        ("wide", -1),
        ("numbers", [2**31]),
        ("names", None),
        ("data", None),
        ("text", "\ud800"),
        ("text", "x" * 32768),
        ("leaves", [None]),
    ],
)
@pytest.mark.parametrize("version", [0, 2])
def test_values_outside_their_type_are_refused(name: str, value: object, version: int) -> None:
    """A wrong value raises ValueError instead of writing something else."""
    message = tree()
    setattr(message, name, value)
    with pytest.raises(ValueError, match=r"."):
        codec.encode(message, version)


def test_null_is_told_from_empty() -> None:
    """Null lists and texts come back as None."""
    message = tree()
    message.text = message.leaves = None
    for version in (0, 2):
        decoded = codec.decode(Tree, version, codec.to_bytes(message, version))
        assert (decoded.text, decoded.leaves) == (None, None)


# ---------------------------------------------------------------- tagged fields


def test_unknown_tagged_fields_are_kept() -> None:
    """Tags of a newer peer are written again, at every depth and among known ones."""
    data = codec.to_bytes(tree(), 2)
    assert data.endswith(b"\0")
    leaf = bytes.fromhex("0000000300")
    grown = data.replace(leaf, leaf[:-1] + b"\x01\x05\x02hi")
    grown = grown[:-1] + b"\x02" + b"\x01\x05" + b"\0\0\0\1" + b"\0" + b"\x09\x01!"
    message = codec.decode(Tree, 2, grown)
    assert message.leaves is not None
    assert message.leaves[0].unknown_tagged_fields == ((5, b"hi"),)
    assert message.unknown_tagged_fields == ((9, b"!"),)
    assert message.leaves[0].value == 3
    assert codec.to_bytes(message, 2) == grown


def test_unknown_tagged_fields_do_not_change_the_class() -> None:
    """Such a message still is what it was for isinstance."""
    data = codec.to_bytes(tree(), 2)[:-1] + b"\x01\x09\x00"
    assert isinstance(codec.decode(Tree, 2, data), Tree)


def test_tagged_defaults_are_not_written() -> None:
    """A tagged field that holds its default takes no space."""
    message = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[])
    assert codec.to_bytes(message, 15).endswith(b"\0")


@pytest.mark.parametrize(
    ("member", "tail"),
    [
        (None, "01 00 01 00"),
        (Member(session_timeout_ms=0, supported_protocols=[]), "00"),
        (
            Member(session_timeout_ms=1, supported_protocols=[]),
            "01 00 07 01 00000001 01 00",
        ),
    ],
)
def test_nullable_tagged_struct(member: Member | None, tail: str) -> None:
    """In a tagged section the null of a struct is a varint 0, not an int8 -1."""
    message = ConsumerGroupMemberMetadataValue(classic_member_metadata=member)  # type: ignore[call-arg] # the rest does not matter
    data = codec.to_bytes(message, 0)
    assert data.endswith(bytes.fromhex(tail))
    assert codec.decode(ConsumerGroupMemberMetadataValue, 0, data) == message


# ---------------------------------------------------------------- bad bytes


@pytest.mark.parametrize("version", [0, 2])
def test_every_cut_is_corrupt(version: int) -> None:
    """A message without its last bytes raises CorruptMessage, wherever it is cut."""
    data = codec.to_bytes(tree(), version)
    for size in range(len(data)):
        with pytest.raises(CorruptMessage):
            codec.decode(Tree, version, data[:size])


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(struct.pack(">i", 2**31 - 1), id="huge"),
        pytest.param(struct.pack(">i", 2) + bytes(3), id="more than is left"),
    ],
)
def test_array_lengths_are_bounded_by_what_is_left(data: bytes) -> None:
    """An announced length allocates no memory beyond the received bytes."""
    with pytest.raises(CorruptMessage, match="more elements or bytes announced"):
        codec.decode(MetadataRequest, 1, data)


def test_null_where_none_may_be_is_corrupt() -> None:
    """A null in a field that has none raises as Kafka says it."""
    with pytest.raises(CorruptMessage, match="non-nullable field group_id was serialized as null"):
        codec.decode(HeartbeatRequest, 0, b"\xff\xff")


def test_a_text_longer_than_kafka_reads_is_corrupt() -> None:
    """A varint could announce it, Kafka refuses it."""
    data = b"\x81\x80\x02" + b"x" * 32768
    with pytest.raises(CorruptMessage, match="group_id: more"):
        codec.decode(HeartbeatRequest, 4, data + bytes(20))


def test_a_tagged_field_longer_than_the_message_is_corrupt() -> None:
    """The size of an unknown tag is checked before its bytes are taken."""
    with pytest.raises(CorruptMessage, match="longer than the message"):
        codec.decode(Tree, 2, codec.to_bytes(tree(), 2)[:-1] + b"\x01\x09\x05abc")


# ---------------------------------------------------------------- records


def produce(records: Records | None) -> ProduceRequest:
    """Return a request with one partition."""
    partition = ProduceRequest.TopicProduceData.PartitionProduceData(index=0, records=records)
    topic = ProduceRequest.TopicProduceData(name="t", partition_data=[partition])
    return ProduceRequest(acks=1, timeout_ms=0, topic_data=[topic], transactional_id=None)


@pytest.mark.parametrize("version", [3, 9])
def test_records_are_a_view_of_the_frame(version: int) -> None:
    """Decoding copies no records; encoding hands on the very object."""
    records = bytearray(b"records")
    parts = codec.encode(produce(records), version)
    assert any(part is records for part in parts)
    frame = bytearray(b"".join(bytes(part) for part in parts))  # type: ignore[arg-type] # no slices
    decoded = codec.decode(ProduceRequest, version, frame)
    view = decoded.topic_data[0].partition_data[0].records
    assert isinstance(view, memoryview)
    assert bytes(view) == b"records"
    assert view.obj is frame


class Source:
    """A file of letters for slices."""

    def read(self, position: int, size: int) -> bytes:
        return b"abcdefgh"[position : position + size]

    def send_to(self, *_: object) -> int:
        raise OSError

    def pin(self) -> None:
        raise OSError

    def unpin(self) -> None:
        raise OSError


def test_file_slices_pass_through() -> None:
    """A slice is counted by its size, sent as it is, and read only by to_bytes."""
    piece = FileSlice(Source(), 2, 3)
    partition = FetchResponse.FetchableTopicResponse.PartitionData(
        partition_index=0, high_watermark=0, aborted_transactions=None, records=[piece, b"!"]
    )
    topic = FetchResponse.FetchableTopicResponse(topic_id=ZERO_UUID, partitions=[partition])
    response = FetchResponse(responses=[topic])
    assert piece in codec.encode(response, 13)
    decoded = codec.decode(FetchResponse, 13, codec.to_bytes(response, 13))
    assert decoded.responses[0].partitions[0].records == b"cde!"


def test_null_records_come_back() -> None:
    """Records may be null."""
    decoded = codec.decode(ProduceRequest, 9, codec.to_bytes(produce(None), 9))
    assert decoded.topic_data[0].partition_data[0].records is None


def test_bytes_are_copies() -> None:
    """Only records are views: no state may pin a frame."""
    data = bytearray(codec.to_bytes(tree(), 0))
    decoded = codec.decode(Tree, 0, data)
    data[:] = bytes(len(data))
    assert decoded.data == b"\xff"


def test_tracebacks_show_the_compiled_source() -> None:
    """A compiled codec has its lines in linecache."""
    with pytest.raises(ValueError, match="Tree v0") as caught:
        codec.encode(Tree(**dict.fromkeys(("flag", "small", "wide"))), 0)  # type: ignore[arg-type] # the mistake to be caught
    assert caught.value.__cause__ is not None
