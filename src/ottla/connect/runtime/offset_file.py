"""The offset file of a standalone worker, in the format of Java's worker.

The file is a serialised `java.util.HashMap<byte[], byte[]>`. Exactly that class graph is read, by
hand: no class is looked up, sizes are bounded by the file's.

Kafka: org.apache.kafka.connect.storage.FileOffsetBackingStore.
"""

from __future__ import annotations

import os
from pathlib import Path
from struct import Struct, error
from typing import TYPE_CHECKING, Final

from ottla.connect.errors import ConnectException

if TYPE_CHECKING:
    from collections.abc import Mapping

_INT: Final = Struct(">i")
_SIZES: Final = Struct(">ii")
_HEAD: Final = (
    b"\xac\xed\x00\x05sr\x00\x11java.util.HashMap\x05\x07\xda\xc1\xc3\x16\x60\xd1\x03\x00\x02"
    b"F\x00\x0aloadFactorI\x00\x09thresholdxp"
)
"""The stream's magic and the description of the class, up to its fields."""
_ARRAY: Final = b"ur\x00\x02[B\xac\xf3\x17\xf8\x06\x08\x54\xe0\x02\x00\x00xp"
_ARRAY_AGAIN: Final = b"uq\x00\x7e\x00\x02"
"""An array whose class is the third thing of the stream, after HashMap's class and the map."""
_NULL: Final = b"p"
_REFERENCE: Final = b"q\x00\x7e"
_FIRST_ARRAY: Final = 3
"""The handle of the first array."""
_BLOCK: Final = b"w\x08"
_END: Final = b"x"
_FIELD_BYTES: Final = 8
"""loadFactor and threshold, which say nothing about the entries."""


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._arrays: list[bytes] = []

    def take(self, size: int) -> bytes:
        taken = self._data[self._at : self._at + size]
        if size < 0 or len(taken) < size:
            raise ValueError("it ends too early")
        self._at += size
        return taken

    def has(self, text: bytes) -> bool:
        found = self._data.startswith(text, self._at)
        self._at += len(text) if found else 0
        return found

    def expect(self, text: bytes) -> None:
        if not self.has(text):
            raise ValueError(f"byte {self._at} is of something else")

    def array(self) -> bytes | None:
        if self.has(_NULL):
            return None
        if self.has(_REFERENCE):
            index = int.from_bytes(self.take(2), "big") - _FIRST_ARRAY
            if not 0 <= index < len(self._arrays):
                raise ValueError("a reference leads nowhere")
            return self._arrays[index]
        self.expect(_ARRAY_AGAIN if self._arrays else _ARRAY)
        read = self.take(_INT.unpack(self.take(4))[0])
        self._arrays.append(read)
        return read


def decode_offsets(data: bytes) -> dict[bytes | None, bytes | None]:
    """Return the entries of a file; ConnectException for anything but a map of byte arrays."""
    if not data:
        return {}
    reader = _Reader(data)
    try:
        reader.expect(_HEAD)
        reader.take(_FIELD_BYTES)
        reader.expect(_BLOCK)
        _, count = _SIZES.unpack(reader.take(8))
        entries = {reader.array(): reader.array() for _ in range(count)}
        reader.expect(_END)
    except (ValueError, error) as cause:
        text = f"Expected HashMap<byte[], byte[]> but found something else: {cause}"
        raise ConnectException(text) from cause
    return entries


def encode_offsets(entries: Mapping[bytes | None, bytes | None]) -> bytes:
    """Return the bytes of a file, which Java's worker reads."""
    capacity = 16
    while capacity * 3 < len(entries) * 4:  # HashMap's table is at most three quarters full
        capacity *= 2
    parts = [_HEAD, b"?\x40\x00\x00", _INT.pack(capacity * 3 // 4), _BLOCK]
    parts.append(_SIZES.pack(capacity, len(entries)))
    head = _ARRAY
    for entry in entries.items():
        for part in entry:
            if part is None:
                parts.append(_NULL)
                continue
            parts += [head, _INT.pack(len(part)), part]
            head = _ARRAY_AGAIN
    parts.append(_END)
    return b"".join(parts)


class OffsetFile:
    """The offsets of a standalone worker: all in memory, the whole file is written at each commit.

    Not safe for threads: `OffsetStore` has the lock.
    """

    def __init__(self, path: str) -> None:
        """Read the file; there need be none."""
        self._path = Path(path)
        try:
            self.entries: dict[bytes | None, bytes | None] = decode_offsets(self._path.read_bytes())
        except FileNotFoundError:
            self.entries = {}

    def put(self, entries: Mapping[bytes, bytes | None]) -> None:
        """Change entries; None forgets one, as Kafka's reader takes it."""
        for key, value in entries.items():
            self.entries[key] = value
        fresh = self._path.with_name(f"{self._path.name}.tmp")
        with fresh.open("wb") as stream:
            stream.write(encode_offsets(self.entries))
            stream.flush()
            os.fsync(stream.fileno())
        fresh.replace(self._path)  # a crash leaves the old file or the new one
