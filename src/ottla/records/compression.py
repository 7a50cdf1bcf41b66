"""The five codecs, each with an output that is bounded before the first byte is written.

Announced sizes are only hints for the first buffer: the output buffer itself is the bound, it
grows by four up to the caller's limit, and a stream that needs more is refused.

Kafka: org.apache.kafka.common.compress.*, .record.internal.CompressionType.
"""

from __future__ import annotations

import zlib
from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import cramjam
import xxhash

from ottla.errors import CorruptMessage, ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.types import Buffer

DEFAULT_LIMIT_BYTES: Final = 100 * 1024 * 1024
_FIRST_BUFFER_BYTES: Final = 16 * 1024
_GZIP_WINDOW: Final = 31  # 32 KiB of window, gzip's own header and trailer
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK_BYTES: Final = 32 * 1024
_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_LZ4_BLOCK_BYTES: Final = {4: 1 << 16, 5: 1 << 18, 6: 1 << 20, 7: 1 << 22}


class _Codec(Protocol):
    def decompress_into(self, data: memoryview, output: memoryview, /) -> int: ...


class Compression(IntEnum):
    """Codec ids as in the lowest three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @property
    def config_name(self) -> str:
        """Return the name in `compression.type`."""
        return self.name.lower()

    @property
    def default_level(self) -> int | None:
        """Return the level that Kafka uses when none is configured; None where there are none."""
        return _DEFAULT_LEVELS.get(self)

    @classmethod
    def from_name(cls, name: str) -> Compression:
        """Return the codec of a `compression.type`; KafkaError INVALID_CONFIG when unknown."""
        codec = cls.__members__.get(name.upper())
        if codec is None or name != codec.config_name:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown compression name: {name}")
        return codec

    @classmethod
    def from_id(cls, codec_id: int) -> Compression:
        """Return the codec of an attribute byte's id; CorruptMessage when there is none."""
        if codec_id > 4:
            raise CorruptMessage(f"Unknown compression type id: {codec_id}")
        return _BY_ID[codec_id]


_BY_ID = tuple(Compression)
_DEFAULT_LEVELS = {Compression.GZIP: -1, Compression.LZ4: 9, Compression.ZSTD: 3}


def compress(codec: Compression, data: Buffer, level: int | None = None) -> Buffer:
    """Return data in Kafka's framing of the codec; level as in `compression.<codec>.level`."""
    if codec == Compression.NONE:
        return data
    if codec == Compression.GZIP:
        stream = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, _GZIP_WINDOW)
        return stream.compress(data) + stream.flush()
    if codec == Compression.SNAPPY:
        return _compress_snappy(data)
    if codec == Compression.LZ4:
        return _compress_lz4(data, level)
    return memoryview(cramjam.zstd.compress(data, 3 if level is None else level)).cast("B")


def decompress(codec: Compression, data: Buffer, limit: int = DEFAULT_LIMIT_BYTES) -> Buffer:
    """Return the plain bytes in a buffer of their own; see `Decompressor.decompress`."""
    return Decompressor().decompress(codec, data, limit)


def _too_large(limit: int) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_RECORD,
        f"The records of a compressed batch take more than {limit} bytes.",
    )


def _compress_snappy(data: Buffer) -> bytes:
    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts.append(len(block).to_bytes(4, "big"))
        parts.append(block)
    return b"".join(parts)


def _compress_lz4(data: Buffer, level: int | None) -> Buffer:
    # Kafka takes the fast compressor at its default level (9) and the high one at all others.
    frame_level = 0 if level is None or level == 9 else max(3, min(level, 12))
    stream = cramjam.lz4.Compressor(level=frame_level, content_checksum=False, block_linked=False)
    stream.compress(bytes(data))  # takes nothing else
    return memoryview(stream.finish()).cast("B")


