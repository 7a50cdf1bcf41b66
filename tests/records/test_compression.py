"""Codecs: round trips, Kafka's framings, and outputs that stay within their bound."""

from __future__ import annotations

import gzip
import random
import zlib

import cramjam
import psutil
import pytest
import xxhash

from ottla.errors import CorruptMessage, ErrorCode, KafkaError
from ottla.records.compression import (
    Compression,
    DecompressionLimitExceeded,
    Decompressor,
    compress,
    decompress,
)

CODECS = [codec for codec in Compression if codec]
SAMPLES = [b"", b"x", b"abc" * 50, random.Random(1).randbytes(100_000), b"line of text\n" * 20_000]
BOMB_BYTES = 32 * 1024 * 1024
STORED_BYTE = (0x8000_0001).to_bytes(4, "little") + b"a"  # a block of lz4


@pytest.mark.parametrize("codec", list(Compression))
def test_round_trip(codec: Compression) -> None:
    """What is compressed comes back, with one decompressor for all and with a limit that fits."""
    decompressor = Decompressor()
    for data in SAMPLES:
        for view in (data, bytearray(data), memoryview(data)):
            packed = compress(codec, view)
            assert bytes(decompressor.decompress(codec, packed, len(data))) == data
            assert bytes(decompress(codec, memoryview(packed))) == data


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.LZ4, Compression.ZSTD])
@pytest.mark.parametrize("level", [1, 5, 9])
def test_levels_are_taken(codec: Compression, level: int) -> None:
    """A level changes what comes out, not what comes back."""
    data = SAMPLES[-1]
    assert bytes(decompress(codec, compress(codec, data, level))) == data


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_stops_at_the_limit(codec: Compression) -> None:
    """A stream that decompresses to more than the limit by one byte is INVALID_RECORD."""
    packed = compress(codec, bytes(BOMB_BYTES))
    with pytest.raises(KafkaError) as error:
        decompress(codec, packed, BOMB_BYTES - 1)
    assert error.value.code == ErrorCode.INVALID_RECORD
    assert len(decompress(codec, packed, BOMB_BYTES)) == BOMB_BYTES


def test_a_zstd_bomb_that_announces_nothing_stops() -> None:
    """The bound does not come from the frame's header: a stream has no size in it."""
    stream = cramjam.zstd.Compressor(3)
    stream.compress(bytes(BOMB_BYTES))
    packed = bytes(stream.finish())
    assert not packed[4] >> 6
    with pytest.raises(KafkaError) as error:
        decompress(Compression.ZSTD, packed, 1 << 20)
    assert error.value.code == ErrorCode.INVALID_RECORD
    assert len(decompress(Compression.ZSTD, packed, BOMB_BYTES)) == BOMB_BYTES


def test_an_announced_size_buys_no_memory() -> None:
    """A zstd frame that claims a terabyte is refused without a buffer of that size."""
    frame = bytearray(cramjam.zstd.compress(bytes(1000)))
    frame[4:5] = bytes([0xC0 | (frame[4] & 0x3F)])
    frame[6:6] = (1 << 40).to_bytes(8, "little")
    with pytest.raises(KafkaError):
        decompress(Compression.ZSTD, frame, 1 << 20)


@pytest.mark.parametrize("codec", CODECS)
def test_every_cut_is_corrupt(codec: Compression) -> None:
    """A stream that lacks its end is never taken for a whole one."""
    packed = bytes(compress(codec, b"some text " * 50))
    for end in range(len(packed)):
        # a snappy stream may end after any block: without blocks it is empty
        if codec == Compression.SNAPPY and end == 16:
            continue
        with pytest.raises(CorruptMessage):
            decompress(codec, packed[:end])


def test_snappy_is_framed_in_blocks() -> None:
    """Xerial's header is written; blocks of 32 KiB follow, and a raw block is read as well."""
    data = SAMPLES[-1]
    packed = bytes(compress(Compression.SNAPPY, data))
    assert packed[:16] == b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
    raw = bytes(cramjam.snappy.compress_raw(data))
    assert bytes(decompress(Compression.SNAPPY, raw)) == data
    assert bytes(decompress(Compression.SNAPPY, packed + packed)) == data + data


