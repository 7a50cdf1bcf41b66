"""The last offset of each key, in a fixed number of bytes.

A key is known by 128 bits of SipHash, whose seed is secret: no client can make two keys that are
taken for one. Compiled by Cython with `offset_map.pxd`; runs uncompiled too.

Hot path: all of it. benchmarks/compaction.py.

Kafka: org.apache.kafka.storage.internals.log.SkimpyOffsetMap.
"""

from __future__ import annotations

from mmap import mmap

from ottla.records.scan import Cursor, cursor_over

ENTRY_BYTES = 24
_MASK = 0xFFFFFFFFFFFFFFFF
_SIP_0 = 0x736F6D6570736575
_SIP_1 = 0x646F72616E646F6D
_SIP_2 = 0x6C7967656E657261
_SIP_3 = 0x7465646279746573


class OffsetMap:
    """Last offsets by key, in a fixed number of bytes.

    `latest_offset` is the offset up to which all records are in the map, -1 at first.
    """

    __slots__ = ("_seed_high", "_seed_low", "_words", "entries", "high", "latest_offset", "limit",
                 "low", "slots")  # fmt: skip

    _words: memoryview[int]
    entries: int
    limit: int
    slots: int
    latest_offset: int
    low: int
    high: int

    def __init__(self, max_bytes: int, load_factor: float, seed: int) -> None:
        """Take max_bytes of memory and fill its share load_factor; the seed has 128 bits."""
        self.slots = max(max_bytes // ENTRY_BYTES, 2)
        self.limit = max(min(int(self.slots * load_factor), self.slots - 1), 1)
        self.entries = 0
        self.latest_offset = -1
        self.low = self.high = 0
        self._seed_low = seed & _MASK
        self._seed_high = (seed >> 64) & _MASK
        # zeroed when touched, where a bytearray is at once
        self._words = memoryview(mmap(-1, self.slots * ENTRY_BYTES)).cast("Q")

    @property
    def utilization(self) -> float:
        """The share of the places that are taken."""
        return float(self.entries) / self.slots

    def offset_of(self, key: bytes) -> int:
        """Return the last offset of a key, -1 when it has none."""
        return self.get(cursor_over(key, 0, len(key)), 0, len(key))

    def note(self, key: bytes, offset: int) -> bool:
        """Take the offset of a key; False when the map is full."""
        return self.put(cursor_over(key, 0, len(key)), 0, len(key), offset)

    def hash(self, cursor: Cursor, start: int, size: int) -> None:
        """Leave SipHash-2-4 of bytes in low and high."""
        v0 = self._seed_low ^ _SIP_0
        v1 = self._seed_high ^ _SIP_1 ^ 0xEE
        v2 = self._seed_low ^ _SIP_2
        v3 = self._seed_high ^ _SIP_3
        position = start
        end = start + size
        for _ in range((size >> 3) + 1):
            word = 0
            shift = 0
            while shift < 64 and position < end:
                byte = cursor.data[position]
                word |= byte << shift
                position += 1
                shift += 8
            if shift < 64:
                length = size & 0xFF
                word |= length << 56
            v3 ^= word
            for _ in range(2):
                v0 = (v0 + v1) & _MASK
                v1 = ((v1 << 13) | (v1 >> 51)) & _MASK ^ v0
                v0 = ((v0 << 32) | (v0 >> 32)) & _MASK
                v2 = (v2 + v3) & _MASK
                v3 = ((v3 << 16) | (v3 >> 48)) & _MASK ^ v2
                v0 = (v0 + v3) & _MASK
                v3 = ((v3 << 21) | (v3 >> 43)) & _MASK ^ v0
                v2 = (v2 + v1) & _MASK
                v1 = ((v1 << 17) | (v1 >> 47)) & _MASK ^ v2
                v2 = ((v2 << 32) | (v2 >> 32)) & _MASK
            v0 ^= word
        v2 ^= 0xEE
        for number in range(8):
            if number == 4:
                self.low = v0 ^ v1 ^ v2 ^ v3
                v1 ^= 0xDD
            v0 = (v0 + v1) & _MASK
            v1 = ((v1 << 13) | (v1 >> 51)) & _MASK ^ v0
            v0 = ((v0 << 32) | (v0 >> 32)) & _MASK
            v2 = (v2 + v3) & _MASK
            v3 = ((v3 << 16) | (v3 >> 48)) & _MASK ^ v2
            v0 = (v0 + v3) & _MASK
            v3 = ((v3 << 21) | (v3 >> 43)) & _MASK ^ v0
            v2 = (v2 + v1) & _MASK
            v1 = ((v1 << 17) | (v1 >> 47)) & _MASK ^ v2
            v2 = ((v2 << 32) | (v2 >> 32)) & _MASK
        self.high = v0 ^ v1 ^ v2 ^ v3

    def place_of(self, cursor: Cursor, start: int, size: int) -> int:
        """Return where a key's three words are, or would be: the third is 0 when it is new."""
        self.hash(cursor, start, size)
        slots = self.slots
        slot = self.low % slots
        place = 3 * slot
        while self._words[place + 2] and not (
            self._words[place] == self.low and self._words[place + 1] == self.high
        ):
            slot += 1
            if slot == slots:
                slot = 0
            place = 3 * slot
        return place

    def get(self, cursor: Cursor, start: int, size: int) -> int:
        """Return the last offset of the key that lies there, -1 when it has none."""
        place = self.place_of(cursor, start, size)
        offset = self._words[place + 2]
        return offset - 1

    def put(self, cursor: Cursor, start: int, size: int, offset: int) -> bool:
        """Take the offset of the key that lies there; False when a new key has no place."""
        place = self.place_of(cursor, start, size)
        if not self._words[place + 2]:
            if self.entries >= self.limit:
                return False
            self._words[place] = self.low
            self._words[place + 1] = self.high
            self.entries += 1
        self._words[place + 2] = offset + 1
        return True
