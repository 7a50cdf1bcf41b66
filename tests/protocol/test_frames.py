"""Frames: size, header, body."""

from __future__ import annotations

import pytest

from ottla.errors import CorruptMessage
from ottla.protocol import codec, frames
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.apis.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.apis.produce import ProduceRequest
from ottla.protocol.request_header import split_header
from ottla.types import FileSlice
from tests.protocol.test_codec import Source, produce


def joined(parts: list[object]) -> bytes:
    """Return a frame as one piece."""
    return b"".join(bytes(part) for part in parts)  # type: ignore[call-overload] # no slices


HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


@pytest.mark.parametrize(
    ("version", "client_id", "expected"),
    [
        (0, "c", "00000015 000c 0000 00000007 000163 000167 00000001 00016d"),
        (0, None, "00000014 000c 0000 00000007 ffff 000167 00000001 00016d"),
        (4, "c", "00000016 000c 0004 00000007 000163 00 0267 00000001 026d 00 00"),
    ],
)
def test_request_frame(version: int, client_id: str | None, expected: str) -> None:
    """Flexible versions have a flexible header, whose client id keeps its old form."""
    frame = joined([*frames.encode_request(HEARTBEAT, version, 7, client_id)])
    assert frame == bytes.fromhex(expected)
    *header, reader = split_header(memoryview(frame)[4:])
    assert header == [ApiKey.HEARTBEAT, version, 7, client_id]
    assert codec.decode_at(HeartbeatRequest, version, memoryview(frame), reader.position + 4) == (
        HEARTBEAT,
        len(frame),
    )


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (0, "00000006 00000007 001b"),
        (1, "0000000a 00000007 00000000 001b"),
        (4, "0000000c 00000007 00 00000000 001b 00"),
    ],
)
def test_response_frame(version: int, expected: str) -> None:
    """Flexible versions have a tagged section in the header."""
    parts = frames.encode_response(7, ApiKey.HEARTBEAT, version, HeartbeatResponse(error_code=27))
    assert joined([*parts]) == bytes.fromhex(expected)


def test_api_versions_never_has_a_flexible_response_header() -> None:
    """A client that does not know the broker yet can always read it (KIP-511)."""
    parts = frames.encode_response(7, ApiKey.API_VERSIONS, 3, ApiVersionsResponse(api_keys=[]))
    assert joined([*parts]) == bytes.fromhex("0000000c 00000007 0000 01 00000000 00")


def test_versions_to_come_are_read_as_flexible() -> None:
    """An ApiVersions request of any age has a header that can be read."""
    parts = frames.encode_request(
        ApiVersionsRequest(client_software_name="x", client_software_version="1"), 4, 7, "c"
    )
    frame = bytearray(joined([*parts]))[4:]
    frame[2:4] = b"\x7f\xff"
    _, version, _, client_id, _ = split_header(memoryview(frame))
    assert (version, client_id) == (0x7FFF, "c")


@pytest.mark.parametrize(
    "frame", [b"", b"\0\1\0", b"\0\4\0\0\0\0\0\1\0\0", b"\x7f\xff\0\0\0\0\0\1\0\0", b"\0\1\0\4\0\0"]
)
def test_bad_headers_are_corrupt(frame: bytes) -> None:
    """Too short, a removed key, an unknown key, a header cut off."""
    with pytest.raises(CorruptMessage):
        split_header(memoryview(frame))


def test_the_size_counts_what_is_not_read() -> None:
    """File slices count by their size."""
    parts = frames.encode_request(produce(FileSlice(Source(), 0, 1000)), 9, 7, None)
    size = int.from_bytes(bytes(parts[0]), "big")  # type: ignore[arg-type] # the prefix
    assert size == codec.records_size(parts[1:])
    assert size > 1000
    assert isinstance(parts[0], bytes)
    assert ProduceRequest.message_key == ApiKey.PRODUCE
