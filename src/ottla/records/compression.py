"""The five codecs, each with an output bound that is set before the first byte is written.

Announced sizes are only hints for the first buffer: the output buffer is the bound. It grows by a
factor of four up to the caller's limit, and a stream that needs more is refused. Streams of very
many small pieces (blocks, members) take disproportionate time, so callers that decompress
untrusted input count them with `on_piece`.

Kafka: org.apache.kafka.common.compress.*, .record.internal.CompressionType.
"""

from __future__ import annotations

import zlib
from enum import IntEnum
from mmap import mmap
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import cramjam
import xxhash

from ottla.errors import CorruptMessage, ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ottla.types import Buffer


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


DEFAULT_LIMIT_BYTES: Final = 100 * 1024 * 1024
_FIRST_BUFFER_BYTES: Final = 16 * 1024
_GZIP_MAGIC: Final = b"\x1f\x8b\x08"
GZIP_WINDOW: Final = 31  # 32 KiB of window, gzip's own header and trailer
_GZIP_OUTPUT_BYTES: Final = 1024 * 1024
_GZIP_INPUT_BYTES: Final = 1024
_PAGES_FROM_BYTES: Final = 4 * 1024 * 1024
_DIRECT_BYTES: Final = 2 * 1024 * 1024
XERIAL_HEADER: Final = XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
XERIAL_BLOCK_BYTES: Final = 32 * 1024
MALFORMED_LZ4_BLOCK: Final = "Failed to decompress records: malformed lz4 block"


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

    @classmethod
    def from_name(cls, name: str) -> Compression:
        """Return the codec of a `compression.type`; KafkaError INVALID_CONFIG when unknown."""
        codec = cls.__members__.get(name.upper())
        if codec is None or name != codec.config_name:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown compression name: {name}")
        return codec

    @classmethod
    def from_id(cls, codec_id: int) -> Compression:
        """Return the codec of an attribute byte's id; raises CorruptMessage for an unknown id."""
        if codec_id > 4:
            raise CorruptMessage(f"Unknown compression type id: {codec_id}")
        return _BY_ID[codec_id]


_BY_ID = tuple(Compression)


def compress(codec: Compression, data: Buffer, level: int | None = None) -> Buffer:
    """Return data in Kafka's framing of the codec; level as in `compression.<codec>.level`."""
    if codec == Compression.NONE:
        return data
    if codec == Compression.GZIP:
        stream = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, GZIP_WINDOW)
        return stream.compress(data) + stream.flush()
    if codec == Compression.SNAPPY:
        return _compress_snappy(data)
    if codec == Compression.LZ4:
        return _compress_lz4(data, level)
    return memoryview(cramjam.zstd.compress(data, 3 if level is None else level)).cast("B")


def decompress(codec: Compression, data: Buffer, limit: int = DEFAULT_LIMIT_BYTES) -> Buffer:
    """Return the decompressed bytes in a new buffer; see `Decompressor.decompress`."""
    return Decompressor().decompress(codec, data, limit)