def test_snappy_blocks_are_held_to_their_length() -> None:
    """A block's preamble cannot promise more than the limit, nor more than it has."""
    with pytest.raises(KafkaError) as error:
        decompress(Compression.SNAPPY, b"\xff\xff\xff\xff\x0f" + bytes(10), 1 << 20)
    assert error.value.code == ErrorCode.INVALID_RECORD
    with pytest.raises(CorruptMessage):
        decompress(Compression.SNAPPY, b"\x80\x80\x04" + bytes(10), 1 << 20)


def test_lz4_frames_are_what_kafka_reads() -> None:
    """Independent blocks of 64 KiB; linked blocks, which Kafka cannot read, are refused."""
    packed = bytes(compress(Compression.LZ4, SAMPLES[-1]))
    assert packed[:4] == b"\x04\x22\x4d\x18"
    assert packed[4] & 0x20
    assert packed[5] == 0x40
    linked = bytes(cramjam.lz4.compress(SAMPLES[-1]))
    with pytest.raises(CorruptMessage, match="Dependent block"):
        decompress(Compression.LZ4, linked)
    assert bytes(decompress(Compression.LZ4, packed + b"rest")) == SAMPLES[-1]


def lz4_frame(*blocks: bytes, flags: int = 0x60, descriptor: int = 0x40) -> bytes:
    """Return a frame of blocks that have their lengths before them."""
    header = bytes([flags, descriptor])
    checksum = xxhash.xxh32_intdigest(header) >> 8 & 255
    return b"\x04\x22\x4d\x18" + header + bytes([checksum]) + b"".join(blocks) + bytes(4)


def lz4_block(plain: bytes) -> bytes:
    """Return a compressed block with its length before it."""
    block = bytes(cramjam.lz4.compress_block(plain, store_size=False))
    return len(block).to_bytes(4, "little") + block


@pytest.mark.parametrize("bit", range(2))
def test_lz4_reserved_flags_are_refused(bit: int) -> None:
    """A frame with a dictionary's id or a reserved flag is one that Kafka does not read."""
    block = lz4_block(b"a" * 1000)
    assert bytes(decompress(Compression.LZ4, lz4_frame(block))) == b"a" * 1000
    with pytest.raises(CorruptMessage, match="reserved bits"):
        decompress(Compression.LZ4, lz4_frame(block, flags=0x60 | 1 << bit))


@pytest.mark.parametrize("bit", [0, 1, 2, 3, 7])
def test_lz4_reserved_descriptor_bits_are_refused(bit: int) -> None:
    """Around the size of blocks all bits are zero."""
    with pytest.raises(CorruptMessage, match="reserved bits"):
        decompress(Compression.LZ4, lz4_frame(lz4_block(b"a"), descriptor=0x40 | 1 << bit))


@pytest.mark.parametrize("stored", [0, 6])
def test_lz4_blocks_are_held_to_the_size_of_blocks(stored: int) -> None:
    """A block decompresses to at most the frame's block size, however large the buffer."""
    rest = b"".join([STORED_BYTE] * stored) + lz4_block(random.Random(3).randbytes(60_000)) * stored
    for size in (1 << 16, 1 << 18):
        descriptor = 0x40 if size == 1 << 16 else 0x50
        full = lz4_frame(lz4_block(bytes(size)), rest, descriptor=descriptor)
        assert len(decompress(Compression.LZ4, full)) == size + stored * 60_001
        long = lz4_frame(lz4_block(bytes(size + 1)), rest, descriptor=descriptor)
        with pytest.raises(CorruptMessage, match="malformed lz4 block"):
            decompress(Compression.LZ4, long)


