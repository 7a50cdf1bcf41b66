"""Fixed binary layouts that can be pickled with the functions that use them.

Kafka: java.nio.ByteBuffer in its serdes. A `struct.Struct` cannot be sent to Spark's workers.
"""

from __future__ import annotations

import struct
from typing import Any


class Packing:
    """A layout in the notation of `struct`."""

    def __init__(self, layout: str) -> None:
        self._layout = layout
        self.size = struct.calcsize(layout)

    def pack(self, *values: Any) -> bytes:
        """Return values as bytes."""
        return struct.pack(self._layout, *values)

    def unpack(self, data: bytes) -> tuple[Any, ...]:
        """Return the values of bytes of just this layout."""
        return struct.unpack(self._layout, data)

    def unpack_from(self, data: bytes, position: int = 0) -> tuple[Any, ...]:
        """Return the values at a position."""
        return struct.unpack_from(self._layout, data, position)
