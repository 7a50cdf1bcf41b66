"""Malformed frames: whether the node answers, waits or disconnects.

Kafka: SocketServer.Processor, RequestContext.parseRequest, NetworkReceive.
"""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.protocol import codec, frames
from ottla.protocol.api_keys import ApiKey, request_class
from ottla.protocol.apis.api_versions import ApiVersionsResponse
from tests.conformance.differential.case import build
from tests.conformance.differential.side import CLOSED, SILENT

if TYPE_CHECKING:
    from tests.conformance.differential.side import Side

CORRELATION = 77
WAIT_S = 60.0
SILENCE_S = 0.4


class WireCase(NamedTuple):
    """Bytes for a connection of their own, and what both nodes do with them."""

    name: str
    data: bytes
    expected: str | None = None
    """CLOSED or SILENT; None when they are answered."""


def _header(key: int, version: int, client_id: bytes | None = b"wire") -> bytes:
    head = struct.pack(">hhi", key, version, CORRELATION)
    if client_id is None:
        return head + struct.pack(">h", -1)
    return head + struct.pack(">h", len(client_id)) + client_id


def _sized(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def _request(key: ApiKey, version: int, *, client_id: str | None = "wire", **fields: Any) -> bytes:
    made = build(request_class(key), version, fields)
    parts = frames.encode_request(made, version, CORRELATION, client_id)
    return b"".join(part for part in parts if isinstance(part, bytes | bytearray | memoryview))


def _longer(frame: bytes, extra: bytes) -> bytes:
    """Return the frame with bytes after its body, the size made right."""
    return _sized(frame[4:] + extra)


VERSIONS = _request(ApiKey.API_VERSIONS, 0)
FLEXIBLE = _request(
    ApiKey.API_VERSIONS, 3, client_software_name="wire", client_software_version="1"
)
METADATA = _request(ApiKey.METADATA, 1, topics=[])
NEW_METADATA = _request(ApiKey.METADATA, 12, topics=[])
CASES = (
    WireCase("valid", VERSIONS),
    WireCase("flexible", FLEXIBLE),
    WireCase("null client id", _request(ApiKey.METADATA, 1, client_id=None, topics=[])),
    WireCase("null client id, flexible", _request(ApiKey.METADATA, 12, client_id=None, topics=[])),
    WireCase("empty client id", _request(ApiKey.METADATA, 1, client_id="", topics=[])),
    WireCase("client id is no text", _sized(_header(3, 1, b"\xff\xfe") + struct.pack(">i", 0))),
    WireCase("client id of length -2", _sized(struct.pack(">hhih", 3, 1, 7, -2) + bytes(4))),
    WireCase("client id too long", _sized(struct.pack(">hhih", 3, 1, 7, 900) + bytes(4)), CLOSED),
    WireCase("unknown key", _sized(_header(9999, 0) + bytes(8)), CLOSED),
    WireCase("negative key", _sized(_header(-1, 0) + bytes(8)), CLOSED),
    WireCase("removed key 4", _sized(_header(4, 0) + bytes(8)), CLOSED),
    WireCase("of the controller", _request(ApiKey.BROKER_HEARTBEAT, 0), CLOSED),
    WireCase("version too new", _sized(_header(3, 99) + bytes(8)), CLOSED),
    WireCase("version too old", _sized(_header(1, 3) + bytes(30)), CLOSED),
    WireCase("negative version", _sized(_header(3, -1) + bytes(8)), CLOSED),
    WireCase("produce 2", _sized(_header(0, 2) + bytes(16)), CLOSED),
    WireCase("api versions 99", _sized(_header(18, 99) + bytes(1))),
    WireCase("api versions 5, with its body", _sized(_header(18, 5) + FLEXIBLE[18:])),
    WireCase("api versions -1", _sized(_header(18, -1))),
    WireCase("bytes after the body", _longer(VERSIONS, b"extra")),
    WireCase("bytes after a flexible body", _longer(FLEXIBLE, b"extra")),
    WireCase("bytes after metadata", _longer(METADATA, b"\0\0\0")),
    WireCase("body cut short", _sized(METADATA[4:-2]), CLOSED),
    WireCase("no body", _sized(_header(3, 1)), CLOSED),
    WireCase("no header", _sized(b""), CLOSED),
    WireCase("half a header", _sized(b"\0\x03\0"), CLOSED),
    WireCase("array of length -2", _sized(_header(3, 1) + struct.pack(">i", -2))),
    WireCase("array too long", _sized(_header(3, 1) + struct.pack(">i", 1 << 30)), CLOSED),
    WireCase("text of length -1", _sized(_header(3, 1) + struct.pack(">ih", 1, -1)), CLOSED),
    WireCase("text too long", _sized(_header(3, 1) + struct.pack(">ih", 1, 999)), CLOSED),
    WireCase("negative size", struct.pack(">i", -1), CLOSED),
    WireCase("size beyond the limit", struct.pack(">i", 104_857_601), CLOSED),
    WireCase("size at the limit", struct.pack(">i", 104_857_600), SILENT),
    WireCase("half a size", b"\0\0", SILENT),
    WireCase("half a frame", METADATA[:-1], SILENT),
    WireCase("web", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", CLOSED),
    WireCase("unknown tag in the body", _longer(NEW_METADATA[:-1], b"\x01\x63\x02ab")),
    WireCase("two at once", METADATA + METADATA),
)


def play(side: Side, case: WireCase, listener: str = "broker") -> Any:
    """Send the bytes on a new connection; return what came, or CLOSED or SILENT."""
    with socket.create_connection(("127.0.0.1", side.ports[listener]), WAIT_S) as connection:
        connection.settimeout(SILENCE_S if case.expected == SILENT else WAIT_S)
        received = b""
        try:
            connection.sendall(case.data)
            while part := connection.recv(65536):
                received += part
                if len(received) >= 4 and len(received) >= 4 + _size(received):
                    return shown(received, case)
        except TimeoutError:
            return SILENT
        except ConnectionError:
            return CLOSED
        return CLOSED


def _size(received: bytes) -> int:
    return int.from_bytes(received[:4], "big")


def shown(received: bytes, case: WireCase) -> Any:
    """Return what both nodes must share of an answer: whose it is, and of ApiVersions the error."""
    correlation = int.from_bytes(received[4:8], "big")
    if case.data[4:6] != b"\0\x12":
        return {"correlation_id": correlation}
    requested = int.from_bytes(case.data[6:8], "big")
    version = requested if requested in ApiVersionsResponse.versions else 0
    answer = codec.decode_at(ApiVersionsResponse, version, memoryview(received), 8)[0]
    keys = [one.api_key for one in answer.api_keys]
    return {
        "correlation_id": correlation,
        "error_code": answer.error_code,
        "names itself": ApiKey.API_VERSIONS in keys or not keys,
        "only itself": keys == [ApiKey.API_VERSIONS],
    }