def test_the_content_checksum_of_lz4_is_not_verified() -> None:
    """Kafka reads its four bytes, which must be there, and does not look at them."""
    stream = cramjam.lz4.Compressor(content_checksum=True, block_linked=False)
    stream.compress(b"value" * 1000)
    frame = bytearray(stream.finish())
    assert frame[4] & 0x04
    frame[-1] ^= 1
    assert bytes(decompress(Compression.LZ4, frame)) == b"value" * 1000
    with pytest.raises(CorruptMessage, match="ended prematurely"):
        decompress(Compression.LZ4, frame[:-1])


def test_a_malformed_lz4_block_is_corrupt_at_any_limit() -> None:
    """A malformed block with the maximum room is corrupt, not too large."""
    frame = lz4_frame(lz4_block(bytes(70_000)), *[lz4_block(bytes(60_000))] * 3)
    with pytest.raises(CorruptMessage, match="malformed lz4 block"):
        decompress(Compression.LZ4, frame, 100_000)


def test_an_empty_plain_block_of_lz4_ends_the_frame() -> None:
    """As in Kafka, an empty uncompressed block is an end mark."""
    end_mark = (0x8000_0000).to_bytes(4, "little")
    frame = lz4_frame(STORED_BYTE, end_mark, STORED_BYTE)
    assert bytes(decompress(Compression.LZ4, frame)) == b"a"
    assert bytes(decompress(Compression.LZ4, lz4_frame(STORED_BYTE)[:-4] + end_mark)) == b"a"


@pytest.mark.parametrize("version", [-1, 0])
def test_snappy_versions_of_further_headers_are_looked_at(version: int) -> None:
    """As xerial's reader does, which takes any version in the first header."""
    packed = bytes(compress(Compression.SNAPPY, b"hello"))
    strange = packed[:8] + version.to_bytes(4, "big", signed=True) + packed[12:]
    assert bytes(decompress(Compression.SNAPPY, strange + packed)) == b"hellohello"
    with pytest.raises(CorruptMessage, match=f"incompatible snappy version {version}"):
        decompress(Compression.SNAPPY, packed + strange)
    compatible = packed[:12] + bytes(4) + packed[16:]
    assert bytes(decompress(Compression.SNAPPY, packed + compatible)) == b"hellohello"


@pytest.mark.parametrize("member_count", [1, 2, 3])
@pytest.mark.parametrize("place", [10, -6, -1])
def test_a_broken_gzip_member_is_not_dropped(member_count: int, place: int) -> None:
    """A member with a wrong body, checksum or length is corrupt wherever it is."""
    good = gzip.compress(b"hello" * 100)
    broken = bytearray(good)
    broken[place] = 0xFF if place == 10 else broken[place] ^ 1
    with pytest.raises(CorruptMessage):
        decompress(Compression.GZIP, good * (member_count - 1) + broken)
    with pytest.raises(CorruptMessage):
        decompress(Compression.GZIP, good * member_count + good[:-3])


def gzip_with_fields(wrong: int) -> bytes:
    """Return a member with all optional fields and a header checksum that is off by `wrong`."""
    plain = gzip.compress(b"hello")
    header = plain[:3] + b"\x1e" + plain[4:10] + b"\x02\x00xx" + b"name\x00" + b"comment\x00"
    checksum = (zlib.crc32(header) & 0xFFFF) ^ wrong
    return header + checksum.to_bytes(2, "little") + plain[10:]


def test_only_whole_gzip_headers_begin_a_member() -> None:
    """Java ignores what follows the last member from a broken header on, and nothing else."""
    good = gzip.compress(b"hello")
    fields = gzip_with_fields(0)
    assert bytes(decompress(Compression.GZIP, good + fields)) == b"hellohello"
    with pytest.raises(CorruptMessage):
        decompress(Compression.GZIP, good + fields[:-6] + b"\x00" + fields[-5:])
    unterminated = good[:3] + b"\x08" + good[4:10] + b"n" * 40
    cut_extra = good[:3] + b"\x04" + good[4:10] + b"\xff\x00" + bytes(40)
    method = b"\x1f\x8b\x07" + good[3:]
    for rest in (gzip_with_fields(1), unterminated, cut_extra, method, good[:18], b"garbage" * 9):
        assert bytes(decompress(Compression.GZIP, good + rest)) == b"hello"


