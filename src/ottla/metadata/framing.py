"""Encoding of one metadata record as the value of a log record.

Kafka: org.apache.kafka.server.common.serialization.AbstractApiMessageSerde, MetadataRecordSerde.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.errors import CorruptMessage, UnsupportedVersion
from ottla.protocol.codec import decode_at, encode_into
from ottla.protocol.primitives import decode_uvarint, encode_uvarint
from ottla.protocol.records import metadata
from ottla.protocol.schema import Struct

if TYPE_CHECKING:
    from ottla.types import Buffer, SendItem

FRAME_VERSION = 1
_FRAME = encode_uvarint(FRAME_VERSION)


class MessageAndVersion(NamedTuple):
    """A metadata record and the version in which it is written."""

    message: Struct
    version: int


RECORD_CLASSES: dict[int, type[Struct]] = {
    found.message_key: found
    for found in vars(metadata).values()
    if isinstance(found, type) and issubclass(found, Struct) and found.message_key >= 0
}


NO_OP_VALUE = bytes((FRAME_VERSION, metadata.NoOpRecord.message_key, 0, 0))
"""The most frequent record, recognized by its bytes: an idle log consists of them."""


def encode_record(record: MessageAndVersion) -> bytes:
    """Return frame version, key, version and body."""
    message, version = record
    out: list[SendItem] = [
        _FRAME,
        encode_uvarint(message.message_key),
        encode_uvarint(version),
    ]
    encode_into(message, version, out)
    return b"".join(out)  # type: ignore[arg-type]  # metadata records hold no file slices


def decode_record(value: Buffer | None) -> MessageAndVersion:
    """Read one record.

    UnsupportedVersion for an unknown kind or version: replay must stop, because a skipped record
    may be essential. CorruptMessage for anything that is no record.
    """
    if value is None:
        raise CorruptMessage("a metadata record has no value")
    view = memoryview(value)
    try:
        frame, position = decode_uvarint(view, 0)
        key, position = decode_uvarint(view, position)
        version, position = decode_uvarint(view, position)
    except IndexError as error:
        raise CorruptMessage("a metadata record ends inside its frame") from error
    if frame != FRAME_VERSION:
        raise CorruptMessage(f"Could not deserialize metadata record due to unknown frame {frame}")
    found = RECORD_CLASSES.get(key)
    if found is None:
        raise UnsupportedVersion(f"Unknown metadata record of kind {key}, version {version}")
    if version not in found.versions:
        raise UnsupportedVersion(f"Unsupported version {version} of {found.__name__}")
    message, position = decode_at(found, version, view, position)
    if position != len(view):
        raise CorruptMessage(f"Found {len(view) - position} byte(s) after {found.__name__}")
    return MessageAndVersion(message, version)
