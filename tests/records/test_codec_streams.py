"""Streams give what the whole does, in bounded memory."""

from __future__ import annotations

import random
from typing import Any

import cramjam
import pytest

from ottla.errors import CorruptMessage
from ottla.records import codec_streams
from ottla.records.codec_streams import (
    OVERHEAD_BYTES,
    CompressedStream,
    decompressed_chunks,
    working_bytes,
)
from ottla.records.compression import (
    Compression,
    DecompressionLimitExceeded,
    compress,
    decompress,
)

MIB = 1 << 20
CODECS = [codec for codec in Compression if codec]
LZ4_HEADER = b"\x04\x22\x4d\x18\x60\x40\x82"
RNG = random.Random(3)
SAMPLES = [
    b"",
    b"x",
    RNG.randbytes(1000) * 700,
    RNG.randbytes(200_000) + bytes(900_000) + RNG.randbytes(70_000),
]


def none(_pieces: int) -> None:
    """Cancel nothing."""


def joined(
    codec: Compression, data: bytes, limit: int = 4 * MIB, max_working_bytes: int = 16 * MIB
) -> tuple[bytes, int]:
    """Return what data decompresses to, and the largest chunk."""
    out, largest = bytearray(), 0
    for chunk in decompressed_chunks(codec, memoryview(data), limit, max_working_bytes, none):
        out += chunk
        largest = max(largest, len(chunk))
    return bytes(out), largest


@pytest.mark.parametrize("sample", SAMPLES, ids=len)
@pytest.mark.parametrize("codec", list(Compression))
def test_chunks_are_the_whole(codec: Compression, sample: bytes) -> None:
    """Joined they are what was compressed; none is larger than the buffer for it."""
    found, largest = joined(codec, bytes(compress(codec, sample)))
    assert found == sample
    if codec:
        assert largest <= codec_streams.CHUNK_BYTES


@pytest.mark.parametrize("codec", CODECS)
def test_the_limit_is_exact(codec: Compression) -> None:
    """As many bytes as the limit are taken, one more is refused."""
    data = bytes(compress(codec, SAMPLES[3]))
    size = len(SAMPLES[3])
    assert joined(codec, data, size)[0] == SAMPLES[3]
    with pytest.raises(DecompressionLimitExceeded, match=f"more than {size - 1} bytes"):
        joined(codec, data, size - 1)


@pytest.mark.parametrize("codec", CODECS)
def test_streams_and_the_whole_refuse_the_same(codec: Compression) -> None:
    """Cut anywhere, with anything after them or with a broken byte."""
    data = bytes(compress(codec, RNG.randbytes(40) + b"value" * 100 + RNG.randbytes(40)))
    # A snappy block is refused by the length that it claims, before it is found to be corrupt.
    most_bytes = 4 * MIB if codec is Compression.SNAPPY else 16 * MIB
    variants = [data[:size] for size in range(1, len(data))]
    variants += [data + more for more in (b"x", b"garbage" * 5, data, data[:11], data[:-1])]
    for _ in range(300):
        broken = bytearray(data)
        broken[RNG.randrange(len(data))] ^= 1 << RNG.randrange(8)
        variants.append(bytes(broken))
    accepted = 0
    for variant in variants:
        outcomes: list[Any] = []
        for in_chunks in (False, True):
            try:
                if in_chunks:
                    outcomes.append(joined(codec, variant, 4 * MIB, most_bytes)[0])
                else:
                    outcomes.append(bytes(decompress(codec, variant, 4 * MIB)))
            except CorruptMessage:
                outcomes.append("corrupt")
            except DecompressionLimitExceeded:
                outcomes.append("too large")
        assert outcomes[0] == outcomes[1], variant.hex()
        accepted += outcomes[0] not in {"corrupt", "too large"}
    assert accepted < len(variants)


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.ZSTD])
def test_members_and_frames_may_follow_each_other(codec: Compression) -> None:
    """Many small ones do not each copy what comes after them."""
    one = bytes(compress(codec, b"ab"))
    assert joined(codec, one * 3000)[0] == b"ab" * 3000
    pieces: list[int] = []
    chunks = decompressed_chunks(codec, memoryview(one * 3000), MIB, MIB, pieces.append)
    assert sum(map(len, chunks)) == 6000
    assert len(pieces) >= 3000


