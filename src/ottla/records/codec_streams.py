"""The codecs as streams: what a batch holds is never in memory as a whole.

`decompressed_chunks` yields the records of a batch in chunks and uses no more memory than
`working_bytes` says, whatever the input is. Two formats limit that:

- A snappy block can only be decompressed as a whole. One that takes more than the caller's
  max_working_bytes is refused.
- A zstd frame names the window that its decoder has to keep. Where that is larger than
  max_working_bytes, the frame may not decompress to more than max_working_bytes. Compressors write
  such windows for any input from level 20 on.

Kafka: org.apache.kafka.common.compress.*, .utils.ChunkedBytesStream.
"""

from __future__ import annotations

import sys
import zlib
from typing import TYPE_CHECKING, Any, Final

import cramjam

from ottla.errors import CorruptMessage
from ottla.records.compression import (
    GZIP_WINDOW,
    MALFORMED_LZ4_BLOCK,
    XERIAL_BLOCK_BYTES,
    XERIAL_HEADER,
    Compression,
    DecompressionLimitExceeded,
    has_gzip_header,
    is_xerial,
    limit_exceeded,
    lz4_blocks,
    lz4_compressor,
    lz4_header,
    snappy_length,
    xerial_blocks,
)

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ottla.types import Buffer

CHUNK_BYTES: Final = 256 * 1024
OVERHEAD_BYTES: Final = 2 * 1024 * 1024
"""What a stream takes in addition to its window: chunks, input steps, a record across chunks."""
_FIRST_INPUT_BYTES: Final = 64 * 1024
_FURTHER_INPUT_BYTES: Final = 1024
_MIN_GZIP_BYTES: Final = 18  # an empty member takes 20; Java reads no fewer than 19
_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_ZSTD_WINDOW_LOG_MAX: Final = 27  # as libzstd's own limit, which Kafka keeps
_ZSTD_OPTIONS: Final[dict[int, int]] = {
    zstd.DecompressionParameter.window_log_max: _ZSTD_WINDOW_LOG_MAX
}
_MAX_EXAMINED_BLOCKS: Final = 1024
_LZ4_FLUSH_BYTES: Final = 1024 * 1024


def working_bytes(codec: Compression, data: memoryview, max_working_bytes: int) -> int:
    """Return the memory that `decompressed_chunks` takes for data, from its headers alone."""
    try:
        if codec == Compression.LZ4:
            window = lz4_header(data).block_bytes
        elif codec == Compression.ZSTD:
            window = min(_zstd_window(data), max_working_bytes)
        elif codec == Compression.SNAPPY:
            window = min(_largest_block(data), max_working_bytes)
        else:
            window = 0
    except CorruptMessage:
        window = 0
    return window + OVERHEAD_BYTES


def decompressed_chunks(
    codec: Compression,
    data: memoryview,
    limit: int,
    max_working_bytes: int,
    on_piece: Callable[[int], None],
) -> Iterator[memoryview]:
    """Yield the decompressed data; a chunk is valid until the next one is taken.

    Raises DecompressionLimitExceeded for more than limit bytes, CorruptMessage unless data is a
    complete stream of this codec. `on_piece` is called at intervals and may raise to cancel.
    """
    total = 0
    for chunk in _chunks(codec, data, max_working_bytes, on_piece):
        total += len(chunk)
        if total > limit:
            raise limit_exceeded(limit)
        on_piece(1)
        yield chunk


def _chunks(
    codec: Compression,
    data: memoryview,
    max_working_bytes: int,
    on_piece: Callable[[int], None],
) -> Iterator[memoryview]:
    if codec == Compression.GZIP:
        return _gzip_chunks(data, on_piece)
    if codec == Compression.SNAPPY:
        return _snappy_chunks(data, max_working_bytes, on_piece)
    if codec == Compression.LZ4:
        return _lz4_chunks(data, on_piece)
    if codec == Compression.ZSTD:
        return _zstd_chunks(data, max_working_bytes, on_piece)
    return iter((data,))


