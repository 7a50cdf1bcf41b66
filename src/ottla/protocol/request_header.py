"""Reads the header of a request without an object for it.

The client id keeps its old encoding in flexible versions, so that every broker can read the header
of an ApiVersions request of an unknown version and answer UNSUPPORTED_VERSION.

Compiled by Cython with `request_header.pxd`; runs uncompiled too.

Hot path: all of it. benchmarks/against_kafka.
Kafka: org.apache.kafka.common.requests.RequestHeader.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.errors import CorruptMessage
from ottla.protocol.api_keys import first_flexible_request
from ottla.protocol.flat import read_nullable_text, reader_over, skip_tags

if TYPE_CHECKING:
    from ottla.protocol.walker import Reader

    Header = tuple[int, int, int, str | None, Reader]

_flexible_from: dict[int, int] = {}


def split_header(frame: memoryview) -> Header:
    """Return key, version, correlation id, client id and a reader at the body.

    An unknown version is read like the newest known one of its API; the caller decides whether it
    is served. Raises CorruptMessage for an invalid header or an unknown key.
    """
    reader = reader_over(frame, 0)
    try:
        key = reader.integer(2, signed=True)
        version = reader.integer(2, signed=True)
        correlation_id = reader.integer(4, signed=True)
        client_id = read_nullable_text(reader, False)
        flexible_from = _flexible_from.get(key)
        if flexible_from is None:
            flexible_from = _flexible_from[key] = first_flexible_request(key)
        if version >= flexible_from:
            skip_tags(reader)
    except (IndexError, ValueError) as error:
        raise CorruptMessage(f"not a request header: {error}") from error
    return key, version, correlation_id, client_id, reader