def test_blocks_are_seen_one_by_one() -> None:
    """Very many blocks can be cancelled between."""
    frame = bytes(compress(Compression.SNAPPY, b"a"))
    block = bytes(cramjam.lz4.compress_block(b"a", store_size=False))
    many = {
        Compression.SNAPPY: frame[:16] + frame[16:] * 5000,
        Compression.LZ4: LZ4_HEADER + (len(block).to_bytes(4, "little") + block) * 5000 + bytes(4),
    }
    for codec, data in many.items():
        pieces: list[int] = []
        chunks = decompressed_chunks(codec, memoryview(data), MIB, MIB, pieces.append)
        assert sum(map(len, chunks)) == 5000
        assert len(pieces) >= 5000 // 256


def test_memory_is_known_from_the_header() -> None:
    """It is what the decoder keeps, at most what may be used."""
    room = 16 * MIB
    sizes = {
        codec: working_bytes(codec, memoryview(bytes(compress(codec, SAMPLES[3]))), room)
        for codec in Compression
    }
    assert sizes[Compression.NONE] == sizes[Compression.GZIP] == OVERHEAD_BYTES
    assert sizes[Compression.LZ4] == OVERHEAD_BYTES + (1 << 16)
    assert sizes[Compression.SNAPPY] == OVERHEAD_BYTES + (1 << 15)
    assert OVERHEAD_BYTES < sizes[Compression.ZSTD] <= OVERHEAD_BYTES + 2 * MIB
    raw = bytes(cramjam.snappy.compress_raw(bytes(3 * MIB)))
    assert working_bytes(Compression.SNAPPY, memoryview(raw), room) == OVERHEAD_BYTES + 3 * MIB
    assert working_bytes(Compression.SNAPPY, memoryview(raw), MIB) == OVERHEAD_BYTES + MIB
    for codec in Compression:
        assert working_bytes(codec, memoryview(b"none"), room) in {
            OVERHEAD_BYTES,
            OVERHEAD_BYTES + ord("n"),
        }


def test_a_snappy_block_beyond_the_memory_is_refused() -> None:
    """It can only be decompressed as a whole."""
    raw = bytes(cramjam.snappy.compress_raw(bytes(2 * MIB)))
    assert joined(Compression.SNAPPY, raw, max_working_bytes=2 * MIB)[0] == bytes(2 * MIB)
    with pytest.raises(DecompressionLimitExceeded, match="snappy block"):
        joined(Compression.SNAPPY, raw, max_working_bytes=2 * MIB - 1)


def test_a_large_zstd_window_is_filled_to_the_memory() -> None:
    """Compressors ask for it whatever the size is; only output beyond the memory is refused."""
    stream = CompressedStream(Compression.ZSTD, 17, 1 << 30)  # a window of 8 MiB, size not told
    for _ in range(3):
        stream.write(bytes(MIB))
    data = bytes(stream.finish())
    assert working_bytes(Compression.ZSTD, memoryview(data), 16 * MIB) == OVERHEAD_BYTES + 8 * MIB
    assert working_bytes(Compression.ZSTD, memoryview(data), 4 * MIB) == OVERHEAD_BYTES + 4 * MIB
    assert joined(Compression.ZSTD, data, max_working_bytes=3 * MIB)[0] == bytes(3 * MIB)
    with pytest.raises(DecompressionLimitExceeded, match="window of 8388608 bytes"):
        joined(Compression.ZSTD, data, max_working_bytes=3 * MIB - 1)


@pytest.mark.parametrize("piece_bytes", [1, 1000, 40_000, 3 * MIB])
@pytest.mark.parametrize("codec", list(Compression))
def test_pieces_compress_to_the_same(codec: Compression, piece_bytes: int) -> None:
    """Kafka's framing, however the records are written."""
    data = (RNG.randbytes(500) * 6000)[: max(3000, min(piece_bytes * 70, 3_000_000))]
    stream = CompressedStream(codec, None, 1 << 30)
    for start in range(0, len(data), piece_bytes):
        stream.write(memoryview(data)[start : start + piece_bytes])
    packed = stream.finish()
    assert bytes(decompress(codec, packed)) == data
    assert stream.size == len(packed)
    if codec is Compression.LZ4:
        assert packed[4] & 0x24 == 0x20  # independent blocks, no checksum of the content
        assert packed[5] == 0x40  # blocks of 64 KiB


@pytest.mark.parametrize("codec", list(Compression))
def test_output_beyond_the_limit_is_only_counted(codec: Compression) -> None:
    """The caller reads the full size from it."""
    data = RNG.randbytes(3 * MIB)
    streams = [CompressedStream(codec, None, room) for room in (1 << 30, 10_000)]
    for stream in streams:
        for start in range(0, len(data), 100_000):
            stream.write(data[start : start + 100_000])
    whole, kept = (stream.finish() for stream in streams)
    assert streams[0].size == streams[1].size == len(whole)
    assert len(kept) <= 10_000