class Decompressor:
    """Decompresses into one buffer that is used again; not for two threads at once."""

    __slots__ = ("_buffer",)

    def __init__(self) -> None:
        self._buffer = bytearray()

    def decompress(
        self, codec: Compression, data: Buffer, limit: int = DEFAULT_LIMIT_BYTES
    ) -> Buffer:
        """Return the plain bytes, valid until the next call.

        Raises KafkaError INVALID_RECORD when they are more than limit bytes, CorruptMessage
        when data is not a whole stream of this codec.
        """
        if codec == Compression.NONE:
            return data
        if codec == Compression.GZIP:
            return _decompress_gzip(data, limit)
        view = memoryview(data)
        if codec == Compression.SNAPPY:
            return self._decompress_snappy(view, limit)
        if codec == Compression.LZ4:
            return self._decompress_lz4(view, limit)
        return self._decompress_growing(cramjam.zstd, view, _zstd_hint(view), limit)

    def _take(self, size: int) -> memoryview:
        """Return the reused buffer, made larger when it is smaller than size."""
        if len(self._buffer) < size:
            self._buffer = bytearray(size)
        return memoryview(self._buffer)

    def _decompress_growing(
        self, codec: _Codec, data: memoryview, hint: int, limit: int
    ) -> memoryview:
        """Try with buffers of growing size: the work of all tries is at most 4/3 of the last."""
        capacity = min(limit, max(hint, _FIRST_BUFFER_BYTES))
        while True:
            output = self._take(capacity)
            try:
                size = codec.decompress_into(data, output[: max(limit, 1)])
            except cramjam.DecompressionError as error:
                if "write whole buffer" not in str(error):
                    raise CorruptMessage(f"Failed to decompress records: {error}") from error
                capacity = len(output)
                if capacity >= limit:
                    raise _too_large(limit) from error
                capacity = min(limit, capacity * 4)
            else:
                return output[:size]

    def _decompress_lz4(self, data: memoryview, limit: int) -> memoryview:
        """Decompress a frame block by block: the library's frame reader costs 30-130 µs a frame.

        Batches rarely shrink to less than a quarter, so a buffer of that size is tried first;
        one that holds whatever the blocks can become is the last resort.
        """
        blocks, bound, content_checksum = _lz4_blocks(data)
        capacity = min(limit, max(_FIRST_BUFFER_BYTES, 4 * len(data)), bound)
        output = self._take(capacity)
        size = _fill_from_lz4(blocks, output[:limit] if limit < len(output) else output)
        if size is None and capacity < min(bound, limit):
            output = self._take(min(bound, limit))
            size = _fill_from_lz4(blocks, output[:limit])
        if size is None:
            if bound > limit:
                raise _too_large(limit)
            raise CorruptMessage("Failed to decompress records: malformed lz4 block")
        plain = output[:size]
        if content_checksum is not None and xxhash.xxh32_intdigest(plain) != content_checksum:
            raise CorruptMessage("Failed to decompress records: lz4 content checksum")
        return plain

    def _decompress_snappy(self, data: memoryview, limit: int) -> memoryview:
        """Read xerial's framing, or one raw block where its magic is missing."""
        blocks = _xerial_blocks(data) if bytes(data[:8]) == _XERIAL_MAGIC else [data]
        total = 0
        for block in blocks:
            total += _snappy_length(block)
            if total > limit:
                raise _too_large(limit)
        output = self._take(total)
        position = 0
        try:
            for block in blocks:
                # a raw block that does not fill exactly what it announced is refused by the codec
                position += cramjam.snappy.decompress_raw_into(block, output[position:])
        except cramjam.DecompressionError as error:
            raise CorruptMessage(f"Failed to decompress records: {error}") from error
        return output[:position]


def _decompress_gzip(data: Buffer, limit: int) -> bytes:
    """Read one or more gzip members; bytes behind the last that are no member are ignored."""
    parts: list[bytes] = []
    room = limit
    view = memoryview(data)
    while True:
        stream = zlib.decompressobj(_GZIP_WINDOW)
        try:
            part = stream.decompress(view, room + 1)
        except zlib.error as error:
            if parts:  # trailing garbage, which Java's GZIPInputStream skips too
                break
            raise CorruptMessage(f"Failed to decompress records: {error}") from error
        if len(part) > room:
            raise _too_large(limit)
        if not stream.eof:
            raise CorruptMessage("Failed to decompress records: Unexpected end of GZIP stream")
        room -= len(part)
        parts.append(part)
        view = memoryview(stream.unused_data)
        if len(view) < 18:  # less than an empty member
            break
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _xerial_blocks(data: memoryview) -> list[memoryview]:
    blocks = []
    position, size = 16, len(data)
    if size < 16:
        raise CorruptMessage("Failed to decompress records: snappy header is cut short")
    while position < size:
        if bytes(data[position : position + 8]) == _XERIAL_MAGIC:  # streams may be concatenated
            position += 16
            continue
        length = int.from_bytes(data[position : position + 4], "big")
        position += 4
        if position + length > size:
            raise CorruptMessage("Failed to decompress records: snappy block is cut short")
        blocks.append(data[position : position + length])
        position += length
    return blocks