def _gzip_chunks(data: memoryview, on_piece: Callable[[int], None]) -> Iterator[memoryview]:
    """Read one or more members; trailing bytes without a gzip header are ignored."""
    start, step = 0, _FIRST_INPUT_BYTES
    while not start or len(data) - start > _MIN_GZIP_BYTES:
        stream = zlib.decompressobj(GZIP_WINDOW)
        fed = start
        on_piece(1)
        while not stream.eof:
            feed: Buffer = stream.unconsumed_tail
            if not feed:
                feed = data[fed : fed + step]
                fed += len(feed)
                step = min(2 * step, _FIRST_INPUT_BYTES)
            try:
                part = stream.decompress(feed, CHUNK_BYTES)
                if not part and not feed and not stream.eof:
                    raise zlib.error("Unexpected end of GZIP stream")
            except zlib.error as error:
                if start and not has_gzip_header(data[start:]):
                    return  # trailing garbage, which Java's GZIPInputStream skips too
                raise CorruptMessage(f"Failed to decompress records: {error}") from error
            if part:
                yield memoryview(part)
        start, step = fed - len(stream.unused_data), _FURTHER_INPUT_BYTES


def _zstd_chunks(
    data: memoryview, max_working_bytes: int, on_piece: Callable[[int], None]
) -> Iterator[memoryview]:
    """Read one or more frames."""
    start, step = 0, _FIRST_INPUT_BYTES
    while start < len(data):
        window = _zstd_window(data[start:])
        room = max_working_bytes if window > max_working_bytes else None
        stream = zstd.ZstdDecompressor(options=_ZSTD_OPTIONS)
        fed = start
        on_piece(1)
        while not stream.eof:
            feed: Buffer = b""
            if stream.needs_input:
                feed = data[fed : fed + step]
                fed += len(feed)
                step = min(2 * step, _FIRST_INPUT_BYTES)
                if not feed:
                    raise CorruptMessage("Failed to decompress records: incomplete zstd frame")
            try:
                part = stream.decompress(feed, CHUNK_BYTES)
            except zstd.ZstdError as error:
                raise CorruptMessage(f"Failed to decompress records: {error}") from error
            if room is not None:
                room -= len(part)
                if room < 0:
                    raise DecompressionLimitExceeded(
                        f"The records of a zstd frame with a window of {window} bytes take more "
                        f"than {max_working_bytes} bytes."
                    )
            if part:
                yield memoryview(part)
        start, step = fed - len(stream.unused_data), _FURTHER_INPUT_BYTES


def _zstd_window(data: memoryview) -> int:
    """Return the bytes that a frame's decoder has to keep; 0 where there is no frame's header."""
    head = bytes(data[:18])
    if len(head) < 6 or not head.startswith(_ZSTD_MAGIC):
        return 0
    descriptor = head[4]
    is_single, flag = descriptor >> 5 & 1, descriptor >> 6
    position = 5
    window: int | None = None
    if not is_single:
        base = 1 << (10 + (head[5] >> 3))
        window = base + (base >> 3) * (head[5] & 7)
        position += 1
    position += (0, 1, 2, 4)[descriptor & 3]
    width = (is_single, 2, 4, 8)[flag]
    if not width:
        return window or 0
    content = int.from_bytes(head[position : position + width], "little") + 256 * (flag == 1)
    return content if window is None else min(window, content)


def _lz4_chunks(data: memoryview, on_piece: Callable[[int], None]) -> Iterator[memoryview]:
    """Read the blocks of one frame, as many to a chunk as fit."""
    header = lz4_header(data)
    block_bytes = header.block_bytes
    output = memoryview(bytearray(max(block_bytes, CHUNK_BYTES)))
    position = 0
    for block, is_uncompressed in lz4_blocks(data, header, on_piece):
        if position + block_bytes > len(output):
            yield output[:position]
            position = 0
        if is_uncompressed:
            output[position : position + len(block)] = block
            position += len(block)
            continue
        try:
            position += cramjam.lz4.decompress_block_into(
                block, output[position : position + block_bytes]
            )
        except cramjam.DecompressionError as error:
            raise CorruptMessage(MALFORMED_LZ4_BLOCK) from error
    yield output[:position]


