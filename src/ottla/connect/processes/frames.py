"""The messages between a worker and a connector's process: JSON objects, each after its length.

Records never pass here, and no message can name code. docs/decisions/0035 lists the messages.

Kafka: none; its tasks share the memory of their worker.
"""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MAX_FRAME_BYTES: Final = 16 << 20
"""Largest message, as the settings of all tasks of a connector are in one."""
_LENGTH: Final = struct.Struct("!I")


def encode_message(message: Mapping[str, Any]) -> bytes:
    """Return the bytes of a message; TypeError or ValueError for what JSON cannot say."""
    data = json.dumps(message, separators=(",", ":")).encode()
    if len(data) > MAX_FRAME_BYTES:
        raise ValueError(f"a message of {len(data)} bytes; the largest has {MAX_FRAME_BYTES}")
    return _LENGTH.pack(len(data)) + data


class MessageReader:
    """Cuts a stream of bytes into messages."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> Iterator[dict[str, Any]]:
        """Take bytes and yield the messages that are whole; ValueError for what is none."""
        self._data += data
        while len(self._data) >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(self._data)
            if size > MAX_FRAME_BYTES:
                raise ValueError(f"a message of {size} bytes; the largest has {MAX_FRAME_BYTES}")
            end = _LENGTH.size + size
            if len(self._data) < end:
                return
            message = json.loads(self._data[_LENGTH.size : end])
            del self._data[:end]
            if not isinstance(message, dict):
                raise ValueError("a message is a JSON object")  # noqa: TRY004 - of the data
            yield message