def _snappy_length(block: memoryview) -> int:
    """Return the length that a raw block's preamble promises, which the codec holds it to."""
    value = shift = 0
    for byte in block[:5]:
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value
        shift += 7
    raise CorruptMessage("Failed to decompress records: snappy block has no length")


class _Lz4Block(NamedTuple):
    """One block of a frame: its bytes, and whether they are stored as they are."""

    data: memoryview
    is_plain: bool


def _lz4_blocks(data: memoryview) -> tuple[list[_Lz4Block], int, int | None]:
    """Return the first frame's blocks, the most bytes they can hold, and the plain's checksum."""
    if len(data) < 7 or bytes(data[:4]) != _LZ4_MAGIC:
        raise CorruptMessage("Failed to decompress records: Stream unsupported (invalid magic)")
    flags = data[4]
    if flags >> 6 != 1:
        raise CorruptMessage(f"Failed to decompress records: lz4 version {flags >> 6}")
    if not flags & 0x20:
        raise CorruptMessage("Failed to decompress records: Dependent block stream is unsupported")
    block_bytes = _LZ4_BLOCK_BYTES.get((data[5] >> 4) & 7)
    if block_bytes is None:
        raise CorruptMessage("Failed to decompress records: lz4 block size")
    position = 15 if flags & 0x08 else 7
    if (
        position > len(data)
        or xxhash.xxh32_intdigest(data[4 : position - 1]) >> 8 & 255 != (data[position - 1])
    ):
        raise CorruptMessage("Failed to decompress records: Stream frame descriptor corrupted")
    blocks, bound, position = _read_lz4_blocks(data, position, block_bytes, flags)
    if not flags & 0x04:
        return blocks, bound, None
    if position + 4 > len(data):
        raise CorruptMessage("Failed to decompress records: Stream ended prematurely")
    return blocks, bound, int.from_bytes(data[position : position + 4], "little")


def _read_lz4_blocks(
    data: memoryview, position: int, block_bytes: int, flags: int
) -> tuple[list[_Lz4Block], int, int]:
    """Return the blocks, the most bytes they can hold, and the position behind the end mark."""
    checksum_bytes = 4 if flags & 0x10 else 0
    blocks: list[_Lz4Block] = []
    bound = 0
    while True:
        if position + 4 > len(data):
            raise CorruptMessage("Failed to decompress records: Stream ended prematurely")
        word = int.from_bytes(data[position : position + 4], "little")
        position += 4
        if not word:
            return blocks, bound, position
        length = word & 0x7FFF_FFFF
        if length > block_bytes:
            raise CorruptMessage(
                f"Failed to decompress records: Block size {length} exceeded max: {block_bytes}"
            )
        block = _Lz4Block(data[position : position + length], bool(word >> 31))
        position += length + checksum_bytes
        if position > len(data):
            raise CorruptMessage("Failed to decompress records: Stream ended prematurely")
        if checksum_bytes and xxhash.xxh32_intdigest(block.data) != int.from_bytes(
            data[position - 4 : position], "little"
        ):
            raise CorruptMessage("Failed to decompress records: Block checksum mismatch")
        blocks.append(block)
        bound += length if block.is_plain else min(block_bytes, length * 255)


def _fill_from_lz4(blocks: list[_Lz4Block], output: memoryview) -> int | None:
    """Decompress all blocks into output; None when one is malformed or does not fit."""
    position = 0
    for block, is_plain in blocks:
        if is_plain:
            if position + len(block) > len(output):
                return None
            output[position : position + len(block)] = block
            position += len(block)
            continue
        try:
            position += cramjam.lz4.decompress_block_into(block, output[position:])
        except cramjam.DecompressionError:
            return None
    return position


def _zstd_hint(data: memoryview) -> int:
    """Return the content size in a frame's header, or a guess; never more than a hint."""
    if len(data) < 14:
        return 0
    flag = data[4] >> 6
    single = data[4] & 0x20
    position = 5 + (0, 1, 2, 4)[data[4] & 3] + (0 if single else 1)
    if flag == 0:
        return data[position] if single else len(data) * 8
    width = 1 << flag
    size = int.from_bytes(data[position : position + width], "little")
    # honest text rarely shrinks by more than this; a liar gets no more than what he sent
    return min(size + (256 if flag == 1 else 0), len(data) * 64)
