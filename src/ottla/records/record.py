"""One decoded record.

Kafka: org.apache.kafka.common.record.Record, .header.Header.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]


class Record(NamedTuple):
    """A record with its absolute offset; the timestamp is in ms since the epoch, -1 is none."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