class DecompressionLimitExceeded(KafkaError):
    """Compressed records that exceed the caller's limit of bytes or work."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_RECORD, message)


def limit_exceeded(limit: int) -> DecompressionLimitExceeded:
    """Return the error for records that take more than limit bytes."""
    return DecompressionLimitExceeded(
        f"The records of a compressed batch take more than {limit} bytes."
    )


def ignore_pieces(_pieces: int) -> None:
    """Accept any number of pieces."""


def _compress_snappy(data: Buffer) -> bytes:
    view = memoryview(data)
    parts = [XERIAL_HEADER]
    for start in range(0, len(view), XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + XERIAL_BLOCK_BYTES]))
        parts.append(len(block).to_bytes(4, "big"))
        parts.append(block)
    return b"".join(parts)


def _compress_lz4(data: Buffer, level: int | None) -> Buffer:
    stream = lz4_compressor(level)
    stream.compress(bytes(data))  # accepts no other buffers
    return memoryview(stream.finish()).cast("B")


def lz4_compressor(level: int | None) -> Any:
    """Return a compressor that writes frames as Kafka does."""
    # Kafka uses the fast compressor at its default level (9) and the high one at all others.
    frame_level = 0 if level is None or level == 9 else max(3, min(level, 12))
    return cramjam.lz4.Compressor(level=frame_level, content_checksum=False, block_linked=False)


class Decompressor:
    """Decompresses into one reused buffer; not thread-safe.

    `on_piece(pieces so far)` is called at intervals within one stream and may raise to cancel.
    """

    __slots__ = ("_buffer", "_on_piece")

    def __init__(self, on_piece: Callable[[int], None] = ignore_pieces) -> None:
        self._buffer: bytearray | mmap = bytearray()
        self._on_piece = on_piece

    def decompress(
        self, codec: Compression, data: Buffer, limit: int = DEFAULT_LIMIT_BYTES
    ) -> Buffer:
        """Return the decompressed bytes, valid until the next call.

        Raises KafkaError INVALID_RECORD for more than limit bytes, CorruptMessage unless data is
        a complete stream of this codec.
        """
        if codec == Compression.NONE:
            return data
        if codec == Compression.GZIP:
            return _decompress_gzip(data, limit, self._on_piece)
        view = memoryview(data)
        if codec == Compression.SNAPPY:
            return self._decompress_snappy(view, limit)
        if codec == Compression.LZ4:
            return self._decompress_lz4(view, limit)
        return self._decompress_growing(cramjam.zstd, view, _zstd_hint(view), limit)

    def _take(self, size: int) -> memoryview:
        """Return the reused buffer, enlarged to at least size."""
        if len(self._buffer) < size:
            # A bytearray is zeroed at once while the GIL is held, which takes 0.1 s and more for
            # the largest. Anonymous pages are zeroed on first touch, which costs ten times as much
            # for each byte, since the allocator reuses none of them.
            self._buffer = bytearray(size) if size < _PAGES_FROM_BYTES else mmap(-1, size)
        return memoryview(self._buffer)

    def _decompress_growing(
        self, codec: _Codec, data: memoryview, hint: int, limit: int
    ) -> memoryview:
        """Try buffers of growing size; the total work is at most 4/3 of the last try."""
        capacity = min(limit, max(hint, _FIRST_BUFFER_BYTES))
        while True:
            output = self._take(capacity)
            try:
                size = codec.decompress_into(data, output[: max(limit, 1)])
            except cramjam.DecompressionError as error:
                if "write whole buffer" not in str(error):
                    raise CorruptMessage(f"Failed to decompress records: {error}") from error
                capacity = len(output)
                self._on_piece(1)
                if capacity >= limit:
                    raise limit_exceeded(limit) from error
                capacity = min(limit, capacity * 4)
            else:
                return output[:size]

    def _decompress_lz4(self, data: memoryview, limit: int) -> memoryview:
        """Decompress a frame block by block: the library's frame reader takes 30-130 µs a frame.

        A buffer for the largest possible output of the blocks is taken when it is small. Ratios
        above four are rare, so otherwise a buffer of four times the input is tried first. As in
        Kafka the checksum of the content is not verified.
        """
        on_piece = self._on_piece
        header = lz4_header(data)
        block_bytes = header.block_bytes
        blocks = list(lz4_blocks(data, header, on_piece))
        bound = sum(
            len(block) if is_uncompressed else min(block_bytes, len(block) * 255)
            for block, is_uncompressed in blocks
        )
        largest = min(bound, limit)
        capacity = max(_FIRST_BUFFER_BYTES, 4 * len(data))
        if largest <= max(capacity, _DIRECT_BYTES):
            capacity = largest
        output = self._take(capacity)
        room = output[:limit] if limit < len(output) else output
        size = _fill_from_lz4(blocks, block_bytes, room, on_piece)
        if size is None and capacity < largest:
            output = self._take(largest)
            size = _fill_from_lz4(blocks, block_bytes, output[:limit], on_piece)
        if size is None:
            if bound > limit:
                raise limit_exceeded(limit)
            raise CorruptMessage(MALFORMED_LZ4_BLOCK)
        return output[:size]

    def _decompress_snappy(self, data: memoryview, limit: int) -> memoryview:
        """Read xerial's framing, or one raw block if its magic is missing."""
        blocks = list(xerial_blocks(data, self._on_piece)) if is_xerial(data) else [data]
        total = 0
        for block in blocks:
            total += snappy_length(block)
            if total > limit:
                raise limit_exceeded(limit)
        output = self._take(total)
        position = 0
        try:
            for index, block in enumerate(blocks):
                if not index % PIECES_A_CALL:
                    self._on_piece(index)
                # the codec refuses a raw block whose output differs from its announced size
                position += cramjam.snappy.decompress_raw_into(block, output[position:])
        except cramjam.DecompressionError as error:
            raise CorruptMessage(f"Failed to decompress records: {error}") from error
        return output[:position]