def _snappy_chunks(
    data: memoryview, max_working_bytes: int, on_piece: Callable[[int], None]
) -> Iterator[memoryview]:
    """Read the blocks of xerial's framing, or one raw block if its magic is missing."""
    output = memoryview(bytearray(CHUNK_BYTES))
    position = 0
    blocks = xerial_blocks(data, on_piece) if is_xerial(data) else iter((data,))
    for block in blocks:
        size = snappy_length(block)
        if position + size > len(output):
            yield output[:position]
            position = 0
        if size > len(output):
            if size > max_working_bytes:
                raise DecompressionLimitExceeded(
                    f"A snappy block takes more than {max_working_bytes} bytes."
                )
            output = memoryview(bytearray(size))
        try:
            # the codec refuses a raw block whose output differs from its announced size
            position += cramjam.snappy.decompress_raw_into(block, output[position:])
        except cramjam.DecompressionError as error:
            raise CorruptMessage(f"Failed to decompress records: {error}") from error
    yield output[:position]


def _largest_block(data: memoryview) -> int:
    """Return the output of the largest snappy block, of the first ones where there are many."""
    if not is_xerial(data):
        return snappy_length(data)
    largest = 0
    blocks = xerial_blocks(data, lambda _count: None)
    for block, _index in zip(blocks, range(_MAX_EXAMINED_BLOCKS), strict=False):
        largest = max(largest, snappy_length(block))
    return largest


class CompressedStream:
    """Compresses what is written piece by piece, and keeps at most max_bytes of the output."""

    def __init__(self, codec: Compression, level: int | None, max_bytes: int) -> None:
        self._codec = codec
        self._max_bytes = max_bytes
        self._kept = bytearray()
        self.size = 0
        """Bytes of output so far, kept or not."""
        self._pending = bytearray()
        self._pending_bytes = 0
        self._compressor: Any = None
        if codec == Compression.GZIP:
            self._compressor = zlib.compressobj(
                -1 if level is None else level, zlib.DEFLATED, GZIP_WINDOW
            )
        elif codec == Compression.LZ4:
            self._compressor = lz4_compressor(level)
        elif codec == Compression.ZSTD:
            self._compressor = zstd.ZstdCompressor(level=3 if level is None else level)
        elif codec == Compression.SNAPPY:
            self._keep(XERIAL_HEADER)

    def write(self, data: Buffer) -> None:
        """Compress a piece of the records."""
        codec = self._codec
        if codec == Compression.NONE:
            self._keep(data)
        elif codec == Compression.SNAPPY:
            self._pending += data
            if len(self._pending) >= XERIAL_BLOCK_BYTES:
                self._write_snappy()
        elif codec == Compression.LZ4:
            self._compressor.compress(bytes(data))  # accepts no other buffers
            self._pending_bytes += memoryview(data).nbytes
            if self._pending_bytes >= _LZ4_FLUSH_BYTES:
                self._pending_bytes = 0
                self._keep(bytes(self._compressor.flush()))
        else:
            self._keep(self._compressor.compress(data))

    def finish(self) -> bytearray:
        """Return the output; where `size` is more than max_bytes, only the start of it."""
        if self._codec == Compression.SNAPPY:
            self._write_snappy(is_last=True)
        elif self._codec == Compression.LZ4:
            self._keep(bytes(self._compressor.finish()))
        elif self._codec != Compression.NONE:
            self._keep(self._compressor.flush())
        return self._kept

    def _write_snappy(self, *, is_last: bool = False) -> None:
        pending = memoryview(self._pending)
        start = 0
        while len(pending) - start >= XERIAL_BLOCK_BYTES or (is_last and start < len(pending)):
            block = bytes(cramjam.snappy.compress_raw(pending[start : start + XERIAL_BLOCK_BYTES]))
            self._keep(len(block).to_bytes(4, "big"))
            self._keep(block)
            start += XERIAL_BLOCK_BYTES
        self._pending = bytearray(pending[start:])

    def _keep(self, output: Buffer) -> None:
        self.size += memoryview(output).nbytes
        if self.size <= self._max_bytes:
            self._kept += output