def test_gzip_members_may_follow_each_other() -> None:
    """As in Java, members are read in sequence and trailing bytes are ignored."""
    packed = gzip.compress(b"one") + gzip.compress(b"two")
    assert bytes(decompress(Compression.GZIP, packed)) == b"onetwo"
    assert bytes(decompress(Compression.GZIP, packed + bytes(30))) == b"onetwo"
    with pytest.raises(KafkaError):
        decompress(Compression.GZIP, packed, 5)


def test_names_and_ids() -> None:
    """Codecs are found by configured name and by attribute bits, and by nothing else."""
    assert [codec.config_name for codec in Compression] == ["none", "gzip", "snappy", "lz4", "zstd"]
    assert all(Compression.from_name(codec.config_name) is codec for codec in Compression)
    assert Compression.from_id(4) is Compression.ZSTD
    with pytest.raises(KafkaError):
        Compression.from_name("LZ4")
    with pytest.raises(CorruptMessage):
        Compression.from_id(5)


def test_gzip_members_share_one_limit() -> None:
    """Many members are bounded together, however small each is."""
    members = bytes(compress(Compression.GZIP, bytes(1000))) * 50
    assert len(decompress(Compression.GZIP, members, 50_000)) == 50_000
    with pytest.raises(DecompressionLimitExceeded, match="49999 bytes"):
        decompress(Compression.GZIP, members, 49_999)
    large = bytes(compress(Compression.GZIP, random.Random(2).randbytes(40_000)))
    assert len(decompress(Compression.GZIP, members + large + large, 1 << 20)) == 130_000


@pytest.mark.parametrize("codec", CODECS)
def test_pieces_are_told_while_they_are_decompressed(codec: Compression) -> None:
    """The callback can cancel decompression in every codec."""
    few = bytes(compress(codec, b"a" * 3))
    many = {
        Compression.GZIP: few * 3000,
        Compression.SNAPPY: few[:16] + few[16:] * 3000,
        Compression.LZ4: bytes.fromhex("04224d18604082") + STORED_BYTE * 3000 + bytes(4),
        Compression.ZSTD: bytes(compress(codec, bytes(1 << 20))),
    }
    counted: list[int] = []
    Decompressor(counted.append).decompress(codec, many[codec])
    assert counted
    if codec is not Compression.ZSTD:  # its frames are walked over in C: a million take 10 ms
        assert max(counted) >= 2500

    def stop(count: int) -> None:
        raise DecompressionLimitExceeded(f"{count} pieces")

    with pytest.raises(DecompressionLimitExceeded):
        Decompressor(stop).decompress(codec, many[codec])


@pytest.mark.parametrize("window_log", [20, 23, 27])
def test_zstd_windows_that_kafka_takes(window_log: int) -> None:
    """Up to 128 MiB of window may be asked for; memory is only touched as the frame fills it.

    What else the process does meanwhile is less than half of that.
    """
    before = psutil.Process().memory_info().rss
    assert bytes(decompress(Compression.ZSTD, zstd_frame(window_log))) == b"hello"
    assert psutil.Process().memory_info().rss - before < 64 << 20


@pytest.mark.parametrize("window_log", [28, 31, 41])
def test_larger_zstd_windows_are_refused(window_log: int) -> None:
    """A frame that asks for 256 MiB or more gets nothing."""
    with pytest.raises(CorruptMessage):
        decompress(Compression.ZSTD, zstd_frame(window_log))


def zstd_frame(window_log: int) -> bytes:
    """Return a frame of one stored block that announces a window of that size."""
    block = (5 << 3 | 1).to_bytes(3, "little") + b"hello"
    return bytes.fromhex("28b52ffd") + bytes([0, (window_log - 10) << 3]) + block