def _decompress_gzip(data: Buffer, limit: int, on_piece: Callable[[int], None]) -> Buffer:
    """Read one or more gzip members; trailing bytes without a gzip header are ignored.

    The first member receives all bytes at once. Later members receive small steps: zlib copies
    the unused input of a member, so many small members would each copy the remaining batch.
    """
    view = memoryview(data)
    plain, used = _gzip_member(view, limit, len(view), on_piece)
    member_count = 1
    while len(view) - used > 18:  # an empty member takes 20; Java reads no fewer than 19
        on_piece(member_count)
        view = view[used:]
        try:
            part, used = _gzip_member(view, limit - len(plain), _GZIP_INPUT_BYTES, on_piece)
        except CorruptMessage:
            if has_gzip_header(view):
                raise
            break  # trailing garbage, which Java's GZIPInputStream skips too
        except DecompressionLimitExceeded as error:
            raise limit_exceeded(limit) from error
        if member_count == 1:
            plain = bytearray(plain)
        plain += part
        member_count += 1
    return plain


def has_gzip_header(view: memoryview) -> bool:
    """Return whether view begins with a complete and valid member header."""
    data = bytes(view)
    if len(data) < 10 or not data.startswith(_GZIP_MAGIC):
        return False
    flags = data[3]
    position = 10
    if flags & 0x04:  # extra field
        position += 2 + int.from_bytes(data[10:12], "little")
    for flag in (0x08, 0x10):  # file name, comment
        if flags & flag:
            position = data.find(0, position) + 1
            if not position:
                return False
    if flags & 0x02:  # the header's own checksum
        checksum = zlib.crc32(data[:position]) & 0xFFFF
        position += 2
        return checksum.to_bytes(2, "little") == data[position - 2 : position]
    return position <= len(data)


def _gzip_member(
    view: memoryview, room: int, step: int, on_piece: Callable[[int], None]
) -> tuple[bytes | bytearray, int]:
    """Return a member's decompressed bytes (at most room) and its size in view.

    The library receives `step` bytes of input first, then twice as many each time.
    """
    stream = zlib.decompressobj(GZIP_WINDOW)
    plain: bytes | bytearray = b""
    fed = 0
    feed: Buffer = b""
    while not stream.eof:
        if not feed:
            feed = view[fed : fed + step]
            fed += len(feed)
            step *= 2
        try:
            part = stream.decompress(feed, min(room + 1 - len(plain), _GZIP_OUTPUT_BYTES + 1))
        except zlib.error as error:
            raise CorruptMessage(f"Failed to decompress records: {error}") from error
        feed = stream.unconsumed_tail
        if not plain:
            plain = part
        else:
            plain = plain if type(plain) is bytearray else bytearray(plain)
            plain += part
        if len(plain) > room:
            raise limit_exceeded(room)
        if not part and not feed and fed == len(view) and not stream.eof:
            raise CorruptMessage("Failed to decompress records: Unexpected end of GZIP stream")
        on_piece(1)
    return plain, fed - len(stream.unused_data)


def _fill_from_lz4(
    blocks: list[Lz4Block],
    block_bytes: int,
    output: memoryview,
    on_piece: Callable[[int], None],
) -> int | None:
    """Decompress all blocks into output, each to at most block_bytes.

    Returns None when a block does not fit or is malformed: near the end of output, the library
    reports both as the same error. Raises CorruptMessage if a block had block_bytes of room.
    """
    position = 0
    for index, (block, is_uncompressed) in enumerate(blocks):
        if not index % PIECES_A_CALL:
            on_piece(index)
        if is_uncompressed:
            if position + len(block) > len(output):
                return None
            output[position : position + len(block)] = block
            position += len(block)
            continue
        try:
            position += cramjam.lz4.decompress_block_into(
                block, output[position : position + block_bytes]
            )
        except cramjam.DecompressionError as error:
            if position + block_bytes <= len(output):
                raise CorruptMessage(MALFORMED_LZ4_BLOCK) from error
            return None
    return position


def _zstd_hint(data: memoryview) -> int:
    """Return the content size in a frame's header, or an estimate; it is only a hint."""
    if len(data) < 14:
        return 0
    flag = data[4] >> 6
    single = data[4] & 0x20
    position = 5 + (0, 1, 2, 4)[data[4] & 3] + (0 if single else 1)
    if flag == 0:
        return data[position] if single else len(data) * 8
    width = 1 << flag
    size = int.from_bytes(data[position : position + width], "little")
    # the ratio rarely exceeds this; a false content size allocates in proportion to the input
    return min(size + (256 if flag == 1 else 0), len(data) * 64)
