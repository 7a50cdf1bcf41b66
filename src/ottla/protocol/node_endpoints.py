"""The addresses of leaders that Produce and Fetch responses name (KIP-951).

Kafka: the tagged field NodeEndpoints of ProduceResponse and FetchResponse.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from ottla.protocol.flat import encode_count, encode_text
from ottla.protocol.primitives import encode_uvarint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.types import Node

_INT32: Final = Struct(">i")
_TAG: Final = 0


def endpoint_tags(endpoints: Sequence[Node]) -> bytes:
    """Return the tagged fields of a response that has no others."""
    parts = [encode_count(len(endpoints), True)]
    for node in endpoints:
        parts += (_INT32.pack(node.node_id), encode_text(node.host, True), _INT32.pack(node.port))
        parts.append(b"\0" if node.rack is None else encode_text(node.rack, True))
        parts.append(b"\0")
    body = b"".join(parts)
    return bytes((1, _TAG)) + encode_uvarint(len(body)) + body
