"""lz4 frames, decompressed without the interpreter's lock into one buffer.

For bytes whose checksum was verified; what this does not read, `compression.py` may. Compiled by
Cython with `lz4_frames.pxd`; runs uncompiled too.

Hot path: all of it. benchmarks/compaction.py.

Kafka: org.apache.kafka.common.compress.Lz4BlockInputStream.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla import native

if TYPE_CHECKING:
    from ottla.records.scan import Cursor

_MAGIC = 0x184D2204


class Lz4Frames:
    """Decompresses into `plain`, one frame at a time."""

    __slots__ = ("_plain", "_size", "plain")

    def __init__(self, size: int) -> None:
        """Take a buffer of that many bytes: larger frames are not read."""
        self._size = size
        self.plain = bytearray(size)
        self._plain = native.bytes_of(self.plain)

    def unpack(  # noqa: C901, PLR0911 - one loop, in C
        self, cursor: Cursor, start: int, end: int
    ) -> int:
        """Decompress an lz4 frame into `plain`; -1 when it is not one of Kafka's or too large.

        The batch's checksum covers the frame, whose own checksums are not verified.
        """
        if end - start < 7 or self.word_at(cursor, start) != _MAGIC:
            return -1
        flags = cursor.data[start + 4]
        if flags & 0xC1 != 0x40:  # another version, or with a dictionary
            return -1
        position = start + 7
        if flags & 8:
            position += 8
        filled = 0
        while position + 4 <= end:
            size = self.word_at(cursor, position)
            position += 4
            if size == 0:
                return filled
            is_uncompressed = size > 0x7FFFFFFF
            size &= 0x7FFFFFFF
            if size > end - position:
                return -1
            if not is_uncompressed:
                lowest = filled if flags & 0x20 else 0
                filled = self.unpack_block(cursor, position, position + size, filled, lowest)
                if filled < 0:
                    return -1
            elif size > self._size - filled:
                return -1
            else:
                native.copy_bytes(self._plain, filled, cursor.data, position, size)
                filled += size
            position += size
            if flags & 0x10:
                position += 4
        return -1

    def word_at(self, cursor: Cursor, position: int) -> int:
        """Return four bytes as a little-endian number."""
        word = 0
        for index in range(4):
            byte = cursor.data[position + index]
            word |= byte << (8 * index)
        return word

    def unpack_block(  # noqa: C901 - as above
        self, cursor: Cursor, start: int, end: int, filled: int, lowest: int
    ) -> int:
        """Decompress a block to `filled` on, from no byte before lowest; return the end, or -1."""
        position = start
        while position < end:
            token = cursor.data[position]
            position += 1
            size = token >> 4
            if size == 15:
                byte = 255
                while byte == 255 and position < end:
                    byte = cursor.data[position]
                    position += 1
                    size += byte
            if size > end - position or size > self._size - filled:
                return -1
            native.copy_bytes(self._plain, filled, cursor.data, position, size)
            filled += size
            position += size
            if position == end:
                return filled
            if end - position < 2:
                return -1
            distance = cursor.data[position] + 256 * cursor.data[position + 1]
            position += 2
            size = token & 15
            if size == 15:
                byte = 255
                while byte == 255 and position < end:
                    byte = cursor.data[position]
                    position += 1
                    size += byte
            size += 4
            if distance == 0 or distance > filled - lowest or size > self._size - filled:
                return -1
            if distance >= size:
                native.copy_bytes(self._plain, filled, self._plain, filled - distance, size)
                filled += size
            else:
                for _ in range(size):
                    self._plain[filled] = self._plain[filled - distance]
                    filled += 1
        return -1
