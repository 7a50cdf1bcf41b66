"""The blocks of lz4 frames and of xerial's snappy streams, found without decompressing them.

Kafka: org.apache.kafka.common.compress.Lz4BlockInputStream; xerial's SnappyInputStream.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import xxhash

from ottla.errors import CorruptMessage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PIECES_A_CALL: Final = 256
"""Blocks between two calls of `on_piece`, which may raise to cancel."""
XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_LZ4_BLOCK_BYTES: Final = {4: 1 << 16, 5: 1 << 18, 6: 1 << 20, 7: 1 << 22}


class Lz4Header(NamedTuple):
    """What a frame's header says."""

    flags: int
    block_bytes: int
    """The maximum output of one block."""
    position: int
    """Where the first block starts."""


class Lz4Block(NamedTuple):
    """One block of a frame: its bytes, and whether they are stored uncompressed."""

    data: memoryview
    is_uncompressed: bool


def lz4_header(data: memoryview) -> Lz4Header:
    """Read the first frame's header; CorruptMessage for a frame that Kafka does not read."""
    if len(data) < 7 or bytes(data[:4]) != _LZ4_MAGIC:
        raise CorruptMessage("Failed to decompress records: Stream unsupported (invalid magic)")
    flags = data[4]
    if flags & 0x03 or data[5] & 0x8F:  # including a dictionary id
        raise CorruptMessage("Failed to decompress records: lz4 reserved bits must be 0")
    if flags >> 6 != 1:
        raise CorruptMessage(f"Failed to decompress records: lz4 version {flags >> 6}")
    if not flags & 0x20:
        raise CorruptMessage("Failed to decompress records: Dependent block stream is unsupported")
    block_bytes = _LZ4_BLOCK_BYTES.get(data[5] >> 4)
    if block_bytes is None:
        raise CorruptMessage("Failed to decompress records: lz4 block size")
    position = 15 if flags & 0x08 else 7
    if (
        position > len(data)
        or xxhash.xxh32_intdigest(data[4 : position - 1]) >> 8 & 255 != (data[position - 1])
    ):
        raise CorruptMessage("Failed to decompress records: Stream frame descriptor corrupted")
    return Lz4Header(flags, block_bytes, position)


def lz4_blocks(
    data: memoryview, header: Lz4Header, on_piece: Callable[[int], None]
) -> Iterator[Lz4Block]:
    """Return the blocks of the first frame one by one, with their checksums verified.

    As in Kafka the checksum of the content must be there and is not verified.
    """
    flags, block_bytes, position = header
    checksum_bytes = 4 if flags & 0x10 else 0
    count = 0
    while True:
        if not count % PIECES_A_CALL:
            on_piece(count)
        count += 1
        if position + 4 > len(data):
            raise CorruptMessage("Failed to decompress records: Stream ended prematurely")
        word = int.from_bytes(data[position : position + 4], "little")
        position += 4
        length = word & 0x7FFF_FFFF
        if not length:  # Kafka also reads an empty uncompressed block as the end mark
            break
        if length > block_bytes:
            raise CorruptMessage(
                f"Failed to decompress records: Block size {length} exceeded max: {block_bytes}"
            )
        block = data[position : position + length]
        position += length + checksum_bytes
        if position > len(data):
            raise CorruptMessage("Failed to decompress records: Stream ended prematurely")
        if checksum_bytes and xxhash.xxh32_intdigest(block) != int.from_bytes(
            data[position - 4 : position], "little"
        ):
            raise CorruptMessage("Failed to decompress records: Block checksum mismatch")
        yield Lz4Block(block, bool(word >> 31))
    if flags & 0x04 and position + 4 > len(data):
        raise CorruptMessage("Failed to decompress records: Stream ended prematurely")


def is_xerial(data: memoryview) -> bool:
    """Return whether data is in xerial's framing; otherwise it is one raw block."""
    return bytes(data[:8]) == XERIAL_MAGIC


def xerial_blocks(data: memoryview, on_piece: Callable[[int], None]) -> Iterator[memoryview]:
    """Return the raw blocks of a stream one by one."""
    position, size, count = 16, len(data), 0
    if size < 16:
        raise CorruptMessage("Failed to decompress records: snappy header is truncated")
    while position < size:
        if not count % PIECES_A_CALL:
            on_piece(count)
        count += 1
        if bytes(data[position : position + 8]) == XERIAL_MAGIC:  # streams may be concatenated
            version = int.from_bytes(data[position + 8 : position + 12], "big", signed=True)
            if version < 1:  # xerial's reader ignores the version in the stream's first header
                raise CorruptMessage(
                    f"Failed to decompress records: incompatible snappy version {version}"
                )
            position += 16
            continue
        length = int.from_bytes(data[position : position + 4], "big")
        position += 4
        if position + length > size:
            raise CorruptMessage("Failed to decompress records: snappy block is truncated")
        yield data[position : position + length]
        position += length


def snappy_length(block: memoryview) -> int:
    """Return the length in a raw block's preamble, which the codec enforces."""
    value = shift = 0
    for byte in block[:5]:
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value
        shift += 7
    raise CorruptMessage("Failed to decompress records: snappy block has no length")
