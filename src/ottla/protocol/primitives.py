"""Variable-length integers and the limits that all decoders check.

Kafka: org.apache.kafka.common.utils.ByteUtils. Over-long encodings are refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.errors import CorruptMessage

if TYPE_CHECKING:
    from ottla.types import Buffer


def _encode_uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


SMALL_UVARINTS = tuple(_encode_uvarint(value) for value in range(4096))


def encode_uvarint(value: int) -> bytes:
    """Encode an unsigned value in groups of seven bits, least significant first."""
    return SMALL_UVARINTS[value] if value < 4096 else _encode_uvarint(value)


def decode_uvarint(buffer: Buffer, position: int) -> tuple[int, int]:
    """Return the unsigned 32-bit value at position and the position after it.

    Raises CorruptMessage past five bytes, IndexError at the end of the buffer.
    """
    byte = buffer[position]
    position += 1
    if byte < 0x80:
        return byte, position
    value, shift = byte & 0x7F, 7
    while True:
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > 28:
            raise CorruptMessage(
                "varint is too long, the most significant bit in the 5th byte is set"
            )
